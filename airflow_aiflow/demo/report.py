"""
The report, as one HTML file and as a table for spreadsheets.

Every text in it comes from strangers' documents or from a model: in HTML all of it is escaped, and the page's own
policy allows no script, no image and no address; in the table no cell can become a formula.
"""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Iterable

from airflow_aiflow.demo.report_style import STYLE
from airflow_aiflow.demo.review import HIGH_RISK, Review, Reviewed

RISKS = {1: "very low", 2: "low", 3: "medium", 4: "high", 5: "very high"}
#: Control characters that HTML does not allow.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")

COLUMNS = ("document", "state", "risk", "title", "reasons", "pages", "characters", "note")
#: A cell that begins so is a formula to a spreadsheet, and the text comes from strangers' documents.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def render_html(review: Review) -> str:
    """
    Write the report.

    :param review: what was found.
    """
    documents = "\n".join(_document(each) for each in review.documents)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Document review: {_text(review.headline)}</title>
<style>{STYLE}</style>
</head>
<body>
<header>
<h1>{_text(review.headline)}</h1>
<p class="soft">A review of {_text(review.source)}.</p>
{_figures(review)}
</header>
<main>
<h2>Documents</h2>
{documents}
{_skipped(review)}
</main>
<footer>Summaries and verdicts come from the model behind the connection {_text(review.model)}. Read what matters
yourself. The stand-in model of the embedded stack quotes the text and draws the risk by lot.</footer>
</body>
</html>
"""


def render_csv(review: Review) -> str:
    """
    Write a line for each document, those that were skipped last.

    :param review: what was found.
    """
    table = io.StringIO(newline="")
    writer = csv.writer(table)
    writer.writerow(COLUMNS)
    for each in review.documents:
        verdict = each.verdict
        reasons = " | ".join(verdict.reasons)
        row = (each.name, "reviewed", verdict.risk, verdict.title, reasons, len(each.summaries), each.characters, "")
        writer.writerow(_cells(row))
    for skipped in review.skipped:
        writer.writerow(_cells((skipped.name, "skipped", "", "", "", "", "", skipped.reason)))
    return table.getvalue()


def _figures(review: Review) -> str:
    figures = {
        "documents": len(review.documents),
        "pages": review.pages,
        "high risk": len(review.risky),
        "skipped": len(review.skipped),
    }
    cards = (f"<div><dt>{name}</dt><dd>{number:,}</dd></div>" for name, number in figures.items())
    return f"<dl>{''.join(cards)}</dl>"


def _document(each: Reviewed) -> str:
    verdict = each.verdict
    kind = "high" if verdict.risk >= HIGH_RISK else "mid" if verdict.risk == HIGH_RISK - 1 else "low"
    pages = len(each.summaries)
    return f"""<details>
<summary><span class="risk {kind}">{RISKS.get(verdict.risk, str(verdict.risk))}</span>
<span class="name">{_text(each.name)}</span>
<span class="pages soft">{pages} {"page" if pages == 1 else "pages"}</span></summary>
<div class="inside"><p><strong>{_text(verdict.title)}</strong></p>
<h3>Reasons</h3><ul>{_items(verdict.reasons)}</ul>
<h3>Page by page</h3><ol>{_items(each.summaries)}</ol></div>
</details>"""


def _skipped(review: Review) -> str:
    parts = []
    if review.skipped:
        rows = "".join(f"<tr><td>{_text(each.name)}</td><td>{_text(each.reason)}</td></tr>" for each in review.skipped)
        parts.append(f"<h2>Skipped</h2>\n<table>{rows}</table>")
    if review.others:
        parts.append(f'<p class="soft">{review.others:,} files of other types were left alone.</p>')
    return "\n".join(parts)


def _items(texts: Iterable[str]) -> str:
    return "".join(f"<li>{_text(text)}</li>" for text in texts)


def _text(text: str) -> str:
    return html.escape(_CONTROL.sub("\ufffd", text))


def _cells(values: Iterable[str | int]) -> list[str | int]:
    return [_harmless(value) if isinstance(value, str) else value for value in values]


def _harmless(text: str) -> str:
    text = text.replace("\x00", "\ufffd")
    return f"'{text}" if text.startswith(_FORMULA) else text
