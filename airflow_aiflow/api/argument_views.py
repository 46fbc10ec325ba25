"""What is kept of a step's arguments as JSON: masked once more, an artifact by its address."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from airflow_aiflow.api.execution_models import ArgumentModel, ArtifactModel
from airflow_aiflow.durable.canonical_reader import ARTIFACT
from airflow_aiflow.durable.record import StepRecord
from airflow_aiflow.durable.step_arguments import Argument, unpack
from airflow_aiflow.exceptions import PayloadError
from airflow_aiflow.runtime.readable import redacted
from airflow_aiflow.storage.payload_cipher import PayloadCipher

#: Parts of a fingerprint that are no arguments: what kind of call it is, the hash of a conversation, how often an agent
#: asked again.
NOT_SHOWN = frozenset({"kind", "conversation", "round"})

#: How an artifact's address is written.
_ADDRESS = re.compile(r"[0-9a-f]{64}")


def argument_models(
    record: StepRecord, cipher: PayloadCipher, href: Callable[[str], str]
) -> list[ArgumentModel] | None:
    """
    Show the arguments of a step.

    :param record: the step.
    :param cipher: opens what is encrypted.
    :param href: gives the link to an artifact.
    :return: ``None``: none are kept.
    """
    if record.arguments is None:
        return None
    try:
        found = unpack(record.arguments, lambda data: cipher.open(data, "they"))
    except PayloadError as error:
        return [ArgumentModel(name="(not readable here)", value=str(error))]
    return [_shown(each, href) for each in found if each.name not in NOT_SHOWN and not _is_left_out(each)]


def _is_left_out(one: Argument) -> bool:
    return one.name == "version" and one.value is None


def _shown(one: Argument, href: Callable[[str], str]) -> ArgumentModel:
    if not one.kept:
        return ArgumentModel(name=one.name, value="(not kept)", cut=True)
    address = next(_artifacts(one.value), None)
    artifact = None
    if address is not None:
        artifact = ArtifactModel(sha256=address, size=None, media_type="application/octet-stream", href=href(address))
    value = redacted({one.name: one.value})[one.name]
    return ArgumentModel(name=one.name, value=value, cut=one.cut, artifact=artifact)


def _artifacts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        address = value.get(ARTIFACT)
        if len(value) == 1 and isinstance(address, str) and _ADDRESS.fullmatch(address):
            yield address
        for item in value.values():
            yield from _artifacts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _artifacts(item)


def names_artifact(record: StepRecord, sha256: str, cipher: PayloadCipher) -> bool:
    """
    Say whether a step was given an artifact.

    :param record: the step.
    :param sha256: the artifact's address.
    :param cipher: opens what is encrypted.
    """
    if record.arguments is None:
        return False
    try:
        found = unpack(record.arguments, lambda data: cipher.open(data, "they"))
    except PayloadError:
        return False
    return any(sha256 in _artifacts(each.value) for each in found)
