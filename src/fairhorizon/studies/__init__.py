"""Studies: one file each, with what it runs, its options and its result rows."""
