"""Figures on their way out: through Airflow's stats to a real socket, and by a scrape of a real API app."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk.observability import stats
from fastapi import FastAPI
from fastapi.testclient import TestClient

from airflow_aiflow.plugin import AiflowPlugin
from tests.integration.airflow.conftest import Airflow

TOKEN = "scrape-0123456789abcdef"

BODY = """
def square(n):
    return n * n

@dag(schedule=None, start_date=dt.datetime(2026, 1, 1), dag_id="THE_DAG")
def the_dag():
    @task.durable
    def work(flow: Flow):
        for n in range(3):
            flow.step("square it", square, n)
    work()
the_dag()
"""

AGAIN = """
def square(n):
    return n * n

@dag(schedule=None, start_date=dt.datetime(2026, 1, 1), dag_id="THE_DAG")
def the_dag():
    @task
    def work():
        for attempt in (1, 2):
            with Flow.from_context() as flow:
                for n in range(3):
                    flow.step("square it", square, n)
    work()
the_dag()
"""


class UdpClient:
    """
    Speak StatsD's protocol as the package ``statsd`` does, which Airflow asks for only where stats are switched on.

    The rest, from our call to here, is Airflow's own.
    """

    def __init__(self, host: str, port: int, prefix: str, ipv6: bool) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._address = (host, port)
        self._prefix = prefix

    def incr(self, stat: str, count: float = 1, rate: float = 1) -> None:
        self._send(f"{stat}:{count}|c")

    def timing(self, stat: str, delta: Any, rate: float = 1) -> None:
        milliseconds = delta.total_seconds() * 1000.0 if isinstance(delta, timedelta) else delta
        self._send(f"{stat}:{milliseconds:.6f}|ms")

    def gauge(self, stat: str, value: float, rate: float = 1, delta: bool = False) -> None:
        self._send(f"{stat}:{value}|g")

    def _send(self, text: str) -> None:
        self._socket.sendto(f"{self._prefix}.{text}".encode(), self._address)


@pytest.fixture
def collector() -> Iterator[socket.socket]:
    """Give a StatsD server's socket, to which Airflow's stats lead."""
    from airflow.sdk._shared.observability.metrics import statsd_logger
    from airflow.sdk.observability.metrics.stats_utils import get_stats_factory

    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as server:
        server.bind(("127.0.0.1", 0))
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        server.settimeout(10)
        backend: Any = statsd_logger.get_statsd_logger(
            stats_class=UdpClient,
            host="127.0.0.1",
            port=server.getsockname()[1],
            prefix="airflow",
            influxdb_tags_enabled=True,
            statsd_influxdb_enabled=True,
        )
        stats.initialize(factory=lambda: backend, export_legacy_names=True)
        yield server
    stats.initialize(factory=get_stats_factory(), export_legacy_names=True)


def received(server: socket.socket) -> list[str]:
    """Read what has come; over loopback it is there when the sender goes on."""
    found = []
    server.setblocking(False)
    while True:
        try:
            found.append(server.recv(65_536).decode())
        except BlockingIOError:
            return [one for one in found if one.startswith("airflow.aiflow.")]


def test_an_attempt_reaches_a_statsd_server(airflow: Airflow, collector: socket.socket) -> None:
    ran = airflow.run(BODY)
    assert ran.states == {"work": ["success"]}
    told = received(collector)
    tags = f"workflow={ran.run.dag_id}/work,step=square_it,from_checkpoint=false"
    assert len([one for one in told if one.startswith(f"airflow.aiflow.step.duration,{tags}:")]) == 3
    assert all(one.endswith("|ms") for one in told if "duration" in one)
    assert any(one.startswith("airflow.aiflow.ledger.commit_seconds,statement=record:") for one in told)


def test_a_resumed_attempt_tells_what_it_saved(airflow: Airflow, collector: socket.socket) -> None:
    ran = airflow.run(AGAIN)
    assert ran.states == {"work": ["success"]}
    told = received(collector)
    workflow = f"workflow={ran.run.dag_id}/work"
    assert f"airflow.aiflow.steps.saved,{workflow},sign=same:3|c" in told
    replayed = f"airflow.aiflow.step.duration,{workflow},step=square_it,from_checkpoint=true:"
    assert len([one for one in told if one.startswith(replayed)]) == 1


def test_opentelemetry_gets_tags_and_milliseconds(airflow: Airflow) -> None:
    from airflow.sdk._shared.observability.metrics.otel_logger import SafeOtelLogger
    from airflow.sdk.observability.metrics.stats_utils import get_stats_factory
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    reader = InMemoryMetricReader()
    backend: Any = SafeOtelLogger(MeterProvider([reader]))
    stats.initialize(factory=lambda: backend, export_legacy_names=True)
    try:
        ran = airflow.run(AGAIN)
        data = reader.get_metrics_data()
    finally:
        stats.initialize(factory=get_stats_factory(), export_legacy_names=True)
    assert data is not None
    metrics = {one.name: one for one in data.resource_metrics[0].scope_metrics[0].metrics}
    assert metrics["airflow.aiflow.step.duration"].unit == "ms"
    [saved] = metrics["airflow.aiflow.steps.saved"].data.data_points
    assert getattr(saved, "value", None) == 3
    assert dict(saved.attributes or {}) == {"workflow": f"{ran.run.dag_id}/work", "sign": "same"}


# --- GET /aiflow/metrics ---


@pytest.fixture
def client(airflow: Airflow) -> Iterator[TestClient]:
    """Give a client of what the plugin has the API server mount, with Airflow's auth manager behind it."""
    from airflow.api_fastapi.app import init_auth_manager, purge_cached_app

    server = FastAPI()
    init_auth_manager(server)
    [ours] = AiflowPlugin().fastapi_apps
    server.mount(ours["url_prefix"], ours["app"])
    with TestClient(server) as made:
        yield made
    purge_cached_app()


