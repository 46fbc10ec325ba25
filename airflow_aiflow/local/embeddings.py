"""
The wire format of embeddings, for the stand-in model.

Its vectors mean nothing: they are drawn by the text's hash, so that the same text has the same vector and another text
another one.
"""

from __future__ import annotations

import base64
import hashlib
import struct
from typing import Any

PATH = "/v1/embeddings"

#: Numbers of a vector where the request wishes for none.
WIDTH = 64
#: Most numbers that a request may wish for.
MOST = 4_096


def parse(body: dict[str, Any]) -> tuple[str, list[str], int]:
    """
    Read a request.

    :return: the model, the texts, and how many numbers a vector has.
    :raises ValueError: it can't be served; a provider refuses an empty text, too.
    """
    given = body.get("input")
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise ValueError("'input' must be a text or a list of texts")
    if not all(texts):
        raise ValueError("'input' can not hold an empty text")
    width = body.get("dimensions", WIDTH)
    if not isinstance(width, int) or not 0 < width <= MOST:
        raise ValueError(f"'dimensions' must be a number from 1 to {MOST}")
    return str(body.get("model", "")), texts, width


def vector(text: str, width: int) -> list[float]:
    """
    Draw a vector.

    :param text: decides it.
    :param width: how many numbers.
    :return: numbers from -1 to 1.
    """
    raw = hashlib.shake_256(text.encode("utf-8", "surrogatepass")).digest(width)
    return [byte / 127.5 - 1 for byte in raw]


def whole(body: dict[str, Any]) -> dict[str, Any]:
    """Give the body of an answer, in base64 where the request wishes so."""
    model, texts, width = parse(body)
    coded = body.get("encoding_format") == "base64"
    vectors = [vector(text, width) for text in texts]
    given = [base64.b64encode(struct.pack(f"<{width}f", *each)).decode() if coded else each for each in vectors]
    tokens = sum(len(text.split()) for text in texts)
    return {
        "object": "list",
        "data": [{"object": "embedding", "index": place, "embedding": each} for place, each in enumerate(given)],
        "model": model,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
