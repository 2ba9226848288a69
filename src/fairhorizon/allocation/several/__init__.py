"""Lists of all users together under several limits and floors on groups that may overlap."""
