"""The stand-in's sentences: about the text, in order, the same each time."""

from __future__ import annotations

import pytest

from airflow_aiflow.local.extract import NOTHING, sentences, shorten, subject, summary, title

LICENCE = (
    "MIT License\n\nPermission is hereby granted, free of charge, to any person.\n"
    "The software is provided as is, without warranty of any kind. Third sentence, which is long enough too."
)


def test_the_instruction_is_not_summarised() -> None:
    assert subject(f"Summarise this page:\n\n{LICENCE}") == LICENCE
    assert summary(f"Summarise this page:\n\n{LICENCE}") == summary(LICENCE)


def test_a_summary_is_made_of_the_first_sentences() -> None:
    assert summary(f"Do it.\n\n{LICENCE}") == (
        "Permission is hereby granted, free of charge, to any person. "
        "The software is provided as is, without warranty of any kind."
    )


def test_a_title_is_the_first_line() -> None:
    assert title(f"Do it.\n\n# {LICENCE}") == "MIT License"


@pytest.mark.parametrize("text", ["", "   \n\n  "])
def test_no_text_is_said(text: str) -> None:
    assert summary(text) == NOTHING


def test_short_pieces_count_where_there_is_nothing_else() -> None:
    assert sentences("Yes. No.") == ["Yes.", "No."]


@pytest.mark.parametrize("limit", [0, 1, 2, 10, 400])
def test_a_cut_keeps_to_its_limit(limit: int) -> None:
    assert len(shorten("word " * 200, limit)) <= limit
