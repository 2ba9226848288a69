"""Engines that run many tasks: processes of this machine, or a Ray cluster."""
