"""What a file fixes is said, and left open again where somebody asks: as if its lines were deleted by hand."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from .conftest import Ran

Cli = Callable[..., Ran]
# verl's example for GSM8K: what it fixes is no choice of somebody who asks for a plan.
VERL = (
    "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=1024 "
    "data.max_prompt_length=512 data.max_response_length=1024 actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct "
    "actor_rollout_ref.model.enable_gradient_checkpointing=True actor_rollout_ref.actor.ppo_mini_batch_size=256 "
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=40 actor_rollout_ref.rollout.tensor_model_parallel_size=2 "
    "actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.n=5 trainer.n_gpus_per_node=8 trainer.nnodes=1"
)
MEGATRON = (
    "torchrun --nproc_per_node 8 --nnodes 4 pretrain_gpt.py --num-layers 32 --hidden-size 4096 "
    "--ffn-hidden-size 11008 --swiglu --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096 "
    "--micro-batch-size 1 --global-batch-size 256 --tensor-model-parallel-size 8 --pipeline-model-parallel-size 4 "
    "--use-distributed-optimizer --bf16 --train-iters 10000 --vocab-size 32000"
)
FILES = {"run_grpo.sh": VERL, "megatron.sh": MEGATRON}
HARDWARE = "--gpu h100-sxm-80gb --max-gpus 64 --max-hours 10"


def ask(cli: Cli, command: str) -> Any:
    return json.loads(cli(*shlex.split(command), "--format", "json").out)


def script(tmp_path: Path, name: str) -> Path:
    file = tmp_path / name
    file.write_text(FILES[name] + "\n", encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("name", "fixed"),
    [
        ("run_grpo.sh", "gpus 8, micro batch 40, recompute full, rollout tp 2"),
        ("megatron.sh", "gpus 32, micro batch 1, tp 8, pp 4, zero 1"),
    ],
)
def test_a_plan_of_a_foreign_file_says_what_it_fixes_and_how_to_be_free_of_it(
    cli: Cli, tmp_path: Path, name: str, fixed: str
) -> None:
    file = script(tmp_path, name)
    out = " ".join(cli("plan", file, *shlex.split(HARDWARE), "--brief").out.split())
    assert f"Fixed your file fixes {fixed}: no other was tried; --free gpus,layout tries others" in out
    freed = " ".join(cli("plan", file, *shlex.split(HARDWARE), "--free", "gpus,layout").out.split())
    assert "Fixed" not in freed
    assert "Freed what the file says of gpus, layout was left open" in freed


@pytest.mark.parametrize("name", FILES)
def test_freed_keys_are_as_if_their_lines_were_deleted(cli: Cli, tmp_path: Path, name: str) -> None:
    """And the command that the plan prints gives the plan again, though it reads the same file."""
    file = script(tmp_path, name)
    scenario = yaml.safe_load(cli("import", file, "--gpu", "h100-sxm-80gb").out)
    for key in ("gpus", "nodes", "layout"):
        scenario.pop(key, None)
    for key in ("micro_batch", "grad_accum"):
        scenario["train"].pop(key, None)
    for key in ("tp", "pp", "ep", "colocated", "gpus", "offload"):
        scenario.get("rollout", {}).pop(key, None)
    by_hand = tmp_path / "by_hand.yaml"
    by_hand.write_text(yaml.safe_dump(scenario), encoding="utf-8")
    freed, deleted = (
        ask(cli, f"plan {one} {HARDWARE}") for one in (f"{shlex.quote(str(file))} --free layout,gpus", by_hand)
    )
    kept = ("gpus", "layout", "total_s", "gpu_hours", "peak_bytes")
    one, other = ([{key: each[key] for key in kept} for each in answer["candidates"]] for answer in (freed, deleted))
    assert one == other
    assert len({each["gpus"] for each in one}) > 1
    chosen = freed["candidates"][freed["answers"]["chosen"]]
    again = ask(cli, chosen["command"].removeprefix("xe-sizer "))
    assert again["time"]["total_s"] == chosen["total_s"]
    assert again["gpus"]["count"] == chosen["gpus"]


def test_a_batch_that_micro_batches_make_stays(cli: Cli, tmp_path: Path) -> None:
    """Without a global batch the two parts make it; freed by name they go."""
    job = tmp_path / "job.yaml"
    job.write_text(
        "model: llama-3.1-8b\njob: sft\nserver: dell-xe9680-h100\ngpus: 8\n"
        "train: {micro_batch: 2, grad_accum: 4, steps: 10}\nlayout: {tp: 2, recompute: full}\n",
        encoding="utf-8",
    )

    def layout(free: str) -> Any:
        answer = ask(cli, f"plan {job} --free {free}")
        assert {one["gpus"] for one in answer["candidates"]} == {8}
        return answer["candidates"][answer["answers"]["chosen"]]["layout"]

    kept = layout("layout")
    assert (kept["micro_batch"], kept["grad_accum"]) == (2, 4)
    assert kept["recompute"] != "full"
    freed = layout("micro-batch,grad-accum")
    assert freed["micro_batch"] * freed["grad_accum"] * freed["dp"] == 128  # the batch that is assumed
    assert (freed["tp"], freed["recompute"]) == (2, "full")
    assert ask(cli, f"estimate {job} --free layout --tp 4")["layout"]["tp"] == 4  # what is typed counts


def test_a_name_that_is_none_has_a_hint(cli: Cli, tmp_path: Path) -> None:
    file = script(tmp_path, "megatron.sh")
    ran = cli("plan", file, "--free", "layot", *shlex.split(HARDWARE))
    assert ran.code == 2
    assert "--free: item 1 of 'free' must be one of layout, gpus" in ran.err
    assert "did you mean 'layout'?" in ran.err
