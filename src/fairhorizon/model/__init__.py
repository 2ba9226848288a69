"""A model on the whole log, spoken to by ids: fit, recommend, explain, observe, refresh."""
