"""What Airflow finds of this package, and what the button "Test" of a connection says."""

from __future__ import annotations

import json
import os

import pytest

from airflow_aiflow.hooks.minio import MinioHook
from tests.integration.airflow.conftest import Airflow


def test_the_connection_type_has_a_form(airflow: Airflow) -> None:
    from airflow.providers_manager import ProvidersManager
    from airflow.sdk.providers_manager_runtime import ProvidersManagerTaskRuntime

    manager = ProvidersManager()  # type: ignore[no-untyped-call]
    found = ProvidersManagerTaskRuntime().hooks["minio"]  # type: ignore[no-untyped-call]
    assert found is not None
    assert (found.hook_name, found.connection_type) == ("S3 server (minio SDK)", "minio")
    behaviour = manager.field_behaviours["minio"]
    assert behaviour["relabeling"]["login"] == "Access key"
    widgets = {name for name in manager.connection_form_widgets if name.startswith("extra__minio__")}
    assert {"extra__minio__bucket", "extra__minio__region", "extra__minio__secure"} <= widgets


def test_the_plugin_is_loaded_once_without_an_error(airflow: Airflow) -> None:
    from airflow import plugins_manager

    plugins, errors = plugins_manager._get_plugins()
    assert errors == {}
    assert [one.name for one in plugins].count("aiflow") == 1


def test_a_connection_that_works(airflow: Airflow) -> None:
    works, told = MinioHook().test_connection()
    assert works, told
    assert told.startswith("stored, read and removed an object in bucket")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"password": "not-the-secret"}, "refuse"),
        ({"schema": "no-such-bucket-here"}, "no-such-bucket-here"),
        ({"host": "ftp://127.0.0.1"}, "must be host, host:port or http"),
        ({"conn_type": "ftp"}, "use 'minio' for any S3 server"),
    ],
)
def test_a_connection_that_does_not(
    airflow: Airflow, monkeypatch: pytest.MonkeyPatch, change: dict[str, str], message: str
) -> None:
    given = json.loads(os.environ["AIRFLOW_CONN_AIFLOW_ARTIFACTS"])
    monkeypatch.setenv("AIRFLOW_CONN_ANOTHER", json.dumps({**given, **change}))
    works, told = MinioHook("another").test_connection()
    assert not works
    assert message in told
    assert given["password"] not in told
    assert "not-the-secret" not in told


def test_a_connection_that_is_missing(airflow: Airflow) -> None:
    works, told = MinioHook("nowhere").test_connection()
    assert not works
    assert "the connection 'nowhere' (the artifact store) is not defined" in told
    assert "AIRFLOW_CONN_NOWHERE='minio://KEY:SECRET@HOST:9000/BUCKET'" in told
