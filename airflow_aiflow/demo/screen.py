"""What a person sees while the demo runs: a progress bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

from types import TracebackType
from typing import Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from airflow_aiflow.demo.outcome import MAX_WORKERS, Outcome

MADE = "model calls made (counted at the model server)"
#: What Airflow 3.3 takes by its defaults until it misses a worker: its time-out, and a look every ten seconds.
ALONE = "about 310, then it fails"
#: Percent of the calls between two lines where there is no terminal.
LINE_EVERY = 10
#: Columns of a stream that is no terminal: paths and addresses stay on one line.
PLAIN_WIDTH = 160


class Screen:
    """
    Show how the demo goes.

    :param stream: where to.
    """

    def __init__(self, stream: TextIO) -> None:
        width = None if stream.isatty() else PLAIN_WIDTH
        self._console = Console(file=stream, markup=False, highlight=False, width=width)
        self._bar: Progress | None = None
        self._total = 0
        self._next_line = 0
        self._things = "model calls"

    def say(self, line: str) -> None:
        """Print one line; a bar stays below it."""
        # Never broken by us: an address that goes over two lines can't be clicked or copied.
        self._console.print(line, soft_wrap=True)

    def open(self, total: int, things: str = "model calls") -> Self:
        """
        Begin to show progress.

        :param total: how many there are to be recorded.
        :param things: what is counted.
        """
        self._total, self._things, self._next_line = total, things, 0
        if self._console.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(40), MofNCompleteColumn(), TimeElapsedColumn())
            self._bar = Progress(*columns, console=self._console)
            self._bar.add_task("waiting for the task", total=total)
        return self

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def show(self, done: int, what: str) -> None:
        """
        Show how far the run is.

        :param done: how many are recorded.
        :param what: what is going on.
        """
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=done, description=f"{what:<24}")
            return
        percent = 100 * done // max(1, self._total)
        if percent >= self._next_line and done:
            self._next_line = percent // LINE_EVERY * LINE_EVERY + LINE_EVERY
            self.say(f"  {what}: {done:,} of {self._total:,} {self._things} recorded")

    def table(self, table: Table) -> None:
        """
        Print a table below an empty line.

        :param table: what was counted.
        """
        self.say("")
        self._console.print(table)

    def result(self, outcome: Outcome, *, kept: bool = False) -> None:
        """
        Print the table of what was counted.

        :param outcome: the numbers.
        :param kept: whether the stack goes on running.
        """
        self.say("")
        self._console.print(result_table(outcome))
        answers = sum(kill.calls for kill in outcome.kills)
        if answers:
            self.say(
                f"A plain task keeps nothing: it pays again for the answers it had at each kill, {answers} in all."
            )
        if outcome.counted_at == "model server":
            self.say("The stand-in model quotes the text and draws the risk by lot; --llm-conn-id asks a real one.")
        if outcome.report is not None:
            self.say(f"report    {outcome.report}")
            self.say(f"table     {outcome.table}")
        self.say(f"timeline  {outcome.ui if kept else 'ends now with Airflow; with --keep both stay'}")
        if outcome.victim == "worker":
            self.say("The run's retries are 0: Airflow alone ends it as failed. Recovery burns none to bring it back.")
        for line in outcome.broken():
            self.say(f"NOT AS PROMISED: {line}")


def result_table(outcome: Outcome) -> Table:
    """
    Lay out what was counted.

    :param outcome: the numbers.
    """
    table = Table(title=f"The run {outcome.state}", title_justify="left", title_style="bold")
    table.add_column("")
    table.add_column("this run", justify="right")
    table.add_column("a plain task", justify="right", style="dim")
    killed = ", ".join(f"{kill.pages}" for kill in outcome.kills)
    real = outcome.counted_at == "ledger"
    made = f"model calls recorded (in flight at a kill: {MAX_WORKERS} more at most)" if real else MADE
    first = "-" if outcome.first_page is None else f"{outcome.first_page:.1f}"
    rows = [
        ("documents (skipped)", f"{outcome.documents} ({outcome.skipped})", ""),
        ("pages", f"{outcome.pages}", ""),
        ("kills by SIGKILL", f"{len(outcome.kills)}", ""),
        ("pages recorded when it was killed", killed or "-", ""),
        ("model calls needed", f"{outcome.calls_needed}", f"{outcome.calls_needed}"),
        (made, f"{outcome.calls_made}", f"{outcome.calls_plain}"),
        ("model calls saved", f"{outcome.calls_saved}", ""),
        ("seconds lost (from a kill to the next answer)", f"{outcome.seconds_lost:.1f}", ""),
        *_found_rows(outcome),
        ("seconds in all", f"{outcome.seconds:.1f}", ""),
        ("seconds from the command to the first page", first, ""),
        ("e-mails sent (counted at the mail server)", f"{outcome.emails}", ""),
        ("records created (counted at the service)", f"{outcome.records}", ""),
    ]
    if outcome.cost is not None:
        rows.append(("cost in US dollars", f"{outcome.cost:.4f}", ""))
    for row in rows:
        table.add_row(*row)
    return table


def _found_rows(outcome: Outcome) -> list[tuple[str, str, str]]:
    """Tell how soon recovery found what Airflow was not told."""
    if outcome.victim != "worker":
        return []
    found = ", ".join("never" if kill.found is None else f"{kill.found:.1f}" for kill in outcome.kills)
    return [("seconds from a kill until recovery had found it", found or "-", ALONE)]
