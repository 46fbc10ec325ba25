"""
Clocks: this machine's, the database's, the API server's, the object store's.

Nothing of the protocol compares a worker's clock with another: only the database's counts. What a wrong one spoils is
what people read, and what others compare: tokens and signed requests run out early.
"""

from __future__ import annotations

from airflow_aiflow.cli.doctor.finding import Finding, ok, warning

#: Seconds from which on a difference is worth a word: below it, log lines of two machines still tell an order.
WORTH_A_WORD = 5.0

#: Seconds from which on an S3 server refuses what is signed.
S3_REFUSES = 900.0

MEND = "let this machine and the server take their time from the same source (chrony, systemd-timesyncd)"


def compared(name: str, ahead: float, within: float, *, refuses: float | None = None) -> Finding:
    """
    Judge a difference.

    :param name: whose clock is compared with this machine's.
    :param ahead: seconds that this machine's clock is ahead.
    :param within: seconds by which that may be wrong.
    :param refuses: seconds from which on the other side refuses requests.
    """
    where = "ahead of" if ahead >= 0 else "behind"
    found = f"this machine's clock is {abs(ahead):.1f} s {where} {name} (known to {max(within, 0.1):.1f} s)"
    if refuses is not None and abs(ahead) - within >= refuses:
        return warning(found, f"{name} refuses what is signed with such a clock", MEND)
    if abs(ahead) - within >= WORTH_A_WORD:
        means = "leases are not touched by it: only the database's clock counts. Times in logs are wrong by as much"
        return warning(found, means, MEND)
    return ok(found)
