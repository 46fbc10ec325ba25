"""``once``: any Airflow operator, done once for its key."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_aiflow.decorators.effect_key import check_effect
from airflow_aiflow.durable.policy import EFFECT_OPTION_NAMES
from airflow_aiflow.exceptions import EffectOptionError
from airflow_aiflow.hooks.attempt import check_on_clear
from airflow_aiflow.hooks.persons import AsksPersons
from airflow_aiflow.links import with_timeline
from airflow_aiflow.operators.once_sql import OPERATOR, TRANSACTION_OPTIONS
from airflow_aiflow.operators.once_task import OnceOptions, OnceTask
from airflow_aiflow.operators.presets import Preset, preset_of

if TYPE_CHECKING:
    from typing import Unpack

    from airflow.sdk import BaseOperator

    from airflow_aiflow.decorators.effect_words import EffectWords
    from airflow_aiflow.durable.attempt import OnClear

    T = TypeVar("T", bound=BaseOperator)
else:
    T = TypeVar("T")


def once(
    operator_class: type[T],
    *,
    key: str | None = None,
    transactional: bool = False,
    idempotency_header: str | None = None,
    effect_name: str | None = None,
    on_clear: OnClear | None = None,
    **options: Unpack[EffectWords],
) -> type[T]:
    """
    Have an operator do its work once: ``once(EmailOperator, key="close/{{ ds }}")(task_id="mail", to=...)``.

    The class that comes back takes the operator's own arguments, unchanged, and maps by ``partial`` and ``expand``.

    :param operator_class: the operator.
    :param key: the business key, a template over Airflow's context and the operator's templated fields; ``None``: once
        in this task of this run, where the task is not mapped.
    :param transactional: commit the work and its record together; for ``SQLExecuteQueryOperator`` on PostgreSQL.
    :param idempotency_header: the HTTP header in which the target is given our idempotency key.
    :param effect_name: part of the effect's identity; ``None``: the task id. Another one is another effect.
    :param on_clear: as for a durable task; matters where ``scope="generation"``.
    :param options: of an effect. ``identity`` names templated fields; known operators have a preset.
    :return: a subclass of the operator.
    :raises EffectOptionError: if an option is wrong, or does not fit the operator.
    """
    _check_class(operator_class)
    unknown = [name for name in options if name not in EFFECT_OPTION_NAMES]
    if unknown:
        raise TypeError(
            f"once() got an unexpected keyword {unknown[0]!r}. Its keywords are options of the effect; the operator's "
            f"own go into the second call: once({operator_class.__name__}, key=...)({unknown[0]}=...)"
        )
    preset = preset_of(operator_class)
    given = dict(options)
    check_effect(key, {("effect_retries" if name == "retries" else name): value for name, value in given.items()})
    _check_identity(operator_class, preset, given.get("identity"))
    if transactional:
        _check_transactional(operator_class, idempotency_header, given)
    else:
        _check_header(operator_class, preset, idempotency_header, given)
    checked = None if on_clear is None else check_on_clear(on_clear)
    once_options = OnceOptions(key, effect_name, given, idempotency_header, transactional, checked, preset)
    made: type[T] = _subclass(operator_class, once_options)
    return made


def _check_class(operator_class: Any) -> None:
    from airflow.sdk import BaseOperator

    if not (isinstance(operator_class, type) and issubclass(operator_class, BaseOperator)):
        raise TypeError(
            f"once() takes an operator class, got {operator_class!r}; a function is made an effect by @task.effect"
        )
    if issubclass(operator_class, AsksPersons):
        raise EffectOptionError(f"once({operator_class.__name__}): its work is recorded already; use it as it is")


def _check_identity(operator_class: Any, preset: Preset, identity: Any) -> None:
    fields = (*operator_class.template_fields, *preset.also)
    for name in () if identity is None or identity == "key" else identity:
        if name not in fields:
            raise EffectOptionError(
                f"once({operator_class.__name__}): identity names {name!r}, which is none of its templated fields: "
                f"{', '.join(fields)}"
            )


def _check_header(operator_class: Any, preset: Preset, header: str | None, options: dict[str, Any]) -> None:
    name = operator_class.__name__
    if header is not None:
        if not isinstance(header, str) or not header.strip() or any(sign.isspace() for sign in header):
            raise EffectOptionError(f"once({name}): idempotency_header must be the name of a header, got {header!r}")
        if not preset.has_headers and "headers" not in operator_class.template_fields:
            raise EffectOptionError(
                f"once({name}): idempotency_header= is for operators that send HTTP headers, and this one has none"
            )
    if options.get("on_in_doubt") == "retry" and header is None and not preset.triggers:
        raise EffectOptionError(
            f"once({name}): on_in_doubt='retry' calls the target again, so the target must get the idempotency key: "
            f"give idempotency_header=, where the target dedups by it"
        )


def _check_transactional(operator_class: Any, header: str | None, options: Iterable[str]) -> None:
    name = operator_class.__name__
    if OPERATOR not in {f"{base.__module__}.{base.__qualname__}" for base in operator_class.__mro__}:
        raise EffectOptionError(
            f"once({name}): transactional=True is for SQLExecuteQueryOperator on a connection of type postgres"
        )
    unfit = sorted(set(options) - TRANSACTION_OPTIONS)
    if unfit or header is not None:
        raise EffectOptionError(
            f"once({name}): {(unfit or ['idempotency_header'])[0]}= has no meaning with transactional=True, where "
            f"nothing can be in doubt; it takes key, {', '.join(sorted(TRANSACTION_OPTIONS))}"
        )


def _subclass(operator_class: Any, given: OnceOptions) -> Any:
    """Make the class: named as the operator's, so that Airflow's pages, links and listeners know it."""

    @functools.wraps(operator_class.__init__)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - of the class that is made below
        super(made, self).__init__(*args, **kwargs)
        self.check_once()

    made: Any = type(operator_class)(
        operator_class.__name__,
        (OnceTask, operator_class),
        {
            "__init__": __init__,
            "__module__": operator_class.__module__,
            "__qualname__": operator_class.__qualname__,
            "__doc__": operator_class.__doc__,
            "once_options": given,
            "operator_extra_links": with_timeline(operator_class),
            "custom_operator_name": f"once({getattr(operator_class, 'custom_operator_name', operator_class.__name__)})",
        },
    )
    return made
