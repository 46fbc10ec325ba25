"""
Keep the beginning of a step's arguments beside its result, for people.

A map's items share all but one argument: the first one that is recorded keeps all of them, the others the item alone,
and quick ones nothing, for a million of them must stay as small and as fast as they are.
"""

from __future__ import annotations

from collections.abc import Callable

from airflow_aiflow.durable.fingerprint import Printed
from airflow_aiflow.durable.ports import Host
from airflow_aiflow.durable.step_arguments import SecretNames, pack

#: Milliseconds below which a map's item keeps nothing: quicker ones come by the hundred thousand, and each would pay
#: with a part of its time and half of its row.
QUICK_MS = 50.0


class ArgumentRecord:
    """
    Give what rows keep. Safe for use from several threads.

    :param host: knows by which names secrets go.
    :param lock: encrypts what is stored, where keys are configured.
    """

    def __init__(self, host: Host, lock: Callable[[bytes], bytes]) -> None:
        self._host, self._lock = host, lock
        self._secret: SecretNames | None = None
        self._maps: set[str] = set()

    def of(self, printed: Printed | None, name: str, duration_ms: float) -> bytes | None:
        """
        Give what the row of a step keeps.

        :param printed: the step's arguments; ``None``: they are not known.
        :param name: of the step, or of its map.
        :param duration_ms: how long it took.
        :return: ``None``: nothing.
        """
        if printed is None or not printed.heads:
            return None
        only = printed.item
        if only is not None:
            if name in self._maps:
                if duration_ms < QUICK_MS:
                    return None
            else:
                self._maps.add(name)
                only = None
        if self._secret is None:
            self._secret = SecretNames(self._host.secret_words())
        return pack(printed.names, printed.heads, self._secret, opaque=printed.opaque, only=only, lock=self._lock)
