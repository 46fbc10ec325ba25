"""Callbacks over real TLS: signed, told again until they are taken, and to nobody inside."""

from __future__ import annotations

import http.server
import json
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar
from uuid import UUID

import pytest

from airflow_aiflow.durable.callback import CallbackRules, CallbackTarget
from airflow_aiflow.durable.submitting import SubmissionService
from airflow_aiflow.hooks.callback_post import CallbackError, CallbackPost, deliver_due, public_addresses
from airflow_aiflow.storage.postgres_callbacks import MOST_TRIES, PostgresCallbacks
from tests.integration.api.conftest import World

pytestmark = pytest.mark.timeout(120)

SECRET = b"a secret of more than 32 characters"


@dataclass
class Receiver:
    """A server that answers as it is told, under a name of its own."""

    port: int
    context: ssl.SSLContext
    statuses: list[int] = field(default_factory=list)
    got: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    redirects: str = ""
    drips: bool = False

    @property
    def url(self) -> str:
        return f"https://hooks.example.com:{self.port}/done?of=us"

    @property
    def rules(self) -> CallbackRules:
        return CallbackRules((f"hooks.example.com:{self.port}",), SECRET)

    @property
    def post(self) -> CallbackPost:
        return CallbackPost(lambda _host, _port: ["127.0.0.1"], self.context)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    key, cert = folder / "key.pem", folder / "cert.pem"
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=hooks.example.com "
        f"-addext subjectAltName=DNS:hooks.example.com -keyout {key} -out {cert}"
    )
    subprocess.run(command.split(), check=True, capture_output=True)
    return key, cert


