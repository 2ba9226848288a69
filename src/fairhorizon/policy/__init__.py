"""The networks of FCPO: state encoders, the actor, what it chooses from, and critics."""
