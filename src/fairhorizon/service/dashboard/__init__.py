"""Pages for people: what is served, what the limits do, and why."""
