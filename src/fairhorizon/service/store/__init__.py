"""What the service keeps: its tables, the database behind them, and queries by subject."""
