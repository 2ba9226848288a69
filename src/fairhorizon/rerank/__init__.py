"""Re-rankers make lists of the scores of a ranker so that a group is shown less."""

from fairhorizon.rerank.control import StepControl
from fairhorizon.rerank.exposure import ExposureFairness
from fairhorizon.rerank.fairco import FairCo
from fairhorizon.rerank.likes import LikesControl
from fairhorizon.rerank.lists import ListAllocation
from fairhorizon.rerank.penalty import Penalty
from fairhorizon.rerank.pmmf import Pmmf
from fairhorizon.rerank.quota import Quota
from fairhorizon.rerank.reranker import Reranker
from fairhorizon.rerank.tfrom import Tfrom

RERANKERS: dict[str, type[Reranker]] = {
    reranker.method: reranker
    for reranker in (
        *(Quota, Penalty, ExposureFairness, ListAllocation, StepControl, LikesControl),
        *(Pmmf, FairCo, Tfrom),
    )
}
