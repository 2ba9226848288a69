"""The networks of FCPO: state encoder, actor and critics."""

from fairhorizon.policy.actor import GaussianActor, Proposal
from fairhorizon.policy.critics import Critic
from fairhorizon.policy.encoder import StateEncoder
from fairhorizon.policy.signals import ItemVectors, Signals

__all__ = ["Critic", "GaussianActor", "ItemVectors", "Proposal", "Signals", "StateEncoder"]
