"""Lists: GET /api/recommend, and POST /v1/rank for the candidates of others."""

import asyncio
import json
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query
from fastapi.responses import Response

from fairhorizon.service.api.access import Reading, Serving
from fairhorizon.service.api.bodies import Id, RankBody, Scored
from fairhorizon.service.api.problems import Problem
from fairhorizon.service.replica.recording import Decided
from fairhorizon.service.replica.requests import ListRequest
from fairhorizon.service.service import Service
from fairhorizon.service.vocabulary import LONGEST_LIST

MOST_WAITING = 1000  # requests, before more are refused

router = APIRouter(dependencies=[Reading])

User = Annotated[Id, Path(description="The id of the user, who need not be known.")]
Length = Annotated[
    int | None,
    Query(
        ge=1, le=LONGEST_LIST, description="Length of the list; without it that of the settings."
    ),
]
Category = Annotated[
    list[Id], Query(max_length=20, description="Items of this category; of all, if repeated.")
]
Exclude = Annotated[
    list[Id], Query(max_length=1000, description="An item not to be shown. Repeatable.")
]
Version = Annotated[
    str | None, Header(alias="X-API-Version", description="2: items with their scores.")
]
LIST_HEADERS = {
    "X-List-Id": {"description": "The list, for feedback.", "schema": {"type": "string"}},
    "X-Model": {"description": "The model that made it.", "schema": {"type": "string"}},
}


@router.get(
    "/api/recommend/{user:path}",
    response_model=list[str] | list[Scored],
    responses={200: {"headers": LIST_HEADERS, "description": "The items, best first."}},
    summary="A list for a user",
)
async def recommend(
    service: Serving,
    user: User,
    n: Length = None,
    category: Category = [],  # noqa: B006  # never changed
    exclude: Exclude = [],  # noqa: B006
    version: Version = None,
) -> Response:
    """Recommend under all limits; the list is recorded before it is answered.

    It can be shorter than asked for, because limits go before length.
    """
    length = service.settings.n if n is None else n
    request = ListRequest(user, length, tuple(category), tuple(exclude))
    return _answer(await _served(service, request), service, with_scores=version == "2")


@router.post(
    "/v1/rank",
    response_model=list[Scored],
    responses={200: {"headers": LIST_HEADERS, "description": "The items, best first."}},
    summary="Another recommender's candidates as a list under the limits",
)
async def rank(service: Serving, body: RankBody) -> Response:
    """The limits without the rankers: candidates with scores in, a fair list out."""
    candidates = {one.Id: one.Score for one in body.Candidates}
    request = ListRequest(
        body.UserId, body.N, tuple(body.Categories), tuple(body.Exclude), candidates
    )
    return _answer(await _served(service, request), service, with_scores=True)


async def _served(service: Service, request: ListRequest) -> Decided:
    if service.engine.n_waiting >= MOST_WAITING:
        raise Problem(503, "too many requests wait", "try again", {"Retry-After": "1"})
    return await asyncio.wrap_future(service.engine.submit(request))


def _answer(made: Decided, service: Service, *, with_scores: bool) -> Response:
    content: list[Any] = made.items
    if with_scores:
        pairs = zip(made.items, made.scores, strict=True)
        content = [{"Id": item, "Score": score} for item, score in pairs]
    world = service.engine.world
    headers = {"X-List-Id": made.id, "X-Model": str(world.model_id if world else "")}
    return Response(
        json.dumps(content, allow_nan=False), media_type="application/json", headers=headers
    )
