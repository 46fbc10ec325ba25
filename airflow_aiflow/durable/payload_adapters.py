"""
Say what passes between the codec and those who use or extend it: encoded values, adapters, their registry.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from airflow_aiflow.durable.payload_tags import OWN_TAGS, TAGS

BUILT_IN = OWN_TAGS | {tag.name for tag in TAGS.values()}


class Flattened(NamedTuple):
    """Say that instances of a class were stored as data: the class's qualified name, and where the first one sits."""

    type_name: str
    path: str

    def __str__(self) -> str:
        return f"{self.type_name} (at {self.path})" if self.path else self.type_name


class Encoded(NamedTuple):
    """
    Hold a value's stored form.

    :param data: UTF-8 JSON; the same value gives the same bytes.
    :param flattened: the classes, each once, that come back as data unless the reader names them.
    """

    data: bytes
    flattened: tuple[Flattened, ...] = ()


class Adapter(Protocol):
    """
    Store a foreign class losslessly.

    ``tag`` names it in stored bytes and must never change its meaning. ``from_plain`` raises ``ValueError``,
    ``TypeError``, ``LookupError`` or ``ImportError`` for what ``to_plain`` can't have given.
    """

    tag: str

    def matches(self, value: object) -> bool:
        """Say whether this adapter stores a value. Asked only about classes that the codec doesn't know."""

    def to_plain(self, value: Any) -> Any:
        """Give what the codec can store. May raise ``ValueError`` with the reason why this value can't be stored."""

    def from_plain(self, plain: Any) -> Any:
        """Build the value from the decoded form of what ``to_plain`` gave."""


class ModelAdapter(Protocol):
    """Store instances of a family of classes as their fields, and rebuild those that calling code names."""

    def matches(self, value: object) -> bool:
        """Say whether a value is an instance of the family."""

    def to_plain(self, value: Any) -> Any:
        """Give the value's fields, one level deep; the codec goes on with each."""

    def builds(self, cls: Any) -> bool:
        """Say whether a class belongs to the family."""

    def field_types(self, cls: Any) -> dict[str, Any]:
        """Give the annotations of a class's fields; empty where the data is no mapping of fields."""

    def build(self, cls: Any, plain: Any, *, incomplete: Collection[str]) -> Any:
        """
        Build an instance that holds what was stored, not what the class would make of it a second time.

        :param cls: a class that ``builds`` said yes to.
        :param plain: what ``to_plain`` gave, with the instances inside rebuilt.
        :param incomplete: the fields in which some instance is plain data still, because no annotation named it.
        :raises ValueError: if the data does not fit the class; the message says which field.
        """


class Adapters:
    """Hold what a process can store beyond the standard library. Register before the first read or write."""

    def __init__(self) -> None:
        self._by_tag: dict[str, Adapter] = {}
        self._models: list[ModelAdapter] = []

    def register(self, adapter: Adapter) -> None:
        """
        Add an adapter; the same class again replaces itself.

        :raises ValueError: if its tag is taken.
        """
        known = self._by_tag.get(adapter.tag)
        if adapter.tag in BUILT_IN or (known is not None and type(known) is not type(adapter)):
            raise ValueError(f"the payload tag {adapter.tag!r} is taken")
        self._by_tag[adapter.tag] = adapter

    def register_models(self, adapter: ModelAdapter) -> None:
        """Add a family of models; the same class again replaces itself."""
        self._models = [known for known in self._models if type(known) is not type(adapter)] + [adapter]

    def storing(self, value: object) -> Adapter | None:
        """Find the adapter that stores a value."""
        return next((adapter for adapter in self._by_tag.values() if adapter.matches(value)), None)

    def tagged(self, tag: str) -> Adapter | None:
        """Find the adapter that reads a tag."""
        return self._by_tag.get(tag)

    def modelling(self, value: object) -> ModelAdapter | None:
        """Find the family that a value belongs to."""
        return next((family for family in self._models if family.matches(value)), None)

    def building(self, cls: Any) -> ModelAdapter | None:
        """Find the family that a class belongs to."""
        return next((family for family in self._models if family.builds(cls)), None)


@dataclass(frozen=True, slots=True)
class Named:
    """Hold the data of a class that the reader has yet to name. Never leaves the codec."""

    type_name: str
    plain: Any


#: The adapters of this process; ``runtime.payload_types`` fills it.
DEFAULT = Adapters()
