"""What was shown so far, which group an item is in now, and what may be shown."""
