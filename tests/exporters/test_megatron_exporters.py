"""Plans as scripts of Megatron-LM and Slurm."""

from pathlib import Path
from typing import Any

import pytest

from xe_sizer.errors import InputError
from xe_sizer.interop.read import Imported, read_foreign
from xe_sizer.interop.source import Asked
from xe_sizer.interop.write import Plan, export, exporters

PLAN: dict[str, Any] = {
    "model": "meta-llama/Llama-3.1-8B", "job": "pretrain", "gpus": 16, "nodes": 2, "gpus_per_node": 8, "layout.tp": 2,
    "layout.zero": 1, "layout.recompute": "full", "layout.recompute_layers": 4, "precision": "bf16",
    "train.seq_len": 8192, "train.micro_batch": 1, "train.global_batch": 64, "train.steps": 100,
}  # fmt: skip


def read_back(name: str, values: dict[str, Any], folder: Path) -> Imported:
    exporter = exporters()[name]
    file = folder / f"job{exporter.ending}"
    file.write_text(export(Plan(values), exporter).written.text)
    return read_foreign([file], Asked())


@pytest.mark.parametrize("name", ["megatron-lm", "slurm"])
@pytest.mark.parametrize("model", ["meta-llama/Llama-3.1-8B", "Qwen/Qwen3-30B-A3B", "deepseek-ai/DeepSeek-V2-Lite"])
def test_the_model_and_the_hardware_are_read_back(name: str, model: str, tmp_path: Path) -> None:
    facts = {key: fact.value for key, fact in read_back(name, PLAN | {"model": model}, tmp_path).facts.items()}
    assert (
        facts["model"] == {"L": "llama-3.1-8b", "Q": "qwen3-30b-a3b", "D": "deepseek-v2-lite"}[model.split("/")[1][0]]
    )
    assert (facts["gpus"], facts["layout.recompute_layers"], facts["train.steps"]) == (16, 4, 100)


def test_a_batch_script_has_directives() -> None:
    text = export(Plan(PLAN), exporters()["slurm"]).written.text
    assert text.startswith("#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=8\n")
    assert '--rdzv_endpoint "$MASTER_ADDR:29500"' in text


def test_modules_to_recompute_are_read_back(tmp_path: Path) -> None:
    values = PLAN | {"layout.recompute": "selective", "layout.recompute_modules": ["mlp", "core_attn"]}
    del values["layout.recompute_layers"]
    facts = read_back("megatron-lm", values, tmp_path).facts
    assert facts["layout.recompute_modules"].value == ("mlp", "core_attn")


@pytest.mark.parametrize("loss", ["flash", "vocab-parallel-compiled"])
def test_kernels_of_the_loss_are_read_back(loss: str, tmp_path: Path) -> None:
    assert read_back("megatron-lm", PLAN | {"loss": loss}, tmp_path).facts["loss"].value == loss


@pytest.mark.parametrize(("chunks", "stages"), [(1, (7, 9, 9, 7)), (2, (7, 9, 9, 7)), (2, (8, 8, 16, 0))])
def test_the_layers_of_every_stage_are_read_back(chunks: int, stages: tuple[int, ...], tmp_path: Path) -> None:
    values = PLAN | {"layout.pp": 4, "layout.vpp": chunks, "layout.stages": list(stages), "train.grad_accum": 16}
    facts = read_back("megatron-lm", values | {"layout.recompute": "none"}, tmp_path).facts
    assert (facts["layout.stages"].value, facts["layout.vpp"].value, facts["layout.pp"].value) == (stages, chunks, 4)


def test_ends_that_count_as_layers_are_read_back(tmp_path: Path) -> None:
    values = PLAN | {"layout.pp": 17, "layout.vpp": 2, "layout.account_for_embedding": True, "layout.recompute": "none"}
    facts = read_back("megatron-lm", values | {"layout.account_for_loss": True}, tmp_path).facts
    assert facts["layout.account_for_embedding"].value is facts["layout.account_for_loss"].value is True
    assert (facts["layout.pp"].value, facts["layout.vpp"].value) == (17, 2)


