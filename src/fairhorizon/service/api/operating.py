"""Models and jobs, health and metrics."""

import os
import uuid
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path
from fastapi.responses import Response
from pydantic import AfterValidator, BaseModel, Field

from fairhorizon.service.admin import jobs
from fairhorizon.service.admin.jobs import PROMOTE, REGISTER
from fairhorizon.service.api.auth import Administering, GuardedRoute, Reading, Serving
from fairhorizon.service.api.bodies import Body, moment, storable
from fairhorizon.service.api.problems import AGAIN, ApiProblem
from fairhorizon.service.monitoring.metrics import CONTENT_TYPE
from fairhorizon.service.store.state import all_models, model_row, previous_model, read_state

router = APIRouter(route_class=GuardedRoute)
health = APIRouter(route_class=GuardedRoute)

Number = Annotated[int, Path(ge=1, le=2**53)]
MOST_JOBS = 100


class ModelBody(Body):
    """A run folder of `fairhorizon fit --all` or `Model.save`, on the machine of the service."""

    Folder: Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(storable)]


class ModelState(BaseModel):
    """A model and whether it is served."""

    Id: int
    Folder: str
    Method: str
    Current: bool
    RegisteredAt: datetime
    PromotedAt: datetime | None


class JobBody(Body):
    """Work that can be asked for: `relabel` begins an epoch with the labels of now."""

    Kind: Literal["relabel"]


class JobAsked(BaseModel):
    """The number of a job: GET /v1/jobs/{Id} says how far it is."""

    Id: int


class JobStatus(BaseModel):
    """A job and how far it is."""

    Id: int
    Kind: str
    State: str
    Progress: float
    Message: str
    CreatedAt: datetime
    EndedAt: datetime | None


@router.get("/v1/models", dependencies=[Reading], summary="All models, and which is served")
def get_models(service: Serving) -> list[ModelState]:
    with service.database.reading() as connection:
        present = read_state(service.database, connection).model_id
        return [
            ModelState(
                Id=row.id,
                Folder=row.folder,
                Method=row.method,
                Current=row.id == present,
                RegisteredAt=moment(row.registered_at),
                PromotedAt=None if row.promoted_at is None else moment(row.promoted_at),
            )
            for row in all_models(connection)
        ]


@router.post(
    "/v1/models", dependencies=[Administering], status_code=202, summary="Register a run folder"
)
def post_model(service: Serving, body: ModelBody) -> JobAsked:
    # The same folder by another name is the same model, and stays it when a link is changed.
    return _asked(service, REGISTER, {"folder": os.path.realpath(body.Folder)})


@router.post(
    "/v1/models/rollback",
    dependencies=[Administering],
    status_code=202,
    summary="Serve the model before the present one again",
)
def rollback(service: Serving) -> JobAsked:
    with service.database.reading() as connection:
        row = previous_model(connection)
    if row is None:
        raise ApiProblem(409, "no other model was served before", "GET /v1/models lists them")
    return _asked(service, PROMOTE, {"model": row.id})


@router.post(
    "/v1/models/{model}/promote",
    dependencies=[Administering],
    status_code=202,
    summary="Serve this model from now on, in all replicas at once",
)
def promote(service: Serving, model: Number) -> JobAsked:
    with service.database.reading() as connection:
        if model_row(connection, model) is None:
            raise ApiProblem(404, f"there is no model {model}", "register it: POST /v1/models")
    return _asked(service, PROMOTE, {"model": model})


@router.get("/v1/jobs", dependencies=[Reading], summary="The last jobs")
def get_jobs(service: Serving) -> list[JobStatus]:
    with service.database.reading() as connection:
        return [_status(row) for row in jobs.newest(connection, MOST_JOBS)]


@router.post("/v1/jobs", dependencies=[Administering], status_code=202, summary="Ask for work")
def post_job(service: Serving, body: JobBody) -> JobAsked:
    return _asked(service, body.Kind, {})


@router.get("/v1/jobs/{job}", dependencies=[Reading], summary="A job and how far it is")
def get_job(service: Serving, job: Number) -> JobStatus:
    with service.database.reading() as connection:
        row = jobs.get(connection, job)
    if row is None:
        raise ApiProblem(404, f"there is no job {job}", "GET /v1/jobs lists the last ones")
    return _status(row)


@health.get("/api/health/live", summary="Whether the process runs")
async def live() -> dict[str, bool]:
    return {"Live": True}


@health.get("/api/health/ready", summary="Whether lists can be served now")
def ready(service: Serving) -> dict[str, bool]:
    with service.database.reading() as connection:
        # Raises DatabaseAwayError, which is answered with 503.
        read_state(service.database, connection)
    if service.engine.snapshot is None:
        raise ApiProblem(503, "the model is being loaded", "ask again", AGAIN)
    return {"Ready": True}


@health.get(
    "/metrics",
    dependencies=[Reading],
    summary="For Prometheus",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}}},
)
def metrics(service: Serving) -> Response:
    with service.database.reading() as connection:
        text = service.metrics.text(service.database, connection)
    return Response(text, media_type=CONTENT_TYPE)


def _asked(service: Serving, kind: str, arguments: dict[str, Any]) -> JobAsked:
    with service.database.writing() as connection:
        # A random name: every call asks for a job of its own.
        once = f"{kind} {uuid.uuid4().hex}"
        return JobAsked(Id=jobs.ask(service.database, connection, kind, once, arguments))


def _status(row: Any) -> JobStatus:
    return JobStatus(
        Id=row.id,
        Kind=row.kind,
        State=row.state,
        Progress=row.progress,
        Message=row.message,
        CreatedAt=moment(row.created_at),
        EndedAt=None if row.ended_at is None else moment(row.ended_at),
    )
