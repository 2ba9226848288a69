"""What was shown to whom over time, how limits are kept, and alerts when something is wrong."""
