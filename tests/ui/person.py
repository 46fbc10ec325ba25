"""A person at a browser: signed in, in one theme, and everything that the page complained about."""

from __future__ import annotations

import json
import re
import socket
import urllib.request
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import Browser, BrowserContext, Page

from tests.ui.npm import MODULES, need_modules
from tests.unit.source_tree import ROOT

#: Pictures of a run of these tests, to be looked at; made anew by the next one.
SHOTS = ROOT / "build" / "ui"

AXE = MODULES / "axe-core" / "axe.min.js"

#: Milliseconds for what a page shows, on a machine that is busy with other things.
PATIENCE = 60_000

#: Write another name wherever a text of the page is one, or holds one as a word.
RENAME = """([own, other]) => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const parts = /([\\w.-]+)/;
  while (texts.nextNode()) {
    const text = texts.currentNode.nodeValue;
    const written = text.split(parts).map(part => part.replace(/[.]+$/, "") === own
      ? other + part.slice(own.length) : part).join("");
    if (written !== text) texts.currentNode.nodeValue = written;
  }
}"""

Theme = Literal["light", "dark"]

#: What a browser writes of an answer that the test asked for: a refusal is an answer.
REFUSAL = re.compile(r"^Failed to load resource: the server responded with a status of (401|403|404|409|415)")


class Person:
    """
    Someone with a browser of their own.

    :param browser: a running one.
    :param url: of Airflow, with its prefix.
    :param user: name to sign in with.
    :param token: what it is signed in with.
    :param theme: of Airflow.
    :param size: of the window.
    """

    def __init__(self, browser: Browser, url: str, user: str, token: str, theme: Theme, size: tuple[int, int]) -> None:
        self.url = url.rstrip("/")
        self.user = user
        self.theme = theme
        self.problems: list[str] = []
        self.context: BrowserContext = browser.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme=theme, timezone_id="Europe/Berlin"
        )
        self.context.set_default_timeout(PATIENCE)
        self.context.add_init_script(f"localStorage.setItem('theme', '{theme}')")
        self.context.add_cookies([{"name": "_token", "value": token, "url": self.url}])
        self.page: Page = self.context.new_page()
        self.page.on("pageerror", lambda error: self.problems.append(f"page error: {error}"))
        self.page.on("console", lambda said: self._heard(said.type, said.text))

    def _heard(self, kind: str, text: str) -> None:
        if kind == "error" and not REFUSAL.match(text):
            self.problems.append(f"console: {text}")

    def go(self, path: str) -> Page:
        """
        Open a page of this Airflow, and wait until a page of ours has come.

        :param path: without the prefix, as in ``plugin/aiflow/inbox``.
        """
        self.page.goto(f"{self.url}/{path}")
        self.page.wait_for_selector(".aif")
        return self.page

    def shot(self, name: str) -> Path:
        """
        Keep a picture; this machine bears another name in it, for pictures are published.

        :param name: of the view; the theme and the width are added.
        """
        SHOTS.mkdir(parents=True, exist_ok=True)
        self.page.evaluate(RENAME, [socket.gethostname(), "worker-1"])
        size = self.page.viewport_size or {"width": 0}
        file = SHOTS / f"{name}-{self.theme}-{size['width']}.png"
        self.page.screenshot(path=file)
        return file

    def axe(self) -> list[str]:
        """
        Look for what keeps people with disabilities out, in our part of the page.

        :return: what is serious or worse, with where.
        """
        need_modules()
        if not self.page.evaluate("'axe' in globalThis"):
            self.page.evaluate(AXE.read_text(encoding="utf-8"))
        found: dict[str, Any] = self.page.evaluate("axe.run('.aif', {resultTypes: ['violations']})")
        return [
            f"{each['id']}: {each['help']}: {[node['html'][:200] for node in each['nodes'][:3]]}"
            for each in found["violations"]
            if each["impact"] in ("serious", "critical")
        ]

    def close(self) -> None:
        """Close the browser's window."""
        self.context.close()


def sign_in(url: str, user: str, password: str) -> str:
    """
    Sign in as a program does.

    :param url: of Airflow, with its prefix.
    :return: the token that a browser keeps as a cookie.
    """
    body = json.dumps({"username": user, "password": password}).encode()
    request = urllib.request.Request(f"{url}/auth/token", body, {"Content-Type": "application/json"})
    # The address is on this machine: no proxy.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=60) as answer:
        return str(json.load(answer)["access_token"])
