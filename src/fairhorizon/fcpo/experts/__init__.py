"""The panel of rankers whose scores a policy weights, and the log it learns the weights from."""
