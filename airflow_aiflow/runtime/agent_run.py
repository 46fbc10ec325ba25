"""
Record the requests and tool calls of one agent's run.

Each is a call of the core, carried out in a thread of its own, while the agent's event loop goes on; the request on the
network and the tool itself run on that loop. Who is cancelled there leaves them to bring their record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from airflow_aiflow.durable.fingerprint import Printed, print_parts
from airflow_aiflow.durable.identity import step_key
from airflow_aiflow.durable.limit import check_limit_name
from airflow_aiflow.exceptions import ApprovalDeclinedError, LedgerError, StepInputError
from airflow_aiflow.llm.agent_prints import Conversation, plain_parameters, plain_settings
from airflow_aiflow.llm.agent_request import AgentCaller, AgentRequest
from airflow_aiflow.llm.agent_results import pack_tool, unpack_response, unpack_tool
from airflow_aiflow.runtime.coroutines import Driver
from airflow_aiflow.runtime.current import Unit, flow_call, inside_unit
from airflow_aiflow.runtime.payloads import masked
from airflow_aiflow.runtime.replay import Slot
from airflow_aiflow.runtime.session import Session
from airflow_aiflow.runtime.steps import Ran, StepCall, give_back, prepare, run_live, run_step

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse

    from airflow_aiflow.runtime.model_calls import ModelCalls

#: Name of the record that says that an answer was of no use to the agent: a later attempt asks again.
REFUSED = "answer of no use"

#: Name of the record of what a tool that records itself had the model told in place of a result.
TOLD = "told the model"


class AgentRun:
    """
    Be the recorder of one run.

    :param session: the attempt at work.
    :param models: how model calls are paid and waited for.
    :param driver: of the agent's event loop.
    :param name: of the run.
    :param unit: inside which its records are.
    :param rate_limit: the limit that its requests count against.
    :param reuse: seconds; a request that another run recorded counts, if it is no older; ``None``: none does.
    """

    def __init__(
        self,
        session: Session,
        models: ModelCalls,
        driver: Driver,
        name: str,
        unit: Unit,
        rate_limit: str | None,
        reuse: float | None,
    ) -> None:
        self._session = session
        self._models = models
        self._driver = driver
        self._name = name
        self._unit = unit
        self._rate_limit = None if rate_limit is None else check_limit_name(rate_limit)
        self._reuse = reuse
        self._conversation = Conversation(session.secrets)
        #: Of each tool call of the last answers: the fingerprint of the request, and the place in its answer.
        self._places: dict[str, tuple[str, int]] = {}
        #: The places of the requests so far, and whether each one asked again after an answer of no use.
        self._asked: list[tuple[Slot, bool]] = []
        self._busy: set[asyncio.Future[None]] = set()
        #: What a tool raised.
        self._of_tool: BaseException | None = None

    # --- requests ---

    async def request(self, request: AgentRequest) -> ModelResponse:
        """
        Replay a request to the model, or make it.

        :raises ModelError: see ``ModelCaller.call``.
        """
        printed, response = await self._driver.call(lambda: self._request(request))
        for place, part in enumerate(response.parts):
            call_id = getattr(part, "tool_call_id", None)
            if call_id is not None:
                self._places[call_id] = (printed.digest.hex(), place)
        return response

    def _request(self, request: AgentRequest) -> tuple[Printed, ModelResponse]:
        printed, slot = self._placed(request)
        session = self._session
        self._asked.append((slot, _asks_again(request)))
        measured = self._rate_limit is not None or session.attempt.budget is not None
        described = request.described(self._rate_limit, whole=measured)
        caller = AgentCaller(request, self._driver.run)
        call = StepCall(
            kind="llm",
            name=self._name,
            fingerprint=printed.digest,
            printed=printed,
            run=lambda: self._models.ask(self._name, described, lambda: caller),
            timeout=self._models.step_timeout(described),
            reuse=self._reuse,
        )
        return printed, unpack_response(run_step(session, call, slot), self._name)

    def _placed(self, request: AgentRequest) -> tuple[Printed, Slot]:
        """
        Print a request and take its place: that of its first round whose answer was of use, or is not known yet.

        A place whose answer was of no use stays taken, so that the same request of another run keeps its own.
        """
        parts = [
            ("kind", "agent"),
            ("model", request.model.model_id),
            ("conversation", self._conversation.digest(request.messages)),
            ("settings", plain_settings(request.settings)),
            ("tools and output", plain_parameters(request.parameters)),
        ]
        session, rounds = self._session, 0
        while True:
            printed = print_parts([*parts, ("round", rounds)], secrets=session.secrets)
            slot = session.replay.take(self._unit.path, self._name, printed.digest)
            if not self._is_refused(slot):
                return printed, slot
            self._unit.slots[slot.key] = slot
            rounds += 1

    # --- tools ---

    async def tool(
        self,
        name: str,
        arguments: dict[str, Any],
        call_id: str | None,
        go: Callable[[], Coroutine[Any, Any, Any]],
        *,
        recorded: bool,
    ) -> Any:
        """
        Replay a tool call, or make it.

        :param name: of the tool.
        :param arguments: validated.
        :param call_id: by which the model named the call: only to find its place.
        :param go: calls the tool.
        :param recorded: whether the tool records itself.
        """
        place = self._places.get(call_id or "", ("", 0))
        call = self._marked if recorded else self._plain_tool
        mine = asyncio.get_running_loop().create_future()
        self._busy.add(mine)
        try:
            return unpack_tool(await self._driver.call(lambda: call(name, arguments, place, go)))
        except ApprovalDeclinedError as declined:
            from pydantic_ai.exceptions import ToolFailed

            # Not recorded: who clears the task is asked anew.
            raise ToolFailed(f"A person declined this call. Nothing was done. {declined.note}".strip()) from None
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            # What is raised here ends the run, and with it what the other tools work with.
            self._of_tool = error
            self._busy.discard(mine)
            if others := tuple(self._busy):
                await asyncio.wait(others)
            raise
        finally:
            self._busy.discard(mine)
            mine.set_result(None)

    def _plain_tool(
        self, name: str, arguments: dict[str, Any], place: tuple[str, int], go: Callable[[], Coroutine[Any, Any, Any]]
    ) -> dict[str, Any]:
        named = [("kind", "tool"), ("arguments", arguments), ("call", place)]
        secrets = self._session.secrets
        try:
            printed = print_parts(named, secrets=secrets)
        except StepInputError:
            # Classes of the author's: the answer that holds the call decides them.
            printed = print_parts([("kind", "tool"), ("arguments", None), ("call", place)], secrets=secrets)
        call = StepCall(
            kind="step",
            name=name,
            fingerprint=printed.digest,
            printed=printed,
            run=lambda: Ran(self._run(go)),
        )
        plain: dict[str, Any] = run_step(self._session, call)
        return plain

    def _marked(
        self, name: str, arguments: dict[str, Any], place: tuple[str, int], go: Callable[[], Coroutine[Any, Any, Any]]
    ) -> dict[str, Any]:
        """
        Call a tool that records itself, in a unit of its own: equal calls side by side keep their own results.

        What it has the model told in place of a result is recorded here: called again, it may find its effect done
        by the call that the model made instead.
        """
        session, mark = self._session, print_parts([("kind", "told"), ("tool", name), ("call", place)]).digest
        call = StepCall("step", TOLD, mark, lambda: Ran(plain))
        with flow_call(session):
            done, found = prepare(session, call)
        if done:
            told: dict[str, Any] = found
            return told
        try:
            with inside_unit(f"{place[0]} {place[1]}") as unit:
                try:
                    plain = self._run(go)
                finally:
                    self._unit.slots.update(unit.slots)
                    self._unit.cut |= unit.cut
        except BaseException:
            give_back(session, found)
            raise
        if "retry" in plain or "failed" in plain:
            return dict(run_live(session, call, found))
        give_back(session, found)
        return plain

    def _run(self, go: Callable[[], Coroutine[Any, Any, Any]]) -> dict[str, Any]:
        plain = self._driver.run(pack_tool(go()))
        # What the masker knows goes to no model and into no record.
        return plain if self._session.payloads.secret_in(plain) is None else self._masked(plain)

    def _masked(self, plain: dict[str, Any]) -> dict[str, Any]:
        safe: dict[str, Any] = masked(plain, self._session.services.host.redact)
        return safe

    # --- ends ---

    async def failed(self, error: BaseException) -> None:
        """
        Let a later run find what this one recorded; answers that were of no use are asked for again.

        :param error: what ended the run.
        """
        from pydantic_ai.exceptions import UnexpectedModelBehavior

        # Of an agent inside a tool it was the answer that was of no use, and none of this one's.
        ours = isinstance(error, UnexpectedModelBehavior) and error is not self._of_tool
        try:
            if ours and self._asked and self._session.gate.signal is None:
                await self._driver.call(self._refuse)
        except LedgerError as trouble:
            error.add_note(f"aiflow: a further try replays the answers of no use: {trouble}")
        finally:
            slots, self._unit.slots = self._unit.slots, {}
            self._session.replay.give_back(*slots.values())

    def ended(self, outer: Unit) -> None:
        """
        Hand the places of its records on to the unit around it, which may fail yet.

        :param outer: the unit.
        """
        if outer.path:
            outer.slots.update(self._unit.slots)
        else:
            self._session.replay.forget(self._unit.slots)

    def _refuse(self) -> None:
        """Note the first of the answers that the agent could make nothing of."""
        first = next((slot for slot, again in reversed(self._asked) if not again), self._asked[0][0])
        session = self._session
        run_step(session, StepCall("step", REFUSED, _mark(first), lambda: Ran(None)))
        session.services.host.log(f"aiflow: '{self._name}' got answers of no use; a further try asks for others")

    def _is_refused(self, slot: Slot) -> bool:
        mark = _mark(slot)
        return self._session.replay.find(step_key(self._unit.path, REFUSED, mark, 0)) is not None


def _mark(slot: Slot) -> bytes:
    # The first one's has no number: older releases wrote their marks so.
    which = [("occurrence", slot.occurrence)] if slot.occurrence else []
    return print_parts([("kind", "refused"), ("request", slot.fingerprint), *which]).digest


def _asks_again(request: AgentRequest) -> bool:
    """Say whether a request tells the model that its last answer, or a call in it, was of no use."""
    parts = request.messages[-1].parts
    return any(getattr(part, "retry", None) or getattr(part, "outcome", "") == "retried" for part in parts)