def test_the_embedding_takes_a_place_in_a_written_layout() -> None:
    """Two layers in three chunks: the outermost chunks of the ends hold the embedding and the loss alone."""
    values = PLAN | {"layout.pp": 4, "layout.vpp": 3, "layout.stages": [2, 14, 14, 2], "train.grad_accum": 16}
    text = export(Plan(values | {"layout.recompute": "none"}), exporters()["megatron-lm"]).written.text
    assert "E|ttttt|ttttt|t|t|ttttt|ttttt|t|t|tttt|tttt|L" in text


@pytest.mark.parametrize(("layers", "written"), [(4, 4), (None, 31)])
def test_offloaded_layers_are_read_back(layers: int | None, written: int, tmp_path: Path) -> None:
    values = PLAN | {"layout.offload": "activations", "layout.offload_layers": layers}
    facts = read_back("megatron-lm", values, tmp_path).facts
    assert (facts["layout.offload"].value, facts["layout.offload_layers"].value) == ("activations", written)


def test_a_batch_that_grows_is_read_back(tmp_path: Path) -> None:
    facts = read_back("megatron-lm", PLAN | {"train.batch_ramp_up": [16, 16, 480]}, tmp_path).facts
    assert (facts["train.batch_ramp_up"].value, facts["train.steps"].value) == ((16, 16, 480), 100)


@pytest.mark.parametrize(("ranks", "flag"), [(0, None), (2, "2")])
def test_ranks_that_split_an_expert_are_written_where_they_are_chosen(ranks: int, flag: str | None) -> None:
    values = PLAN | {"model": "Qwen/Qwen3-30B-A3B", "layout.ep": 4, "layout.expert_tp": ranks}
    text = export(Plan(values), exporters()["megatron-lm"]).written.text
    assert ("--expert-tensor-parallel-size 2" in text) == (flag is not None)


@pytest.mark.parametrize(
    ("change", "said"),
    [({"train.steps": None}, "counts steps"), ({"model": "mamba-130m"}, "no arguments for the layers"),
     ({"job": "lora", "lora.rank": 8}, "job"), ({"layout.offload": "params"}, "layout.offload")],
)  # fmt: skip
def test_what_megatron_cannot_run_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        export(Plan(PLAN | change), exporters()["megatron-lm"])


@pytest.mark.parametrize(
    "hidden", [("tensor-parallel", "context-parallel", "pipeline", "data-parallel", "sharding"), ("off",)]
)
def test_what_compute_hides_is_read_back(hidden: tuple[str, ...], tmp_path: Path) -> None:
    text = export(Plan(PLAN | {"train.overlap": hidden}), exporters()["megatron-lm"]).written.text
    assert ("--overlap-grad-reduce" in text, "--overlap-param-gather" in text) == ("off" not in hidden, False)
    found = read_back("megatron-lm", PLAN | {"train.overlap": hidden}, tmp_path).facts["train.overlap"].value
    assert set(found) - {"tensor-parallel", "context-parallel", "sharding"} == {*hidden} & {"pipeline", "data-parallel"}


@pytest.mark.parametrize(
    ("precision", "kept", "flag"),
    [
        ("bf16", "bf16", "--grad-reduce-in-bf16"),
        ("bf16", "fp32", None),
        ("fp16", "fp32", "--accumulate-allreduce-grads-in-fp32"),
        ("fp16", "fp16", None),
    ],
)
def test_gradients_are_read_back_as_they_are_kept(precision: str, kept: str, flag: str | None, tmp_path: Path) -> None:
    """What Megatron does unasked has no flag."""
    values = PLAN | {"precision": precision, "train.gradient_dtype": kept}
    text = export(Plan(values), exporters()["megatron-lm"]).written.text
    flags = [word for word in text.split() if "grad-reduce" in word or "grads-in" in word]
    assert flags == ([flag] if flag else [])
    found = read_back("megatron-lm", values, tmp_path).facts.get("train.gradient_dtype")
    assert (found.value if found else None) == (kept if flag else None)


def test_fsdp2_is_told_what_it_reduces_in(tmp_path: Path) -> None:
    values = PLAN | {"layout.zero": 3, "layout.tp": 1, "layout.recompute": "full", "train.reduce_dtype": "bf16"}
    del values["layout.recompute_layers"]
    assert read_back("nemo", values | {"job": "sft"}, tmp_path).facts["train.reduce_dtype"].value == "bf16"
