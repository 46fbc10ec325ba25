"""
The prompt of a batch: a template that is rendered for each item, in a sandbox, before the first call.

It sees ``item`` and ``params`` and nothing else, so that what decides an answer is what stands in its prompt. A field
that an item does not have is an error with the item's name, never an empty place in a prompt that is paid for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jinja2 import StrictUndefined, TemplateError, meta
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from airflow_aiflow.exceptions import FlowOptionError, ItemInputError

#: What a prompt may name.
NAMES = frozenset({"item", "params"})

#: Fields that a message names: enough to see the mistyped one.
MOST_NAMED = 12


class _Missing(StrictUndefined):
    """Say which field is missing, and of what."""

    __slots__ = ()

    @property
    def _undefined_message(self) -> str:
        holder, name = self._undefined_obj, self._undefined_name
        if isinstance(holder, Mapping):
            there = ", ".join(map(str, list(holder)[:MOST_NAMED])) or "none"
            return f"has no field {name!r}; its fields: {there}"
        return f"has nothing called {name!r}: {super()._undefined_message}"


class _Environment(ImmutableSandboxedEnvironment):
    """Take a dict's field before its method: an item may well have a field ``items`` or ``values``."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        if isinstance(obj, Mapping) and attribute in obj:
            return obj[attribute]
        return super().getattr(obj, attribute)


class PromptTemplate:
    """
    Render a prompt for one item after the other.

    :param text: Jinja; may use ``item`` and ``params``.
    :raises FlowOptionError: if it can't be read, or names something else.
    """

    def __init__(self, text: str) -> None:
        if not isinstance(text, str) or not text.strip():
            raise FlowOptionError(f"prompt must be a text that says what is asked of each item, got {text!r}")
        environment = _Environment(undefined=_Missing, autoescape=False, keep_trailing_newline=True)
        try:
            named = meta.find_undeclared_variables(environment.parse(text))
            self._template = environment.from_string(text)
        except TemplateError as error:
            raise FlowOptionError(f"prompt is no template that Jinja can read: {error}") from None
        unknown = sorted(named - NAMES - environment.globals.keys())
        if unknown:
            raise FlowOptionError(
                f"prompt names {unknown[0]!r}, which is not there: it is rendered for each item, with 'item' and "
                "'params' alone. Give a run's values by params=, or make them fields of the item"
            )

    def render(self, item: Any, params: Mapping[str, Any], name: str) -> str:
        """
        Make the prompt of one item.

        :param item: a mapping, or any value that the template takes.
        :param params: the run's.
        :param name: of the item, for messages.
        :raises ItemInputError: if the item lacks a field, or the prompt comes out empty.
        """
        try:
            text = self._template.render(item=item, params=params)
        except SecurityError as error:
            raise ItemInputError(f"item {name}: the prompt's template may not do this: {error}") from None
        except TemplateError as error:
            raise ItemInputError(f"item {name} {error.message}") from None
        except Exception as error:  # a filter that meets a value of another kind
            raise ItemInputError(f"item {name}: its prompt can't be made: {type(error).__name__}: {error}") from error
        if not text.strip():
            raise ItemInputError(f"item {name}: its prompt is empty")
        return text
