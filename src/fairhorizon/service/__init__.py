"""The service: lists per request under limits, and budgets that survive crashes and replicas."""
