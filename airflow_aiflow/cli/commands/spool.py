"""`aiflow spool list | show`: see what waits on this host, also where it is encrypted."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from airflow_aiflow.cli.output import FINDING, OK, json_option, show, table
from airflow_aiflow.exceptions import AiflowConfigError

#: Where Airflow reads the two options from the environment; this command has no other way to them.
FOLDER = "AIRFLOW__AIFLOW__SPOOL_DIR"
KEYS = "AIRFLOW__AIFLOW__PAYLOAD_KEYS"


def add_parser(subparsers: Any) -> None:
    """Add the noun with its verbs."""
    parser = subparsers.add_parser("spool", help="outcomes that wait on this host: list, show")
    verbs = parser.add_subparsers(title="verbs", dest="verb", required=True, metavar="VERB")
    parents = [_folder_option(), json_option()]
    listing = verbs.add_parser("list", parents=parents, help="list the files (exit 1: there are some)")
    listing.set_defaults(run=run_list)
    showing = verbs.add_parser("show", parents=parents, help=f"print a kept text; {KEYS} opens an encrypted one")
    showing.add_argument("file", help="its name in the folder, as the task log gives it")
    showing.set_defaults(run=run_show)


def _folder_option() -> argparse.ArgumentParser:
    parent = argparse.ArgumentParser(add_help=False)
    parent.add_argument(
        "--dir",
        type=Path,
        default=os.environ.get(FOLDER) or Path(os.environ.get("AIRFLOW_HOME") or "~/airflow") / "aiflow-spool",
        help=f"the spool (default: {FOLDER}, else aiflow-spool under AIRFLOW_HOME)",
    )
    return parent


def run_list(options: argparse.Namespace) -> int:
    """List what waits."""
    from airflow_aiflow.runtime.spool import KEPT_SUFFIX, SUFFIX

    folder = Path(options.dir).expanduser()
    found = sorted((*folder.glob(f"*{SUFFIX}"), *folder.glob(f"*{KEPT_SUFFIX}")))
    kinds = [(path.name, "an outcome" if path.suffix == SUFFIX else "a text", path.stat().st_size) for path in found]
    rows = [(name, kind, f"{size:,} bytes") for name, kind, size in kinds]
    value = [{"file": name, "kind": kind, "size": size} for name, kind, size in kinds]
    show(options, {"folder": str(folder), "files": value}, table(rows) or f"nothing waits in {folder}")
    return FINDING if found else OK


def run_show(options: argparse.Namespace) -> int:
    """Print a text that was kept for people."""
    from airflow_aiflow.runtime.spool import KEPT_SUFFIX
    from airflow_aiflow.storage.payload_cipher import PayloadCipher

    path = Path(options.dir).expanduser() / Path(options.file).name
    if not path.name.endswith(KEPT_SUFFIX):
        raise AiflowConfigError(f"{path.name} is no kept text (*{KEPT_SUFFIX}): outcomes are taken in by the next try")
    if not path.is_file():
        raise AiflowConfigError(f"there is no {path.name} in {path.parent}; `aiflow spool list` shows what there is")
    keys = [key.strip().encode() for key in os.environ.get(KEYS, "").split(",") if key.strip()]
    text = PayloadCipher(keys).open(path.read_bytes(), path.name).decode()
    show(options, {"file": path.name, "text": text}, text)
    return OK
