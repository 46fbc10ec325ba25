"""
Paragraphs that lie on every machine: of the documentation and the licence texts of the installed distributions.

They are kept as a file of JSON lines, the way a nightly export would be, and changed in that file between two nights.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Sequence
from importlib.metadata import distributions
from pathlib import Path

from airflow_aiflow.demo.licences import installed_licences
from airflow_aiflow.demo.reading import Unreadable, read_text_of
from airflow_aiflow.exceptions import AiflowConfigError

#: Words of a paragraph: less is a heading, a rule or a line of a table.
FEWEST_WORDS = 5

#: Suffixes of documentation inside an installed package; elsewhere ``.txt`` mostly holds data.
SUFFIXES = (".md", ".rst")

_WORD = re.compile(r"[^\W\d_]{2,}")
_BLANK = re.compile(r"\n[^\S\n]*\n")


def installed_texts() -> list[tuple[str, Path]]:
    """
    Find the licence texts, the descriptions and the pages of documentation of what is installed here.

    :return: a name and the path of each, every path once.
    """
    found = {path.resolve(): name for name, path in installed_licences()}
    for distribution in distributions():
        project = str(distribution.metadata["Name"] or "unknown")
        for file in distribution.files or ():
            described = file.name == "METADATA" and ".dist-info" in file.as_posix()
            if described or (file.suffix.lower() in SUFFIXES and ".dist-info" not in file.as_posix()):
                found.setdefault(Path(str(distribution.locate_file(file))).resolve(), f"{project}/{file.as_posix()}")
    return sorted((name, path) for path, name in found.items())


def split(text: str) -> list[str]:
    """
    Split a text at its empty lines, and leave out what is no paragraph.

    :param text: of a document.
    """
    parts = (part.strip() for part in _BLANK.split(text.replace("\r\n", "\n")))
    return [part for part in parts if len(_WORD.findall(part)) >= FEWEST_WORDS]


def read_paragraphs(limit: int | None = None) -> tuple[list[str], int]:
    """
    Read every paragraph that is installed here, each once however many licences quote it.

    :param limit: at most so many.
    :return: the paragraphs, and from how many texts they are.
    :raises AiflowConfigError: there is none.
    """
    found: dict[str, None] = {}
    texts = 0
    for _, path in installed_texts():
        try:
            paragraphs = split(read_text_of(path))
        except Unreadable:
            continue
        texts += 1
        found.update(dict.fromkeys(paragraphs))
        if limit is not None and len(found) >= limit:
            break
    if not found:
        raise AiflowConfigError("no installed distribution has a licence text or a page of documentation")
    return list(found)[:limit], texts


def change(paragraphs: Sequence[str], share: float, seed: int) -> tuple[list[str], int]:
    """
    Change a share of the paragraphs, and shuffle them all: a list's order is nobody's identity.

    :param paragraphs: of the first night.
    :param share: from 0 to 1; at least one paragraph is changed where it is above 0.
    :param seed: which ones.
    :return: those of the second night, and how many were changed.
    """
    dice = random.Random(seed)
    number = max(1, round(len(paragraphs) * share)) if share else 0
    chosen = set(dice.sample(range(len(paragraphs)), min(number, len(paragraphs))))
    second = [f"{text} (amended)" if place in chosen else text for place, text in enumerate(paragraphs)]
    dice.shuffle(second)
    return second, len(chosen)


def write_lines(path: Path, paragraphs: Iterable[str]) -> None:
    """
    Write the file of a night.

    :param path: where to.
    :param paragraphs: in order.
    """
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in paragraphs)


def read_lines(path: str) -> list[str]:
    """
    Read the file of a night.

    :param path: a file of JSON lines, each with ``text``.
    """
    with open(path, encoding="utf-8") as file:
        return [json.loads(line)["text"] for line in file]
