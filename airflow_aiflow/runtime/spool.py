"""
Keep outcomes that can't reach the ledger on this host's disk until they can.

One file a record, readable by the owner alone, synced to disk, sealed. They are taken in by the same idempotent
statements, before the read at each take-over on that host, so a paid answer is not lost with the connection. A file
that can't be taken in stays and is named: it must neither be lost nor keep any task of this host from starting.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from airflow_aiflow.durable.effect import Outcome
from airflow_aiflow.durable.execution import Lease
from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.durable.payload import decode, encode
from airflow_aiflow.durable.ports import Host, Ledger
from airflow_aiflow.durable.record import Batch, StepRecord, Stored, Usage
from airflow_aiflow.exceptions import LedgerError, LedgerUnavailableError, PayloadError, SealError
from airflow_aiflow.storage.payload_cipher import PayloadCipher

SUFFIX = ".spool"
KEPT_SUFFIX = ".kept.txt"


def _to_plain(value: Any) -> dict[str, Any] | None:
    return None if value is None else {field.name: getattr(value, field.name) for field in fields(value)}


def _stored_from_plain(plain: dict[str, Any] | None) -> Stored | None:
    return None if plain is None else Stored(**plain)


def _step_to_plain(record: StepRecord) -> dict[str, Any]:
    # For people alone, so it is left out: the release before, at work on this host, takes the file in as well.
    plain = {field.name: getattr(record, field.name) for field in fields(StepRecord) if field.name != "arguments"}
    return plain | {"result": _to_plain(record.result), "usage": _to_plain(record.usage)}


def _step_from_plain(plain: dict[str, Any]) -> StepRecord:
    usage = plain["usage"] and Usage(**plain["usage"])
    return StepRecord(**(plain | {"result": _stored_from_plain(plain["result"]), "usage": usage}))


class Spool:
    """
    Write and take in spooled outcomes.

    :param folder: where they lie; made when first needed.
    :param seal_key: the deployment's key; without one a file is sealed against damage, not against forgery.
    :param execution: whose results this attempt keeps: another ledger may know another execution by the same number.
    :param cipher: encrypts the files; ``None``: they are in clear, readable by the owner alone.
    """

    def __init__(
        self,
        folder: Path,
        seal_key: bytes | None = None,
        execution: ExecutionId | None = None,
        cipher: PayloadCipher | None = None,
    ) -> None:
        self.folder = folder
        self._key = seal_key or b"aiflow-spool"
        self._execution = _to_plain(execution)
        self._cipher = cipher or PayloadCipher()

    def keep_steps(self, lease: Lease, generation: int, steps: Iterable[StepRecord]) -> Path:
        """
        Keep recorded steps.

        :param lease: whose they are.
        :param generation: of the execution.
        :param steps: the records.
        :return: the file.
        """
        return self._write(
            {
                "kind": "steps",
                "execution": self._execution,
                "pk": lease.execution_pk,
                "fence": lease.fence,
                "generation": generation,
                "steps": [_step_to_plain(record) for record in steps],
            }
        )

    def keep_outcome(self, intent_id: UUID, outcome: Outcome, result: Stored | None, seal: bytes | None) -> Path:
        """
        Keep an intent's outcome.

        :return: the file.
        """
        plain = {"kind": "outcome", "intent_id": intent_id, "outcome": outcome, "seal": seal}
        return self._write(plain | {"result": _to_plain(result)})

    def keep_text(self, name: str, text: str) -> Path:
        """
        Keep a text for people; it is never taken in.

        :param name: the step's name, part of the text and never of the path.
        :param text: what to keep.
        :return: the file.
        """
        return self._put(self._cipher.lock(f"step '{name}' of {text}".encode("utf-8", "backslashreplace")), KEPT_SUFFIX)

    def files(self) -> list[Path]:
        """List what waits, oldest first."""
        dated: list[tuple[int, Path]] = []
        for path in self.folder.glob(f"*{SUFFIX}"):
            try:
                dated.append((path.stat().st_mtime_ns, path))
            except FileNotFoundError:
                continue  # another attempt on this host took it in
        return [path for _, path in sorted(dated)]

    def take_in(self, ledger: Ledger, host: Host) -> int:
        """
        Bring everything that waits into the ledger. A file that can't be taken in stays, and is named in the log.

        :return: how many files were taken in.
        :raises LedgerUnavailableError: if the ledger can't be asked now.
        """
        taken = 0
        for path in self.files():
            try:
                self._apply(ledger, self._read(path))
                path.unlink(missing_ok=True)
            except FileNotFoundError:
                continue  # another attempt on this host took it in
            except LedgerUnavailableError:
                raise
            except (PayloadError, LedgerError, OSError, LookupError, TypeError, ValueError) as error:
                host.log(f"spooled outcome {path.name} is left alone: {error}", warning=True)
                continue
            taken += 1
        return taken

    @staticmethod
    def _apply(ledger: Ledger, plain: dict[str, Any]) -> None:
        if plain["kind"] == "steps":
            execution = ExecutionId(**plain["execution"])
            standing = ledger.standing(execution)
            if standing is None or standing.execution_pk != plain["pk"] or standing.generation < plain["generation"]:
                raise LedgerError(f"this ledger does not know {execution} as the one that the result belongs to")
            steps = tuple(_step_from_plain(step) for step in plain["steps"])
            ledger.record(Lease(plain["pk"], plain["fence"]), plain["generation"], Batch(steps=steps))
        else:
            result = _stored_from_plain(plain["result"])
            ledger.settle(plain["intent_id"], plain["outcome"], result=result, seal=plain["seal"])

    def _write(self, plain: dict[str, Any]) -> Path:
        body = self._cipher.lock(encode(plain).data)
        return self._put(self._seal(body) + body, SUFFIX)

    def _put(self, raw: bytes, suffix: str) -> Path:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.folder / f"{uuid4()}{suffix}"
        unfinished = path.with_suffix(".part")
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(path)
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return path

    def _read(self, path: Path) -> dict[str, Any]:
        raw = path.read_bytes()
        seal, body = raw[:32], raw[32:]
        if not hmac.compare_digest(seal, self._seal(body)):
            raise SealError("its seal does not fit its content (damaged, edited, or sealed with another seal_key)")
        plain: dict[str, Any] = decode(self._cipher.open(body, f"the spooled outcome {path.name}"))
        return plain

    def _seal(self, body: bytes) -> bytes:
        return hmac.new(self._key, body, hashlib.sha256).digest()
