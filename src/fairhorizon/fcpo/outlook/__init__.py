"""Looking ahead where users can leave: the chance of a like, and what a like changes for later."""
