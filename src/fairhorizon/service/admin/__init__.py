"""Data into and out of the service's database: first fills, exports, backups, forgetting."""
