"""A ledger in memory that fails at a chosen statement."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from airflow_aiflow.durable.ports import Clock
from airflow_aiflow.exceptions import LedgerUnavailableError
from airflow_aiflow.storage.memory import MemoryLedger
from airflow_aiflow.storage.memory_tables import Tables


class ShakyLedger(MemoryLedger):
    """
    Fail by number: the first statement after ``arm`` is 1.

    :param clock: stands for the database's clock.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.statements = 0
        self._down_from = self._down_to = 0
        self._lost = 0

    def arm(self, *, down: tuple[int, int] = (0, 0), lost: int = 0) -> None:
        """
        Count from here.

        :param down: first and last statement that find the ledger away and change nothing.
        :param lost: the statement that is carried out and whose answer is lost.
        """
        self.statements = 0
        (self._down_from, self._down_to), self._lost = down, lost

    @contextmanager
    def statement(self) -> Iterator[Tables]:
        self.statements += 1
        number = self.statements
        if self._down_from <= number <= self._down_to:
            # As the driver says it: what causes it must not be taken for what the effect did.
            raise LedgerUnavailableError(f"statement {number} finds no ledger") from ConnectionRefusedError()
        with super().statement() as tables:
            yield tables
        if number == self._lost:
            raise LedgerUnavailableError(f"the answer of statement {number} is lost") from ConnectionRefusedError()
