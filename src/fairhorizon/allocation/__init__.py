"""Values and limits in, lists out: nothing is trained here, and nothing is random."""
