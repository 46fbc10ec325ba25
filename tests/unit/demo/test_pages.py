"""Pages: nothing lost, nothing too long, cut where a reader would."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_aiflow.demo.documents import Document
from airflow_aiflow.demo.pages import PAGE, Page, by_document, cut, split_into_pages

PROSE = st.text(alphabet=st.sampled_from("ab.  \n\n\t é"), max_size=400)


@given(text=PROSE, size=st.integers(1, 60))
def test_pieces_put_together_are_the_text(text: str, size: int) -> None:
    assert "".join(cut(text, size)) == text


@given(text=PROSE, size=st.integers(1, 60))
def test_no_piece_is_longer_than_a_page(text: str, size: int) -> None:
    assert max(map(len, cut(text, size))) <= size


@given(text=PROSE, size=st.integers(1, 60))
def test_no_word_is_lost_and_pages_are_numbered_from_one(text: str, size: int) -> None:
    pages = split_into_pages(Document("a.txt", text), size)
    assert "".join("".join(page.text.split()) for page in pages) == "".join(text.split())
    assert [page.number for page in pages] == list(range(1, len(pages) + 1))
    assert all(page.text == page.text.strip() != "" for page in pages)


def test_a_page_ends_between_paragraphs() -> None:
    pages = split_into_pages(Document("a.txt", "one one\n\ntwo two\n\nthree"), 20)
    assert [page.text for page in pages] == ["one one\n\ntwo two", "three"]


def test_a_long_paragraph_is_cut_between_lines() -> None:
    assert cut("first line\nsecond line\nthird", 22) == ["first line\n", "second line\nthird"]


def test_a_long_line_is_cut_between_words() -> None:
    assert cut("alpha beta gamma", 11) == ["alpha beta ", "gamma"]


def test_a_long_word_is_cut_anywhere() -> None:
    assert cut("abcdefgh", 3) == ["abc", "def", "gh"]


def test_a_short_document_is_one_page() -> None:
    assert split_into_pages(Document("a.txt", "  \nshort\n")) == [Page("a.txt", 1, "short")]


def test_a_usual_page_is_well_filled() -> None:
    text = "\n\n".join(f"{number}. " + "word " * 60 for number in range(100))
    *pages, _ = split_into_pages(Document("a.txt", text))
    assert all(PAGE * 0.8 < len(page.text) <= PAGE for page in pages)


def test_summaries_go_back_to_their_documents() -> None:
    pages = [Page("b", 1, ""), Page("b", 2, ""), Page("a", 1, "")]
    assert by_document(pages, ["x", "y", "z"]) == {"b": ["x", "y"], "a": ["z"]}


def test_a_missing_summary_is_no_silent_shift() -> None:
    with pytest.raises(ValueError, match="shorter"):
        by_document([Page("a", 1, ""), Page("a", 2, "")], ["x"])
