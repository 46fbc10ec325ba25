"""What the author wishes of a map beside its items: how many at a time, and what a failed item means."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_aiflow.exceptions import (
    AiflowConfigError,
    ArtifactUnavailableError,
    BudgetExceededError,
    FlowClosedError,
    FlowOptionError,
    LedgerError,
    ModelIncompleteError,
    ModelRequestError,
    ModelTimeoutError,
    ModelUnavailableError,
    PayloadEncodeError,
    SealError,
    StepInputError,
)
from airflow_aiflow.runtime.commit_limits import BATCH_COMMIT, FLUSH_INTERVAL

#: Errors that are nobody's item: with them the map ends, whatever ``on_item_error`` says.
NOT_THE_ITEMS = (
    LedgerError,
    SealError,
    ArtifactUnavailableError,
    AiflowConfigError,
    BudgetExceededError,
    FlowClosedError,
)

#: Errors of an item after which a further try is in vain.
HOPELESS = (*NOT_THE_ITEMS, FlowOptionError, StepInputError, PayloadEncodeError, ModelRequestError)

#: Errors of a call about many items that none of them brings about: the others would meet it as well.
OF_THE_WHOLE_CALL = (ModelUnavailableError, ModelTimeoutError, ModelIncompleteError)

#: Answers that refuse what was sent. With others the provider refuses who asks, or whom: a key, a quota, a model.
REFUSES_WHAT_WAS_SENT = frozenset({None, 400, 413, 422})

#: Tries of an item whose failure is tolerated, in one attempt.
MAX_ITEM_ATTEMPTS = 3


def is_item_error(error: BaseException) -> bool:
    """
    Say whether an error is an item's own.

    :param error: what came of it.
    """
    return isinstance(error, Exception) and not isinstance(error, NOT_THE_ITEMS)


def may_be_of_one(error: BaseException) -> bool:
    """
    Say whether a call about many items may have failed because of a few of them.

    :param error: what came of it.
    """
    if isinstance(error, ModelRequestError):
        return error.status_code in REFUSES_WHAT_WAS_SENT
    return is_item_error(error) and not isinstance(error, OF_THE_WHOLE_CALL)


@dataclass(frozen=True, slots=True)
class MapRules:
    """
    Hold the options of a map.

    :param max_workers: items at work at once.
    :param on_item_error: ``fail``: the first failed item ends the map; ``skip``: its result is ``None``; a number from
        0 to 1: the same, and the map fails where more than that share of its items did.
    :param max_item_attempts: tries of an item whose failure is tolerated.
    :param batch_commit: most results that are uncommitted.
    :param flush_interval: seconds that a result waits for others at most.
    """

    max_workers: int = 8
    on_item_error: str | float = "fail"
    max_item_attempts: int = MAX_ITEM_ATTEMPTS
    batch_commit: int = BATCH_COMMIT
    flush_interval: float = FLUSH_INTERVAL

    def check(self, method: str) -> None:
        """
        Check the options.

        :param method: for messages.
        :raises FlowOptionError: if one is wrong.
        """
        for name in ("max_workers", "max_item_attempts", "batch_commit"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise FlowOptionError(f"{method}(): {name} must be a whole number from 1, got {value!r}")
        if isinstance(self.flush_interval, bool) or not 0 <= self.flush_interval <= 60:
            raise FlowOptionError(f"{method}(): flush_interval must be 0 to 60 seconds, got {self.flush_interval!r}")
        share = self.on_item_error
        if share in ("fail", "skip"):
            return
        if isinstance(share, bool | str) or not isinstance(share, int | float) or not 0 <= share <= 1:
            raise FlowOptionError(
                f"{method}(): on_item_error must be 'fail', 'skip' or the share of items that may fail, "
                f"such as 0.01, got {share!r}"
            )

    @property
    def tolerant(self) -> bool:
        """Whether the map goes on after a failed item."""
        return self.on_item_error != "fail"

    @property
    def retries(self) -> int:
        """Tries of an item after its first, in one attempt."""
        return self.max_item_attempts - 1 if self.tolerant else 0

    def tolerates(self, error: BaseException) -> bool:
        """
        Say whether the map may go on after an error.

        :param error: of an item.
        """
        return self.tolerant and is_item_error(error)

    def too_many(self, failed: int, total: int) -> bool:
        """
        Say whether more items failed than may.

        :param failed: how many did.
        :param total: of how many.
        """
        share = self.on_item_error
        return not isinstance(share, str) and failed > share * total
