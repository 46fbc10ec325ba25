"""An API server in a process of its own, to be killed: by a failpoint, or from outside."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import uvicorn

from airflow_aiflow.api import following, rights, submission_routes
from tests.integration.api.conftest import World
from tests.integration.api.file_runs import FileRuns


def main() -> None:
    dsn, port, folder = sys.argv[1:]
    for module in (following, rights, submission_routes):
        allow: Any = lambda *_: True  # noqa: E731
        setattr(module, "may", allow)  # noqa: B010  # it is imported there by its name
    world = World(dsn, FileRuns(Path(folder)))
    uvicorn.run(world.server, host="127.0.0.1", port=int(port), log_level="error", timeout_graceful_shutdown=0)


if __name__ == "__main__":
    main()
