"""The report: everything in it, everything escaped, nothing loaded from outside."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field
from html.parser import HTMLParser

import pytest

from airflow_aiflow.demo.documents import Document, Reading, Skipped
from airflow_aiflow.demo.report import COLUMNS, render_csv, render_html
from airflow_aiflow.demo.review import NAMED, Review

HOSTILE = '<script src="//x.test/a.js">alert(1)</script>&"\'\x00'


@dataclass
class Verdict:
    """What the DAG's output type looks like."""

    title: str = "Licence"
    risk: int = 2
    reasons: list[str] = field(default_factory=lambda: ["no warranty"])


def review(**verdicts: Verdict) -> Review:
    """Put together a review of documents by name, two pages each, with one file skipped."""
    documents = [Document(name, "text") for name in verdicts]
    reading = Reading("a folder", documents, [Skipped("bad.pdf", "is encrypted")], others=3)
    summaries = {name: [f"{name} one", f"{name} two"] for name in verdicts}
    return Review(reading, summaries, list(verdicts.values()), "pydanticai_default")


class Seen(HTMLParser):
    """Collect the tags, the attributes that could load something, and the text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loads: list[tuple[str, str | None]] = []
        self.words: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loads += [each for each in attrs if each[0] in {"src", "href", "style", "action"} or each[0][:2] == "on"]

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def rows(review: Review) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(render_csv(review), newline="")))


def test_the_riskiest_document_comes_first() -> None:
    found = review(a=Verdict(risk=1), b=Verdict(risk=5), c=Verdict(risk=5))
    assert [each.name for each in found.documents] == ["b", "c", "a"]
    assert found.headline == "2 of 3 documents carry a high risk"
    text = Seen(render_html(found)).text
    assert text.index("b one") < text.index("c one") < text.index("a one")


def test_the_page_holds_all_that_was_found() -> None:
    text = Seen(render_html(review(a=Verdict("Terms", 4, ["unlimited liability"])))).text
    for expected in ("Terms", "unlimited liability", "a one", "a two", "bad.pdf", "is encrypted", "3 files of other"):
        assert expected in text


def test_the_page_loads_and_runs_nothing() -> None:
    seen = Seen(render_html(review(a=Verdict())))
    assert seen.loads == []
    assert not {"script", "link", "img", "iframe", "object"} & set(seen.tags)
    assert "http-equiv" in render_html(review(a=Verdict()))
    assert "url(" not in render_html(review(a=Verdict()))


def test_strange_texts_stay_texts() -> None:
    reading = Reading(HOSTILE, [Document(HOSTILE, "x")], [Skipped(HOSTILE, HOSTILE)])
    found = Review(reading, {HOSTILE: [HOSTILE]}, [Verdict(HOSTILE, 3, [HOSTILE])], HOSTILE)
    page = render_html(found)
    seen = Seen(page)
    assert "script" not in seen.tags
    assert seen.loads == []
    assert "\x00" not in page
    assert seen.text.count("alert(1)") == 8


def test_the_table_has_a_line_for_each_document() -> None:
    found = rows(review(a=Verdict("T", 3, ["x", "y"]), b=Verdict(risk=4)))
    assert [tuple(row) for row in found] == [COLUMNS] * 3
    assert [row["document"] for row in found] == ["b", "a", "bad.pdf"]
    assert found[1] == {
        "document": "a", "state": "reviewed", "risk": "3", "title": "T", "reasons": "x | y", "pages": "2",
        "characters": "4", "note": "",
    }  # fmt: skip
    assert (found[2]["state"], found[2]["note"]) == ("skipped", "is encrypted")


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"])
def test_no_cell_becomes_a_formula(text: str) -> None:
    assert rows(review(a=Verdict(title=text)))[0]["title"] == f"'{text}"


def test_the_table_keeps_commas_quotes_and_lines() -> None:
    title = 'a,"b"\nc; é'
    assert rows(review(a=Verdict(title=title)))[0]["title"] == title


def test_the_letter_names_the_risky_ones_and_counts_the_rest() -> None:
    found = review(**{f"d{number:02}": Verdict(f"T{number}", 5) for number in range(NAMED + 3)}, safe=Verdict(risk=1))
    subject, empty, *text = found.letter().splitlines()
    assert subject == f"{NAMED + 3} of {NAMED + 4} documents carry a high risk"
    assert empty == ""
    assert sum(" T" in line for line in text) == NAMED
    assert "  and 3 more" in text
    assert "safe" not in found.letter()
    assert "1 files could not be read" in found.letter()


def test_reports_of_equal_reviews_are_equal() -> None:
    """Else a resume would store a second report, and the mail's request would differ."""
    assert render_html(review(a=Verdict())) == render_html(review(a=Verdict()))


def test_a_missing_verdict_is_no_silent_shift() -> None:
    reading = Reading("f", [Document("a", "x"), Document("b", "x")], [])
    with pytest.raises(ValueError, match="shorter"):
        Review(reading, {"a": ["s"], "b": ["s"]}, [Verdict()], "m")
