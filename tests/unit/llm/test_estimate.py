"""What is set aside for a call before anybody knows what it takes."""

from __future__ import annotations

from decimal import Decimal

from airflow_aiflow.durable.record import Usage
from airflow_aiflow.llm.call import LlmRequest
from airflow_aiflow.llm.estimate import BYTES_PER_TOKEN, TOKENS_AROUND, UNKNOWN_ANSWER, Estimate, Estimates


def asked(prompt: str = "p" * 300, **options: object) -> LlmRequest:
    return LlmRequest(prompt, **options)  # type: ignore[arg-type]


def test_of_a_step_without_a_past_the_answer_is_as_long_as_it_may_be() -> None:
    measured = 300 // BYTES_PER_TOKEN + TOKENS_AROUND
    assert Estimates().of("s", asked(model_settings={"max_tokens": 50})) == Estimate(measured, 50)
    assert Estimates().of("s", asked()) == Estimate(measured, UNKNOWN_ANSWER)


def test_prompts_are_measured_in_bytes_and_instructions_count() -> None:
    none = Estimates()
    assert none.of("s", asked("ä" * 300)).tokens_in == 600 // BYTES_PER_TOKEN + TOKENS_AROUND
    assert none.of("s", asked("", system_prompt="p" * 300)).tokens_in == 300 // BYTES_PER_TOKEN + TOKENS_AROUND
    assert none.of("s", asked("")).tokens_in == TOKENS_AROUND


def test_the_longest_answer_of_the_step_so_far_counts() -> None:
    past = Estimates()
    for tokens_out, cost in ((20, "0.2"), (35, "0.1"), (7, None)):
        past.learn("s", Usage(tokens_in=90, tokens_out=tokens_out, cost=None if cost is None else Decimal(cost)))
    guess = past.of("s", asked(model_settings={"max_tokens": 1000}))
    assert (guess.tokens_out, guess.cost) == (35, Decimal("0.2"))
    assert past.of("s", asked(model_settings={"max_tokens": 30})).tokens_out == 30
    assert past.of("another", asked()).tokens_out == UNKNOWN_ANSWER


def test_a_large_prompt_of_the_past_does_not_make_a_small_one_large() -> None:
    past = Estimates()
    past.learn("s", Usage(tokens_in=100_000, tokens_out=5))
    measured = 300 // BYTES_PER_TOKEN + TOKENS_AROUND
    assert past.of("s", asked()).tokens_in == 2 * measured


def test_what_a_provider_does_not_tell_teaches_nothing() -> None:
    past = Estimates()
    past.learn("s", Usage(tokens_in=0, tokens_out=0))
    past.learn("s", None)
    assert past.of("s", asked()).tokens_out == UNKNOWN_ANSWER
