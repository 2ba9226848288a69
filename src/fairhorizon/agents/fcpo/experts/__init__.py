"""The panel of rankers whose scores a policy weighs, and the log it is weighed on."""
