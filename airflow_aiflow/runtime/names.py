"""Give effects their identity, and see that a business key is there where it must be."""

from __future__ import annotations

import threading

from airflow_aiflow.durable.identity import (
    OWN_KEY,
    UNMAPPED,
    EffectId,
    Scope,
    effect_namespace,
    own_namespace,
)
from airflow_aiflow.durable.policy import EffectOptions
from airflow_aiflow.exceptions import EffectKeyRequiredError
from airflow_aiflow.runtime.current import current_unit
from airflow_aiflow.runtime.session import Session

_NOTHING_SENT = "Nothing was sent for this call"


class Names:
    """
    Find the identities of one attempt's effects. Safe for use from several threads.

    :param session: the attempt at work.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._used: set[str] = set()

    def identify(self, name: str, options: EffectOptions) -> EffectId:
        """
        Find an effect's identity; call it last, for it takes the name of a call without a key.

        :param name: the effect's name.
        :param options: checked.
        :raises EffectKeyRequiredError: where the call needs a business key; nothing was sent for it.
        """
        attempt, generation = self._session.attempt, self._session.taken.generation
        default: Scope = "generation" if attempt.setup_or_teardown else "dag"
        scope = options.scope or default
        if options.key is not None:
            return EffectId(effect_namespace(scope, attempt.execution, generation), name, options.key)
        if attempt.mapped or attempt.execution.map_index != UNMAPPED:
            raise EffectKeyRequiredError(
                f"effect '{name}' is called in a mapped task: give it key= with the business key of its item (a map "
                f"index is no key: a shifted list would give one item another's past). {_NOTHING_SENT}"
            )
        if current_unit().path:
            raise EffectKeyRequiredError(
                f"effect '{name}' is called inside a map or a step: give each call its own key=. {_NOTHING_SENT}"
            )
        with self._lock:
            if name in self._used:
                raise EffectKeyRequiredError(
                    f"effect '{name}' is called a second time in this task: give each call its own key=. "
                    f"{_NOTHING_SENT}"
                )
            self._used.add(name)
        namespace = own_namespace(attempt.execution)
        if scope == "generation":
            namespace = f"{namespace}/{generation}"
        return EffectId(namespace, name, OWN_KEY)
