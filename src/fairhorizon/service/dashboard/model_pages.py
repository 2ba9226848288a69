"""Models: which is served, and forms to register, promote and roll back, as by /v1/models."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import ValidationError

from fairhorizon.service.admin import jobs
from fairhorizon.service.api import operating
from fairhorizon.service.api.auth import Serving
from fairhorizon.service.api.problems import ApiProblem
from fairhorizon.service.dashboard.pages import PageRoute, page, see_other
from fairhorizon.service.dashboard.sessions import AdminForm, CurrentVisitor
from fairhorizon.service.store.state import all_models, previous_model, read_state

MODELS = "/dashboard/models"
MOST_JOBS = 10
DONE = {
    "registered": "The model is being loaded; then it is in this list.",
    "promoted": "All replicas load the model, and then serve it.",
}

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get(MODELS)
def show_models(
    request: Request,
    service: Serving,
    visitor: CurrentVisitor,
    done: Annotated[str, Query(max_length=20)] = "",
) -> Response:
    with service.database.reading() as connection:
        return page(
            request,
            visitor,
            "models.html.j2",
            models=all_models(connection),
            present=read_state(service.database, connection).model_id,
            previous=previous_model(connection),
            jobs=jobs.newest(connection, MOST_JOBS),
            said=DONE.get(done, ""),
        )


@router.post(MODELS)
def register(service: Serving, form: AdminForm) -> Response:
    try:
        body = operating.ModelBody(Folder=form.field("folder"))
    except ValidationError:
        raise ApiProblem(422, "this is no folder", "give the folder of a run") from None
    operating.post_model(service, body)
    return see_other(f"{MODELS}?done=registered")


@router.post(MODELS + "/rollback")
def roll_back(service: Serving, form: AdminForm) -> Response:  # noqa: ARG001  # it was checked
    operating.rollback(service)
    return see_other(f"{MODELS}?done=promoted")


@router.post(MODELS + "/{model}/promote")
def promote(
    service: Serving,
    form: AdminForm,  # noqa: ARG001  # it was checked
    model: Annotated[int, Path(ge=1, le=2**53)],
) -> Response:
    operating.promote(service, model)
    return see_other(f"{MODELS}?done=promoted")
