"""One process that serves: what it knows, how it decides lists, and how it records them."""
