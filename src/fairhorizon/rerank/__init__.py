"""Re-rankers adjust the scores of a ranker so that a group is shown less."""

from fairhorizon.rerank.exposure import ExposureFairness
from fairhorizon.rerank.penalty import Penalty
from fairhorizon.rerank.quota import Quota
from fairhorizon.rerank.reranker import Reranker

RERANKERS: dict[str, type[Reranker]] = {
    reranker.method: reranker for reranker in (Quota, Penalty, ExposureFairness)
}
