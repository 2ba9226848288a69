"""Re-rankers make lists of the scores of a ranker so that a group is shown less."""

from typing import TYPE_CHECKING

from fairhorizon.registry import LazyClasses

if TYPE_CHECKING:
    from fairhorizon.rerank.reranker import Reranker

RERANKERS: "LazyClasses[Reranker]" = LazyClasses(
    {
        "quota": "fairhorizon.rerank.quota:Quota",
        "penalty": "fairhorizon.rerank.penalty:Penalty",
        "foe": "fairhorizon.rerank.exposure:ExposureFairness",
        "lists": "fairhorizon.rerank.lists:ListAllocation",
        "control": "fairhorizon.rerank.control:StepControl",
        "likes": "fairhorizon.rerank.likes:LikesControl",
        "pmmf": "fairhorizon.rerank.pmmf:Pmmf",
        "fairco": "fairhorizon.rerank.fairco:FairCo",
        "tfrom": "fairhorizon.rerank.tfrom:Tfrom",
    }
)
