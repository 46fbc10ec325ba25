"""The real servers that tests share: each is started at its first use, once a session, in a temporary folder.

They end by pid when the session ends, and with the test process however that ends.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_aiflow.local.objectstore import ObjectStoreServer
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.local.service import MailService, ModelService, RecordsService

if TYPE_CHECKING:
    from airflow_aiflow.local.stack import Stack


#: Stacks that are shared by the tests of a folder.
FOLDER_STACKS: dict[Path, Stack] = {}


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End a folder's stack with the folder's last test: an idle one takes a fifth of a core from all others."""
    for folder in list(FOLDER_STACKS):
        if folder in item.path.parents and (nextitem is None or folder not in nextitem.path.parents):
            FOLDER_STACKS.pop(folder).stop()


@pytest.fixture(scope="session")
def stack_folder() -> Iterator[Path]:
    """Give a folder with a short path (socket files) that goes away with the session."""
    folder = Path(tempfile.mkdtemp(prefix="aiflow-test-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_server(stack_folder: Path) -> Iterator[PostgresServer]:
    """Give a started PostgreSQL; ``fresh_database()`` makes an empty database owned by ``aiflow_owner``."""
    with PostgresServer(stack_folder / "postgres") as server:
        yield server


@pytest.fixture(scope="session")
def object_store(stack_folder: Path) -> Iterator[ObjectStoreServer]:
    """Give a started S3 server; ``bucket()`` makes an empty bucket."""
    with ObjectStoreServer(stack_folder / "objectstore") as server:
        yield server


@pytest.fixture
def model_service(tmp_path: Path) -> Iterator[ModelService]:
    """Give a stand-in model server of the test's own: `set_faults()`, `requests()`."""
    with ModelService(tmp_path / "model") as service:
        yield service


@pytest.fixture
def mail_service(tmp_path: Path) -> Iterator[MailService]:
    """Give an SMTP sink of the test's own: `set_faults()`, `mails()`."""
    with MailService(tmp_path / "mail") as service:
        yield service


@pytest.fixture
def records_service(tmp_path: Path) -> Iterator[RecordsService]:
    """Give a record service of the test's own: `set_faults()`, `records()`, `requests()`."""
    with RecordsService(tmp_path / "records") as service:
        yield service
