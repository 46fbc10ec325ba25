"""The pages inside a task instance, a run and a DAG, with what real runs left: killed, resumed, cleared, in doubt."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.ui.person import PATIENCE, Person
from tests.ui.story import Teller, Told

Enter = Callable[..., Person]

#: What the killed review asks in its map.
CLAUSES = 32
#: Milliseconds from the answer of the API to the picture.
QUICK = 500

WIDE, NARROW = (1280, 900), (800, 600)

expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="module")
def cleared(teller: Teller, review: Told) -> Told:
    """Give a review that succeeded, was cleared and ran afresh; its outline came from the one before."""
    told = teller.begin("contract_review", "timeline-cleared", kill=False)
    assert teller.ended(told) == "success"
    teller.cleared(told, "assess")
    return told


@pytest.fixture(scope="module")
def many(teller: Teller) -> Told:
    """Give a run of 10,000 steps."""
    told = teller.begin("many_steps", "timeline-many")
    assert teller.ended(told) == "success"
    return told


def lane(page: Page, number: int) -> Any:
    """Give the lane of an attempt."""
    return page.locator(".aif-lane").filter(has=page.get_by_role("button", name=f"Attempt {number}", exact=True))


def fits(page: Page) -> bool:
    """Say whether nothing is wider than the window."""
    return bool(page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"))


def tells_of_the_kill(page: Page) -> None:
    """Expect the story of the killed review."""
    expect(lane(page, 1)).to_contain_text("killed")
    expect(lane(page, 2)).to_contain_text("succeeded")
    expect(lane(page, 2)).to_contain_text(re.compile(r"found \d+ steps? recorded"))
    expect(lane(page, 2).locator(".aif-bar-ran").first).to_be_visible()
    saved = page.locator(".aif-figure").filter(has_text="Saved by replay")
    expect(saved).to_contain_text(re.compile(r"[1-9]\d* calls? not paid again"))


def test_a_killed_run_tells_its_story(person: Enter, review: Told) -> None:
    admin = person()
    page = admin.go(review.task_tab("assess"))
    tells_of_the_kill(page)
    expect(page.get_by_role("button", name=re.compile(rf"clause: {CLAUSES} items"))).to_be_visible()
    admin.shot("timeline")
    assert admin.axe() == []
    page.get_by_role("button", name=re.compile(r"^summary: model call, ran")).click()
    panel = page.get_by_role("complementary", name="summary")
    expect(panel.locator(".aif-arguments")).to_contain_text("Summarise.")
    expect(panel).to_contain_text("Fingerprint")
    expect(panel).to_contain_text("intact")
    expect(panel.get_by_role("heading", name="Result")).to_be_visible()
    admin.shot("timeline-step")
    assert admin.axe() == []


@pytest.mark.ui_all
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_each_view_in_both_themes(
    person: Enter, review: Told, cleared: Told, doubt: Told, theme: str, size: tuple[int, int]
) -> None:
    admin = person(theme=theme, size=size)
    views = {
        "timeline": review.task_tab("assess"),
        "timeline-list": review.task_tab("assess") + "?as=list",
        "timeline-cleared": cleared.task_tab("assess"),
        "timeline-doubt": doubt.task_tab("charge_card"),
        "run": review.run_tab(),
        "run-doubt": doubt.run_tab(),
        "dag": f"dags/{review.dag_id}/plugin/aiflow-dag",
        "no-record": review.task_tab("publish"),
    }
    for name, path in views.items():
        page = admin.go(path)
        expect(page.locator(".aif-figures, .aif-state-title").first).to_be_visible()
        page.wait_for_load_state("networkidle")
        admin.shot(name)
        assert admin.axe() == [], name
        assert fits(page), f"{name} is wider than the window"


@pytest.mark.ui_all
def test_who_has_no_right_is_told_nothing(person: Enter, review: Told) -> None:
    nina = person("nina")
    answers: list[tuple[str, int]] = []
    nina.page.on(
        "response", lambda answer: answers.append((answer.url, answer.status)) if "/aiflow/api/" in answer.url else None
    )
    tabs = {
        "task": review.task_tab("assess"),
        "run": review.run_tab(),
        "dag": f"dags/{review.dag_id}/plugin/aiflow-dag",
    }
    for name, path in tabs.items():
        nina.page.goto(f"{nina.url}/{path}")
        # Airflow names no plugin's page to who has no right at all; ours would say the rest.
        refused = re.compile("Page Not Found|your role may not read it")
        expect(nina.page.locator("body")).to_contain_text(refused)
        nina.page.wait_for_load_state("networkidle")
        nina.shot(f"no-right-{name}")
        expect(nina.page.locator("[data-bar], .aif-figure, .aif-table")).to_have_count(0)
        if nina.page.locator(".aif").count():
            assert nina.axe() == [], name
    assert [answer for answer in answers if answer[1] not in (403, 404)] == []
    nina.problems.clear()  # Airflow's own page complains of what it is refused


@pytest.mark.ui_all
def test_what_is_chosen_stays_in_the_address(person: Enter, review: Told) -> None:
    page = person().go(review.task_tab("assess"))
    page.get_by_role("button", name="Attempt 1", exact=True).click()
    panel = page.get_by_role("complementary", name="Attempt 1")
    expect(panel).to_contain_text("Process")
    expect(panel.get_by_role("link", name="of Airflow's try 1")).to_have_attribute("href", re.compile(r"try_number=1"))
    page.reload()
    expect(page.get_by_role("complementary", name="Attempt 1")).to_be_visible()
    page.get_by_role("button", name="Close the panel").click()
    expect(page.get_by_role("complementary")).to_have_count(0)
    expect(page).not_to_have_url(re.compile("show="))


@pytest.mark.ui_all
def test_the_keyboard_alone_is_enough(person: Enter, review: Told) -> None:
    page = person().go(review.task_tab("assess"))
    bars = lane(page, 2).locator("[data-bar]")
    expect(bars.first).to_be_visible()
    page.get_by_role("button", name="Attempt 2", exact=True).focus()
    page.keyboard.press("Tab")
    expect(bars.first).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(bars.nth(1)).to_be_focused()
    expect(page.locator(".aif-hover")).to_be_visible()
    page.keyboard.press("End")
    expect(bars.last).to_be_focused()
    page.keyboard.press("Enter")
    panel = page.get_by_role("complementary")
    expect(panel.get_by_role("heading").first).to_be_focused()
    page.keyboard.press("Escape")
    expect(panel).to_have_count(0)
    expect(bars.last).to_be_focused()


@pytest.mark.ui_all
def test_a_map_unfolds(person: Enter, review: Told) -> None:
    page = person().go(review.task_tab("assess"))
    page.get_by_role("button", name=re.compile(rf"clause: {CLAUSES} items")).click()
    items = page.get_by_role("list", name="Items of clause")
    expect(items.get_by_role("listitem").first).to_have_attribute("aria-setsize", str(CLAUSES))
    items.get_by_role("button").first.click()
    expect(page.get_by_role("complementary")).to_contain_text("model call")


@pytest.mark.ui_all
def test_a_doubt_is_seen_and_leads_to_the_inbox(person: Enter, doubt: Told) -> None:
    page = person().go(doubt.task_tab("charge_card"))
    expect(page.locator("[data-bar].aif-bar-in_doubt")).to_have_count(1)
    expect(page.locator(".aif-figure-warning")).to_contain_text("1")
    page.get_by_role("link", name="answer in the inbox").click()
    expect(page).to_have_url(re.compile("plugin/aiflow/inbox"))
    expect(page.locator(".aif-home")).to_contain_text("INV-2041")


@pytest.mark.ui_all
def test_an_attempt_that_was_overtaken_is_named_so(person: Enter, teller: Teller) -> None:
    told = teller.begin("overtaken", "timeline-overtaken")
    teller.overtaken(told)
    admin = person()
    page = admin.go(told.task_tab("work"))
    expect(lane(page, 1)).to_contain_text("superseded")
    expect(lane(page, 2)).to_be_visible()
    admin.shot("timeline-superseded")
    assert admin.axe() == []


@pytest.mark.ui_all
def test_generations_are_told_apart(person: Enter, cleared: Told) -> None:
    page = person().go(cleared.task_tab("assess"))
    choice = page.get_by_role("combobox", name="Generation")
    expect(choice).to_have_value("2")
    choice.select_option("1")
    expect(page).to_have_url(re.compile("generation=1"))
    expect(page.locator("[data-bar].aif-bar-reused")).not_to_have_count(0)
    choice.select_option("2")
    page.get_by_role("button", name="What changed").click()
    expect(page.get_by_role("dialog")).to_contain_text(re.compile("same", re.IGNORECASE))
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="What changed")).to_be_focused()


@pytest.mark.ui_all
def test_a_run_leads_to_its_tasks_and_a_dag_to_its_runs(person: Enter, review: Told) -> None:
    page = person().go(f"dags/{review.dag_id}/plugin/aiflow-dag")
    page.get_by_role("link", name=review.run_id).click()
    tasks = page.get_by_role("table", name="Tasks of this run in the order of the DAG")
    expect(tasks.get_by_role("rowheader")).to_contain_text(["read", "assess", "file_review", "publish"])
    expect(tasks.get_by_role("row", name=re.compile("publish"))).to_contain_text("no task of AI Flow")
    tasks.get_by_role("link", name="assess").click()
    tells_of_the_kill(page)


@pytest.mark.ui_all
def test_a_broken_connection_shows_and_heals(person: Enter, doubt: Told) -> None:
    admin = person()
    page = admin.go(doubt.task_tab("charge_card"))
    expect(page.locator(".aif-figures")).to_be_visible()
    asked = re.compile(r"/aiflow/api/v1/timeline")

    def refuse(route: Route) -> None:
        route.fulfill(status=503, content_type="application/json", body='{"detail": "the ledger does not answer"}')

    page.route(asked, refuse)
    expect(page.locator(".aif-stale")).to_contain_text("the ledger does not answer")
    expect(page.locator("[data-bar].aif-bar-in_doubt")).to_have_count(1)
    page.unroute(asked)
    expect(page.locator(".aif-stale")).to_have_count(0)
    # The browser itself writes of the answers that were put in.
    assert all("status of 503" in problem for problem in admin.problems)
    admin.problems.clear()


@pytest.mark.ui_all
def test_ten_thousand_steps_are_there_at_once(person: Enter, many: Told) -> None:
    admin = person()
    page = admin.go(many.task_tab("work"))
    expect(page.locator(".aif-legend")).to_contain_text("10,000 steps")
    # From the answer's last byte to the frame that follows the picture, on a page that is loaded already.
    page.locator("a[href$='/details']").first.click()
    expect(page.locator("[data-bar]")).to_have_count(0)
    page.evaluate(
        """() => new Promise(resolve => {
          performance.clearResourceTimings(); performance.setResourceTimingBufferSize(1000);
          window.aifPainted = new Promise(done => new MutationObserver((_, watch) => {
            if (!document.querySelector('[data-bar]')) return;
            watch.disconnect();
            requestAnimationFrame(() => setTimeout(() => done(performance.now())));
          }).observe(document.body, {childList: true, subtree: true}));
          resolve();
        })"""
    )
    page.locator("a[href*='plugin/aiflow-task']").first.click()
    painted, answered = page.evaluate(
        """async () => [await window.aifPainted,
          performance.getEntriesByType('resource').filter(one => one.name.includes('/timeline')).at(-1).responseEnd]"""
    )
    print(f"10,000 steps: {painted - answered:.0f} ms from the answer to the picture")
    assert painted - answered < QUICK
    assert page.locator("[data-bar]").count() <= 2000
    admin.shot("timeline-many")


@pytest.mark.ui_all
def test_airflow_leads_to_the_timeline_and_its_form_to_the_inbox(teller: Teller, review: Told, doubt: Told) -> None:
    task = f"/dags/{review.dag_id}/dagRuns/{review.run_id}/taskInstances/assess"
    links = teller.client.request("GET", f"{task}/links")["extra_links"]
    assert links == {"AI Flow": review.task_tab("assess")}
    form = f"/dags/{doubt.dag_id}/dagRuns/{doubt.run_id}/taskInstances/charge_card/-1/hitlDetails"
    assert "(plugin/aiflow/inbox" in teller.client.request("GET", form)["body"]


@pytest.mark.ui_all
def test_every_colour_that_is_used_is_known_to_airflow(person: Enter, review: Told) -> None:
    page = person().go(review.task_tab("assess"))
    unknown = page.evaluate(
        """async () => {
          const sheets = [...document.querySelectorAll('link[href*="aiflow/static"]')].map(one => one.href);
          const texts = await Promise.all(sheets.map(href => fetch(href).then(answer => answer.text())));
          const names = new Set(texts.join('').match(/--chakra-[a-z0-9-]+/g));
          const style = getComputedStyle(document.documentElement);
          return [...names].filter(name => style.getPropertyValue(name) === '');
        }"""
    )
    assert unknown == []
