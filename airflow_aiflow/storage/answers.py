"""Check what every ledger checks the same way before it asks its backend."""

from __future__ import annotations

from airflow_aiflow.durable.execution import ExecutionState
from airflow_aiflow.durable.sign import Sign

#: The ends that an attempt itself can write.
ENDS = frozenset({ExecutionState.SUCCEEDED, ExecutionState.FAILED, ExecutionState.PAUSED})


def check_sign(sign: Sign, *, seen: int | None) -> None:
    """
    Refuse a take-over that the sign forbids.

    :param sign: what the attempt is.
    :param seen: the fence on which the sign was computed.
    :raises ValueError: if the attempt is an older one, or the sign and ``seen`` contradict each other.
    """
    if sign is Sign.OLDER:
        raise ValueError("an older attempt that started late never takes an execution over")
    if (sign is Sign.FIRST) != (seen is None):
        raise ValueError(f"the sign {sign.value!r} does not fit the fence {seen!r} that it was computed on")


def check_end(state: ExecutionState, *, has_result: bool) -> None:
    """
    Refuse an end that is none of an attempt's.

    :param state: the execution's state from now on.
    :param has_result: whether a result comes with it.
    :raises ValueError: if the state is no end, or a result comes with anything but success.
    """
    if state not in ENDS:
        raise ValueError(f"an attempt ends as succeeded, failed or paused, not as {state.value}")
    if has_result and state is not ExecutionState.SUCCEEDED:
        raise ValueError(f"an execution that ends as {state.value} has no result")
