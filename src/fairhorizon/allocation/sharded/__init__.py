"""Lists of all users from shards of them: the same lists, by sums and histograms."""
