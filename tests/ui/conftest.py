"""One real Airflow with our pages, and a real browser, for all tests of this folder: started at their first use."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests
from playwright.sync_api import Browser, sync_playwright

from airflow_aiflow.local.airflow_client import wait_for
from airflow_aiflow.local.airflow_settings import clean_environment
from airflow_aiflow.local.ports import free_port
from airflow_aiflow.local.process import spawn, stop
from airflow_aiflow.local.stack import Stack, StackPlan
from tests.stack import FOLDER_STACKS
from tests.ui.person import PATIENCE, SHOTS, Person, Theme, sign_in
from tests.ui.story import Teller, Told, copy_dags

#: Names and roles: two who may act, one who may look only, and one who has no right at all.
USERS = {"admin": "admin", "ben": "admin", "vera": "viewer", "nina": ""}

#: The path under which a second API server serves the same Airflow.
PREFIX = "/team/airflow"

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

#: Where the suite runs unattended, a missing browser is a fault and no reason to skip.
WITHOUT_BROWSER = pytest.mark.skipif(
    CHROMIUM is None and "CI" not in os.environ, reason="there is no chromium: apt-get install chromium"
)


#: What is too long for every run of all tests: `make test` looks at a few pages, `make test-ui` at all.
NOT_QUICK = pytest.mark.skipif("AIFLOW_UI_ALL" not in os.environ, reason="a longer look at the pages: make test-ui")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a browser where there is none, and the longer half where it was not asked for."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(WITHOUT_BROWSER)
            if item.get_closest_marker("ui_all"):
                item.add_marker(NOT_QUICK)


@pytest.fixture(scope="session")
def ui_stack(stack_folder: Path) -> Iterator[Stack]:
    """Give a running stack with the pipelines of ``dags`` and the users of ``USERS``."""
    options = {"core.simple_auth_manager_users": ",".join(f"{name}:{role}" for name, role in USERS.items())}
    plan = StackPlan(stack_folder / "ui-stack", copy_dags(stack_folder / "ui-dags"), airflow_options=options)
    with Stack(plan) as stack:
        FOLDER_STACKS[Path(__file__).parent] = stack
        yield stack


@pytest.fixture(scope="session")
def teller(ui_stack: Stack, stack_folder: Path) -> Teller:
    """Give what makes runs; those that several pages show have begun, side by side."""
    teller = Teller(ui_stack, stack_folder / "ui-runs")
    teller.begin_shared()
    return teller


@pytest.fixture(scope="session")
def review(teller: Teller) -> Told:
    """Give a review whose process was killed half way, and that a retry brought to its end."""
    told = teller.shared("review")
    assert teller.ended(told) == "success"
    return told


@pytest.fixture(scope="session")
def doubt(teller: Teller) -> Told:
    """Give a payment that was killed after the call, and asks; nobody answers it."""
    told = teller.shared("doubt")
    teller.asked(told, "charge_card")
    return told


@pytest.fixture(scope="session")
def prefixed_url(ui_stack: Stack) -> Iterator[str]:
    """Give the address of a second API server of the same Airflow, under a prefix."""
    port = free_port()
    url = f"http://127.0.0.1:{port}{PREFIX}"
    environment = clean_environment(os.environ) | ui_stack.airflow.environment
    environment |= {"AIRFLOW__API__BASE_URL": url, "AIRFLOW__API__PORT": str(port)}
    process = spawn(
        [sys.executable, "-m", "airflow", "api-server"],
        log=ui_stack.home / "prefixed.log",
        env=environment,
        cwd=ui_stack.home,
        stdin=subprocess.DEVNULL,
    )
    try:
        wait_for(lambda: _answers(url), f"an answer of {url}", PATIENCE / 1000 * 3)
        yield url
    finally:
        stop(process, ask=signal.SIGTERM, grace=10)


def _answers(url: str) -> bool | None:
    session = requests.Session()
    session.trust_env = False
    try:
        return session.get(f"{url}/api/v2/monitor/health", timeout=10).ok or None
    except requests.RequestException:
        return None


@pytest.fixture(scope="session")
def no_old_pictures() -> None:
    """Begin without the pictures of a run before."""
    shutil.rmtree(SHOTS, ignore_errors=True)


@pytest.fixture(scope="module")
def browser(no_old_pictures: None) -> Iterator[Browser]:
    """
    Give a browser; each person has a window with cookies of their own.

    A module's: while it is there, an event loop runs in this thread, and no other test can have one of its own.
    """
    with sync_playwright() as playwright:
        # Its sandbox needs rights that a container does not give.
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def tokens() -> dict[tuple[str, str], str]:
    """Remember who is signed in where: each once."""
    return {}


@pytest.fixture
def person(browser: Browser, ui_stack: Stack, tokens: dict[tuple[str, str], str]) -> Iterator[Callable[..., Person]]:
    """Let people in; at the end of the test no page may have complained."""
    there: list[Person] = []

    def enter(
        user: str = "admin", theme: Theme = "light", size: tuple[int, int] = (1280, 900), url: str | None = None
    ) -> Person:
        where = url or ui_stack.airflow.url
        if (where, user) not in tokens:
            password = json.loads((ui_stack.airflow.folder / "passwords.json").read_text())[user]
            tokens[where, user] = sign_in(where, user, password)
        one = Person(browser, where, user, tokens[where, user], theme, size)
        there.append(one)
        return one

    yield enter
    for one in there:
        one.close()
    assert [problem for one in there for problem in one.problems] == []
