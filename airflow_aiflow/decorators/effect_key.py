"""
The business key of a task that is one effect: what can be known of it while a DAG is parsed, and after rendering.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from airflow_aiflow.durable.policy import EFFECT_OPTION_NAMES, EffectOptions, check_key, effect_options
from airflow_aiflow.exceptions import EffectOptionError

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator

#: What Jinja replaces.
TEMPLATE = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)

#: Options under the names that a task gives them: ``retries`` is Airflow's.
OPTION_NAMES = (EFFECT_OPTION_NAMES - {"key", "retries"}) | {"effect_retries"}


def check_effect(key: object, options: Mapping[str, Any]) -> None:
    """
    Check, while the DAG is parsed, what can be known before a key is rendered.

    :param key: the business key, maybe a template.
    :param options: options of the effect, under a task's names.
    :raises EffectOptionError: if a value is not allowed.
    :raises FlowOptionError: if an option is wrong.
    """
    if key is not None and not (isinstance(key, str) and TEMPLATE.search(key)):
        check_key(key)
    effect_options(as_flow_options(options), EffectOptions())


def warn_once_for_ever(task_id: str, key: object, scope: str | None) -> None:
    """
    Warn about a key that is the same in every run.

    :param task_id: the task.
    :param key: its key.
    :param scope: where the key is unique; ``None``: in the DAG.
    """
    if isinstance(key, str) and scope in (None, "dag") and not TEMPLATE.search(key):
        warnings.warn(
            f"task '{task_id}': the key {key!r} has no template and scope is 'dag', so this will happen once for ever, "
            f"not once a run; put something like {{{{ ds }}}} into the key, or give scope='run'",
            UserWarning,
            stacklevel=4,
        )


def rendered_key(operator: BaseOperator, template: str, names: Mapping[str, Any]) -> str:
    """
    Make the key of a run from its template: always text, whatever the DAG makes of other templates.

    As a native object ``1E5`` is the number that ``10E4`` is too, and what ends like a template's file is no file here.

    :param operator: gives the DAG's macros and filters.
    :param template: what the author wrote.
    :param names: what may stand in it.
    :raises EffectOptionError: if a name is not there, the key is empty, or a template gave "None".
    """
    from jinja2 import TemplateError

    try:
        env = operator.get_template_env()
        env.concat = _joined  # type: ignore[method-assign]  # also for what a macro or a set block gives
        made = env.from_string(template)
        rendered = _joined(made.root_render_func(made.new_context(dict(names))))
    except TemplateError as error:
        raise EffectOptionError(f"the key {template!r} can't be made: {error}. Nothing was sent") from error
    return checked_key(rendered, template)


def _joined(parts: Iterable[object]) -> str:
    return "".join(map(str, parts))


def checked_key(rendered: object, template: str) -> str:
    """
    Check a key after rendering.

    :param rendered: what the template gave.
    :param template: what the author wrote.
    :raises EffectOptionError: if it is empty, or a template gave "None".
    """
    key = check_key(rendered if isinstance(rendered, str) else str(rendered))
    if count_nones(key) > count_nones(TEMPLATE.sub("", template)) or "None" in _field_values(key, template):
        raise EffectOptionError(
            f"the key {template!r} became {key!r}: a template gave None, and every such run would share one key. "
            f"Nothing was sent"
        )
    return key


def count_nones(text: str) -> int:
    """
    Count the words "None": what a template makes of a value that is missing.

    :param text: a key, or a template without its fields.
    """
    return len(re.findall(r"(?<![A-Za-z0-9])None(?![A-Za-z0-9])", text))


def _field_values(key: str, template: str) -> list[str]:
    """Say what stands in a key where its template has fields, such as ``None`` in ``orderNone``; empty: can't tell."""
    first, *fixed = TEMPLATE.split(template)
    values: list[str] = []
    if not fixed or not key.startswith(first):
        return values
    key = key[len(first) :]
    for text in fixed[:-1]:
        value, found, key = key.partition(text) if text else ("", "", key)
        if text and not found:
            return []
        values.append(value)
    return [*values, key.removesuffix(fixed[-1])] if key.endswith(fixed[-1]) else []


def as_flow_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """
    Give options the names that a flow knows.

    :param options: of an effect, under a task's names.
    """
    return {"retries" if name == "effect_retries" else name: value for name, value in options.items()}
