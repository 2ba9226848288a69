"""Parameters of actors that earlier versions stored."""

from torch import Tensor

from fairhorizon.policy.actor import Actor
from fairhorizon.policy.heads import SoftmaxHead


def as_stored_now(parameters: dict[str, Tensor], actor: Actor) -> dict[str, Tensor]:
    """The parameters as this version stores them for such an actor.

    Version 0.1 gave a softmax policy the head of a Gaussian one and used its first half, the means.
    """
    head = actor.head
    if not isinstance(head, SoftmaxHead):
        return parameters
    own = {f"body.{len(actor.body) - 1}.{part}" for part in ("weight", "bias")}
    return {
        name: value[: head.out_features]
        if name in own and len(value) == 2 * head.out_features
        else value
        for name, value in parameters.items()
    }
