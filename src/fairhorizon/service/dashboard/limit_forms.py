"""Limits: a page with forms to create, change and end them, by the functions of the API."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response

from fairhorizon.errors import ConfigError, FairHorizonError
from fairhorizon.limits.language import Limit, number_of
from fairhorizon.service.admin.set_up import create_limit
from fairhorizon.service.api.access import Serving
from fairhorizon.service.background import Service
from fairhorizon.service.budget.rules import UNIT
from fairhorizon.service.dashboard.limit_cards import limit_cards
from fairhorizon.service.dashboard.page_routes import PageRoute, see_other
from fairhorizon.service.dashboard.rendering import page
from fairhorizon.service.dashboard.visiting import Change, Submitted, Visiting
from fairhorizon.service.dashboard.visitors import Visitor
from fairhorizon.service.store import limits
from fairhorizon.service.store.database import DatabaseAwayError
from fairhorizon.service.vocabulary import Counts

LIMITS = "/dashboard/limits"
LARGEST_SLACK = 10**9
LONGEST = 1000  # characters of a limit
DONE = {
    "created": "The limit is kept from now on.",
    "changed": "The limit is changed; it counts anew.",
    "ended": "The limit has ended.",
}
NEW = 0  # the form of a limit that is not there yet
Number = Annotated[int, Path(ge=1, le=2**53)]

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get(LIMITS)
def show_limits(
    request: Request,
    service: Serving,
    visitor: Visiting,
    done: Annotated[str, Query(max_length=20)] = "",
) -> Response:
    return _page(request, service, visitor, said=DONE.get(done, ""))


@router.post(LIMITS)
def create(request: Request, service: Serving, form: Change) -> Response:
    def attempt() -> None:
        text = form.field("limit")
        if len(text) > LONGEST:
            raise ConfigError(f"limit: more than {LONGEST} characters (give a shorter one)")
        counts = form.field("counts")
        create_limit(
            service.database,
            text,
            service.settings,
            window=form.field("window") or None,
            counts=Counts(counts).value if counts in list(Counts) else None,
            slack=_slack(form),
        )

    return _attempted(request, service, form, NEW, "created", attempt)


@router.post(LIMITS + "/{number}/change")
def change(request: Request, service: Serving, form: Change, number: Number) -> Response:
    def attempt() -> None:
        row = _in_force(service, number)
        text = str(replace(Limit.parse(row.text), share=_share(form)))
        create_limit(
            service.database,
            text,
            service.settings,
            window=form.field("window") or row.window,
            counts=row.counts,
            slack=_slack(form) or row.slack // UNIT,
            instead_of=number,
        )

    return _attempted(request, service, form, number, "changed", attempt)


@router.post(LIMITS + "/{number}/end")
def end(request: Request, service: Serving, form: Change, number: Number) -> Response:
    def attempt() -> None:
        _in_force(service, number)
        with service.database.writing() as connection:
            limits.end(service.database, connection, number)

    return _attempted(request, service, form, number, "ended", attempt)


def _attempted(
    request: Request,
    service: Service,
    form: Submitted,
    number: int,
    done: str,
    attempt: Callable[[], None],
) -> Response:
    """Go on to the list, or back to the form with what was typed and what is wrong with it."""
    try:
        attempt()
    except DatabaseAwayError:
        raise
    except FairHorizonError as error:
        typed = {name: form.field(name) for name in ("limit", "share", "window", "slack", "counts")}
        problem = {"number": number, "text": str(error), "typed": typed}
        return _page(request, service, form.by, problem=problem)
    return see_other(f"{LIMITS}?done={done}")


def _page(
    request: Request,
    service: Service,
    visitor: Visitor,
    *,
    said: str = "",
    problem: dict[str, Any] | None = None,
) -> Response:
    with service.database.reading() as connection:
        cards = limit_cards(connection, service.settings)
    gone = problem is not None and problem["number"] not in {NEW, *(c.row.id for c in cards)}
    return page(
        request,
        visitor,
        "limits.html.j2",
        200 if problem is None else 422,
        cards=cards,
        said=said,
        problem=problem,
        problem_is_gone=gone,
        counts=[one.value for one in Counts],
        defaults=service.settings,
    )


def _in_force(service: Service, number: int) -> Any:
    with service.database.reading() as connection:
        row = limits.get(connection, number)
    if row is None or row.ended_at is not None:
        raise ConfigError(f"limit {number} is not in force any more (create another)")
    return row


def _share(form: Submitted) -> float:
    share = number_of(form.field("share"))
    if share is None or not 0 <= share <= 1:
        raise ConfigError(f"share {form.field('share')!r} (give a number from 0 to 1, such as 0.4)")
    return share


def _slack(form: Submitted) -> int | None:
    """None: nothing was typed."""
    text = form.field("slack")
    if not text:
        return None
    if not re.fullmatch(r"[0-9]{1,10}", text) or not 1 <= int(text) <= LARGEST_SLACK:
        raise ConfigError(f"slack {text!r} (give a whole number of showings, such as 200)")
    return int(text)
