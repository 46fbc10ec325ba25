"""
``/aiflow/api/v1``: a person's word on what waits, and on what was done.

The word is in the ledger before the answer is sent; the waiting task is told after it. The first word stands: who comes
second gets 409, with who was first. Each route takes JSON alone and asks for the right to change the DAG.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from fastapi import APIRouter, BackgroundTasks, Depends, HTTPException, Request
from fastapi.responses import Response

from airflow_aiflow.api.addresses import DEED, errors
from airflow_aiflow.api.inbox_models import (
    AnswerBody,
    AnswerManyBody,
    ReasonBody,
    ResolveBody,
    WordModel,
    WordOutcome,
    WordsModel,
)
from airflow_aiflow.api.inbox_routes import NOTHING, Number
from airflow_aiflow.api.inbox_views import concerned, is_assigned, user_id
from airflow_aiflow.api.own_airflow import tell_later
from airflow_aiflow.api.problem import problem
from airflow_aiflow.api.reading import Reading
from airflow_aiflow.api.rights import Sight, SignedIn, check, json_only
from airflow_aiflow.durable.effect import EffectRecord
from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.durable.inbox import FAIL, Question
from airflow_aiflow.durable.record import Stored
from airflow_aiflow.exceptions import AiflowConfigError, PayloadError
from airflow_aiflow.hooks.airflow_form import person
from airflow_aiflow.runtime.persons_word import (
    DECISIONS,
    DoubtDecision,
    Said,
    answer,
    find_entry,
    resolve,
    stored_result,
)

#: What holds the deployment's keys, for a message.
KEYS = "[aiflow] payload_keys"

_DOUBT: Mapping[str, DoubtDecision] = {"happened": "happened", "did_not_happen": "did_not_happen", "fail": "fail"}
_DECISION_OF: Mapping[str, DoubtDecision] = {
    **{option: _DOUBT[word] for option, word in DECISIONS.items()},
    FAIL: "fail",
}


def said_by(user: BaseUser) -> str:
    """
    Name a user in the ledger as Airflow's own form does.

    :param user: who.
    """
    return person({"id": user.get_id(), "name": user.get_name()})


class WordRoutes:
    """
    Take words.

    :param reading: gives what keeps them; asked at the first request.
    """

    def __init__(self, reading: Callable[[], Reading]) -> None:
        self._reading = reading

    def router(self) -> APIRouter:
        """Give the routes, to be included into an app."""
        routes = APIRouter(prefix="/api/v1", tags=["inbox"], dependencies=[Depends(json_only)])
        deed, many = errors(*DEED), errors(403, 413, 415)
        given: tuple[tuple[str, Any, Any, Any], ...] = (
            ("/effects/{number}:resolve", self.resolved, WordModel, deed),
            ("/effects/{number}:release", self.released, WordModel, deed),
            ("/effects/{number}:compensate", self.compensated, WordModel, deed),
            ("/inbox/{number}:answer", self.answered, WordModel, deed),
            ("/inbox:answer_many", self.answered_many, WordsModel, many),
        )
        for path, route, model, responses in given:
            routes.add_api_route(path, route, methods=["POST"], response_model=model, responses=responses)
        return routes

    def resolved(
        self, number: Number, body: ResolveBody, user: SignedIn, request: Request, after: BackgroundTasks
    ) -> Any:
        """Say what became of a call in doubt; a waiting task goes on some seconds later."""
        inbox = self._reading().inbox
        self._doubt(user, number)
        given = "result" in body.model_fields_set
        if given and body.decision != "happened":
            raise HTTPException(422, "a result goes with 'happened': what did not happen has none")
        result = self._stored(number, body.result) if given else None
        said = resolve(
            inbox, number, body.decision, by=said_by(user), note=body.reason, user=user_id(user), result=result
        )
        return self._outcome(number, said, user, request, after)

    def answered(
        self, number: Number, body: AnswerBody, user: SignedIn, request: Request, after: BackgroundTasks
    ) -> Any:
        """Answer a question: an approval, a conflict, a question of the author's own, a doubt by its options."""
        question = self._question(user, number)
        if body.option not in question.options:
            options = ", ".join(map(repr, question.options))
            raise HTTPException(422, f"#{number} takes one of {options}")
        said = answer(
            self._reading().inbox, question, body.option, by=said_by(user), note=body.reason, user=user_id(user)
        )
        return self._outcome(number, said, user, request, after)

    def answered_many(
        self, body: AnswerManyBody, user: SignedIn, request: Request, after: BackgroundTasks
    ) -> WordsModel:
        """Give one word on several; each counts or does not by itself."""
        items = []
        for number in dict.fromkeys(body.numbers):
            try:
                said = self._one_of_many(number, body, user)
            except HTTPException as refused:
                items.append(WordOutcome(number=number, counts=False, why=str(refused.detail)))
                continue
            counts = said.word.counts
            if counts:
                self._tell(said, request, after)
            items.append(WordOutcome(number=number, counts=counts, why=None if counts else said.word.why))
        return WordsModel(items=items, counted=sum(each.counts for each in items))

    def _one_of_many(self, number: int, body: AnswerManyBody, user: BaseUser) -> Said:
        inbox, by = self._reading().inbox, said_by(user)
        if not 0 < number < 2**63:
            raise HTTPException(404, NOTHING)
        decision = _DOUBT.get(body.decision) or _DECISION_OF.get(body.decision)
        question = inbox.question(number)
        if decision is not None and (question is None or question.kind == "doubt"):
            self._doubt(user, number)
            return resolve(inbox, number, decision, by=by, note=body.reason, user=user_id(user))
        question = self._question(user, number)
        if body.decision not in question.options:
            options = ", ".join(map(repr, question.options))
            raise HTTPException(422, f"#{number} takes one of {options}")
        return answer(inbox, question, body.decision, by=by, note=body.reason, user=user_id(user))

    def released(self, number: Number, body: ReasonBody, user: SignedIn) -> Any:
        """Allow that what was done is done once more, under a new idempotency key."""
        effect = self._effect(user, number)
        word = self._reading().inbox.release(number, by=said_by(user), note=body.reason)
        if not word.counts:
            return problem(409, word.why)
        following = f"clear the {effect.execution}, or let the next run come to it: it is sent under a new key"
        return WordModel(number=number, by=said_by(user), next=following)

    def compensated(self, number: Number, body: ReasonBody, user: SignedIn) -> Any:
        """
        Note that you have taken back by hand what was done; the next call does it again.

        A function that takes it back is run by `aiflow effects compensate`, or by the task itself.
        """
        effect, reading = self._effect(user, number), self._reading()
        word = reading.undo(effect, number, said_by(user), body.reason)
        if not word.counts:
            return problem(409, word.why)
        following = "it is taken back: the next call does it again, under a new idempotency key"
        return WordModel(number=number, by=said_by(user), next=following)

    def _outcome(
        self, number: int, said: Said, user: BaseUser, request: Request, after: BackgroundTasks
    ) -> Response | WordModel:
        if not said.word.counts:
            return problem(409, said.word.why)
        return WordModel(number=number, by=said_by(user), next=self._tell(said, request, after))

    def _tell(self, said: Said, request: Request, after: BackgroundTasks) -> str:
        waits = said.waits
        if waits is None:
            return "no task waits for it: clear the task, and it goes on from here"
        tell = tell_later(request, self._reading().inbox, waits.execution, waits.asked_at, said.said)
        if tell is None:
            return f"the {waits.execution} looks into the inbox by itself, within the hour"
        after.add_task(tell)
        return f"the {waits.execution} goes on within some seconds"

    def _doubt(self, user: BaseUser, number: int) -> None:
        """Find a call in doubt that a user may decide on, by its own number or by that of the question about it."""
        inbox = self._reading().inbox
        question, effect = inbox.question(number), inbox.effect_numbered(number)
        execution: ExecutionId | None = None
        if effect is not None:
            execution = effect.execution
            entry = find_entry(inbox, number)
            question = None if entry is None else entry.question
            # Another DAG's task may wait for the word, where a key is shared: then its people may give it, too.
            sight, places = Sight(user), () if entry is None else concerned(entry)
            execution = next((each for each in places if sight.changes(each.dag_id)), execution)
        elif question is not None:
            execution = question.execution
        self._allowed(user, execution, question)

    def _question(self, user: BaseUser, number: int) -> Question:
        inbox = self._reading().inbox
        question = inbox.question(number)
        if question is None:
            entry = find_entry(inbox, number)
            question = None if entry is None else entry.question
        if question is None:
            raise HTTPException(404, NOTHING)
        self._allowed(user, question.execution, question)
        return question

    def _effect(self, user: BaseUser, number: int) -> EffectRecord:
        effect = self._reading().inbox.effect_numbered(number)
        self._allowed(user, None if effect is None else effect.execution, None)
        assert effect is not None
        return effect

    def _allowed(self, user: BaseUser, execution: ExecutionId | None, question: Question | None) -> None:
        if execution is None:
            raise HTTPException(404, NOTHING)
        check(user, "PUT", execution.dag_id, missing=NOTHING)
        if not is_assigned(user, question):
            assert question is not None
            raise HTTPException(403, f"#{question.number} is for {', '.join(question.assigned_users)} to answer")

    def _stored(self, number: int, result: Any) -> Stored:
        reading = self._reading()
        try:
            return stored_result(reading.inbox, number, result, reading.cipher, keys=KEYS)
        except (AiflowConfigError, PayloadError) as error:
            raise HTTPException(422, str(error)) from error
