"""Engines that run many tasks: here in several processes."""
