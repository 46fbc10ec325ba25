"""Large inputs over a real S3 server: put by the client, checked before use, removed where nobody uses them."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import httpx
import pytest

from airflow_aiflow.durable.artifact import ArtifactRef, bind_store
from airflow_aiflow.durable.upload import UploadDesk
from airflow_aiflow.exceptions import ArtifactMissingError
from airflow_aiflow.local.objectstore import ObjectStoreServer
from airflow_aiflow.storage.postgres_uploads import PostgresUploads
from airflow_aiflow.storage.s3 import S3ArtifactStore
from airflow_aiflow.storage.s3_settings import S3Settings
from tests.integration.api.conftest import User, World

pytestmark = pytest.mark.timeout(120)

URL = "/aiflow/api/v1/uploads"
DATA = random.Random(20261130).randbytes(3_000_000)


@pytest.fixture
def store(object_store: ObjectStoreServer) -> Iterator[S3ArtifactStore]:
    made = S3ArtifactStore(
        S3Settings(
            endpoint=object_store.endpoint,
            bucket=object_store.bucket(),
            access_key=object_store.access_key,
            secret_key=object_store.secret_key,
            secure=False,
        )
    )
    made.ensure_bucket()
    yield made
    made.close()


@pytest.fixture
def rows(world: World, store: S3ArtifactStore) -> Iterator[PostgresUploads]:
    made = PostgresUploads.connect(world.dsn)
    world.desk = UploadDesk(made, store.staging, store, limit=4_000_000)
    yield made
    made.close()


def announce(world: World, data: bytes = DATA, **changes: Any) -> Any:
    body = {"pipeline": "answer", "sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
    return world.client.post(URL, json=body | changes)


def put(view: dict[str, Any], data: bytes = DATA) -> None:
    answer = httpx.request(view["method"], view["url"], content=data)
    assert answer.status_code == 200, answer.text


def submit(world: World, view: dict[str, Any], key: str = "k1") -> Any:
    return world.submit(input={"question": "why?", "doc": view["reference"]}, idempotency_key=key)


def given(world: World, answer: Any) -> dict[str, Any]:
    found = world.submissions.get(UUID(answer.json()["submission_id"]))
    assert found is not None
    doc: dict[str, Any] = found.input["doc"]
    return doc


@pytest.mark.usefixtures("rows")
def test_what_was_put_is_an_artifact_of_the_run(world: World, store: S3ArtifactStore) -> None:
    answer = announce(world, media_type="application/pdf", name="a.pdf")
    assert answer.status_code == 201, answer.text
    view = answer.json()
    put(view)
    submitted = submit(world, view)
    assert submitted.status_code == 202, submitted.text
    plain = given(world, submitted)
    assert plain == view["artifact"]
    ref = ArtifactRef.from_plain(plain)
    assert (ref.media_type, ref.name, ref.size) == ("application/pdf", "a.pdf", len(DATA))
    with bind_store(lambda: store):
        assert ref.load() == DATA
    with pytest.raises(ArtifactMissingError):
        store.staging.open(UUID(view["upload_id"]))
    assert submit(world, view).status_code == 200, "a repeat finds its task, long after"


@pytest.mark.usefixtures("rows")
def test_the_same_bytes_are_the_same_input(world: World) -> None:
    first = announce(world).json()
    put(first)
    one = submit(world, first)
    second = announce(world).json()
    put(second)
    assert (submit(world, second).status_code, one.status_code) == (200, 202)
    other = announce(world, b"something else").json()
    put(other, b"something else")
    assert submit(world, other).status_code == 409


@pytest.mark.parametrize("lie", [DATA[:-1], DATA + b"x", DATA[:-1] + b"\0", b"", None])
@pytest.mark.usefixtures("rows")
def test_what_is_not_what_was_announced_is_not_used(world: World, store: S3ArtifactStore, lie: bytes | None) -> None:
    view = announce(world).json()
    if lie is not None:
        put(view, lie)
    refused = submit(world, view)
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/input")
    assert world.runs.runs == {}
    with pytest.raises(ArtifactMissingError):
        store.open_file(hashlib.sha256(DATA).digest()).read()
    put(view)
    assert submit(world, view).status_code == 202, "and may be put again"


@pytest.mark.usefixtures("rows")
def test_who_keeps_the_link_changes_nothing_that_is_used(world: World, store: S3ArtifactStore) -> None:
    view = announce(world).json()
    put(view)
    submit(world, view)
    put(view, b"another text")
    again = submit(world, view, "k2")
    with bind_store(lambda: store):
        assert ArtifactRef.from_plain(given(world, again)).load() == DATA


@pytest.mark.usefixtures("rows")
def test_an_upload_is_its_users_and_its_pipelines(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    view = announce(world).json()
    put(view)
    monkeypatch.setattr("airflow_aiflow.api.rights.may", lambda user, method, dag_id, entity=None: True)
    monkeypatch.setattr("airflow_aiflow.api.submission_routes.may", lambda *_: True)
    world.user = User("eve")
    for reference in (view["reference"], {"$upload": "01930000-0000-7000-8000-000000000000"}, {"$upload": "../x"}):
        refused = submit(world, {"reference": reference})
        assert refused.status_code == 422
        assert refused.json()["errors"][0] == {
            "pointer": "/input/doc",
            "detail": "there is no such upload of yours for this pipeline",
        }
    world.user = User("ann")
    assert world.submit(pipeline="secret", input={"doc": view["reference"]}).status_code == 422


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"size": 4_000_001}, 422),
        ({"size": 0}, 422),
        ({"size": 2**63}, 422),
        ({"sha256": "x"}, 422),
        ({"sha256": "A" * 64}, 422),
        ({"media_type": "no type"}, 422),
        ({"media_type": "a/b\nX: y"}, 422),
        ({"name": "a\nb"}, 422),
        ({"name": "x" * 251}, 422),
        ({"pipeline": "secret"}, 404),
        ({"more": 1}, 422),
    ],
)
@pytest.mark.usefixtures("rows")
def test_what_is_wrong_is_refused(world: World, changes: dict[str, Any], status: int) -> None:
    assert announce(world, **changes).status_code == status


def test_what_nobody_uses_is_removed(world: World, rows: PostgresUploads, store: S3ArtifactStore) -> None:
    used, unused, young = (announce(world, DATA + bytes([n])).json() for n in range(3))
    for n, view in enumerate((used, unused, young)):
        put(view, DATA + bytes([n]))
    assert submit(world, used).status_code == 202
    assert world.desk is not None
    assert world.desk.reap() == 0
    for view in (used, unused):
        world.sql(
            "update aiflow.upload set expires_at = expires_at - interval '3 hours' where upload_id = "
            f"'{view['upload_id']}'"
        )
    assert world.desk.reap() == 1
    with pytest.raises(ArtifactMissingError):
        store.staging.open(UUID(unused["upload_id"]))
    assert submit(world, unused, "k2").status_code == 422
    assert submit(world, young, "k3").status_code == 202
    assert submit(world, used, "k4").status_code == 202


def test_a_user_has_so_many_open_and_no_more(
    world: World, rows: PostgresUploads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_aiflow.storage.postgres_uploads.MOST_OPEN", 2)
    assert [announce(world).status_code for _ in range(3)] == [201, 201, 429]


def test_where_they_are_off_nothing_is_taken(world: World) -> None:
    assert announce(world).status_code == 404
    refused = submit(world, {"reference": {"$upload": "01930000-0000-7000-8000-000000000000"}})
    assert refused.status_code == 422
