"""
Airflow's door to the inbox: show what a task asks as a form, and bring the answer home.

The ledger's inbox is the truth; the form is only a door. Three rules must not be relaxed. An answer is in the ledger
before anything of the task goes on. What is chosen means the numbers that it was shown with, never what the task asks
now: a form keeps its first question for the task instance's life, so a form that shows something else stays unused. And
an answer that came so soon that Airflow lost it is read back before the form is asked for again, which would wipe it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_aiflow.durable.effect import EffectState
from airflow_aiflow.durable.inbox import DID_NOT_HAPPEN, HAPPENED, give_word
from airflow_aiflow.exceptions import AiflowConfigError, AiflowError, AttemptAsks
from airflow_aiflow.hooks.persons import METHOD

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_aiflow.durable.identity import ExecutionId
    from airflow_aiflow.durable.inbox import Form
    from airflow_aiflow.hooks.aiflow import AiflowHook
    from airflow_aiflow.hooks.airflow_form import AirflowForm
    from airflow_aiflow.hooks.host import AirflowHost

#: What an option means: pairs of (number, word).
Choices = dict[str, list[tuple[int, str]]]

#: Ends a form's text, which Airflow's page renders: relative, so that it leads right under any prefix.
INBOX_LINK = "[Open the AI Flow inbox](plugin/aiflow/inbox)"

#: Why a form is not shown once more: asking for it would wipe its answer, and show the old text.
USED = "Airflow's form of this task has been answered, and a task instance has but one"

#: An option that is about one number, such as ``Approve (#1842)``.
ONE_NUMBER = re.compile(r"(?P<option>.+) \(#(?P<number>\d+)\)", re.DOTALL)

#: What a doubt's options say about its call.
DECISIONS = {HAPPENED: "happened", DID_NOT_HAPPEN: "did_not_happen"}

#: Seconds after which a task that waits in a form looks into the inbox by itself, where an answer given elsewhere is
#: told to Airflow (by the connection aiflow_api): only for the case that the telling failed, for a look costs a start.
LOOK_AGAIN = 3600.0

#: The same where nobody can tell Airflow.
LOOK_AGAIN_UNTOLD = 600.0

#: After so many looks into the inbox the next ones come more rarely, up to the longest pause, in seconds.
LOOKS_A_STEP = 10
LONGEST_PAUSE = 300.0


def read_choices(plain: Any) -> Choices:
    """
    Read back what was handed to Airflow with the form.

    :param plain: as Airflow's serialisation gives it: tuples may be lists.
    """
    return {str(text): [(int(number), str(word)) for number, word in pairs] for text, pairs in (plain or {}).items()}


def receive(event: Mapping[str, Any], choices: Any) -> bool:
    """
    Bring a form's answer into the inbox.

    :param event: what Airflow tells of the answer, or that its time is over.
    :param choices: what was handed to Airflow with the form.
    :return: whether the form was answered without a word on what the task asks.
    """
    from airflow_aiflow.hooks.aiflow import AiflowHook
    from airflow_aiflow.hooks.airflow_form import IN_INBOX, person, person_id
    from airflow_aiflow.hooks.host import AirflowHost

    chosen = next(iter(event.get("chosen_options") or ()), None)
    if chosen is None or (event.get("params_input") or {}).get(IN_INBOX):
        return False
    words = read_choices(choices).get(str(chosen), [])
    if words:
        user = event.get("responded_by_user")
        give_words(AiflowHook(), words, by=person(user), user=person_id(user), host=AirflowHost())
    return not words


def earlier_words(hook: AiflowHook, chosen: str) -> list[tuple[int, str]]:
    """
    Read what was chosen in a form about something earlier: it is the answer to that, if it still has none.

    :param hook: leads to the inbox.
    :param chosen: the option's text.
    """
    found = ONE_NUMBER.fullmatch(chosen)
    if found is None:
        return []
    inbox, number, option = hook.inbox(), int(found["number"]), found["option"]
    question = inbox.question(number)
    if question is not None:
        return [(number, option)] if question.answer is None and option in question.options else []
    effect, decision = inbox.effect_numbered(number), DECISIONS.get(option)
    waits = effect is not None and effect.number == number and effect.state is EffectState.IN_DOUBT
    return [(number, decision)] if waits and decision is not None else []


def give_words(
    hook: AiflowHook, words: Iterable[tuple[int, str]], *, by: str, user: str | None, host: AirflowHost
) -> None:
    """
    Put a form's answer into the inbox; a word that comes second changes nothing, and the log says who was first.

    :param hook: leads to the inbox; a ledger that is away is waited for, since Airflow tells an answer once.
    :param words: pairs of (number, word).
    :param by: who says so.
    :param user: by id.
    :param host: writes the log.
    """
    from airflow_aiflow.runtime.clock import SystemClock
    from airflow_aiflow.runtime.patience import Patience

    inbox, patience = hook.inbox(), Patience(SystemClock(), hook.settings.ledger_patience)
    for number, option in words:
        word = patience.over(partial(give_word, inbox, number, option, by=by, user=user, note="by Airflow's form"))
        if word.counts:
            host.log(f"aiflow: #{number} is answered by {by}: {option}")
        else:
            host.log(f"aiflow: the answer of {by} to #{number} does not count: {word.why}", warning=True)


@dataclass(frozen=True)
class Door:
    """
    Turn a question into what Airflow understands.

    :param execution: who asks.
    :param ti_id: Airflow's task instance.
    :param try_number: its try.
    :param task: its operator; one without the method ``answered`` can't be called after a form.
    :param looks: how often this try has given its slot back so far.
    :param host: writes the log, masks secrets.
    :param reschedule_delay: least seconds until a task that gave its slot back comes again.
    """

    execution: ExecutionId
    ti_id: Any
    try_number: int
    task: Any
    looks: int
    host: AirflowHost
    reschedule_delay: float

    def park(self, asks: AttemptAsks) -> BaseException:
        """
        Show the form, and wait in it; or wait for an answer in the inbox alone.

        :param asks: what the attempt asks.
        :return: what to raise at Airflow.
        """
        from airflow.sdk.exceptions import TaskAwaitingInput

        form, choices = self._masked(asks.form)
        why = self._unshown(form, choices)
        if why is None:
            self.host.log(f"aiflow: {asks.why}; it is asked under Required Actions, and the slot goes back")
            return TaskAwaitingInput(
                method_name=METHOD,
                kwargs={"choices": {text: [list(pair) for pair in pairs] for text, pairs in choices.items()}},
                timeout=timedelta(seconds=self._wait(form)),
            )
        self.host.log(
            f"aiflow: {asks.why}; the slot goes back. {why}: answer in the inbox, or by `aiflow effects`", warning=True
        )
        return self._look_later(asks.delay)

    def _masked(self, form: Form) -> tuple[Form, Choices]:
        redact = self.host.redact
        choices = {redact(text): list(words) for text, words in form.options.items()}
        return replace(form, subject=redact(form.subject), body=redact(form.body)), choices

    def _unshown(self, form: Form, choices: Choices) -> str | None:
        """Show the form; or say why it is not shown."""
        from airflow_aiflow.hooks.supervisor import ask_airflow, is_supervised

        if not callable(getattr(self.task, METHOD, None)):
            return f"a {type(self.task).__name__} can't go on from Airflow's form"
        if not is_supervised():
            return "this is no scheduled task, which has no form in Airflow"
        if not choices or len(choices) != len(form.options):
            return "its options can't be shown in a form"
        if getattr(self.task, "form_is_used", False):
            return USED
        if (why := self._lost_answer(choices)) is not None:
            return why
        try:
            shown = ask_airflow(
                self.ti_id,
                subject=form.subject,
                body=f"{form.body}\n\n{INBOX_LINK}",
                options=list(choices),
                assigned_users=form.assigned_users,
            )
        except Exception as error:  # whatever Airflow says: the inbox holds the question
            return f"Airflow took no form ({type(error).__name__}: {error})"
        if shown != (form.subject, list(choices)):
            return "Airflow's form of this task still shows an earlier question, and a task instance has but one"
        return None

    def _lost_answer(self, choices: Choices) -> str | None:
        """Read back what was answered before this try; ``None``: nothing was, and the form may be asked for."""
        if self.try_number <= 1 and not self.looks:
            return None  # no form can have been there before
        from airflow_aiflow.hooks.airflow_form import read_form
        from airflow_aiflow.hooks.upstream import open_api

        try:
            with closing(open_api()) as api:
                found = read_form(api, self.execution)
        except AiflowConfigError:
            return None  # without the API it is asked again, and the person answers again
        except AiflowError as error:
            return f"whether Airflow's form has been answered can't be read ({error})"
        return None if found is None else self._taken(found, choices)

    def _taken(self, found: AirflowForm, choices: Choices) -> str | None:
        from airflow_aiflow.hooks.aiflow import AiflowHook

        if found.chosen is None:
            return None
        hook = AiflowHook()
        words = choices.get(found.chosen) or ([] if found.from_inbox else earlier_words(hook, found.chosen))
        if found.from_inbox or not words:
            return USED
        give_words(hook, words, by=found.by, user=found.user, host=self.host)
        if found.chosen not in choices:
            return USED  # it answered what was asked before a clear, say
        return f"{found.by} has answered in Airflow's form, which Airflow did not pass on: it is in the inbox now"

    def _wait(self, form: Form) -> float:
        look = LOOK_AGAIN if api_is_known() else LOOK_AGAIN_UNTOLD
        return max(min(look, look if form.timeout is None else form.timeout), self.reschedule_delay)

    def _look_later(self, delay: float) -> BaseException:
        from airflow.sdk.exceptions import AirflowRescheduleException

        least = max(delay, self.reschedule_delay)
        pause = max(least, min(least * (1 + self.looks // LOOKS_A_STEP), LONGEST_PAUSE))
        return AirflowRescheduleException(datetime.now(UTC) + timedelta(seconds=pause))  # type: ignore[no-untyped-call]


def api_is_known() -> bool:
    """Say whether this deployment has the connection by which Airflow is told of an answer."""
    from airflow_aiflow.config import flow_settings
    from airflow_aiflow.hooks.aiflow import existing_connection

    try:
        existing_connection(flow_settings().api_conn_id, "Airflow's REST API", "")
    except AiflowConfigError:
        return False
    return True


def door_of(context: Context, execution: ExecutionId, host: AirflowHost, *, reschedule_delay: float) -> Door:
    """
    Make the door of the running task.

    :param context: Airflow's.
    :param execution: which one it is.
    :param host: the attempt's.
    :param reschedule_delay: least seconds until a task that gave its slot back comes again.
    """
    ti: Any = context["ti"]
    return Door(
        execution=execution,
        ti_id=ti.id,
        try_number=ti.try_number,
        task=context["task"],
        looks=int(context.get("task_reschedule_count") or 0),
        host=host,
        reschedule_delay=reschedule_delay,
    )
