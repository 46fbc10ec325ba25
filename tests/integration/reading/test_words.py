"""A person's word by the API: the first one stands, the second one is told who was first, and tasks take it up."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from airflow_aiflow.api import rights
from airflow_aiflow.durable.effect import EffectState
from airflow_aiflow.durable.identity import EffectId
from airflow_aiflow.durable.payload import decode
from airflow_aiflow.durable.record import Stored
from airflow_aiflow.exceptions import AttemptAsks
from tests.contract.ledger_world import a_question, an_intent, start
from tests.integration.reading.house import REQUEST, URL, House, User, send

SENT: list[str] = []


def mail(to: str) -> str:
    SENT.append(to)
    return to


def effect(house: House, key: str) -> Any:
    found = house.ledger.effect(EffectId("dag:billing", "pay", key))
    assert found is not None
    return found


def in_doubt(house: House, key: str = "billing/1") -> int:
    number = house.doubt(key)
    house.age()
    return number


def test_it_happened_with_a_result(fresh: House) -> None:
    number = in_doubt(fresh)
    [entry] = fresh.get("/inbox").json()["items"]
    assert (entry["number"], entry["owner"], entry["may_answer"]) == (number, "presumed gone", True)
    assert "hunter2" not in json.dumps(entry)
    said = fresh.post(f"/effects/{number}:resolve", decision="happened", result={"id": 17}, reason="seen in the bank")
    assert said.status_code == 200, said.text
    assert said.json()["counts"] is True
    found = effect(fresh, "billing/1")
    assert (found.state, decode(found.result.inline)) == (EffectState.SUCCEEDED, {"id": 17})
    assert fresh.get("/inbox").json()["items"] == []
    [line] = fresh.get("/inbox/answers").json()["items"]
    assert (line["by"], line["said"], line["reason"]) == ("ann", "happened", "seen in the bank")
    [call] = fresh.get(f"/effects/{number}").json()["calls"]
    assert (call["decision"], call["decided_by"], call["note"]) == ("happened", "ann", "seen in the bank")


def test_a_result_that_is_null_is_one_and_none_is_none(fresh: House) -> None:
    with_null, without = in_doubt(fresh, "a"), in_doubt(fresh, "b")
    fresh.post(f"/effects/{with_null}:resolve", decision="happened", result=None)
    fresh.post(f"/effects/{without}:resolve", decision="happened")
    assert effect(fresh, "a").result == Stored(inline=b"null")
    assert effect(fresh, "b").result is None


def test_the_second_person_is_told_who_was_first(fresh: House) -> None:
    number = in_doubt(fresh)
    assert fresh.post(f"/effects/{number}:resolve", decision="did_not_happen", reason="looked").status_code == 200
    fresh.user = User("bob")
    for decision in ("happened", "did_not_happen", "fail"):
        second = fresh.post(f"/effects/{number}:resolve", decision=decision)
        assert second.status_code == 409
        assert second.headers["Content-Type"] == "application/problem+json"
        assert "answered by ann" in second.json()["detail"]
    assert effect(fresh, "billing/1").state is EffectState.FAILED


def test_twenty_persons_at_once_are_one_word(fresh: House) -> None:
    number = in_doubt(fresh)
    words = ["happened", "did_not_happen"] * 10

    def say(word: str) -> int:
        return int(fresh.post(f"/effects/{number}:resolve", decision=word).status_code)

    with ThreadPoolExecutor(20) as pool:
        statuses = list(pool.map(say, words))
    said = "happened" if effect(fresh, "billing/1").state is EffectState.SUCCEEDED else "did_not_happen"
    # The same word of the same person, said at the same moment, is one word.
    assert {status for word, status in zip(words, statuses, strict=True) if word != said} == {409}
    assert 200 in statuses
    assert set(statuses) <= {200, 409}


def test_nobody_decides_while_the_call_may_be_at_work(fresh: House) -> None:
    number = fresh.doubt("billing/1")
    assert fresh.get("/inbox").json()["items"] == []
    answer = fresh.post(f"/effects/{number}:resolve", decision="did_not_happen")
    assert answer.status_code == 409
    assert "may be at work" in answer.json()["detail"]


@pytest.mark.parametrize(
    "body",
    [
        b'{"decision": "perhaps"}',
        b'{"decision": "did_not_happen", "result": 1}',
        b'{"decision": "happened", "unknown": 1}',
        b'{"decision": "happened", "result": NaN}',
        b'{"decision": "happened", "result": ',
        b'{"decision": "happened", "reason": "' + b"x" * 2001 + b'"}',
        b"[]",
        b"",
    ],
)
def test_what_is_no_word_changes_nothing(fresh: House, body: bytes) -> None:
    number = in_doubt(fresh)
    headers = {"Content-Type": "application/json"}
    answer = fresh.client.post(f"{URL}/effects/{number}:resolve", content=body, headers=headers)
    assert answer.status_code == 422, answer.text
    assert effect(fresh, "billing/1").state is EffectState.INTENDED


def test_a_body_over_the_limit_is_refused(fresh: House) -> None:
    number = in_doubt(fresh)
    answer = fresh.post(f"/effects/{number}:resolve", decision="happened", result="x" * (1 << 20))
    assert answer.status_code == 413


def test_several_are_answered_at_once(fresh: House) -> None:
    numbers = [in_doubt(fresh, f"k{n}") for n in range(3)]
    fresh.post(f"/effects/{numbers[0]}:resolve", decision="happened")
    fresh.user = User("bob")
    answer = fresh.post("/inbox:answer_many", numbers=[*numbers, numbers[1]], decision="did_not_happen").json()
    assert [(one["number"], one["counts"]) for one in answer["items"]] == list(
        zip(numbers, [False, True, True], strict=True)
    )
    assert "answered by ann" in answer["items"][0]["why"]
    assert answer["counted"] == 2


def test_a_question_is_answered_by_who_is_asked(fresh: House) -> None:
    number = fresh.question("Send the reminders?", assigned=("bob",))
    assert fresh.get("/inbox").json()["items"][0]["may_answer"] is False
    refused = fresh.post(f"/inbox/{number}:answer", option="Approve")
    assert refused.status_code == 403
    assert "bob" in refused.json()["detail"]
    fresh.user = User("bob")
    assert fresh.post(f"/inbox/{number}:answer", option="Perhaps").status_code == 422
    assert fresh.post(f"/inbox/{number}:answer", option="Approve", reason="fine").status_code == 200
    question = fresh.reading.inbox.question(number)
    assert question is not None
    assert question.answer is not None
    assert (question.answer.option, question.answer.by, question.answer.note) == ("Approve", "bob", "fine")


def test_a_waiting_task_takes_the_answer_up(fresh: House) -> None:
    task = fresh.task("release")
    SENT.clear()

    def body(flow: Any) -> Any:
        return flow.effect("mail", mail, "ann@example.com", key="invoice/1", require_approval=True)

    with pytest.raises(AttemptAsks):
        task.run(body)
    [entry] = fresh.get("/inbox").json()["items"]
    assert (entry["what"], entry["effect"]["name"], entry["question"]["options"]) == (
        "approval",
        "mail",
        ["Approve", "Reject"],
    )
    assert fresh.post(f"/inbox/{entry['number']}:answer", option="Approve").status_code == 200
    task.same_again()
    assert task.run(body) == "ann@example.com"
    assert SENT == ["ann@example.com"]


def test_what_was_done_is_released_or_taken_back_by_hand(fresh: House) -> None:
    def body(flow: Any) -> Any:
        return flow.effect("mail", send, "ann@example.com", "x", key="invoice/1")

    fresh.task("mail", run_id="first").run(body)
    [line] = fresh.get("/effects", dag_id="invoices").json()["items"]
    number = line["number"]
    assert line["state"] == "succeeded"
    for deed in ("release", "compensate"):
        assert fresh.post(f"/effects/{number}:{deed}").status_code == 422, "a reason is needed"
        assert fresh.post(f"/effects/{number}:{deed}", reason="  ").status_code == 422
    assert fresh.post(f"/effects/{number}:compensate", reason="sent back").status_code == 200
    assert fresh.get(f"/effects/{number}").json()["state"] == "compensated"
    fresh.user = User("bob")
    second = fresh.post(f"/effects/{number}:compensate", reason="me too")
    assert second.status_code == 409, second.text
    fresh.task("mail", run_id="second").run(body)
    last = fresh.get("/effects", dag_id="invoices", key="invoice/1").json()["items"][-1]["number"]
    assert last > number
    assert fresh.post(f"/effects/{last}:release", reason="once more").status_code == 200
    fresh.user = User("ann")
    again = fresh.post(f"/effects/{last}:release", reason="me too")
    assert again.status_code == 409
    assert "released by bob" in again.json()["detail"]


def test_a_name_that_is_anothers_id_does_not_answer(fresh: House) -> None:
    class Called(User):
        def get_name(self) -> str:
            return "bob"

    number = fresh.question("Send the reminders?", assigned=("bob",))
    fresh.user = Called("ann")
    assert fresh.get("/inbox").json()["items"][0]["may_answer"] is False
    assert fresh.post(f"/inbox/{number}:answer", option="Approve").status_code == 403
    assert fresh.get("/inbox").json()["items"][0]["number"] == number


def shared_doubt(house: House) -> int:
    """Leave a call of the DAG ``billing`` in doubt, for the word on which a task of ``invoices`` waits."""
    effect = EffectId("shared:bank", "pay", "payout/1")
    first = start(house.ledger, dag_id="billing", run_id="tuesday", task_id="pay")
    intent = an_intent(effect, request=REQUEST)
    house.ledger.intend(first.lease, intent)
    house.age()
    second = start(house.ledger, dag_id="invoices", run_id="tuesday", task_id="pay")
    return house.ledger.ask(second.lease, a_question(effect, intent.intent_id)).number


@pytest.mark.parametrize(("changeable", "counts"), [("invoices", True), ("billing", True), ("secret", False)])
def test_who_is_told_that_a_word_counts_may_give_it(
    fresh: House, monkeypatch: pytest.MonkeyPatch, changeable: str, counts: bool
) -> None:
    shared_doubt(fresh)

    def may(user: Any, method: str, dag_id: str, entity: object = None) -> bool:
        return dag_id != "secret" and (method == "GET" or dag_id == changeable)

    monkeypatch.setattr(rights, "may", may)
    [entry] = fresh.get("/inbox").json()["items"]
    number = entry["number"]
    told = entry["may_answer"], fresh.get(f"/effects/{number}").json()["may_answer"]
    answer = fresh.post(f"/effects/{number}:resolve", decision="happened")
    assert (*told, answer.status_code) == (counts, counts, 200 if counts else 403), answer.text
