"""
A key that is made of a function's own arguments: ``"refund/{order_id}"``.

The template is the author's, the arguments may be a model's. So a key is a function of what the call acts on and of
nothing else: a text that a model wrote is put in as it is and never read as a template, and only values that name a
thing may be put in. Whoever gets another key has asked for another thing.
"""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import string
import uuid
from collections.abc import Collection, Mapping
from typing import Any

from airflow_aiflow.decorators.effect_key import count_nones
from airflow_aiflow.durable.policy import check_key
from airflow_aiflow.exceptions import EffectOptionError

#: What names a thing and is written in one way alone. A float or a bool names nothing; a model or a list has a text
#: that changes with its class.
NAMES_A_THING = (str, int, decimal.Decimal, uuid.UUID, dt.date)


class KeyTemplate:
    """
    Hold a checked template.

    :param name: the function's, for messages.
    :param template: for ``str.format``.
    :param parameters: the names that may stand in it.
    :raises EffectOptionError: if it names anything else than an argument.
    """

    def __init__(self, name: str, template: object, parameters: Collection[str]) -> None:
        if not isinstance(template, str):
            raise EffectOptionError(
                f"effect '{name}': key must be a template over the function's arguments, such as "
                f"'refund/{{order_id}}', got {template!r}"
            )
        self._name = name
        self._template = template
        try:
            parts = list(string.Formatter().parse(template))
        except ValueError as error:
            raise EffectOptionError(f"effect '{name}': the key {template!r} is no template: {error}") from None
        for _, field, spec, conversion in parts:
            if field is not None:
                self._check_field(field, spec or "", conversion, parameters)
        self.fields = tuple(field for _, field, _, _ in parts if field is not None)
        self._fixed = "".join(text for text, _, _, _ in parts)
        if not self.fields:
            check_key(self._fixed)

    def _check_field(self, field: str, spec: str, conversion: str | None, parameters: Collection[str]) -> None:
        where, there = f"effect '{self._name}': the key {self._template!r}", ", ".join(parameters) or "none"
        if not field or field.isdigit():
            raise EffectOptionError(f"{where} has a field without a name; name an argument: {there}")
        if field in parameters and not conversion and "{" not in spec:
            return
        if any(mark in field for mark in ".[") or conversion or "{" in spec:
            raise EffectOptionError(
                f"{where} looks into an argument ({{{field}}}); only whole arguments make a key, so give the function "
                f"one of its own: {there}"
            )
        raise EffectOptionError(f"{where} names {field!r}, which is no argument of the function: {there}")

    def key(self, arguments: Mapping[str, Any]) -> str:
        """
        Make the key of one call.

        :param arguments: by name, defaults included.
        :raises EffectOptionError: if an argument is None or names nothing, or the key is empty or too long.
        """
        values = {field: _plain(arguments[field]) for field in self.fields}
        for field, value in values.items():
            if value is None:
                raise EffectOptionError(
                    f"effect '{self._name}': the key {self._template!r} needs {field!r}, which is None: every such "
                    f"call would share one key. Nothing was sent"
                )
            endless = isinstance(value, decimal.Decimal) and not value.is_finite()
            if isinstance(value, bool) or endless or not isinstance(value, NAMES_A_THING):
                raise EffectOptionError(
                    f"effect '{self._name}': {field!r} is a {type(value).__name__}, which names nothing; a key is made "
                    f"of text, whole numbers, finite Decimals, dates and UUIDs. Nothing was sent"
                )
            if isinstance(value, str) and not value.strip():
                raise EffectOptionError(
                    f"effect '{self._name}': the key {self._template!r} needs {field!r}, which is empty. "
                    f"Nothing was sent"
                )
        key = check_key(self._template.format(**values))
        if count_nones(key) > count_nones(self._fixed) or "None" in map(str, values.values()):
            raise EffectOptionError(
                f"effect '{self._name}': the key {self._template!r} became {key!r}, where a None was made text: every "
                f"such call would share one key. Nothing was sent"
            )
        return key


class _Amount(decimal.Decimal):
    """Be written in one way, whatever zeros it came with: 1.0 and 1.00 are one amount, and make one key."""

    def __format__(self, spec: str, /, *args: Any) -> str:
        return super().__format__(spec) if spec else format(decimal.Decimal(self).normalize(), "f")


def _plain(value: Any) -> Any:
    # How a member is written differs between Python's releases; its value does not.
    value = value.value if isinstance(value, enum.Enum) else value
    return _Amount(value) if isinstance(value, decimal.Decimal) and value.is_finite() else value
