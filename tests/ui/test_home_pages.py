"""The pages behind the navigation, with what real runs left: in both themes, narrow, cut off, signed out."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing

import pytest
from playwright.sync_api import expect

from airflow_aiflow.durable.limit import Limit
from airflow_aiflow.local.airflow_client import wait_for
from airflow_aiflow.storage.postgres_limits import PostgresLimits
from tests.ui.person import PATIENCE, Person
from tests.ui.story import PATIENCE as LONG
from tests.ui.story import Teller, Told

Enter = Callable[..., Person]

#: Every page with words that stand on it once its data has come.
PAGES = {
    "overview": "not paid for again",
    "inbox": "Did “charge_card” happen?",
    "recoveries": "Recoveries",
    "batches": "load",
    "limits": "pages-limit",
    "search?q=invoice%2FINV-2041": "invoice/INV-2041",
}

#: Items of the import that can't be read.
UNREADABLE = 4

expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="module")
def runs(teller: Teller, review: Told, doubt: Told) -> dict[str, Told]:
    """Give runs that fill the pages: resumed after a kill, in doubt, with items that failed."""
    with closing(PostgresLimits.connect(teller.stack.postgres.dsn())) as limits:
        limits.set_limit(Limit("pages-limit", rpm=500))
    found = {"review": review, "doubt": doubt, "import": teller.shared("import")}
    assert teller.ended(found["import"]) == "success"
    return found


@pytest.mark.parametrize(
    ("theme", "size"),
    [
        ("light", (1280, 900)),
        pytest.param("light", (800, 600), marks=pytest.mark.ui_all),
        pytest.param("dark", (1280, 900), marks=pytest.mark.ui_all),
        pytest.param("dark", (800, 600), marks=pytest.mark.ui_all),
    ],
)
def test_each_page_shows_what_happened(person: Enter, runs: dict[str, Told], theme: str, size: tuple[int, int]) -> None:
    admin = person(theme=theme, size=size)
    for path, words in PAGES.items():
        page = admin.go(f"plugin/aiflow/{path}")
        expect(page.get_by_role("main").last).to_contain_text(words)
        name = path.split("?")[0]
        expect(page.get_by_role("navigation", name="AI Flow").get_by_role("link", name=name.title())).to_have_attribute(
            "aria-current", "page"
        )
        admin.shot(name)
        assert admin.axe() == [], name
        wide = page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
        assert not wide, f"{name} is wider than the window"


@pytest.mark.ui_all
def test_savings_come_first(person: Enter, runs: dict[str, Told]) -> None:
    page = person().go("plugin/aiflow/overview")
    # The sums are behind by half a minute, for rows of transactions that were open meanwhile.
    expect(page.locator(".aif-saved")).to_contain_text(re.compile(r"[1-9]\d* model calls? not paid for again"))
    expect(page.get_by_role("link", name="Open the inbox")).to_be_visible()
    page.get_by_role("button", name="Month").click()
    expect(page).to_have_url(re.compile(r"days=30"))
    expect(page.get_by_role("main").last).to_contain_text("the last 30 days")


@pytest.mark.ui_all
def test_items_that_failed_run_once_more(person: Enter, teller: Teller, runs: dict[str, Told]) -> None:
    one = runs["import"]
    page = person().go("plugin/aiflow/batches")
    batch = page.get_by_role("article").filter(has_text=one.run_id)
    expect(batch).to_contain_text(f"{UNREADABLE} failed")
    batch.get_by_role("button", name="Show what failed").click()
    rows = batch.get_by_role("row").filter(has_text="has no amount")
    expect(rows).to_have_count(UNREADABLE)
    before = len(teller.client.tries(one.dag_id, one.run_id, "load"))
    batch.get_by_role("button", name=f"Retry those {UNREADABLE}").click()
    expect(batch).to_contain_text(f"{UNREADABLE} items will run once more")
    wait_for(lambda: len(teller.client.tries(one.dag_id, one.run_id, "load")) > before or None, "another try", LONG)
    assert teller.ended(one) == "success"


@pytest.mark.ui_all
def test_a_clear_is_previewed_and_done(person: Enter, teller: Teller) -> None:
    one = teller.begin("contract_review", "pages-clear")
    assert teller.ended(one) == "success"
    admin = person()
    page = admin.go(one.run_tab())
    opener = page.get_by_role("button", name=re.compile("^Clear")).first
    opener.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("no model call is paid again for sure")
    dialog.get_by_role("radio", name=re.compile("^Run fresh")).check()
    expect(dialog).to_contain_text(re.compile(r"\d+ model calls are paid again"))
    expect(dialog).to_contain_text("1 file_review")
    admin.shot("clear-preview")
    assert admin.axe() == []
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    page.keyboard.press("Enter")
    paid = len(teller.stack.model.requests())
    dialog.get_by_role("button", name="Clear (resume)").click()
    expect(dialog).to_contain_text(re.compile(r"Airflow cleared \d+ task instances"))
    wait_for(lambda: len(teller.client.tries(one.dag_id, one.run_id, "assess")) > 2 or None, "another try", LONG)
    assert teller.ended(one) == "success"
    assert len(teller.stack.model.requests()) == paid
    assert (one.folder / "booked.txt").read_text() == "booked\n"


@pytest.mark.ui_all
def test_a_broken_connection_shows_and_heals(person: Enter, runs: dict[str, Told]) -> None:
    admin = person()
    page = admin.go("plugin/aiflow/inbox")
    article = page.get_by_role("article").filter(has_text="INV-2041")
    expect(article).to_be_visible()
    admin.context.set_offline(True)
    notice = page.get_by_text("The connection to Airflow is broken")
    expect(notice).to_be_visible()
    expect(article).to_be_visible()
    admin.shot("inbox-cut-off")
    admin.context.set_offline(False)
    expect(notice).to_have_count(0)
    admin.problems.clear()  # the browser complains of each request that it could not send


@pytest.mark.ui_all
def test_a_session_that_ended_asks_to_sign_in(person: Enter, runs: dict[str, Told]) -> None:
    admin = person()
    page = admin.go("plugin/aiflow/inbox")
    expect(page.get_by_role("article").first).to_be_visible()
    admin.context.clear_cookies()
    page.get_by_role("link", name="Limits").click()
    page.get_by_role("button", name="Sign in").click()
    expect(page).to_have_url(re.compile("/auth/login"))
    admin.problems.clear()  # Airflow's own pages complain of a session that ended
