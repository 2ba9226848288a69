"""The networks of FCPO: state encoder, actor and critics."""

from fairhorizon.policy.actor import GaussianActor, Proposal
from fairhorizon.policy.critics import Critic
from fairhorizon.policy.encoder import StateEncoder

__all__ = ["Critic", "GaussianActor", "Proposal", "StateEncoder"]
