"""Read the settings from Airflow's configuration, and refuse what can't be used by option and value."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from airflow_aiflow import config
from airflow_aiflow.config import SECTION, check_options, flow_settings
from airflow_aiflow.durable.lease import LeaseRules
from airflow_aiflow.durable.settings import FlowSettings
from airflow_aiflow.exceptions import AiflowConfigError
from airflow_aiflow.get_provider_info import get_provider_info

OPTIONS = get_provider_info()["config"][SECTION]["options"]


def variable(option: str) -> str:
    return f"AIRFLOW__{SECTION.upper()}__{option.upper()}"


def test_defaults_are_those_of_the_domain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    expected = FlowSettings(spool_dir=tmp_path / "aiflow-spool")
    assert flow_settings() == expected


@pytest.mark.parametrize(
    ("option", "text", "field", "value"),
    [
        ("inline_limit", "4096", "inline_limit", 4096),
        ("on_clear", "fresh", "on_clear", "fresh"),
        ("on_in_doubt", "hold", "on_in_doubt", "hold"),
        ("effect_timeout", "12.5", "effect_timeout", 12.5),
        ("handover", "0", "handover", 0.0),
        ("busy_wait", "1", "busy_wait", 1.0),
        ("start_within", "2", "start_within", 2.0),
        ("reschedule_delay", "25", "reschedule_delay", 25.0),
        ("spool_dir", "/var/spool/aiflow", "spool_dir", Path("/var/spool/aiflow")),
        ("seal_key", "0123456789abcdef", "seal_key", b"0123456789abcdef"),
        ("default_llm_conn_id", "my_model", "default_llm_conn_id", "my_model"),
        ("ledger_conn_id", "other", "ledger_conn_id", "other"),
        ("artifacts_conn_id", "bucket", "artifacts_conn_id", "bucket"),
        ("log_content", "true", "log_content", True),
        ("record_arguments", "false", "record_arguments", False),
        ("guard", "false", "guard", False),
    ],
)
def test_an_option_reaches_its_setting(
    monkeypatch: pytest.MonkeyPatch, option: str, text: str, field: str, value: object
) -> None:
    monkeypatch.setenv(variable(option), text)
    assert getattr(flow_settings(), field) == value


def test_the_lease_has_two_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable("lease_ttl"), "7")
    monkeypatch.setenv(variable("heartbeat_interval"), "3")
    lease = flow_settings().lease
    assert (lease.ttl, lease.interval) == (7.0, 3.0)


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("inline_limit", "16k"),
        ("inline_limit", "0"),
        ("on_clear", "sometimes"),
        ("on_in_doubt", "guess"),
        ("effect_timeout", "0"),
        ("effect_timeout", "-3"),
        ("handover", "-1"),
        ("busy_wait", "nan"),
        ("start_within", "inf"),
        ("reschedule_delay", "soon"),
        ("spool_dir", "relative/place"),
        ("ledger_conn_id", ""),
        ("log_content", "maybe"),
    ],
)
def test_a_value_that_cannot_be_used_is_named(monkeypatch: pytest.MonkeyPatch, option: str, text: str) -> None:
    monkeypatch.setenv(variable(option), text)
    with pytest.raises(AiflowConfigError) as caught:
        flow_settings()
    message = str(caught.value)
    assert f"[{SECTION}] {option} must be " in message
    assert f"got {text!r}" in message
    assert variable(option) in message


def test_a_lease_that_one_lost_heartbeat_would_cost_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable("heartbeat_interval"), "15")
    with pytest.raises(AiflowConfigError, match="lease_ttl"):
        flow_settings()


def test_a_short_seal_key_is_refused_without_being_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable("seal_key"), "hunter2")
    with pytest.raises(AiflowConfigError, match="at least 16 characters") as caught:
        flow_settings()
    assert "hunter2" not in str(caught.value)


def test_every_option_that_is_read_is_declared_with_the_domains_default() -> None:
    assert {"ledger_conn_id", "artifacts_conn_id", "seal_key", "spool_dir"} <= set(OPTIONS)
    defaults = FlowSettings()
    for field in fields(FlowSettings):
        if field.name in OPTIONS and field.name not in {"spool_dir", "seal_key", "payload_keys"}:
            assert OPTIONS[field.name]["default"] == _written(getattr(defaults, field.name)), field.name


def test_every_option_says_what_airflow_needs_to_show_it() -> None:
    for name, option in OPTIONS.items():
        assert option["description"].endswith("."), name
        assert option["type"] in {"string", "boolean", "integer", "float"}, name
        assert option["version_added"], name
        assert isinstance(option["default"], str), name
    assert all(OPTIONS[name]["sensitive"] for name in ("payload_keys", "seal_key"))


def _written(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def test_the_defaults_hold_without_the_providers_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the code in the plugins folder alone, Airflow knows no provider of that name."""
    from airflow.sdk import conf

    def without_provider(section: str, key: str, **options: object) -> object:
        return options["fallback"]

    monkeypatch.setattr(conf, "get", without_provider)
    settings = flow_settings()
    assert settings.lease == LeaseRules(ttl=30, interval=10)
    assert settings.seal_key is None


def test_the_check_of_all_options_reads_each_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    read, found = config._read, set[str]()

    def noted(option: str) -> str:
        found.add(option)
        return read(option)

    monkeypatch.setattr(config, "_read", noted)
    check_options()
    assert set(OPTIONS) - found <= {"retention_days"}, "its page says that nothing uses it yet"
