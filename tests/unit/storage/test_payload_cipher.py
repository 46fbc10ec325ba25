"""Payloads that are encrypted at rest: who opens them, and what is said where nobody can."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet
from hypothesis import given
from hypothesis import strategies as st

from airflow_aiflow.durable.execution import Lease
from airflow_aiflow.durable.ports import Recorded
from airflow_aiflow.durable.settings import FlowSettings
from airflow_aiflow.exceptions import (
    AiflowConfigError,
    EffectOptionError,
    LedgerUnavailableError,
    PayloadDecodeError,
    SealError,
)
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.runtime.requests import EffectContext
from airflow_aiflow.storage.payload_cipher import MAGIC, PayloadCipher, check_keys, key_id
from airflow_aiflow.testing import DurableTask

OLD, NEW = Fernet.generate_key(), Fernet.generate_key()
SECRET = "sk-test-123"
CALLS: list[str] = []


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    CALLS.clear()


@given(st.binary(max_size=2000))
def test_what_is_locked_opens_again_and_shows_nothing(data: bytes) -> None:
    locked = PayloadCipher([NEW]).lock(data)
    assert locked.startswith(MAGIC)
    assert len(data) < 8 or data not in locked[len(MAGIC) :]
    assert PayloadCipher([OLD, NEW]).open(locked, "it") == data


def test_without_keys_bytes_stay_as_they_are_and_rows_from_before_stay_readable() -> None:
    assert PayloadCipher().lock(b'"x"') == b'"x"'
    assert PayloadCipher([NEW]).open(b'"x"', "it") == b'"x"'


def test_equal_values_are_locked_differently() -> None:
    cipher = PayloadCipher([NEW])
    assert cipher.lock(b"same") != cipher.lock(b"same")


@pytest.mark.parametrize("keys", [[], [OLD]])
def test_without_its_key_a_payload_names_the_key_and_never_becomes_nothing(keys: list[bytes]) -> None:
    locked = PayloadCipher([NEW]).lock(b"paid answer")
    with pytest.raises(
        PayloadDecodeError, match=f"the record of 'page' is encrypted with the key {key_id(NEW)}"
    ) as caught:
        PayloadCipher(keys).open(locked, "the record of 'page'")
    assert NEW.decode() not in str(caught.value)


@pytest.mark.parametrize("place", [len(MAGIC) + 4, len(MAGIC) + 30, -1])
def test_a_changed_byte_is_told(place: int) -> None:
    locked = bytearray(PayloadCipher([NEW]).lock(b"paid answer"))
    locked[place] ^= 1
    with pytest.raises(PayloadDecodeError, match="damaged or edited"):
        PayloadCipher([NEW]).open(bytes(locked), "it")


def test_a_cut_payload_is_told() -> None:
    locked = PayloadCipher([NEW]).lock(b"paid answer")
    with pytest.raises(PayloadDecodeError):
        PayloadCipher([NEW]).open(locked[:-7], "it")


@pytest.mark.parametrize(
    "wrong",
    [b"short", b"not base64 at all!", Fernet.generate_key()[:-4], b"\xff" * 44],
    ids=["short", "no base64", "cut", "no text"],
)
def test_a_wrong_key_is_refused_by_its_place_and_never_shown(wrong: bytes) -> None:
    with pytest.raises(AiflowConfigError, match="key 2 of 2 is no Fernet key") as caught:
        check_keys([NEW, wrong])
    assert wrong.decode("latin-1") not in str(caught.value)


def encrypted(task: DurableTask, *keys: bytes) -> DurableTask:
    task.settings = replace(task.settings, payload_keys=keys)
    return task


def computed(text: str) -> str:
    CALLS.append("computed")
    return f"{text} {SECRET}"


def send(ctx: EffectContext, token: str) -> dict[str, str]:
    CALLS.append("sent")
    return {"token": token}


def body(flow: Flow) -> tuple[str, dict[str, str]]:
    return flow.step("compute", computed, "a"), flow.effect("send", send, SECRET, key="one")


def test_with_keys_a_secret_is_recorded_and_replayed() -> None:
    task = encrypted(DurableTask(secrets=(SECRET,)), NEW)
    first = task.run(body)
    assert task.run(body) == first == (f"a {SECRET}", {"token": SECRET})
    assert CALLS == ["computed", "sent"]
    assert not task.host.warnings
    assert not any(SECRET in line for line in task.host.lines)


def test_without_keys_a_request_with_a_secret_is_refused_and_the_way_out_is_named() -> None:
    task = DurableTask(secrets=(SECRET,))
    with pytest.raises(EffectOptionError, match="payload_keys"):
        task.run(body)
    assert CALLS == ["computed"]


def test_keys_are_changed_by_putting_the_new_one_first() -> None:
    task = encrypted(DurableTask(secrets=(SECRET,)), OLD)
    first = task.run(body)
    assert encrypted(task, NEW, OLD).run(body) == first
    with pytest.raises(PayloadDecodeError, match=key_id(OLD)):
        encrypted(task, NEW).run(body)
    assert CALLS == ["computed", "sent"]


def test_a_locked_payload_moved_to_another_step_is_refused_by_its_seal() -> None:
    task = encrypted(DurableTask(), NEW)

    def two(flow: Flow) -> tuple[str, str]:
        return flow.step("one", str.upper, "a"), flow.step("two", str.upper, "b")

    task.run(two)
    original = task.ledger.recorded

    def swapped(lease: Lease, generation: int) -> Recorded:
        one, other = (recorded := original(lease, generation)).steps
        return replace(recorded, steps=[replace(one, result=other.result), replace(other, result=one.result)])

    task.ledger.recorded = swapped  # type: ignore[method-assign]
    with pytest.raises(SealError, match="'one'"):
        task.run(two)


def test_a_spooled_answer_and_a_kept_text_are_locked(tmp_path: Path) -> None:
    settings = FlowSettings(spool_dir=tmp_path, ledger_patience=0.5, payload_keys=(NEW,))
    task = DurableTask(settings=settings, secrets=(SECRET,))

    def lost(flow: Flow) -> str:
        task.ledger.unavailable = True  # type: ignore[attr-defined]
        return flow.step("compute", computed, "a")

    with pytest.raises(LedgerUnavailableError):
        task.run(lost)
    (kept,) = tmp_path.glob("*.spool")
    assert SECRET.encode() not in kept.read_bytes()
    task.ledger.unavailable = False  # type: ignore[attr-defined]
    assert task.run(lambda flow: flow.step("compute", computed, "a")) == f"a {SECRET}"
    assert CALLS == ["computed"]


def test_events_of_the_author_are_locked() -> None:
    task = encrypted(DurableTask(), NEW)
    task.run(lambda flow: flow.emit("found", name="Smith"))
    tables: Any = task.ledger._tables  # type: ignore[attr-defined]
    events = [event for of_attempt in tables.events.values() for event in of_attempt.values()]
    assert "found" in {kind for kind, _ in events}
    assert all(data.startswith(MAGIC) and b"Smith" not in data for _, data in events)
