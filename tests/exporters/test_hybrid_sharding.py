"""Groups that share a copy of sharded states each, written for tools and read back."""

from pathlib import Path
from typing import Any

import pytest

from xe_sizer.interop.read import read_foreign
from xe_sizer.interop.source import Asked
from xe_sizer.interop.write import Plan, export, exporters

PLAN: dict[str, Any] = {
    "model": "meta-llama/Llama-3.1-8B", "gpus": 32, "nodes": 4, "gpus_per_node": 8, "layout.tp": 2,
    "precision": "bf16", "train.seq_len": 8192, "train.micro_batch": 1, "train.global_batch": 64, "train.steps": 100,
}  # fmt: skip
TOOLS = {"megatron-lm": ("pretrain", 1), "torchtitan": ("pretrain", 3), "torchtune": ("sft", 3), "nemo": ("sft", 3)}


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize(("cp", "group"), [(1, 4), (2, 8)])
def test_groups_are_read_back(tool: str, cp: int, group: int, tmp_path: Path) -> None:
    """16 data-parallel ranks, those of the context among them, in groups."""
    exporter = exporters()[tool]
    job, zero = TOOLS[tool]
    changed = {"job": job, "layout.zero": zero, "layout.cp": cp, "layout.zero_group": group}
    file = tmp_path / f"job{exporter.ending}"
    file.write_text(export(Plan(PLAN | changed), exporter).written.text)
    facts = read_foreign([file], Asked()).facts
    assert (facts["layout.zero_group"].value, facts["layout.cp"].value) == (group, cp)
