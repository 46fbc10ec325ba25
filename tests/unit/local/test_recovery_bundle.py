"""The stack's own recovery DAG: a bundle beside the user's folder, unless a file of the user's makes one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_aiflow.cli.__main__ import build_parser
from airflow_aiflow.cli.commands.up import _plan
from airflow_aiflow.local.recovery_bundle import RECOVERY_DAG, recovery_options
from tests.unit.source_tree import ROOT


def test_it_is_a_bundle_of_its_own(tmp_path: Path) -> None:
    dags = tmp_path / "dags"
    options = recovery_options(tmp_path / "airflow", dags)
    bundles = json.loads(options["dag_processor.dag_bundle_config_list"])
    assert [one["name"] for one in bundles] == ["dags-folder", "aiflow-recovery"]
    folder = Path(bundles[1]["kwargs"]["path"])
    assert [file.name for file in folder.iterdir()] == ["aiflow_recovery.py"]
    compile((folder / "aiflow_recovery.py").read_text(), "aiflow_recovery.py", "exec")


def test_a_recovery_dag_of_the_users_counts(tmp_path: Path) -> None:
    (tmp_path / "dags" / "ours").mkdir(parents=True)
    (tmp_path / "dags" / "ours" / "watch.py").write_text(RECOVERY_DAG)
    assert recovery_options(tmp_path / "airflow", tmp_path / "dags") == {}
    assert not (tmp_path / "airflow").exists()


def test_the_projects_own_folder_has_one(tmp_path: Path) -> None:
    assert recovery_options(tmp_path, ROOT / "dags") == {}


@pytest.mark.parametrize(("words", "recovery"), [((), True), (("--no-recovery",), False)])
def test_up_runs_it_unless_it_is_told_otherwise(tmp_path: Path, words: tuple[str, ...], recovery: bool) -> None:
    options = build_parser().parse_args(["up", "--home", str(tmp_path), *words])
    assert _plan(options).recovery is recovery
