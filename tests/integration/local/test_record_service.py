"""The record service: one record per idempotency key, whatever happens to answers and processes."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
import requests

from airflow_aiflow.local.fault import Fault
from airflow_aiflow.local.service import RecordsService


def post(service: RecordsService, fields: Any, key: str | None = None, **options: Any) -> requests.Response:
    headers = {"Authorization": f"Bearer {service.token}"} | ({"Idempotency-Key": key} if key else {})
    return requests.post(f"{service.base_url}/records", json=fields, headers=headers, timeout=10, **options)


def get(service: RecordsService, path: str) -> Any:
    headers = {"Authorization": f"Bearer {service.token}"}
    return requests.get(f"{service.base_url}{path}", headers=headers, timeout=10).json()


def test_the_same_key_gives_the_same_record(records_service: RecordsService) -> None:
    first = post(records_service, {"a": 1}, "k")
    second = post(records_service, {"a": 1}, "k")
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json() == second.json()
    assert get(records_service, "/records?key=k")["records"] == [first.json()]
    assert get(records_service, f"/records/{first.json()['id']}") == first.json()
    assert get(records_service, "/records?key=other")["count"] == 0
    assert len(records_service.records()) == 1
    assert len(records_service.requests()) == 2


def test_the_same_key_with_another_body_is_refused(records_service: RecordsService) -> None:
    post(records_service, {"a": 1}, "k")
    refused = post(records_service, {"a": 2}, "k")
    assert refused.status_code == 422
    assert "'k' was used with another body" in refused.json()["error"]["message"]
    assert len(records_service.records()) == 1


def test_without_a_key_each_request_creates(records_service: RecordsService) -> None:
    post(records_service, {"a": 1})
    post(records_service, {"a": 1})
    assert get(records_service, "/records")["count"] == 2


def test_strangers_and_nonsense_are_refused(records_service: RecordsService) -> None:
    url = f"{records_service.base_url}/records"
    assert requests.get(url, timeout=10).status_code == 401
    headers = {"Authorization": f"Bearer {records_service.token}"}
    assert requests.post(url, data=b"{", headers=headers, timeout=10).status_code == 400
    assert requests.post(url, json=1, headers={**headers, "Idempotency-Key": "k" * 2000}, timeout=10).status_code == 400
    assert requests.delete(url, headers=headers, timeout=10).status_code == 404
    assert records_service.records() == []


@pytest.mark.parametrize(("applied", "records"), [(True, 1), (False, 0)])
def test_a_cut_keeps_the_record_where_it_was_applied(
    records_service: RecordsService, applied: bool, records: int
) -> None:
    records_service.set_faults(Fault("cut", applied=applied))
    with pytest.raises(requests.ConnectionError):
        post(records_service, {"a": 1}, "k")
    assert len(records_service.records()) == records
    records_service.set_faults()
    assert post(records_service, {"a": 1}, "k").status_code == (200 if applied else 201)
    assert len(records_service.records()) == 1
    assert next(request.status for request in records_service.requests()) is None


def test_503_with_retry_after_creates_nothing(records_service: RecordsService) -> None:
    records_service.set_faults(Fault("status", status=503, retry_after="2", first=1))
    refused = post(records_service, {"a": 1}, "k")
    assert (refused.status_code, refused.headers["Retry-After"]) == (503, "2")
    assert records_service.records() == []


def test_silence(records_service: RecordsService) -> None:
    records_service.set_faults(Fault("silent"))
    headers = {"Authorization": f"Bearer {records_service.token}", "Idempotency-Key": "k"}
    with pytest.raises(requests.ReadTimeout):
        requests.post(f"{records_service.base_url}/records", json={}, headers=headers, timeout=0.5)
    assert len(records_service.records()) == 1


def test_keys_survive_a_kill(records_service: RecordsService) -> None:
    first = post(records_service, {"a": 1}, "k").json()
    os.kill(records_service.pid, signal.SIGKILL)
    records_service.stop()
    records_service.start()
    assert post(records_service, {"a": 1}, "k").json() == first
    assert len(records_service.records()) == 1
