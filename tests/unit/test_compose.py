"""Check docker-compose.yaml as far as that goes without an engine: the schema, and what the schema cannot see."""

from __future__ import annotations

import base64
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import airflow_aiflow
from tests.unit.source_tree import ROOT

COMPOSE = ROOT / "docker-compose.yaml"
EXAMPLE = ROOT / "docker" / "env.example"

Document = dict[str, Any]


@pytest.fixture(scope="module")
def document() -> Document:
    """Return the file as an engine reads it, anchors and merges resolved."""
    loaded = yaml.safe_load(COMPOSE.read_text())
    assert isinstance(loaded, dict)
    return loaded


def strings(node: object) -> Iterator[str]:
    """Yield every text of a document, keys left out."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, dict):
        for value in node.values():
            yield from strings(value)
    elif isinstance(node, list):
        for value in node:
            yield from strings(value)


def variables(text: str) -> Iterator[tuple[str, str]]:
    """Yield name and rest of each `${...}`; a doubled dollar is the container's own."""
    for match in re.finditer(r"(?<!\$)\$(?:\{(\w+)([^}]*)\}|(\w+))", text):
        yield match[1] or match[3], match[2] or ""


def without_a_rule(document: Document) -> list[str]:
    """Return the variables that would silently be empty."""
    found = [pair for text in strings(document) for pair in variables(text)]
    return [name for name, rest in found if not rest.startswith((":?", ":-"))]


def unpinned(document: Document) -> list[str]:
    """Return the images that are not of one release."""
    images = [service["image"] for service in document["services"].values()]
    return [image for image in images if not re.fullmatch(r"[\w./-]+:[\w-]*\d[\w.-]*", image)]


def open_ports(document: Document) -> list[str]:
    """Return the published ports that other machines could reach."""
    ports = [str(port) for service in document["services"].values() for port in service.get("ports", ())]
    return [port for port in ports if not port.startswith("127.0.0.1:")]


def missing_neighbours(document: Document) -> list[str]:
    """Return what services refer to and nothing defines."""
    services = document["services"]
    missing = []
    for name, service in services.items():
        for other, how in service.get("depends_on", {}).items():
            if other not in services:
                missing.append(f"{name} depends on {other}")
            elif how["condition"] == "service_healthy" and "healthcheck" not in services[other]:
                missing.append(f"{name} waits for the health of {other}, which has no check")
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            known = (ROOT / source).exists() if source.startswith(".") else source in document["volumes"]
            if not known:
                missing.append(f"{name} mounts {source}")
        build = service.get("build")
        if build and not (ROOT / build["context"] / build["dockerfile"]).is_file():
            missing.append(f"{name} is built from {build['dockerfile']}")
    return missing


