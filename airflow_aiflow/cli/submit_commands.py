"""Carry out `aiflow submit | watch | cancel | submissions [WORD ID]`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from airflow_aiflow.cli.api_address import VARIABLE, find_api
from airflow_aiflow.cli.output import FINDING, OK, note, show, table
from airflow_aiflow.cli.progress_bar import Lines
from airflow_aiflow.client import AiflowClient, Event, SubmitError
from airflow_aiflow.client.synchronous import LOST
from airflow_aiflow.exceptions import AiflowConfigError, AirflowUnavailableError, SubmissionRefusedError


@contextmanager
def _client(options: argparse.Namespace) -> Iterator[AiflowClient]:
    api = find_api(options)
    if api is None:
        raise AiflowConfigError(
            f"where is Airflow? Set {VARIABLE} to a connection of type http, as http://USER:PASSWORD@HOST:8080, or "
            "start the embedded stack by `aiflow up`"
        )
    api.close()
    signed: dict[str, Any] = dict(api.credentials)
    with AiflowClient(api.base_url, **signed) as client:
        try:
            yield client
        except SubmitError as error:
            raise SubmissionRefusedError(str(error)) from error
        except LOST as error:
            raise AirflowUnavailableError(f"Airflow at {api.base_url} can't be asked: {error}") from error


def submit(options: argparse.Namespace) -> int:
    """Hand a task in; with ``--wait`` follow it and print its result."""
    labels = dict(label.partition("=")[::2] for label in options.label)
    wanted = {"priority": options.priority, "deadline": options.deadline}
    more = {name: value for name, value in wanted.items() if value is not None}
    with _client(options) as client:
        one = client.submit(options.pipeline, _input(options.input), key=options.key, labels=labels, **more)
        if not options.wait:
            show(options, one, f"{one['submission_id']}  {one['state']}")
            return OK
        note(f"aiflow: submission {one['submission_id']}; `aiflow watch` follows it if this is interrupted")
        return _followed(options, client, one["submission_id"], result=True)


def watch(options: argparse.Namespace) -> int:
    """Follow a submission to its end."""
    with _client(options) as client:
        return _followed(options, client, str(options.id), result=False)


def moved(options: argparse.Namespace) -> int:
    """Cancel, pause, resume or retry a submission; asked twice it is done once."""
    with _client(options) as client:
        one = getattr(client, options.word)(options.id)
    show(options, one, _standing(one))
    return OK


def shown(options: argparse.Namespace) -> int:
    """Tell how a submission stands."""
    with _client(options) as client:
        one = client.get(options.id)
    show(options, one, _standing(one))
    return OK


def printed(options: argparse.Namespace) -> int:
    """Print a result: JSON, or a file's own bytes."""
    with _client(options) as client:
        _print_result(client, str(options.id))
    return OK


def listed(options: argparse.Namespace) -> int:
    """List submissions."""
    wanted = {"pipeline": options.pipeline, "state": options.state, "mine": options.mine or None}
    if options.label is not None:
        wanted["label"] = options.label.replace("=", ":", 1)
    filters = {name: value for name, value in wanted.items() if value is not None}
    with _client(options) as client:
        found = list(islice(client.list(**filters, limit=min(100, max(1, options.limit))), options.limit))
    rows = [
        (one["submission_id"], one["state"], one["pipeline"], one["created_at"][:19], one["pause_reason"] or "")
        for one in found
    ]
    show(options, {"submissions": found}, table(rows) or "there are no submissions")
    return OK


def _followed(options: argparse.Namespace, client: AiflowClient, submission_id: str, *, result: bool) -> int:
    client.get(submission_id)  # one that is not there is told at once
    lines = Lines()
    try:
        for event in client.stream(submission_id):
            if not options.json:
                _tell(lines, event)
    finally:
        lines.close()
    one = client.get(submission_id)
    if one["state"] != "succeeded" or not result:
        show(options, one, _standing(one))
        return OK if one["state"] == "succeeded" else FINDING
    _print_result(client, submission_id)
    return OK


def _print_result(client: AiflowClient, submission_id: str) -> None:
    found = client.result(submission_id)
    if isinstance(found, bytes):
        sys.stdout.buffer.write(found)
        sys.stdout.flush()
    else:
        print(json.dumps(found, ensure_ascii=False), flush=True)


def _standing(one: Mapping[str, Any]) -> str:
    """Say on one line how it stands, and what it is on its way to."""
    on_its_way = "cancelling" if one.get("cancelling") else "pausing" if one.get("pausing") else None
    said = one["state"] if on_its_way is None or one["state"] == "paused" else f"{one['state']}, {on_its_way}"
    why = one.get("pause_reason") or one.get("error")
    return f"{one['submission_id']}  {said}{f': {why}' if why else ''}"


def _tell(lines: Lines, event: Event) -> None:
    data = event.data
    if event.name == "state":
        lines.line(f"{data['state']}")
        return
    kind, said = data["kind"], data["data"] if isinstance(data["data"], dict) else {}
    if kind == "progress":
        lines.bar(said.get("done"), said.get("total"), str(said.get("message") or ""))
        return
    name = said.get("name")
    lines.line(f"  {data['task_id']}: {kind}{' ' + str(name) if name else ''}")


def _input(text: str) -> dict[str, Any]:
    where = "--input"
    if text.startswith("@"):
        where = "standard input" if text == "@-" else text[1:]
        try:
            text = sys.stdin.read() if text == "@-" else Path(text[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SubmissionRefusedError(f"{where} can't be read: {error}") from error
    try:
        found = json.loads(text)
    except ValueError as error:
        raise SubmissionRefusedError(f"{where} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise SubmissionRefusedError(f"{where} must be a JSON object: names and values of the DAG's params")
    return found
