"""Many tasks, or blocks of users, in workers: processes of this machine or a Ray cluster."""
