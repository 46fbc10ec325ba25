"""The pinned versions: complete, in step with pyproject.toml, and free of any index's address."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from itertools import chain

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.unit.source_tree import ROOT

LINES = (ROOT / "constraints.txt").read_text().splitlines()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def pins() -> dict[str, set[str]]:
    """Return the pinned versions of each distribution, one for each of its markers."""
    found: dict[str, set[str]] = {}
    for line in LINES:
        requirement = Requirement(line)
        (specifier,) = requirement.specifier
        found.setdefault(canonicalize_name(requirement.name), set()).add(specifier.version)
    return found


def wanted() -> Iterator[Requirement]:
    """Yield what the project asks for, its extras' references to each other left out."""
    for requirement in map(Requirement, chain(PROJECT["dependencies"], *PROJECT["optional-dependencies"].values())):
        if requirement.name != PROJECT["name"]:
            yield requirement


def test_every_line_is_a_pin() -> None:
    assert [line for line in LINES if not re.fullmatch(r"[a-z0-9-]+==[\w.]+( ; [^:/]+)?", line)] == []


def test_every_requirement_is_pinned_within_its_range() -> None:
    pinned = pins()
    found = [(requirement, pinned.get(canonicalize_name(requirement.name), set())) for requirement in wanted()]
    assert [str(requirement) for requirement, versions in found if not versions] == []
    wrong = [(str(one), each) for one, versions in found for each in versions if not one.specifier.contains(each)]
    assert wrong == []


def test_extras_refer_to_extras_that_exist() -> None:
    extras = PROJECT["optional-dependencies"]
    own = [Requirement(text) for texts in extras.values() for text in texts if text.startswith(PROJECT["name"])]
    assert own
    assert {extra for requirement in own for extra in requirement.extras} - set(extras) == set()
