"""/docs: the routes of the API with their fields, drawn from the OpenAPI schema of the application.

The usual page loads its scripts from another host, and is white without the internet.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request, Response

from fairhorizon.service.api.problems import MEANINGS
from fairhorizon.service.dashboard.pages import PageRoute, page

BOUNDS = {
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {}",
    "maxItems": "at most {}",
    "minimum": "from {}",
    "maximum": "to {}",
    "pattern": "{}",
}

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@dataclass(frozen=True)
class Field:
    """A parameter, or a field of a body."""

    name: str
    place: str  # path, query, header or body
    kind: str
    text: str
    is_needed: bool


@dataclass(frozen=True)
class Operation:
    """A method of a path."""

    method: str
    path: str
    summary: str
    text: str
    fields: tuple[Field, ...]
    answers: tuple[tuple[str, str, str], ...]  # status, type, meaning
    example: str

    @property
    def anchor(self) -> str:
        return f"{self.method} {self.path}".lower().translate(str.maketrans(" /{}", "----"))


@router.get("/docs")
def show_api(request: Request) -> Response:
    """All routes; like the schema itself they are told to everybody."""
    schema = request.app.openapi()
    base = str(request.base_url).rstrip("/")
    return page(
        request,
        None,
        "api.html.j2",
        operations=list(operations(schema, base)),
        description=schema["info"]["description"],
        errors=MEANINGS,
    )


def operations(schema: Mapping[str, Any], base: str) -> Iterator[Operation]:
    """Every method of every path, in the order of the schema.

    base: the address of the service, for examples.
    """
    models, errors = schema["components"]["schemas"], set(map(str, MEANINGS))
    for path, methods in schema["paths"].items():
        for method, one in methods.items():
            given = [_parameter(each, models) for each in one.get("parameters", ())]
            body = one.get("requestBody", {}).get("content", {}).get("application/json", {})
            fields = (*given, *_fields(body.get("schema", {}), models))
            answers = tuple(
                (status, _answer_type(answer, models), answer["description"])
                for status, answer in one["responses"].items()
                # Errors are the same for all routes, and on the page once.
                if status not in errors
            )
            yield Operation(
                method.upper(),
                path,
                one.get("summary", ""),
                one.get("description", ""),
                fields,
                answers,
                _example(method, base + path, fields, body.get("schema", {})),
            )


def _parameter(one: Mapping[str, Any], models: Mapping[str, Any]) -> Field:
    kind, schema = type_name(one["schema"], models), one["schema"]
    text = one.get("description") or schema.get("description", "")
    return Field(one["name"], one["in"], kind, text, one.get("required", False))


def _fields(schema: Mapping[str, Any], models: Mapping[str, Any]) -> Iterator[Field]:
    """The fields of a body; of a list those of its elements."""
    inner = _resolved(schema.get("items", schema), models)
    for name, one in inner.get("properties", {}).items():
        needed = name in inner.get("required", ())
        yield Field(name, "body", type_name(one, models), one.get("description", ""), needed)


def _resolved(schema: Mapping[str, Any], models: Mapping[str, Any]) -> Mapping[str, Any]:
    name = schema.get("$ref", "").rpartition("/")[2]
    return models[name] if name else schema


def type_name(schema: Mapping[str, Any], models: Mapping[str, Any]) -> str:
    """A type as people write it: list of text, number from 0 to 1, one of served, confirmed."""
    if "$ref" in schema:
        inner = _resolved(schema, models)
        if "enum" in inner:
            return type_name(inner, models)
        return str(schema["$ref"].rpartition("/")[2])
    if "anyOf" in schema:
        # Null is not told: in bodies it is the same as left out.
        kinds = [type_name(one, models) for one in schema["anyOf"] if one.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if "const" in schema:
        return f'"{schema["const"]}"'
    if "enum" in schema:
        return f"one of {', '.join(map(str, schema['enum']))}"
    if schema.get("type") == "array":
        return f"list of {type_name(schema.get('items', {}), models)}"
    name = {"string": "text", "integer": "whole number", "boolean": "true or false"}.get(
        schema.get("type", ""), schema.get("type", "JSON")
    )
    name = {"date-time": "time"}.get(schema.get("format", ""), name)
    bounds = [text.format(schema[key]) for key, text in BOUNDS.items() if key in schema]
    return f"{name}, {', '.join(bounds)}" if bounds else name


def _answer_type(answer: Mapping[str, Any], models: Mapping[str, Any]) -> str:
    content = answer.get("content", {}).get("application/json")
    return type_name(content["schema"], models) if content else ""


def _example(method: str, address: str, fields: tuple[Field, ...], body: Mapping[str, Any]) -> str:
    """A call for the command line, with the names of fields for their values."""
    words = ["curl"] if method == "get" else [f"curl -X {method.upper()}"]
    words.append(f"'{address}'")
    needed = {one.name: f"<{one.kind}>" for one in fields if one.place == "body" and one.is_needed}
    if body:
        content = json.dumps([needed] if body.get("type") == "array" else needed)
        words.append(f"-H 'Content-Type: application/json' -d '{content}'")
    return " ".join(words)
