"""Lists: GET /api/recommend, and POST /v1/rank for the candidates of others."""

import json
from dataclasses import dataclass, replace
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Path, Query
from fastapi.responses import Response
from pydantic import BaseModel, Field

from fairhorizon.service.api.auth import GuardedRoute, Reading, Serving
from fairhorizon.service.api.bodies import Body, Finite, Id
from fairhorizon.service.api.problems import ApiProblem
from fairhorizon.service.background import Service
from fairhorizon.service.replica.list_builder import BuiltList, ListRequest
from fairhorizon.service.settings import LONGEST_LIST, MOST_CANDIDATES

MOST_WAITING = 1000  # requests, before more are refused
LARGEST_SCORE = 1e9  # of a candidate: sums of such scores are still exact enough to compare

router = APIRouter(dependencies=[Reading], route_class=GuardedRoute)

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
Within = Annotated[Id, Path(description="Items of this category.")]
Exclude = Annotated[
    list[Id], Query(max_length=1000, description="An item not to be shown. Repeatable.")
]
Score = Annotated[Finite, Field(ge=-LARGEST_SCORE, le=LARGEST_SCORE)]
Version = Annotated[
    str | None, Header(alias="X-API-Version", description="2: items with their scores.")
]
Offset = Annotated[int, Query(description="Of Gorse; 0, because every call is a new list.")]
WriteBack = Annotated[
    str | None,
    Query(alias="write-back-type", description="Of Gorse; lists are recorded by themselves."),
]
LIST_HEADERS = {
    "X-List-Id": {"description": "The list, for feedback.", "schema": {"type": "string"}},
    "X-Missing": {
        "description": "Places that no item was found for, within the limits and for this user.",
        "schema": {"type": "integer"},
    },
    "X-Model": {"description": "The model that made it.", "schema": {"type": "string"}},
}
ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"headers": LIST_HEADERS, "description": "The items, best first."}
}


class Scored(BaseModel):
    """An item of a list and its score."""

    Id: str
    Score: float


class Candidate(Body):
    """An item and the score that somebody else gives it; higher is better."""

    Id: Id
    Score: Score


class RankBody(Body):
    """Candidates of another recommender, to be made a list under the limits."""

    UserId: Id
    Candidates: Annotated[list[Candidate], Field(min_length=1, max_length=MOST_CANDIDATES)]
    N: Annotated[int, Field(ge=1, le=LONGEST_LIST)] = 10
    Categories: Annotated[list[Id], Field(max_length=20)] = Field([])
    Exclude: Annotated[list[Id], Field(max_length=1000)] = Field([])


@dataclass(frozen=True)
class Asked:
    """What the query of a request for a list says."""

    n: int | None
    categories: tuple[str, ...]
    exclude: tuple[str, ...]
    with_scores: bool


async def asked(
    n: Length = None,
    category: Category = [],  # noqa: B006  # never changed
    exclude: Exclude = [],  # noqa: B006
    version: Version = None,
    offset: Offset = 0,
    write_back: WriteBack = None,
) -> Asked:
    """What is asked for; what only Gorse can do is refused."""
    if offset:
        raise ApiProblem(
            422,
            f"offset = {offset}: every call is a new list, which has no other pages",
            "ask for a longer list (n), or leave out what was shown (exclude)",
        )
    if write_back:
        raise ApiProblem(
            422,
            f"write-back-type = {write_back}: lists are recorded by themselves",
            "leave it out, and send what was seen as feedback with the ListId",
        )
    return Asked(n, tuple(category), tuple(exclude), version == "2")


ListQuery = Annotated[Asked, Depends(asked)]


@router.get(
    "/api/recommend/{user:id}/",
    response_model=list[str] | list[Scored],
    responses=ANSWERS,
    include_in_schema=False,  # how clients of Gorse leave out the category
)
@router.get(
    "/api/recommend/{user:id}",
    response_model=list[str] | list[Scored],
    responses=ANSWERS,
    summary="A list for a user",
)
async def recommend(service: Serving, user: User, query: ListQuery) -> Response:
    """Recommend under all limits; the list is recorded before it is answered.

    It can be shorter than asked for, because limits go before length: X-Missing says by how much.
    """
    length = service.settings.n if query.n is None else query.n
    request = ListRequest(user, length, query.categories, query.exclude)
    return _answer(await _served(service, request), with_scores=query.with_scores)


@router.get(
    "/api/recommend/{user:id}/{within:id}",
    response_model=list[str] | list[Scored],
    responses=ANSWERS,
    summary="A list of one category for a user",
)
async def recommend_in_category(
    service: Serving, user: User, within: Within, query: ListQuery
) -> Response:
    """The same with a category in the path."""
    narrower = replace(query, categories=(*query.categories, within))
    return await recommend(service, user, narrower)


@router.post(
    "/v1/rank",
    response_model=list[Scored],
    responses=ANSWERS,
    summary="Another recommender's candidates as a list under the limits",
)
async def rank(service: Serving, body: RankBody) -> Response:
    """The limits without the rankers: candidates with scores in, a fair list out."""
    candidates = {one.Id: one.Score for one in body.Candidates}
    request = ListRequest(
        body.UserId, body.N, tuple(body.Categories), tuple(body.Exclude), candidates
    )
    return _answer(await _served(service, request), with_scores=True)


async def _served(service: Service, request: ListRequest) -> BuiltList:
    # Refused at once: a longer queue only makes everybody wait longer than callers do.
    if service.engine.n_waiting >= MOST_WAITING:
        raise ApiProblem(503, "too many requests wait", "try again", {"Retry-After": "1"})
    return await service.engine.recorded(request)


def _answer(made: BuiltList, *, with_scores: bool) -> Response:
    content: list[Any] = made.items
    if with_scores:
        pairs = zip(made.items, made.scores, strict=True)
        content = [{"Id": item, "Score": score} for item, score in pairs]
    headers = {
        "X-List-Id": made.id,
        "X-Missing": str(made.missing),
        "X-Model": "" if made.model is None else str(made.model),
    }
    # Written here and not by the response model, which would validate every list again.
    return Response(
        json.dumps(content, allow_nan=False), media_type="application/json", headers=headers
    )
