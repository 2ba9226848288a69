"""Budgets of exposure that several replicas share: accounts, windows and leases."""