def test_fits_the_compose_schema() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(COMPOSE)]
    found = subprocess.run(command, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr


def test_everything_referred_to_is_there(document: Document) -> None:
    assert missing_neighbours(document) == []


def test_every_variable_has_a_default_or_a_question(document: Document) -> None:
    assert without_a_rule(document) == []


def test_every_secret_must_be_set(document: Document) -> None:
    secret = re.compile("PASSWORD|SECRET|KEY")
    pairs = {pair for text in strings(document) for pair in variables(text) if secret.search(pair[0])}
    assert pairs
    assert [name for name, rest in pairs if not rest.startswith(f":?set {name} in .env")] == []


def test_images_are_pinned(document: Document) -> None:
    assert unpinned(document) == []
    dockerfile = (ROOT / "docker" / "Dockerfile").read_text()
    assert re.search(r"^ARG AIRFLOW_IMAGE=apache/airflow:\d+\.\d+\.\d+$", dockerfile, re.MULTILINE)


def test_own_image_is_tagged_by_the_version(document: Document) -> None:
    images = {service["image"] for service in document["services"].values()}
    assert f"airflow-aiflow:{airflow_aiflow.__version__}" in images


def test_airflow_image_is_the_release_that_the_tests_ran_with() -> None:
    pinned = re.search(r"^apache-airflow==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned is not None
    assert f"apache/airflow:{pinned[1]}\n" in (ROOT / "docker" / "Dockerfile").read_text()


def test_ports_are_on_loopback(document: Document) -> None:
    assert open_ports(document) == []


def test_long_running_services_have_a_health_check(document: Document) -> None:
    services = document["services"]
    assert [name for name, service in services.items() if name != "init" and "healthcheck" not in service] == []


def test_one_database_for_airflow_and_one_for_the_ledger(document: Document) -> None:
    environment = document["services"]["scheduler"]["environment"]
    assert environment["AIRFLOW__CORE__EXECUTOR"] == "LocalExecutor"
    assert re.fullmatch(
        r"postgresql\+psycopg2://airflow:.*/airflow", environment["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"]
    )
    assert re.fullmatch(r"postgresql://aiflow:.*/aiflow", environment["AIRFLOW_CONN_AIFLOW_LEDGER"])


def test_tasks_never_see_the_owner_of_the_ledger(document: Document) -> None:
    services = document["services"]
    seen = {name for name, service in services.items() if "aiflow_owner" in "".join(strings(service))}
    assert seen == {"init"}


def test_dags_and_plugins_are_mounted(document: Document) -> None:
    for name in ("api-server", "scheduler", "dag-processor", "triggerer"):
        targets = {volume.split(":")[1] for volume in document["services"][name]["volumes"]}
        assert {"/opt/airflow/dags", "/opt/airflow/plugins"} <= targets


def test_the_example_names_every_variable(document: Document) -> None:
    used = {name for text in strings(document) for name, _ in variables(text)}
    named = {line.split("=")[0] for line in EXAMPLE.read_text().splitlines() if "=" in line and line[0] != "#"}
    assert named == used


def test_the_example_holds_no_secret() -> None:
    assert re.findall(r"^\w*(?:PASSWORD|SECRET|KEY)\w*=.+$", EXAMPLE.read_text(), re.MULTILINE) == []


def make_env(target: Path) -> subprocess.CompletedProcess[str]:
    """Run the program that the compose file's first lines name."""
    command = [sys.executable, str(ROOT / "docker" / "make_env.py"), str(target)]
    return subprocess.run(command, capture_output=True, text=True)


def read_env(target: Path) -> dict[str, str]:
    """Return name and value of each line."""
    lines = [line for line in target.read_text().splitlines() if "=" in line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def test_make_env_gives_every_name_its_own_random_value(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert make_env(first).returncode == 0
    assert make_env(second).returncode == 0
    values, others = read_env(first), read_env(second)
    secrets = {name for name in values if not name.endswith("_PORT")}
    assert len({values[name] for name in secrets} | {others[name] for name in secrets}) == 2 * len(secrets)
    assert min(len(values[name]) for name in secrets) >= 40
    assert stat.S_IMODE(first.stat().st_mode) == 0o600
    assert len(base64.urlsafe_b64decode(values["AIRFLOW_FERNET_KEY"])) == 32
    assert all(re.fullmatch("[0-9a-f]+", values[name]) for name in secrets - {"AIRFLOW_FERNET_KEY"})


def test_make_env_never_replaces_a_file(tmp_path: Path) -> None:
    target = tmp_path / "env"
    target.write_text("POSTGRES_PASSWORD=mine\n")
    assert make_env(target).returncode == 1
    assert target.read_text() == "POSTGRES_PASSWORD=mine\n"


# --- the checks find what they are for ---


@pytest.mark.parametrize("text", ["${POSTGRES_PASSWORD}", "$PORT", "x${A:?set A in .env}${B}"])
def test_variable_check_finds(text: str) -> None:
    assert len(without_a_rule({"a": [text]})) == 1


def test_variable_check_leaves_the_containers_own_alone() -> None:
    assert without_a_rule({"a": "$$HOSTNAME ${A:-1}"}) == []


@pytest.mark.parametrize("image", ["postgres", "postgres:latest", "postgres:${TAG:-18}"])
def test_image_check_finds(image: str) -> None:
    assert unpinned({"services": {"a": {"image": image}}}) == [image]


@pytest.mark.parametrize("port", ["8080:8080", "0.0.0.0:8080:8080", "${PORT:-8080}:8080"])
def test_port_check_finds(port: str) -> None:
    assert open_ports({"services": {"a": {"ports": [port]}}}) == [port]


def test_neighbour_check_finds() -> None:
    services = {
        "a": {"depends_on": {"b": {"condition": "service_started"}}, "volumes": ["./nowhere:/x", "unknown:/y"]},
        "c": {"depends_on": {"a": {"condition": "service_healthy"}}, "build": {"context": ".", "dockerfile": "None"}},
    }
    assert len(missing_neighbours({"services": services, "volumes": {}})) == 5
