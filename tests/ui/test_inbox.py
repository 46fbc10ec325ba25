"""People answer in a browser what a killed task left open: alone, two at once, by keyboard, several; who may not."""

from __future__ import annotations

import http.server
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from airflow_aiflow.durable.effect import EffectRecord, EffectState
from airflow_aiflow.local.airflow_client import wait_for
from airflow_aiflow.storage.postgres_inbox import PostgresInbox
from tests.ui.person import PATIENCE, Person
from tests.ui.story import PATIENCE as LONG
from tests.ui.story import Teller, Told

Enter = Callable[..., Person]

INBOX = "plugin/aiflow/inbox"

#: Runs of this module, each killed after its charge: one for each thing that is done with an answer.
RUNS = ("two", "keys", "many-1", "many-2", "prefix", "looked-at")

expect.set_options(timeout=PATIENCE)


def _begun(teller: Teller, name: str) -> Told:
    return teller.begin("invoice_payment", f"inbox-{name}", invoice=f"INV-{name}")


@pytest.fixture(scope="module")
def told(teller: Teller) -> dict[str, Told]:
    """Give runs whose charge nobody knows the outcome of, and whose task waits for a person."""
    runs = {name: _begun(teller, name) for name in RUNS}
    for one in runs.values():
        teller.asked(one, "charge_card")
    return runs


def effect_of(teller: Teller, told: Told) -> EffectRecord:
    """Read the charge of a run in the ledger."""
    with closing(PostgresInbox.connect(teller.stack.postgres.dsn())) as inbox:
        [found] = inbox.effects(run_id=told.run_id)
    return found


def charged(told: Told) -> int:
    """Count how often the card was charged."""
    return len((told.folder / "charged.txt").read_text().splitlines())


def card(page: Page, name: str) -> Locator:
    """Find what waits in one of the runs."""
    return page.get_by_role("article").filter(has_text=re.compile(rf"invoice/INV-{name}\b"))


def test_a_killed_charge_is_answered_and_the_run_goes_on(person: Enter, teller: Teller) -> None:
    one = teller.shared("path")
    teller.asked(one, "charge_card")
    number = effect_of(teller, one).number
    admin = person()
    page = admin.go(INBOX)
    waiting = card(page, "2042")
    expect(waiting.get_by_role("heading")).to_contain_text("Did “charge_card” happen?")
    expect(waiting).to_contain_text(f"#{number}")
    expect(waiting).to_contain_text(re.compile("verified dead|presumed gone"))
    expect(waiting).to_contain_text(one.run_id)
    expect(waiting.get_by_role("group", name="Request")).to_contain_text("INV-2042")
    expect(page).to_have_title(re.compile(r"^\(\d+\) "))
    waiting.get_by_role("button", name="It happened").click()
    result = waiting.get_by_label("Result as JSON")
    result.fill("charge 1")
    confirm = waiting.get_by_role("button", name=f"It happened (#{number})")
    expect(waiting).to_contain_text("A text needs double quotes")
    expect(confirm).to_be_disabled()
    result.fill('"charge 1"')
    waiting.get_by_label("Reason").fill("seen at the bank")
    admin.shot("inbox-answer")
    confirm.click()
    expect(page.get_by_role("list", name="Just answered")).to_contain_text(f"#{number}: you said that it happened")
    expect(card(page, "2042")).to_have_count(0)
    assert teller.ended(one) == "success"
    assert charged(one) == 1
    found = effect_of(teller, one)
    assert (found.state, found.decision, found.decided_by) == (EffectState.SUCCEEDED, "happened", "admin")
    page.get_by_role("button", name="Who answered what").click()
    line = page.get_by_role("row").filter(has_text=f"#{number} ")
    expect(line).to_contain_text("admin")
    expect(line).to_contain_text("seen at the bank")
    admin.shot("inbox-answers")
    admin.go(one.task_tab("charge_card"))
    # Killed, and superseded where the next attempt came before the lease had lapsed.
    expect(page.locator(".aif")).to_contain_text(re.compile("killed|superseded"))
    expect(page.locator(".aif")).to_contain_text("succeeded")
    admin.shot("path-timeline")


@pytest.mark.ui_all
def test_the_second_person_is_told_who_was_first(person: Enter, teller: Teller, told: dict[str, Told]) -> None:
    one = told["two"]
    number = effect_of(teller, one).number
    admin, ben = person("admin"), person("ben", theme="dark")
    for someone in (admin, ben):
        card(someone.go(INBOX), "two").get_by_role("button", name="It").first.wait_for()
    card(ben.page, "two").get_by_role("button", name="It did not happen").click()
    card(ben.page, "two").get_by_label("Reason").fill("not in my list")
    card(admin.page, "two").get_by_role("button", name="It happened").click()
    card(admin.page, "two").get_by_role("button", name=f"It happened (#{number})").click()
    expect(admin.page.get_by_role("list", name="Just answered")).to_contain_text(f"#{number}")
    # What ben typed stays, though the inbox has moved on.
    expect(card(ben.page, "two")).to_contain_text("This waits no more")
    ben.shot("inbox-second-person")
    card(ben.page, "two").get_by_role("button", name=f"It did not happen: run it (#{number})").click()
    late = ben.page.get_by_role("list", name="Just answered")
    expect(late).to_contain_text("was answered by admin")
    expect(late).to_contain_text("happened")
    assert teller.ended(one) == "success"
    assert charged(one) == 1
    assert effect_of(teller, one).decided_by == "admin"


