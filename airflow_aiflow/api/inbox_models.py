"""The JSON of effects, of the inbox, and of a person's word."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator

from airflow_aiflow.api.execution_models import ExecutionName, Owner
from airflow_aiflow.durable.effect import EffectState

#: Characters of a reason.
LONGEST_REASON = 2_000

#: Numbers that one request answers.
MOST_ANSWERS = 200


class EffectName(BaseModel):
    """An effect."""

    name: str
    key: str | None
    state: EffectState | None = Field(description="Null: it was never called.")
    scope: str = Field(description="In what the key is unique: dag, run, global, generation, own.")


class QuestionModel(BaseModel):
    """What is asked."""

    number: int
    kind: Literal["doubt", "approval", "conflict", "ask"]
    subject: str
    body: str
    options: list[str]
    assigned_users: list[str]
    time_left: float | None = Field(description="Seconds until the task waits no more; null: for ever.")


class InboxEntryModel(BaseModel):
    """One thing that waits for a person."""

    number: int
    what: Literal["doubt", "approval", "conflict", "ask"]
    effect: EffectName | None
    execution: ExecutionName
    request: Any = Field(description="What was sent, or is to be sent: function and arguments, secrets masked.")
    idempotency_key: str | None = Field(description="As it was handed to the target.")
    since: datetime
    attempt: int | None
    owner: Owner | None = Field(description="Of a doubt: whether its process may still be at work.")
    host: str | None
    link: str | None = Field(description="Where the target shows it, where the request names an https address.")
    question: QuestionModel | None = Field(description="Null: no task waits for it; after your word, clear the task.")
    may_answer: bool


class InboxPage(BaseModel):
    """What waits, by number."""

    items: list[InboxEntryModel]
    next: str | None = Field(description="Give it as `after`; null: this is the last page.")


class InboxCount(BaseModel):
    """How much waits, some seconds old at most."""

    count: int
    more: bool = Field(description="Whether there is more than was counted.")


class AnswerLine(BaseModel):
    """A word of a person that counted."""

    number: int
    at: datetime
    by: str
    said: str = Field(description="happened, did_not_happen, released, or the option that was chosen.")
    what: Literal["doubt", "approval", "conflict", "ask"]
    effect: EffectName | None
    subject: str | None
    execution: ExecutionName
    reason: str


class AnswersModel(BaseModel):
    """Who answered what, the latest first."""

    items: list[AnswerLine]


class EffectLine(BaseModel):
    """An effect of a list."""

    number: int = Field(description="Of the call that counts.")
    name: str
    key: str | None
    scope: str
    state: EffectState
    execution: ExecutionName
    begun_at: datetime
    settled_at: datetime | None
    attempt: int
    host: str
    owner: Owner | None = Field(description="Of a call without an outcome: whether its process may be at work.")
    may_have_happened_twice: bool


class EffectPage(BaseModel):
    """Effects by the numbers of the calls that count."""

    items: list[EffectLine]
    next: str | None


class CallModel(BaseModel):
    """One call of an effect, and what persons said about it."""

    number: int
    begun_at: datetime
    settled_at: datetime | None
    outcome: str | None
    decision: str | None
    decided_by: str | None
    decided_at: datetime | None
    note: str
    released_by: str | None
    released_at: datetime | None
    release_note: str
    execution: ExecutionName
    attempt: int


class EffectModel(EffectLine):
    """An effect, whole."""

    idempotency_key: str
    request: Any
    result: Any
    calls: list[CallModel]
    waits: bool = Field(description="Whether it waits for a person.")
    question: QuestionModel | None
    may_answer: bool


class WordBody(BaseModel):
    """A body of a word; what is not known is refused."""

    model_config = ConfigDict(extra="forbid")

    reason: str = Field(default="", max_length=LONGEST_REASON, description="Why, for those who read it later.")


class ReasonBody(WordBody):
    """A word that needs a reason."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"reason": "the order was sent back"}]})

    reason: str = Field(
        min_length=1, max_length=LONGEST_REASON, pattern=r"\S", description="Whoever finds it wants to know why."
    )


class ResolveBody(WordBody):
    """What became of a call in doubt."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"decision": "happened", "result": {"id": "po_17"}, "reason": "seen in the bank"}]
        }
    )

    decision: Literal["happened", "did_not_happen", "fail"] = Field(
        description="`did_not_happen`: the task calls it again. `fail`: the waiting task fails, the doubt stays."
    )
    result: JsonValue = Field(
        default=None, description="With `happened`: what the effect gives from now on. Leave it out where it has none."
    )

    @field_validator("result")
    @classmethod
    def _json(cls, value: Any) -> Any:
        """Refuse what a JSON parser of Python takes and JSON does not have."""
        try:
            json.dumps(value, allow_nan=False)
        except (ValueError, RecursionError) as error:
            raise ValueError("the result is not JSON: it holds NaN or Infinity, or is too deep") from error
        return value


class AnswerBody(WordBody):
    """The answer to a question."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"option": "Approve"}]})

    option: str = Field(min_length=1, max_length=1000, description="One of the question's options.")


class AnswerManyBody(WordBody):
    """One word on several things that wait."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"numbers": [17, 18], "decision": "did_not_happen", "reason": "the target was down"}]
        }
    )

    numbers: list[int] = Field(min_length=1, max_length=MOST_ANSWERS)
    decision: str = Field(
        min_length=1, max_length=1000, description="happened, did_not_happen or fail for doubts, else an option."
    )


class WordModel(BaseModel):
    """A word that counts."""

    number: int
    counts: Literal[True] = True
    by: str
    next: str = Field(description="What happens now, for people.")


class WordOutcome(BaseModel):
    """What became of one word of several."""

    number: int
    counts: bool
    why: str | None = Field(description="Where it does not count: what stands instead, or why not.")


class WordsModel(BaseModel):
    """What became of several words."""

    items: list[WordOutcome]
    counted: int
