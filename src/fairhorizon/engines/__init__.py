"""Where many tasks run: here in several processes."""
