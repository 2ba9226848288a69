"""The command `fairhorizon`."""