@pytest.fixture
def receiver(certificate: tuple[Path, Path]) -> Iterator[Receiver]:
    key, cert = certificate

    class Handler(http.server.BaseHTTPRequestHandler):
        receiver: ClassVar[Receiver]

        def do_POST(self) -> None:
            one = self.receiver
            body = self.rfile.read(int(self.headers["Content-Length"]))
            one.got.append((self.path, dict(self.headers.items()), body))
            if one.drips:
                stop.wait(60)
            self.send_response(one.statuses.pop(0) if one.statuses else 204)
            if one.redirects:
                self.send_header("Location", one.redirects)
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            """Say nothing."""

    stop = threading.Event()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(cert, key)
    server.socket = serving.wrap_socket(server.socket, server_side=True)
    made = Handler.receiver = Receiver(server.server_address[1], ssl.create_default_context(cafile=str(cert)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield made
    stop.set()
    server.shutdown()
    server.server_close()


@pytest.fixture
def callbacks(world: World) -> Iterator[PostgresCallbacks]:
    opened = PostgresCallbacks.connect(world.dsn)
    yield opened
    opened.close()


def submitted(world: World, receiver: Receiver, **more: Any) -> dict[str, Any]:
    world.service = SubmissionService(
        world.submissions, world.reader, world.runs, window_days=30, callbacks=receiver.rules
    )
    answer = world.submit(callback_url=receiver.url, **more)
    assert answer.status_code == 202, answer.text
    view: dict[str, Any] = answer.json()
    return view


def test_an_end_is_told_once_it_is_seen_by_anybody_and_signed(
    world: World, receiver: Receiver, callbacks: PostgresCallbacks
) -> None:
    view = submitted(world, receiver)
    world.service.press_on()
    assert deliver_due(callbacks, receiver.rules, receiver.post) == 0
    world.runs.runs[view["run_id"]].state = "success"
    world.service.press_on()  # no client looks
    assert deliver_due(callbacks, receiver.rules, receiver.post) == 1
    assert deliver_due(callbacks, receiver.rules, receiver.post) == 0
    [(path, headers, body)] = receiver.got
    told = json.loads(body)
    assert path == "/done?of=us"
    assert headers["Host"] == f"hooks.example.com:{receiver.port}"
    wanted = {"submission_id": view["submission_id"], "pipeline": "answer", "state": "succeeded"}
    assert wanted.items() <= told.items()
    assert "why?" not in body.decode(), "what was asked is nobody's business"
    at = int(headers["Aiflow-Signature"].partition(",")[0].removeprefix("t="))
    assert headers["Aiflow-Signature"] == receiver.rules.signature(UUID(told["callback_id"]), at, body)
    assert headers["Aiflow-Callback-Id"] == told["callback_id"]


def test_what_is_not_taken_is_told_again_under_the_same_id_and_not_for_ever(
    world: World, receiver: Receiver, callbacks: PostgresCallbacks
) -> None:
    view = submitted(world, receiver)
    world.runs.runs[view["run_id"]].state = "failed"
    world.client.get(view["links"]["self"])
    receiver.statuses = [500, 302, 404]
    receiver.redirects = receiver.url + "&again"
    for _ in range(4):
        assert deliver_due(callbacks, receiver.rules, receiver.post) == 1
        assert deliver_due(callbacks, receiver.rules, receiver.post) == 0, "not before its time"
        world.sql("update aiflow.callback set next_at = clock_timestamp() where next_at is not null")
    assert deliver_due(callbacks, receiver.rules, receiver.post) == 0
    assert {headers["Aiflow-Callback-Id"] for _, headers, _ in receiver.got} == {
        json.loads(receiver.got[0][2])["callback_id"]
    }
    assert [path for path, _, _ in receiver.got] == ["/done?of=us"] * 4, "no redirect is followed"


def test_after_the_last_try_nobody_tries(world: World, receiver: Receiver, callbacks: PostgresCallbacks) -> None:
    view = submitted(world, receiver)
    world.runs.runs[view["run_id"]].state = "success"
    world.client.get(view["links"]["self"])
    receiver.statuses = [500]
    world.sql("update aiflow.callback set tries = 29")
    assert MOST_TRIES == 30
    assert deliver_due(callbacks, receiver.rules, receiver.post) == 1
    world.sql("update aiflow.callback set next_at = clock_timestamp() where next_at is not null")
    assert deliver_due(callbacks, receiver.rules, receiver.post) == 0


def test_each_end_is_told_also_after_a_retry(world: World, receiver: Receiver, callbacks: PostgresCallbacks) -> None:
    view = submitted(world, receiver)
    for word in ("failed", "success"):
        world.runs.runs[view["run_id"]].state = word
        world.client.get(view["links"]["self"])
        world.sql("update aiflow.callback set next_at = clock_timestamp() where next_at is not null")  # after a retry
        assert deliver_due(callbacks, receiver.rules, receiver.post) == 1
        world.client.post(f"{view['links']['self']}:retry")
    assert [json.loads(body)["state"] for _, _, body in receiver.got] == ["failed", "succeeded"]
    assert len({headers["Aiflow-Callback-Id"] for _, headers, _ in receiver.got}) == 2


def test_a_run_that_can_not_be_made_is_told(
    world: World, receiver: Receiver, callbacks: PostgresCallbacks, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(submission: Any) -> None:
        raise LookupError("the DAG is gone")

    monkeypatch.setattr(world.runs, "make", gone)
    submitted(world, receiver)
    assert deliver_due(callbacks, receiver.rules, receiver.post) == 1
    assert json.loads(receiver.got[0][2])["state"] == "failed"


def test_two_servers_tell_it_once(world: World, receiver: Receiver, callbacks: PostgresCallbacks) -> None:
    view = submitted(world, receiver)
    world.runs.runs[view["run_id"]].state = "success"
    world.client.get(view["links"]["self"])
    ready = threading.Barrier(4)

    def deliver() -> None:
        other = PostgresCallbacks.connect(world.dsn)
        ready.wait(30)
        deliver_due(other, receiver.rules, receiver.post)
        other.close()

    threads = [threading.Thread(target=deliver) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(receiver.got) == 1


def test_who_is_not_listed_any_more_is_told_nothing(
    world: World, receiver: Receiver, callbacks: PostgresCallbacks
) -> None:
    view = submitted(world, receiver)
    world.runs.runs[view["run_id"]].state = "success"
    world.client.get(view["links"]["self"])
    assert deliver_due(callbacks, CallbackRules(("other.example.com",), SECRET), receiver.post) == 1
    assert receiver.got == []


def test_a_host_that_leads_inside_is_not_called(receiver: Receiver) -> None:
    for name in ("localhost", "127.0.0.1", socket.gethostname()):
        with pytest.raises(CallbackError, match=r"no public address|no address"):
            public_addresses(name, 443)
    post = CallbackPost(context=receiver.context)
    with pytest.raises(CallbackError):
        post.send(CallbackTarget("localhost", receiver.port, "/"), b"", {})
    assert receiver.got == []


def test_a_receiver_with_another_name_or_no_trust_is_none(receiver: Receiver) -> None:
    with pytest.raises(CallbackError, match="CERTIFICATE_VERIFY_FAILED"):
        receiver.post.send(CallbackTarget("other.example.com", receiver.port, "/"), b"", {})
    untrusting = CallbackPost(lambda _host, _port: ["127.0.0.1"])
    with pytest.raises(CallbackError, match="CERTIFICATE_VERIFY_FAILED"):
        untrusting.send(CallbackTarget("hooks.example.com", receiver.port, "/"), b"", {})
    assert receiver.got == []


def test_a_receiver_that_never_answers_is_cut_off(receiver: Receiver) -> None:
    receiver.drips = True
    with pytest.raises(CallbackError, match="did not answer"):
        replace(receiver.post, whole_seconds=0.5).send(receiver.rules.target(receiver.url), b"{}", {})
