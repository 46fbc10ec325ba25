"""Answer by sentences of the text itself: what the stand-in model gives instead of thinking.

The same text always gives the same answer, and the answer is about that text, so a report made from it can be read.
"""

from __future__ import annotations

import re

#: An instruction is a short first paragraph; what follows it is the text to work on.
LONGEST_INSTRUCTION = 1000
#: Shorter pieces are headings, page numbers and list marks.
SHORTEST_SENTENCE = 40
SENTENCES = 2
LONGEST_ANSWER = 400
NOTHING = "The text holds nothing to summarise."

_SENTENCE_END = re.compile(r"(?<=[.!?;:])\s+(?=[\"'(A-Z0-9À-ÞА-Я])|\n\s*\n")


def subject(prompt: str) -> str:
    """Give the part of a prompt that is to be worked on: what follows a short first paragraph, else all of it."""
    first, separator, rest = prompt.strip().partition("\n\n")
    if separator and len(first) <= LONGEST_INSTRUCTION and rest.strip():
        return rest.strip()
    return prompt.strip()


def sentences(text: str) -> list[str]:
    """Cut a text into sentences, whitespace made single, in order; too short ones only where there are no others."""
    pieces = [" ".join(piece.split()) for piece in _SENTENCE_END.split(text)]
    whole = [piece for piece in pieces if len(piece) >= SHORTEST_SENTENCE]
    return whole or [piece for piece in pieces if piece]


def summary(prompt: str) -> str:
    """Give the first sentences of a prompt's subject."""
    chosen = " ".join(sentences(subject(prompt))[:SENTENCES])
    return shorten(chosen, LONGEST_ANSWER) or NOTHING


def title(prompt: str) -> str:
    """Give the first line of a prompt's subject."""
    lines = [line.strip(" #*=-\t") for line in subject(prompt).splitlines()]
    return shorten(next((line for line in lines if line), NOTHING), 80)


def shorten(text: str, limit: int) -> str:
    """Cut a text at a word, at most so many characters long."""
    if len(text) <= limit:
        return text
    if limit < 2:
        return text[:limit]
    kept = text[: limit - 1]
    at_word = kept.rpartition(" ")[0] if " " in kept[limit // 2 :] else kept
    return at_word.rstrip(" ,;:") + "…"
