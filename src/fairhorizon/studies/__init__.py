"""Studies: one file each, result rows out; and the run folders they live in."""