def user_token(role: str | None) -> str:
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    return str(get_auth_manager().generate_jwt(SimpleAuthManagerUser(username="ann", role=role)))


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
def scrape_token(monkeypatch: pytest.MonkeyPatch) -> str:
    """Give a configured token."""
    monkeypatch.setenv("AIRFLOW__AIFLOW__METRICS_TOKEN", TOKEN)
    return TOKEN


def test_a_viewer_reads_the_figures(client: TestClient) -> None:
    answer = client.get("/aiflow/metrics", headers=bearer(user_token("viewer")))
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert answer.headers["cache-control"] == "no-store"
    assert "# TYPE aiflow_leases gauge\n" in answer.text
    assert answer.text.endswith("\n")


def test_the_cookie_of_the_ui_is_a_user_too(client: TestClient) -> None:
    client.cookies.set("_token", user_token("viewer"))
    assert client.get("/aiflow/metrics").status_code == 200


def test_a_user_without_the_right_does_not(client: TestClient) -> None:
    assert client.get("/aiflow/metrics", headers=bearer(user_token(None))).status_code == 403


def test_a_scraper_needs_the_configured_token(client: TestClient, scrape_token: str) -> None:
    assert client.get("/aiflow/metrics", headers=bearer(scrape_token)).status_code == 200
    assert client.get("/aiflow/metrics", headers={"Authorization": f"bearer {scrape_token}"}).status_code == 200
    assert client.get("/aiflow/metrics", headers=bearer(user_token("viewer"))).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        bearer(TOKEN[:-1]),
        bearer(TOKEN + "x"),
        bearer(""),
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": TOKEN},
        {"X-Token": TOKEN},
        {"Authorization": b"Bearer \xff\xfe"},
    ],
)
def test_nobody_else_is_let_in(client: TestClient, scrape_token: str, headers: Any) -> None:
    answer = client.get("/aiflow/metrics", headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert "aiflow_" not in answer.text


def test_the_token_does_not_work_from_the_address(client: TestClient, scrape_token: str) -> None:
    client.cookies.set("_token", scrape_token)
    assert client.get(f"/aiflow/metrics?token={scrape_token}").status_code == 401


@pytest.mark.parametrize("token", ["", "x"])
def test_without_a_configured_token_nobody_scrapes(client: TestClient, token: str) -> None:
    assert client.get("/aiflow/metrics", headers=bearer(token)).status_code == 401


def test_a_token_that_is_too_short_opens_nothing(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AIRFLOW__AIFLOW__METRICS_TOKEN", "short")
    answer = client.get("/aiflow/metrics", headers=bearer("short"))
    assert answer.status_code == 503
    assert "16" not in answer.text
    assert "metrics_token must be at least 16 characters long" in caplog.text
    assert "'short'" not in caplog.text


def test_a_ledger_that_is_away_is_said_without_its_address(
    client: TestClient, scrape_token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_AIFLOW_GONE", "postgresql://aiflow:secret@127.0.0.1:1/aiflow")
    monkeypatch.setenv("AIRFLOW__AIFLOW__LEDGER_CONN_ID", "aiflow_gone")
    answer = client.get("/aiflow/metrics", headers=bearer(scrape_token))
    assert answer.status_code == 503
    assert "127.0.0.1" not in answer.text
    assert "secret" not in answer.text


@pytest.mark.parametrize("path", ["/aiflow/docs", "/aiflow/openapi.json", "/aiflow/redoc", "/aiflow/"])
def test_nothing_else_is_served(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 404


def test_a_broken_app_leaves_the_server_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_aiflow.api.app.create_app", None)
    assert AiflowPlugin().fastapi_apps == []


def test_what_ran_shows(airflow: Airflow, client: TestClient, scrape_token: str) -> None:
    import psycopg

    ran = airflow.run(BODY)
    assert ran.states == {"work": ["success"]}
    with psycopg.connect(airflow.ledger, autocommit=True) as behind:
        behind.execute("update aiflow.step set recorded_at = recorded_at - interval '60 s'")
        behind.execute("update aiflow.tally_mark set upto = now() - interval '10 min'")
        behind.execute("delete from aiflow.tally")
        [(steps,)] = behind.execute("select count(*) from aiflow.step where kind = 'step'").fetchall()
    answer = client.get("/aiflow/metrics", headers=bearer(scrape_token))
    assert f'aiflow_steps_recorded_total{{kind="step"}} {steps}\n' in answer.text
