"""What a review found: the documents with their summaries and verdicts, what was skipped, and the words for a mail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from airflow_aiflow.demo.documents import Reading

#: From this risk on, of 5, a document is worth a person's time.
HIGH_RISK = 4
#: Documents that the mail names; the report has them all.
NAMED = 10


class Verdict(Protocol):
    """What a model says about a document as a whole; the DAG's output type has these fields."""

    @property
    def title(self) -> str: ...
    @property
    def risk(self) -> int: ...
    @property
    def reasons(self) -> list[str]: ...


@dataclass(frozen=True, slots=True)
class Reviewed:
    """One document with what a model said about it."""

    name: str
    characters: int
    summaries: list[str]
    verdict: Verdict


class Review:
    """
    Put a review together.

    :param reading: the documents.
    :param summaries: those of the pages, by the document's name.
    :param verdicts: one for each document that has summaries, in the same order.
    :param model: who answered, for people: a connection's name.
    """

    def __init__(
        self, reading: Reading, summaries: Mapping[str, list[str]], verdicts: Sequence[Verdict], model: str
    ) -> None:
        sizes = {document.name: len(document.text) for document in reading.documents}
        found = [
            Reviewed(name, sizes[name], chapter, verdict)
            for (name, chapter), verdict in zip(summaries.items(), verdicts, strict=True)
        ]
        self.source = reading.source
        self.skipped = reading.skipped
        self.others = reading.others
        self.model = model
        #: The riskiest first, then by name.
        self.documents = sorted(found, key=lambda each: (-each.verdict.risk, each.name))

    @property
    def pages(self) -> int:
        """Count the pages."""
        return sum(len(each.summaries) for each in self.documents)

    @property
    def risky(self) -> list[Reviewed]:
        """Give the documents with a high risk."""
        return [each for each in self.documents if each.verdict.risk >= HIGH_RISK]

    @property
    def headline(self) -> str:
        """Say the result in one line."""
        return f"{len(self.risky)} of {len(self.documents)} documents carry a high risk"

    def letter(self) -> str:
        """Write the mail: the subject, an empty line, and what it says."""
        lines = [
            self.headline,
            "",
            f"{self.headline} ({HIGH_RISK} or more of 5). {self.pages} pages were read in {self.source}.",
            "",
            *(f"  {each.verdict.risk}  {each.name}: {each.verdict.title}" for each in self.risky[:NAMED]),
        ]
        if len(self.risky) > NAMED:
            lines.append(f"  and {len(self.risky) - NAMED} more")
        if self.skipped:
            lines += ["", f"{len(self.skipped)} files could not be read; the report lists them with the reason."]
        return "\n".join(lines)

    def record(self) -> dict[str, str | int]:
        """Give what the register of reviews keeps."""
        return {
            "title": self.headline,
            "source": self.source,
            "documents": len(self.documents),
            "pages": self.pages,
            "high_risk": len(self.risky),
        }