@pytest.mark.ui_all
def test_the_keyboard_alone_is_enough(person: Enter, teller: Teller, told: dict[str, Told]) -> None:
    one = told["keys"]
    number = effect_of(teller, one).number
    page = person().go("plugin/aiflow/overview")
    _tab_to(page, "Inbox")
    page.keyboard.press("Enter")
    expect(card(page, "keys")).to_be_visible()
    _tab_to(page, "It did not happen: run it", within=f"Answer #{number}")
    page.keyboard.press("Enter")
    # The first field has the focus; Escape closes and gives it back, Enter in the field says it.
    page.keyboard.type("a mistake")
    page.keyboard.press("Escape")
    assert _focused(page) == ("It did not happen: run it", f"Answer #{number}")
    page.keyboard.press("Enter")
    page.keyboard.type("not in the bank's list")
    page.keyboard.press("Enter")
    expect(page.get_by_role("list", name="Just answered")).to_contain_text(f"#{number}")
    assert teller.ended(one) == "success"
    assert charged(one) == 2


def _focused(page: Page) -> tuple[str, str]:
    """Give the text of what has the focus, and the name of the group around it."""
    found = page.evaluate(
        """() => {
            const focus = document.activeElement;
            return [focus.textContent, focus.closest('[role=group]')?.getAttribute('aria-label') ?? ''];
        }"""
    )
    return found[0], found[1]


def _tab_to(page: Page, text: str, within: str = "") -> None:
    """Press Tab until something is focused, and see that it shows."""
    for _ in range(200):
        page.keyboard.press("Tab")
        focused, group = _focused(page)
        if focused.startswith(text) and within in (group, ""):
            outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline != "none", f"the focus on {text} can't be seen"
            return
    raise AssertionError(f"no way to {text} by Tab alone")


@pytest.mark.ui_all
def test_several_are_answered_at_once(person: Enter, teller: Teller, told: dict[str, Told]) -> None:
    pair = [told["many-1"], told["many-2"]]
    page = person(theme="dark").go(INBOX)
    page.get_by_role("searchbox", name="Filter the inbox").fill("INV-many")
    expect(page.get_by_role("article")).to_have_count(2)
    page.get_by_role("checkbox", name="All of these").check()
    several = page.get_by_role("region", name="Answer several at once")
    expect(several).to_contain_text("2 chosen")
    several.get_by_role("button", name="It happened").click()
    several.get_by_label("Reason").fill("both are in the list")
    several.get_by_role("button", name="It happened (2 chosen)").click()
    said = page.get_by_role("list", name="Just answered").get_by_role("listitem")
    expect(said).to_have_count(2)
    assert [teller.ended(one) for one in pair] == ["success", "success"]
    assert [charged(one) for one in pair] == [1, 1]


@pytest.mark.ui_all
def test_who_may_only_look_cannot_answer(person: Enter, teller: Teller, told: dict[str, Told]) -> None:
    one = told["looked-at"]
    number = effect_of(teller, one).number
    vera = person("vera")
    page = vera.go(INBOX)
    waiting = card(page, "looked-at")
    expect(waiting).to_contain_text("You may read this, not answer it")
    expect(waiting.get_by_role("button")).to_have_count(0)
    expect(waiting.get_by_role("checkbox")).to_have_count(0)
    vera.shot("inbox-viewer")
    status = page.evaluate(
        """async (number) => (await fetch(new URL(`aiflow/api/v1/effects/${number}:resolve`, document.baseURI), {
            method: 'POST', headers: {'Content-Type': 'application/json'},
            body: JSON.stringify({decision: 'happened', reason: ''}),
        })).status""",
        number,
    )
    assert status == 403
    assert effect_of(teller, one).decision is None


@contextmanager
def _site(body: str) -> Iterator[str]:
    """Serve one page of another site: ``localhost`` is none of ``127.0.0.1``'s."""

    class Other(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Other)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://localhost:{server.server_address[1]}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.ui_all
@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded"])
def test_another_sites_form_is_refused(person: Enter, teller: Teller, told: dict[str, Told], kind: str) -> None:
    one = told["looked-at"]
    number = effect_of(teller, one).number
    admin = person()
    target = f"{admin.url}/aiflow/api/v1/effects/{number}:resolve"
    # A form of plain text writes NAME=VALUE: with the equals sign inside a string it is JSON.
    form = f"""<form method="post" enctype="{kind}" action="{target}">
        <input name='{{"decision": "happened", "reason": "' value='"}}'></form>
        <script>document.forms[0].submit()</script>"""
    with _site(form) as site, admin.page.expect_response(lambda answer: answer.url == target) as caught:
        admin.page.goto(site)
    assert "_token" in caught.value.request.all_headers().get("cookie", ""), "the browser did not even try"
    assert caught.value.status in (403, 415)
    assert effect_of(teller, one).decision is None


@pytest.mark.ui_all
def test_a_deployment_under_a_prefix(person: Enter, teller: Teller, told: dict[str, Told], prefixed_url: str) -> None:
    one = told["prefix"]
    number = effect_of(teller, one).number
    admin = person(url=prefixed_url)
    page = admin.go("plugin/aiflow/overview")
    page.get_by_role("link", name="Inbox").first.click()
    expect(page).to_have_url(re.compile(rf"^{re.escape(prefixed_url)}/plugin/aiflow/inbox"))
    waiting = card(page, "prefix")
    expect(waiting.get_by_role("link", name="charge_card")).to_have_attribute(
        "href", re.compile(r"^/team/airflow/dags/invoice_payment/")
    )
    waiting.get_by_role("button", name="It happened").click()
    waiting.get_by_role("button", name=f"It happened (#{number})").click()
    expect(page.get_by_role("list", name="Just answered")).to_contain_text(f"#{number}")
    admin.shot("prefix-inbox")
    assert teller.ended(one) == "success"
    wait_for(lambda: effect_of(teller, one).decided_by == "admin" or None, "the answer", LONG)
