"""Sweeps: the same rows on one core, several, or a Dask cluster; what is done is not done again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from .conftest import Ran

Cli = Callable[..., Ran]
GRID = (
    "plan --model llama-2-7b --job sft --seq-len 2048 --steps 100 --max-gpus 16 "
    "--grid server=dell-xe9680-h100,dell-xe9680-h200 --grid stack=nemo,deepspeed"
)


def rows(cli: Cli, command: str) -> Any:
    ran = cli(*shlex.split(command), "--format", "json")
    assert ran.code == 0, ran.err
    return {key: value for key, value in json.loads(ran.out).items() if key != "written"}  # the command and the date


def test_every_combination_in_order(cli: Cli) -> None:
    answer = rows(cli, f"{GRID} --jobs 1")
    jsonschema.validate(answer, json.loads(cli("profiles", "schema", "sweep").out))
    assert [tuple(row["values"].values()) for row in answer["rows"]] == [
        ("dell-xe9680-h100", "nemo"), ("dell-xe9680-h100", "deepspeed"),
        ("dell-xe9680-h200", "nemo"), ("dell-xe9680-h200", "deepspeed"),
    ]  # fmt: skip
    assert all(row["ok"] for row in answer["rows"])


def test_several_cores_give_the_same(cli: Cli) -> None:
    assert rows(cli, f"{GRID} --jobs 2") == rows(cli, f"{GRID} --jobs 1")


def test_a_dask_cluster_gives_the_same(cli: Cli) -> None:
    distributed = pytest.importorskip("dask.distributed")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
    ) as cluster:
        found = rows(cli, f"{GRID} --dask-scheduler {cluster.scheduler_address}")
    assert found == rows(cli, f"{GRID} --jobs 1")


def test_what_is_done_is_not_asked_again(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "sweep.jsonl"
    first = rows(cli, f"{GRID} --jobs 1 --resume {kept}")
    lines = kept.read_text().splitlines()
    assert len(lines) == 4
    kept.write_text("\n".join([*lines[:3], lines[3][:40]]))
    asked = []
    import xe_sizer.studies.sweep as module

    real = module.answer
    monkeypatch.setattr(module, "answer", lambda cell: asked.append(cell) or real(cell))
    assert rows(cli, f"{GRID} --jobs 1 --resume {kept}") == first
    assert [cell.values[1] for cell in asked] == [("stack", "deepspeed")]
    assert rows(cli, f"{GRID} --jobs 1 --resume {kept}") == first
    assert len(asked) == 1  # the answer after the cut line was kept


def test_files_of_one_text_are_different_questions(cli: Cli, tmp_path: Path) -> None:
    """Each names the profile beside it; an edited profile is asked again."""
    kept = tmp_path / "answers.jsonl"
    for name, model in (("a", "llama-3.2-1b"), ("b", "llama-3.2-3b")):
        (tmp_path / name).mkdir()
        profile = cli("profiles", "show", model, "--format", "yaml").out.replace(f"name: {model}", "name: own")
        (tmp_path / name / "own.yaml").write_text(profile)
        (tmp_path / name / "s.yaml").write_text(
            "model: ./own.yaml\ngpu: h100-sxm-80gb\ngpus: 1\njob: lora\ntrain: {seq_len: 2048, steps: 10}\n"
        )
    command = f"plan {tmp_path}/a/s.yaml {tmp_path}/b/s.yaml --jobs 1 --resume {kept}"
    first = rows(cli, command)
    times = [row["candidate"]["step_s"] for row in first["rows"]]
    assert times[1] > 1.5 * times[0]
    (tmp_path / "b" / "own.yaml").write_text((tmp_path / "a" / "own.yaml").read_text())
    assert [row["candidate"]["step_s"] for row in rows(cli, command)["rows"]] == [times[0], times[0]]


def test_an_interrupt_shows_the_rows_that_are_done(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import xe_sizer.studies.sweep as module

    real, kept = module.answer, tmp_path / "answers.jsonl"
    asked: list[object] = []

    def second_is_interrupted(cell: module.Cell) -> module.SweepRow:
        asked.append(cell)
        if len(asked) == 2:
            raise KeyboardInterrupt
        return real(cell)

    monkeypatch.setattr(module, "answer", second_is_interrupted)
    ran = cli(*shlex.split(f"{GRID} --jobs 1 --resume {kept} --format json"))
    assert ran.code == 130
    assert [row["reason"] for row in json.loads(ran.out)["rows"]][1:] == [module.INTERRUPTED] * 3
    assert len(kept.read_text().splitlines()) == 1


def test_scenarios_side_by_side_and_in_csv(cli: Cli, tmp_path: Path) -> None:
    for name, model in (("small", "llama-3.2-1b"), ("large", "llama-3.1-405b")):
        (tmp_path / f"{name}.yaml").write_text(
            f"model: {model}\ngpu: h100-sxm-80gb\njob: sft\n"
            "train: {seq_len: 2048, steps: 10}\nlimits: {max_gpus: 8}\n"
        )
    ran = cli("plan", tmp_path / "small.yaml", tmp_path / "large.yaml", "--jobs", "1", "--format", "csv")
    assert ran.code == 1
    lines = ran.out.splitlines()
    assert len(lines) == 3
    assert ",true," in lines[1]
    assert ",false," in lines[2]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("--grid stak=nemo", "'stak=nemo' is no grid"),
        ("--grid stack=", "'stack=' is no grid"),
        ("--grid stack=nemo,nemmo", "unknown stack 'nemmo'"),
        ("--grid stack=nemo --jobs none", "'none' is not a number of processes"),
        ("--grid stack=nemo --dask-scheduler nowhere", "no Dask scheduler answers"),
    ],
)
def test_bad_sweeps(cli: Cli, more: str, message: str) -> None:
    ran = cli(*shlex.split(f"plan --model llama-2-7b --gpu h100-sxm-80gb --max-gpus 8 {more}"))
    assert (ran.code, ran.out) == (2, ""), ran.err
    assert message in ran.err
