"""
The API keeps its own OpenAPI document: every route, with data made from the document, fitting and unfitting.

A quick slice by default; ``SCHEMATHESIS_EXAMPLES=500`` for more. The data is the same in every run, for the seed is
fixed; ``SCHEMATHESIS_SEED`` takes another.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import BaseSchema, Case, GenerationMode, openapi
from schemathesis.checks import CHECKS
from schemathesis.config import SchemathesisConfig
from starlette.routing import Mount

from airflow_aiflow.api import problem, submission_routes
from airflow_aiflow.api.reading_app import include
from tests.integration.api.conftest import World
from tests.integration.reading.house import House, User

EXAMPLES = int(os.environ.get("SCHEMATHESIS_EXAMPLES", "4"))
SEED = int(os.environ.get("SCHEMATHESIS_SEED", "20261130"))

#: Who it is has tests of its own (test_rights.py): a stand-in lets these requests in.
LEFT_OUT = {"ignored_auth", "object_level_authorization", "use_after_free", "ensure_resource_availability"}


#: A document can't say "one of these groups of parameters": their routes refuse data that fits it.
ONE_OF_SEVERAL = {("/api/v1/diff", "GET"), ("/api/v1/submissions", "POST")}


def everything(world: World, house: House) -> FastAPI:
    """Put all routes into one app, as the server has them."""
    app: Any = next(route.app for route in world.server.routes if isinstance(route, Mount))
    include(app, lambda: house.reading)
    problem.describe(app)

    def document() -> dict[str, Any]:
        found: dict[str, Any] = copy.deepcopy(app.openapi())
        for name, schema in found["components"]["schemas"].items():
            if not name.endswith("Body"):
                _without_tuples(schema)
        return found

    app.add_api_route("/contract.json", document, include_in_schema=False)

    made: FastAPI = app
    return made


def _without_tuples(schema: Any) -> None:
    """Say of a tuple how long it is and no more: schemathesis 4.32 takes its own form of it for an invalid one."""
    if isinstance(schema, dict):
        schema.pop("prefixItems", None)
        for part in schema.values():
            _without_tuples(part)
    elif isinstance(schema, list):
        for part in schema:
            _without_tuples(part)


def _operations() -> list[tuple[str, str]]:
    from airflow_aiflow.api.submission_routes import SubmissionRoutes
    from airflow_aiflow.api.upload_routes import UploadRoutes

    app = FastAPI()
    include(app, lambda: pytest.fail("no route is asked here"))
    app.include_router(SubmissionRoutes(lambda: pytest.fail("no route is asked here")).router())
    app.include_router(UploadRoutes(lambda: pytest.fail("no route is asked here")).router())
    return sorted((path, method.upper()) for path, methods in app.openapi()["paths"].items() for method in methods)


@pytest.fixture(scope="module")
def api(told: House) -> Iterator[FastAPI]:
    """Give the whole app, used by a user who may read and change everything but the DAG ``secret``."""
    from airflow_aiflow.api import rights

    world = World(told.dsn)
    world.user = User("ann")  # type: ignore[assignment]
    with pytest.MonkeyPatch.context() as patch:
        told.enter(patch)
        patch.setattr(submission_routes, "may", rights.may)
        patch.setattr(submission_routes, "readable", rights.readable)
        yield everything(world, told)
    world.submissions.close()
    world.reader.close()
    world.events.close()


@pytest.fixture(scope="module")
def schema(api: FastAPI) -> BaseSchema:
    """Read the document, once."""
    return openapi.from_asgi("/contract.json", api, config=SchemathesisConfig(seed=SEED))


@pytest.mark.parametrize(("path", "method"), _operations())
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_every_route_keeps_its_contract(schema: BaseSchema, path: str, method: str, mode: GenerationMode) -> None:
    operation = schema[path][method]
    left_out = LEFT_OUT | ({"positive_data_acceptance"} if (path, method) in ONE_OF_SEVERAL else set())
    checks: Any = [check for check in CHECKS.get_all() if check.__name__ not in left_out]

    @seed(SEED)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def keeps(case: Case[Any]) -> None:
        case.call_and_validate(checks=checks)

    keeps()


def test_the_document_is_complete(api: FastAPI) -> None:
    document = api.openapi()
    assert set(document["components"]["securitySchemes"]) == {"bearer", "cookie"}
    lacking = []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if not operation.get("description"):
                lacking.append(f"{method} {path}: no description")
            if not {"401", "422", "503"} <= set(operation["responses"]):
                lacking.append(f"{method} {path}: errors are missing")
            if method == "post" and "requestBody" in operation and "415" not in operation["responses"]:
                lacking.append(f"{method} {path}: 415 is missing")
    assert lacking == []
