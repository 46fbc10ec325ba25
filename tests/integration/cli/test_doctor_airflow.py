"""What `aiflow doctor` says of Airflow and of recovery: answers that a test writes down."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_aiflow.cli.__main__ import main
from airflow_aiflow.cli.doctor import airflow_side
from airflow_aiflow.cli.doctor.finding import Level
from airflow_aiflow.local.ports import free_port
from tests.airflow_api import PASSWORD, TOKEN, AirflowStandIn, serving

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)

Doctor = Callable[..., tuple[int, dict[str, dict[str, str]], str]]


class Airflow(AirflowStandIn):
    """Answer what the doctor asks."""

    def __init__(self) -> None:
        super().__init__("aiflow_recovery", "run", [], {})
        self.version = "3.3.2"
        self.health: dict[str, Any] = {
            "metadatabase": {"status": "healthy"},
            "scheduler": {"status": "healthy"},
            "triggerer": {"status": "healthy"},
            "dag_processor": {"status": None},
        }
        self.plugins = ["aiflow"]
        self.recovery: dict[str, Any] | None = {"is_paused": False, "is_stale": False, "has_import_errors": False}
        self.runs: list[dict[str, Any]] = [{"state": "running", "start_date": datetime.now(UTC).isoformat()}]
        self.may_list = True

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Any, token: str) -> tuple[int, Any]:
        """Answer."""
        if path == "/auth/token":
            return super().answer(method, path, query, body, token)
        if path == "/execution/health":
            return 200, {"status": "healthy"}
        if token != f"Bearer {TOKEN}":
            return 401, {"detail": "Invalid token"}
        dag = f"/dags/{self.dag_id}"
        match path.removeprefix("/api/v2"):
            case "/version":
                return 200, {"version": self.version}
            case "/dags":
                return (200, {"dags": []}) if self.may_list else (403, {"detail": "Forbidden"})
            case "/monitor/health":
                return 200, self.health
            case "/plugins":
                return 200, {"plugins": [{"name": name} for name in self.plugins]}
            case found if found == dag and self.recovery is not None:
                return 200, self.recovery
            case found if found == f"{dag}/dagRuns" and self.recovery is not None:
                return 200, {"dag_runs": self.runs[:1]}
        return 404, {"detail": "not found"}


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Airflow]:
    for variable in list(os.environ):
        if variable.startswith("AIRFLOW_CONN_"):
            monkeypatch.delenv(variable)
    stand_in = Airflow()
    with serving(stand_in) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        api = {"conn_type": "http", "host": host, "port": int(port), "login": "admin", "password": PASSWORD}
        monkeypatch.setenv("AIRFLOW_CONN_AIFLOW_API", json.dumps(api))
        yield stand_in


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Doctor:
    def doctor(*parts: str) -> tuple[int, dict[str, dict[str, str]], str]:
        only = [word for part in parts or ("api", "recovery", "clock.api") for word in ("--only", part)]
        code = main(["doctor", *only, "--json", "--home", str(tmp_path)])
        out = capsys.readouterr().out
        return code, {one.pop("check"): one for one in json.loads(out)["findings"]}, out

    return doctor


def levels(found: dict[str, dict[str, str]]) -> dict[str, str]:
    return {name: one["level"] for name, one in found.items() if one["level"] != "ok"}


def test_all_is_well(airflow: Airflow, doctor: Doctor) -> None:
    code, found, out = doctor("api", "recovery", "clock.api", "airflow.execution_api")
    assert (code, levels(found)) == (0, {})
    assert "3.3.2" in found["api.answers"]["found"]
    assert "never started: dag_processor" in found["api.health"]["found"]
    assert PASSWORD not in out
    assert TOKEN not in out


def test_no_answer_is_told_once(doctor: Doctor, airflow: Airflow, monkeypatch: pytest.MonkeyPatch) -> None:
    away = {"conn_type": "http", "host": "127.0.0.1", "port": free_port(), "login": "admin", "password": PASSWORD}
    monkeypatch.setenv("AIRFLOW_CONN_AIFLOW_API", json.dumps(away))
    code, found, _ = doctor()
    assert code == 1
    assert [name for name, one in found.items() if one["level"] == "error"] == ["api.answers"]
    assert found["recovery.dag"]["found"] == "not checked: see api.answers"


def test_a_wrong_password_is_told_and_not_shown(
    doctor: Doctor, airflow: Airflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = json.loads(os.environ["AIRFLOW_CONN_AIFLOW_API"]) | {"password": "battery staple"}
    monkeypatch.setenv("AIRFLOW_CONN_AIFLOW_API", json.dumps(wrong))
    code, found, out = doctor()
    assert (code, found["api.answers"]["level"]) == (1, "error")
    assert "401" in found["api.answers"]["found"]
    assert "battery staple" not in out


def test_a_user_without_rights_and_an_old_airflow(airflow: Airflow, doctor: Doctor) -> None:
    airflow.may_list = False
    found = doctor()[1]["api.answers"]
    assert (found["level"], "role Op" in found["fix"]) == ("error", True)
    airflow.may_list, airflow.version = True, "3.2.9"
    assert doctor()[1]["api.answers"]["level"] == "error"
    airflow.version = "4.0.0rc1"
    assert doctor()[1]["api.answers"]["level"] == "ok"


def test_ill_parts_of_airflow(airflow: Airflow, doctor: Doctor) -> None:
    airflow.health["triggerer"]["status"] = "unhealthy"
    code, found, _ = doctor()
    assert (code, levels(found)) == (0, {"api.health": "warning"})
    airflow.health["scheduler"]["status"] = "unhealthy"
    code, found, _ = doctor()
    assert (code, levels(found)) == (1, {"api.health": "error"})
    assert "scheduler, triggerer" in found["api.health"]["found"]


def test_without_the_plugin(airflow: Airflow, doctor: Doctor) -> None:
    airflow.plugins = ["another"]
    assert levels(doctor()[1]) == {"api.plugin": "warning"}


def test_the_recovery_dag_is_missing_paused_or_broken(airflow: Airflow, doctor: Doctor) -> None:
    for wrong, word in (
        ({"is_paused": True}, "airflow dags unpause aiflow_recovery"),
        ({"is_paused": False, "has_import_errors": True}, "airflow dags list-import-errors"),
    ):
        airflow.recovery = wrong
        code, found, _ = doctor()
        assert (code, levels(found)) == (1, {"recovery.dag": "error"})
        assert found["recovery.dag"]["fix"] == word
    airflow.recovery = None
    code, found, _ = doctor()
    assert (code, levels(found)) == (1, {"recovery.dag": "error", "recovery.runs": "error"})
    assert "dags/aiflow_recovery.py" in found["recovery.dag"]["fix"]


def run(state: str, *, started: timedelta, ended: timedelta | None = None) -> dict[str, Any]:
    return {
        "state": state,
        "start_date": (NOW - started).isoformat(),
        "end_date": None if ended is None else (NOW - ended).isoformat(),
    }


@pytest.mark.parametrize(
    ("latest", "level"),
    [
        (None, Level.ERROR),
        (run("running", started=timedelta(minutes=59)), Level.OK),
        (run("running", started=timedelta(hours=3)), Level.ERROR),
        ({"state": "queued", "start_date": None, "queued_at": NOW.isoformat()}, Level.OK),
        (run("success", started=timedelta(hours=1), ended=timedelta(seconds=2)), Level.OK),
        (run("success", started=timedelta(hours=1), ended=timedelta(minutes=6)), Level.ERROR),
        (run("failed", started=timedelta(hours=1), ended=timedelta(seconds=2)), Level.WARNING),
        (run("success", started=timedelta(hours=1)), Level.ERROR),
    ],
)
def test_when_recovery_looked_last(latest: dict[str, Any] | None, level: Level) -> None:
    found = airflow_side.lately("aiflow_recovery", latest, NOW)
    assert found.level is level
    assert bool(found.fix) == (level is not Level.OK)


def test_the_api_servers_clock_is_compared(airflow: Airflow, doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    assert levels(doctor("clock.api")[1]) == {}

    class Later(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Later:
            return cls.fromtimestamp(datetime.now(tz).timestamp() + 600, tz)

    monkeypatch.setattr(airflow_side, "datetime", Later)
    code, found, _ = doctor("clock.api")
    assert (code, levels(found)) == (0, {"clock.api": "warning"})
    assert "ahead of the API server's" in found["clock.api"]["found"]


def test_the_execution_api_elsewhere(airflow: Airflow, doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTION_API_SERVER_URL", f"http://127.0.0.1:{free_port()}/execution/")
    code, found, _ = doctor("airflow.execution_api")
    assert (code, levels(found)) == (0, {"airflow.execution_api": "warning"})
