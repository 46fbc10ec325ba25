"""What a person sees of two nights when they are over."""

from __future__ import annotations

from rich.table import Table

from airflow_aiflow.demo.batch_outcome import BatchOutcome
from airflow_aiflow.demo.screen import Screen


def show_outcome(screen: Screen, outcome: BatchOutcome, *, kept: bool = False) -> None:
    """
    Print what was counted, and where the vectors are.

    :param screen: where to.
    :param outcome: the numbers.
    :param kept: whether the stack goes on running.
    """
    screen.table(outcome_table(outcome))
    if outcome.second.lines:
        screen.say("From the task log of the second night:")
        for line in outcome.second.lines:
            screen.say(f"  {line}")
    screen.say(f"vectors   {outcome.second.vectors}")
    screen.say(f"Airflow   {outcome.ui if kept else 'ends now; with --keep it stays, with both runs in its UI'}")
    for line in outcome.broken():
        screen.say(f"NOT AS PROMISED: {line}")


def outcome_table(outcome: BatchOutcome) -> Table:
    """
    Lay out what was counted.

    :param outcome: the numbers.
    """
    first, second = outcome.first, outcome.second
    table = Table(title=f"{outcome.items:,} paragraphs, two nights", title_justify="left", title_style="bold")
    table.add_column("")
    table.add_column("first night", justify="right")
    table.add_column("second night", justify="right")
    share = 100 * second.calls / outcome.items
    rows = [
        ("paragraphs in the file", f"{outcome.items:,}", f"{outcome.items:,}"),
        ("of them new or changed", f"{outcome.items:,}", f"{outcome.changed:,}"),
        ("kills by SIGKILL", f"{len(first.kills)}", f"{len(second.kills)}"),
        ("paragraphs recorded when it was killed", ", ".join(f"{kill:,}" for kill in first.kills) or "-", "-"),
        ("paragraphs embedded (counted by the encoder)", f"{first.calls:,}", f"{second.calls:,} ({share:.1f} %)"),
        ("of them embedded again because of a kill", f"{outcome.repeated:,}", "-"),
        (f"calls of up to {outcome.batch_size} paragraphs", f"{first.batches:,}", f"{second.batches:,}"),
        ("vectors taken from the first night", "-", f"{outcome.reused:,}"),
        ("vectors in the file, numbers in each", _shape(first.rows, first.width), _shape(second.rows, second.width)),
        ("seconds in all", f"{first.seconds:.1f}", f"{second.seconds:.1f}"),
    ]
    for row in rows:
        table.add_row(*row)
    return table


def _shape(rows: int, width: int) -> str:
    return f"{rows:,} x {width}"
