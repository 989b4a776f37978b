"""Slurm scripts: directives of the plan, one launcher on each node, and the same plan when they are read."""

from pathlib import Path
from typing import Any

import pytest

from xe_sizer.errors import InputError
from xe_sizer.interop.read import read_foreign
from xe_sizer.interop.source import Asked
from xe_sizer.interop.write import Plan, ToolFiles, export, exporter_named

PLAN: dict[str, Any] = {
    "model": "Qwen/Qwen2.5-7B", "job": "sft", "precision": "bf16", "train.seq_len": 4096, "train.micro_batch": 2,
    "train.grad_accum": 4, "train.epochs": 3, "layout.zero": 3, "layout.recompute": "full", "gpus": 16, "nodes": 2,
    "gpus_per_node": 8,
}  # fmt: skip


def written(**changed: Any) -> ToolFiles:
    values = PLAN | {key.replace("__", "."): value for key, value in changed.items()}
    return export(Plan(values), exporter_named("slurm")).written


def test_nodes_and_gpus_are_directives_and_the_nodes_meet_at_the_first() -> None:
    text = written().text
    assert "#SBATCH --nodes=2\n" in text
    assert "#SBATCH --gpus-per-node=8\n" in text
    assert '--main_process_ip "$head_node"' in text
    assert "-m trl.scripts.sft" in text


def test_one_node_meets_nobody() -> None:
    text = written(gpus=8, nodes=1).text
    assert "head_node" not in text
    assert "rdzv" not in text


def test_deepspeed_over_nodes_leaves_starting_to_slurm() -> None:
    assert "--deepspeed_multinode_launcher standard" in written(layout__zero=1).text
    assert "deepspeed" not in written().text


def test_what_no_trainer_splits_is_refused() -> None:
    with pytest.raises(InputError):
        written(layout__pp=2)


def test_a_script_is_read_back(tmp_path: Path) -> None:
    found = written(layout__zero=1)
    path = tmp_path / "job.sbatch"
    path.write_text(found.text)
    for name, text in found.beside.items():
        (tmp_path / name).write_text(text)
    said = {key: fact.value for key, fact in read_foreign([path], Asked()).facts.items()}
    assert (said["gpus"], said["layout.zero"], said["train.micro_batch"]) == (16, 1, 2)
    assert (said["job"], said["train.seq_len"], said["train.grad_accum"]) == ("sft", 4096, 4)
