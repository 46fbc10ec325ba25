"""
The calls of a flow that reach outside or wait: effect, transaction, job, agent, sleep, ask.

A DAG file imports this module for an annotation, so what does the work is imported where it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, TypeVarTuple, overload

if TYPE_CHECKING:
    from pydantic_ai.agent import AbstractAgent
    from pydantic_ai.messages import UserContent
    from pydantic_ai.usage import UsageLimits

    from airflow_aiflow.durable.identity import Scope
    from airflow_aiflow.durable.inbox import Answer
    from airflow_aiflow.durable.job import JobStatus
    from airflow_aiflow.durable.policy import Duration, OnConflict
    from airflow_aiflow.runtime.requests import EffectContext
    from airflow_aiflow.runtime.session import Session

R = TypeVar("R")
D = TypeVar("D")
Ts = TypeVarTuple("Ts")

#: Seconds between two looks at a job: a provider's limits are rarely below one request a minute.
POLL_SECONDS = 60.0

#: Seconds in a day: how long a job or an answer is waited for.
DAY = 86_400.0


class OutsideCalls:
    """
    Be the part of a flow that reaches outside.

    :param session: the attempt at work.
    """

    def __init__(self, session: Session) -> None:
        from airflow_aiflow.durable.policy import EffectOptions
        from airflow_aiflow.runtime.names import Names

        self._session = session
        self._names = Names(session)
        settings = session.services.settings
        self._effect_defaults = EffectOptions(
            on_in_doubt=settings.on_in_doubt,
            timeout=settings.effect_timeout,
            in_doubt_timeout=settings.in_doubt_timeout,
        )

    @overload
    def effect(self, name: str, fn: Callable[[EffectContext, *Ts], R], *args: *Ts, **options: Any) -> R: ...

    @overload
    def effect(self, name: str, fn: Callable[[*Ts], R], *args: *Ts, **options: Any) -> R: ...

    def effect(self, name: str, fn: Callable[..., R], *args: Any, **options: Any) -> R:  # type: ignore[misc]
        """
        Change the outside world: never repeated silently, never dropped silently.

        :param name: the effect's name; part of its identity.
        :param fn: the author's function; gets an ``EffectContext`` first where its first parameter is called ``ctx``.
        :param args: its arguments, by position.
        :param options: see ``durable.policy.EffectOptions``.
        :return: the stored result.
        :raises EffectKeyRequiredError: if the call needs a business key of its own.
        :raises EffectConflictError: if the key was used with another request.
        :raises EffectInDoubtError: if an earlier call's outcome is unknown and a person must decide.
        """
        from airflow_aiflow.durable.policy import EFFECT_OPTION_NAMES, effect_options
        from airflow_aiflow.runtime.effects import EffectCall
        from airflow_aiflow.runtime.steps import refuse_unfit

        unknown = [option for option in options if option not in EFFECT_OPTION_NAMES]
        if unknown:
            shown, module = getattr(fn, "__qualname__", "fn"), getattr(fn, "__module__", None)
            if isinstance(module, str) and "." not in shown:
                shown = f"{module.split('.')[0]}.{shown}"
            raise TypeError(
                f"effect() got an unexpected keyword {unknown[0]!r}. Keywords are options of the effect; pass the "
                f"function's own by position or partial({shown}, {unknown[0]}=...)"
            )
        refuse_unfit("effect", name, fn)
        checked = effect_options(options, self._effect_defaults)
        call = EffectCall(self._session, name, fn, args, checked, self._names.identify)
        result: R = call.run()
        return result

    def transaction(
        self,
        name: str,
        fn: Callable[..., R],
        *args: Any,
        conn_id: str,
        key: str | None = None,
        scope: Scope | None = None,
        on_conflict: OnConflict = "auto",
        identity: Sequence[str] | Literal["key"] | None = None,
    ) -> R:
        """
        Change a PostgreSQL database once: what was done and that it was done are one commit in that database.

        :param name: the effect's name; part of its identity.
        :param fn: called with a cursor, that refuses commit and rollback, and ``args``.
        :param args: its arguments, by position.
        :param conn_id: a connection of type ``postgres``.
        :param key: business key; ``None``: once per name in an unmapped task.
        :param scope: where the key is unique; ``None``: ``dag`` with a key.
        :param on_conflict: what follows when the key was used with another request.
        :param identity: names of the arguments that make two requests the same; ``None``: all of them.
        :return: the stored result.
        :raises DedupTableError: if the database's dedup table can't be used; nothing was changed.
        :raises EffectConflictError: if the key was used with another request.
        """
        from airflow_aiflow.durable.policy import effect_options
        from airflow_aiflow.runtime.steps import refuse_unfit
        from airflow_aiflow.runtime.transactions import TransactionCall

        refuse_unfit("transaction", name, fn)
        given = {"key": key, "scope": scope, "on_conflict": on_conflict, "identity": identity}
        options = effect_options(given, self._effect_defaults)
        result: R = TransactionCall(self._session, name, fn, args, conn_id, options, self._names.identify).run()
        return result

    def job(
        self,
        name: str,
        submit: Callable[..., str],
        *args: Any,
        poll: Callable[[str], JobStatus],
        result: Callable[[str], R],
        find: Callable[[str], str | None] | None = None,
        cancel: Callable[[str], None] | None = None,
        key: str | None = None,
        poll_interval: Duration = POLL_SECONDS,
        timeout: Duration = DAY,
        **options: Any,
    ) -> R:
        """
        Run a long job somewhere else: submitted once, then waited for without a worker slot.

        :param name: the job's name.
        :param submit: called with an ``EffectContext`` and ``args``; gives the job's id.
        :param args: its arguments, by position.
        :param poll: tells how the job of an id stands.
        :param result: gives a finished job's result.
        :param find: finds the id of a job that was submitted with an idempotency key; ``None`` from it: there is none.
        :param cancel: cancels a job whose ``timeout`` has passed.
        :param key: business key; ``None``: once per name in an unmapped task.
        :param poll_interval: between two looks; above 30 s the slot goes back meanwhile.
        :param timeout: from the submission, until the job is given up.
        :param options: further options of the effect that submits.
        :return: the stored result.
        :raises JobFailedError: if the job ended without success, or not in its time.
        """
        from airflow_aiflow.runtime.jobs import JobCall, run_job

        call = JobCall(name, submit, args, poll, result, find, cancel, key, poll_interval, timeout, options)
        done: R = run_job(self._session, self, call)
        return done

    def agent(
        self,
        name: str,
        agent: AbstractAgent[D, R],
        prompt: str | Sequence[UserContent] | None,
        *,
        deps: D | Any = None,
        usage_limits: UsageLimits | None = None,
        rate_limit: str | None = None,
        reuse: Duration | None = None,
    ) -> R:
        """
        Run an agent of pydantic-ai: each request to its model and each tool call is recorded.

        A tool that is decorated with ``@effect`` is one, however it came to the agent.

        :param name: of the run.
        :param agent: the author's; one without a model gets that of the deployment's default connection.
        :param prompt: what is asked.
        :param deps: what the agent's tools and instructions are given; not part of any fingerprint.
        :param usage_limits: of the whole run, what is replayed included.
        :param rate_limit: the name of a limit that ``aiflow limits set`` made: each request waits for it.
        :param reuse: how old an answer of the model may be that another run of the DAG was given in this task for the
            same conversation; ``None``: not asked. Tools are called all the same.
        :return: the run's output.
        """
        from airflow_aiflow.runtime.agents import run_agent

        flow: Any = self
        options = {"deps": deps, "usage_limits": usage_limits, "rate_limit": rate_limit, "reuse": reuse}
        output: R = run_agent(flow, name, agent, prompt, **options).output
        return output

    def sleep(self, name: str, delay: Duration) -> None:
        """
        Wait once, over all attempts of this generation; a long wait gives the slot back.

        :param name: of the wait.
        :param delay: from the first attempt that came here.
        """
        from airflow_aiflow.runtime.waits import run_sleep

        run_sleep(self._session, name, delay)

    def ask(
        self,
        name: str,
        subject: str,
        *,
        body: str = "",
        options: Sequence[str] = ("Approve", "Reject"),
        assigned_users: Sequence[str] = (),
        timeout: Duration = DAY,
    ) -> Answer:
        """
        Ask a person, once; the slot goes back while nobody has answered.

        :param name: of the question.
        :param subject: one line.
        :param body: what a person needs to decide.
        :param options: what may be answered.
        :param assigned_users: who may answer; empty: everybody with the right to.
        :param timeout: from the first asking.
        :return: what was chosen, by whom, when, with which note.
        :raises QuestionTimeoutError: if nobody answered in time.
        """
        from airflow_aiflow.runtime.questions import run_ask

        return run_ask(self._session, name, subject, body, options, assigned_users, timeout)


for _call in (
    OutsideCalls.transaction,
    OutsideCalls.job,
    OutsideCalls.agent,
    OutsideCalls.sleep,
    OutsideCalls.ask,
):
    # Python names it where a call is wrong, and its author knows a Flow alone.
    _call.__qualname__ = f"Flow.{_call.__name__}"
