"""Our own settings: the lease's two durations, the keys, and whether every option can be used."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from airflow_aiflow.cli.doctor.finding import Finding, error, ok, warning
from airflow_aiflow.config import MIN_SEAL_KEY
from airflow_aiflow.durable.lease import LeaseRules
from airflow_aiflow.exceptions import AiflowConfigError
from airflow_aiflow.storage.payload_cipher import check_keys

#: Seconds below which Airflow's late word about the parked process fails a task that has come back already.
RESCHEDULE_SAFE = 20.0

MAKE_KEY = "python -c 'import secrets; print(secrets.token_hex(32))'"


def number(text: str, name: str) -> float:
    """
    Read a number of seconds.

    :param text: as configured.
    :param name: ``section.option``.
    :raises AiflowConfigError: if it is none.
    """
    section, _, option = name.partition(".")
    try:
        return float(text)
    except ValueError:
        raise AiflowConfigError(f"[{section}] {option} must be a number of seconds, got {text!r}") from None


def lease(ttl: float, interval: float) -> Finding:
    """
    Look at the lease.

    :param ttl: ``lease_ttl``, in seconds.
    :param interval: ``heartbeat_interval``, in seconds.
    """
    try:
        LeaseRules(ttl, interval)
    except AiflowConfigError as why:
        fix = (
            f"AIRFLOW__AIFLOW__LEASE_TTL={3 * interval:g}" if interval > 0 else "AIRFLOW__AIFLOW__HEARTBEAT_INTERVAL=10"
        )
        return error(str(why), "no durable task starts", f"{fix}, on every worker")
    return ok(f"lease_ttl {ttl:g} s, heartbeat_interval {interval:g} s: {ttl / interval - 1:.1f} beats may be lost")


def options(read: Callable[[], object], known: str | None) -> Finding:
    """
    Read every option.

    :param read: reads them all, and raises at the first that can't be used.
    :param known: the message of another check, which is not told twice.
    """
    try:
        read()
    except AiflowConfigError as why:
        if str(why) != known:
            return error(str(why), "no durable task starts", "mend the option that is named")
    return ok("every other option of [aiflow] can be used" if known else "every option of [aiflow] can be used")


def reschedule_delay(seconds: float) -> Finding:
    """
    Look at how soon a task comes back that gave its slot away.

    :param seconds: ``reschedule_delay``.
    """
    if seconds >= RESCHEDULE_SAFE:
        return ok(f"reschedule_delay {seconds:g} s")
    return warning(
        f"reschedule_delay is {seconds:g} s",
        "Airflow's late word about the parked process may fail the task that has come back already",
        "AIRFLOW__AIFLOW__RESCHEDULE_DELAY=30",
    )


def seal_key(key: str) -> Finding:
    """
    Look at the key of the seals.

    :param key: as configured; never shown.
    """
    if not key:
        return warning(
            "[aiflow] seal_key is not set",
            "seals find damage, and not a row that somebody edited or copied by hand",
            f"AIRFLOW__AIFLOW__SEAL_KEY, the same everywhere; make one by: {MAKE_KEY}",
        )
    if len(key) < MIN_SEAL_KEY:
        return error(
            f"[aiflow] seal_key has {len(key)} characters",
            "no durable task starts",
            f"at least {MIN_SEAL_KEY} of them; make one by: {MAKE_KEY}",
        )
    return ok("seal_key is set")


def own_payload_keys(keys: Sequence[bytes]) -> Finding:
    """
    Look at the keys of the payloads.

    :param keys: as configured; never shown.
    """
    try:
        check_keys(keys)
    except AiflowConfigError as why:
        return error(str(why), "no durable task starts", "replace that key; the first one encrypts, all of them open")
    if not keys:
        return ok("payloads are stored in clear: payload_keys is not set")
    return ok(f"payloads are encrypted; {len(keys)} keys open what is stored")


def spool_folder(folder: Path) -> Finding:
    """
    Look whether outcomes could be kept on this machine.

    :param folder: the spool; made when first needed.
    """
    place = next((one for one in (folder, *folder.parents) if one.exists()), folder)
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        return error(
            f"{folder} can't be written to by this user ({place})",
            "a paid answer that can't reach the ledger is lost with its process",
            "run this as the user of the workers; let that user write there, or set AIRFLOW__AIFLOW__SPOOL_DIR",
        )
    if place == folder and folder.stat().st_mode & 0o077:
        return warning(f"others may look into {folder}", "they read what waits there", f"chmod 700 {folder}")
    return ok(f"{folder} can be written to" if place == folder else f"{folder} can be made when it is needed")


def spool(folder: Path, now: datetime | None = None) -> Finding:
    """
    Look for outcomes that wait on this machine.

    :param folder: the spool.
    :param now: for tests; ``None``: this machine's time, which also dated the files.
    """
    from airflow_aiflow.runtime.spool import KEPT_SUFFIX, SUFFIX

    left = sorted(folder.glob(f"*{SUFFIX}"), key=lambda path: path.stat().st_mtime)
    kept = sorted(folder.glob(f"*{KEPT_SUFFIX}"))
    if not left and not kept:
        return ok(f"nothing waits in {folder}")
    hours = 0.0
    if left:
        age = (now or datetime.now(UTC)) - datetime.fromtimestamp(left[0].stat().st_mtime, UTC)
        hours = age.total_seconds() / 3600
    counts = [f"{len(left)} outcomes, the oldest {hours:.1f} h old"] if left else []
    counts += [f"{len(kept)} texts for people"] if kept else []
    return warning(
        f"{folder} holds {' and '.join(counts)}",
        "an outcome is taken in by the next durable task that starts on this machine, a text never",
        "aiflow spool list; start a durable task here while the ledger answers, and delete texts that were read",
    )
