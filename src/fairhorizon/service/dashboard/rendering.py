"""Pages as HTML: everything in them is escaped, and browsers load nothing from elsewhere."""

from datetime import UTC, datetime
from functools import cache
from typing import Any
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from fairhorizon import __version__
from fairhorizon.service.api.problems import ApiProblem
from fairhorizon.service.dashboard import charts
from fairhorizon.service.dashboard.visitors import Visitor, keep_cookie

POLICY = "; ".join(
    (
        "default-src 'none'",
        "style-src 'self'",
        "script-src 'self'",
        "connect-src 'self'",
        "img-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {"Content-Security-Policy": POLICY, "Cache-Control": "no-store"}


@cache
def environment() -> Environment:
    """The templates, and how they write numbers and times."""
    made = Environment(
        loader=PackageLoader("fairhorizon.service.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "in_path": lambda text: quote(str(text), safe=""),
        "percent": charts.percent,
        "exact_percent": lambda share: f"{100 * share:.2f} %",
        "plain": charts.plain,
        "ms": charts.milliseconds,
        "time": moment,
        "hour": lambda hour: moment(3600 * hour),
        "label": label,
    }
    return made


def moment(time: float) -> str:
    """A time in UTC, as people read it."""
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%S")


def label(value: Any) -> str:
    """A value of an item's labels as text."""
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value)


def page(
    request: Request, visitor: Visitor | None, template: str, status: int = 200, **content: Any
) -> HTMLResponse:
    """A page for somebody; None: of whom nothing is known, as when something went wrong."""
    text = (
        environment()
        .get_template(template)
        .render(visitor=visitor, path=request.url.path, version=__version__, **content)
    )
    answer = HTMLResponse(text, status, HEADERS)
    if visitor is not None:
        keep_cookie(request, answer, visitor)
    return answer


def problem_page(request: Request, problem: ApiProblem) -> HTMLResponse:
    """What is wrong and what to do about it."""
    answer = page(
        request,
        None,
        "problem.html.j2",
        problem.status,
        error=problem.error,
        remedy=problem.remedy,
    )
    answer.headers.update(problem.headers or {})
    return answer
