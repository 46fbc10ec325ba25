"""Options of an effect: a call that names its key alone gets the deployment's, checked once, and its own key."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_aiflow.durable.policy import EffectOptions, effect_options
from airflow_aiflow.exceptions import EffectOptionError

DEFAULTS = EffectOptions(on_in_doubt="hold", timeout=5.0, in_doubt_timeout=7.0)


@pytest.mark.parametrize(
    "given",
    [
        {"key": "invoice/1"},
        {"key": "invoice/1", "scope": None, "on_conflict": "auto", "identity": None},
        {"key": "invoice/1", "retries": 0},
        {"retries": 0},
        {"timeout": 3},
        {},
    ],
)
def test_what_is_not_given_is_the_deployments(given: dict[str, Any]) -> None:
    expected: dict[str, Any] = {"on_in_doubt": "hold", "timeout": 5.0, "in_doubt_timeout": 7.0} | given
    assert effect_options(given, DEFAULTS) == EffectOptions(**expected)
    assert DEFAULTS.key is None


@pytest.mark.parametrize("key", ["", 7, "x" * 513, "a\x00b"])
def test_a_key_is_checked_also_where_it_comes_alone(key: object) -> None:
    with pytest.raises(EffectOptionError, match="key"):
        effect_options({"key": key}, DEFAULTS)


def test_options_stay_as_they_are() -> None:
    with pytest.raises(AttributeError):
        effect_options({"key": "invoice/1"}, DEFAULTS).key = "invoice/2"  # type: ignore[misc]
