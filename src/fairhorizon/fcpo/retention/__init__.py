"""What a like is worth to somebody who can leave, learned from recorded answers by CPO."""
