"""``/aiflow/api/v1``: what waits for a person, effects, and who said what. They read, and change nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Path, Query

from airflow_aiflow.api.addresses import LARGEST, After, Limit, OneDag, OneRun, errors
from airflow_aiflow.api.inbox_models import AnswersModel, EffectModel, EffectPage, InboxCount, InboxPage
from airflow_aiflow.api.inbox_views import (
    answer_line,
    effect_line,
    effect_model,
    entry_model,
    may_answer,
    where,
)
from airflow_aiflow.api.reading import MOST_WAITING, Reading
from airflow_aiflow.api.rights import Sight, SignedIn
from airflow_aiflow.durable.effect import EffectRecord
from airflow_aiflow.durable.inbox import InboxEntry
from airflow_aiflow.runtime.persons_word import find_entry

#: Things that wait which are looked through for one page, whoever may see them.
MOST_LOOKED_AT = 5_000

NOTHING = "there is nothing of this number, or it is not yours to see"

Number = Annotated[int, Path(ge=1, le=LARGEST, description="Of a call or a question.")]


class InboxRoutes:
    """
    Serve the inbox and effects.

    :param reading: gives what reads; asked at the first request.
    """

    def __init__(self, reading: Callable[[], Reading]) -> None:
        self._reading = reading

    def router(self) -> APIRouter:
        """Give the routes, to be included into an app."""
        routes = APIRouter(prefix="/api/v1", tags=["inbox"])
        given: tuple[tuple[str, Any, Any, Any], ...] = (
            ("/inbox", self.waiting, InboxPage, errors()),
            ("/inbox/count", self.count, InboxCount, errors()),
            ("/inbox/answers", self.answers, AnswersModel, errors()),
            ("/effects", self.effects, EffectPage, errors()),
            ("/effects/{number}", self.effect, EffectModel, errors(404)),
        )
        for path, route, model, responses in given:
            routes.add_api_route(path, route, methods=["GET"], response_model=model, responses=responses)
        return routes

    def waiting(
        self,
        user: SignedIn,
        dag_id: OneDag = None,
        run_id: OneRun = None,
        after: After = None,
        limit: Limit = 50,
    ) -> InboxPage:
        """List what waits for a person: doubts, approvals, conflicts, questions."""
        reading, sight = self._reading(), Sight(user)
        seen: list[InboxEntry] = []
        looked, last, over = 0, int(after or 0), False
        while len(seen) <= limit and looked < MOST_LOOKED_AT and not over:
            page = reading.inbox.waiting(limit=200, after=last)
            over = len(page) < 200
            looked += len(page)
            last = page[-1].number if page else last
            seen += [entry for entry in page if _wanted(entry, dag_id, run_id) and sight.reads(where(entry).dag_id)]
        following = None
        if len(seen) > limit:
            following = str(seen[limit - 1].number)
        elif not over:
            following = str(last)
        items = [entry_model(entry, sight, user, reading.cipher) for entry in seen[:limit]]
        return InboxPage(items=items, next=following)

    def count(self, user: SignedIn) -> InboxCount:
        """Count what waits, for a mark in the navigation."""
        sight, found = Sight(user), self._reading().waiting.get()
        return InboxCount(
            count=sum(sight.reads(where(entry).dag_id) for entry in found), more=len(found) == MOST_WAITING
        )

    def answers(self, user: SignedIn, limit: Limit = 100) -> AnswersModel:
        """List who answered what, the latest first."""
        sight = Sight(user)
        found = self._reading().overview.said(sight.dags(), limit=limit)
        return AnswersModel(items=[answer_line(each) for each in found if sight.reads(each.execution.dag_id)])

    def effects(
        self,
        user: SignedIn,
        dag_id: OneDag = None,
        run_id: OneRun = None,
        name: Annotated[str | None, Query(min_length=1, max_length=500, pattern=r"^[^\x00]+$")] = None,
        key: Annotated[str | None, Query(min_length=1, max_length=512, pattern=r"^[^\x00]+$")] = None,
        after: After = None,
        limit: Limit = 50,
    ) -> EffectPage:
        """List effects by the numbers of the calls that count."""
        reading, sight = self._reading(), Sight(user)
        seen: list[EffectRecord] = []
        last, looked, over = int(after or 0), 0, False
        while len(seen) <= limit and looked < MOST_LOOKED_AT and not over:
            page = reading.inbox.effects(dag_id=dag_id, run_id=run_id, name=name, key=key, limit=200, after=last)
            over = len(page) < 200
            looked += len(page)
            last = page[-1].number if page else last
            seen += [each for each in page if sight.reads(each.execution.dag_id)]
        following = str(seen[limit - 1].number) if len(seen) > limit else None if over else str(last)
        return EffectPage(items=[effect_line(each) for each in seen[:limit]], next=following)

    def effect(self, number: Number, user: SignedIn) -> EffectModel:
        """Give an effect with its request, its result and every call of it."""
        reading, sight = self._reading(), Sight(user)
        found = reading.inbox.effect_numbered(number)
        if found is None or not sight.reads(found.execution.dag_id):
            raise HTTPException(404, NOTHING)
        entry = find_entry(reading.inbox, number)
        # A key may be another DAG's, too: its calls are shown to who may see that one.
        calls = [each for each in reading.inbox.intents(number) if sight.reads(each.execution.dag_id)]
        return effect_model(
            found,
            calls,
            entry,
            cipher=reading.cipher,
            results=sight.results(found.execution.dag_id),
            answerable=sight.changes(found.execution.dag_id) if entry is None else may_answer(sight, user, entry),
        )


def _wanted(entry: InboxEntry, dag_id: str | None, run_id: str | None) -> bool:
    execution = where(entry)
    return dag_id in (None, execution.dag_id) and run_id in (None, execution.run_id)
