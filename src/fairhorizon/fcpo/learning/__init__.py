"""How a policy is trained: trajectories, advantages, CPO, rounds, checkpoints."""
