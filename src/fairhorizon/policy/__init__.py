"""The networks of FCPO: state encoders, the actor, what it chooses from, and critics."""

from fairhorizon.policy.actor import GaussianActor, Proposal
from fairhorizon.policy.critics import Critic
from fairhorizon.policy.encoder import StateEncoder
from fairhorizon.policy.history import HistoryEncoder
from fairhorizon.policy.menus import CatalogueMenus, Menus, SignalMenus
from fairhorizon.policy.signals import ItemVectors, Signals
from fairhorizon.policy.softmax import ItemPolicy

__all__ = [
    "CatalogueMenus",
    "Critic",
    "GaussianActor",
    "HistoryEncoder",
    "ItemPolicy",
    "ItemVectors",
    "Menus",
    "Proposal",
    "SignalMenus",
    "Signals",
    "StateEncoder",
]
