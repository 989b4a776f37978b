"""Files of trainers that people brought: what fits, how long it takes, and what is written back for the tool."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import Ran
from .questions import ask

Cli = Callable[..., Ran]
AXOLOTL = """\
base_model: meta-llama/Llama-3.1-8B
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
sequence_len: 8192
sample_packing: true
pad_to_sequence_len: true
gradient_accumulation_steps: 4
micro_batch_size: 2
num_epochs: 3
optimizer: adamw_torch_fused
bf16: auto
gradient_checkpointing: true
flash_attention: true
deepspeed: deepspeed_configs/zero3_bf16.json
plugins:
  - axolotl.integrations.liger.LigerPlugin
liger_rope: true
liger_fused_linear_cross_entropy: true
"""
MEGATRON = """\
#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
DISTRIBUTED_ARGS=(--nproc_per_node 8 --nnodes 4 --master_addr localhost --master_port 6000)
MODEL_ARGS=(
  --num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64
  --group-query-attention --num-query-groups 8 --seq-length 8192 --max-position-embeddings 8192
  --swiglu --normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights
  --position-embedding-type rope --make-vocab-size-divisible-by 128 --vocab-size 128256
  --tokenizer-type HuggingFaceTokenizer --tokenizer-model meta-llama/Llama-3.1-70B
)
PAR=(--tensor-model-parallel-size 8 --pipeline-model-parallel-size 4 --sequence-parallel --use-distributed-optimizer
  --overlap-grad-reduce --overlap-param-gather)
TR=(--micro-batch-size 1 --global-batch-size 256 --train-iters 2000 --bf16 --use-flash-attn --recompute-activations
  --transformer-impl transformer_engine)
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py ${MODEL_ARGS[@]} ${PAR[@]} ${TR[@]}
"""


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("axolotl.yml").write_text(AXOLOTL)
    Path("megatron.sh").write_text(MEGATRON)


def part(answer: Any, name: str) -> float:
    """Bytes of a component of the memory, 0 where there is none."""
    return next((each["bytes"] for each in answer["memory"]["components"] if each["name"] == name), 0.0)


def seconds(answer: Any, name: str) -> float:
    return next((each["seconds"] for each in answer["time"]["components"] if each["name"] == name), 0.0)


# Gradients beside an optimizer in host memory.

ALONE = "estimate megatron.sh --free layout,gpus --gpus 8 --tp 8 --pp 1 --offload optimizer"


def test_megatron_keeps_gradients_on_the_card_beside_an_offloaded_optimizer(cli: Cli) -> None:
    """Its hybrid optimizer copies them when it runs; a ZeRO stage changes nothing where no two ranks share weights."""
    stages = [ask(cli, f"{ALONE} --recompute none --exit-zero --zero {stage}") for stage in (1, 2)]
    gradients = [part(answer, "gradients") for answer in stages]
    assert gradients[0] == gradients[1] == pytest.approx(4 * 70.6e9 / 8, rel=0.01)
    assert stages[0]["memory"]["peak_bytes"] == stages[1]["memory"]["peak_bytes"]
    assert seconds(stages[0], "offload") == seconds(stages[1], "offload")


def test_gradients_that_wait_in_host_memory_come_and_go_in_every_micro_batch(cli: Cli) -> None:
    """DeepSpeed brings those of ZeRO-2 back to add to them: twice 2 B a parameter over PCIe, but the first time."""
    job = "estimate --model llama-3.1-8b --stack hf-trainer --backend deepspeed --gpu h100-sxm-80gb --gpus 1 --zero 2"
    job += " --offload optimizer --micro-batch 1 --seq-len 4096 --host-memory-gib 1000 --steps 10 --global-batch"
    one, nine = (ask(cli, f"{job} {batch}") for batch in (1, 9))
    assert part(nine, "gradients") == 0
    more = (seconds(nine, "offload") - seconds(one, "offload")) / 8
    both_ways = 2 * 2 * 8.03e9 / (0.88 * 64e9)
    assert 0.5 * both_ways < more <= both_ways * 1.01


def test_an_exported_megatron_command_has_what_its_offloaded_optimizer_needs(cli: Cli) -> None:
    ran = cli(*f"{ALONE} --recompute full --to megatron-lm".replace("estimate", "export", 1).split())
    assert ran.code == 0, ran.err
    assert "--optimizer-cpu-offload" in ran.out
    assert "--use-precision-aware-optimizer" in ran.out


# What is written back for the tool.

TITAN = """\
[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 1
seq_len = 8192
steps = 1000
dataset = "c4"
[parallelism]
data_parallel_shard_degree = -1
[activation_checkpoint]
mode = "selective"
[compile]
enable = true
"""


def test_an_exported_megatron_command_starts_on_several_nodes(cli: Cli) -> None:
    ran = cli("export", "megatron.sh", "--to", "megatron-lm", "-o", "back.sh")
    text = Path("back.sh").read_text()
    assert "export CUDA_DEVICE_MAX_CONNECTIONS=1\n" in text
    assert '--nnodes 4 --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint "$MASTER_ADDR:29500" pretrain' in text
    assert "yours to add: MASTER_ADDR in the environment of every node" in ran.err
    assert "positions are written as the profile of llama-3.1-70b has them: --max-position-embeddings 131072" in ran.err


def test_what_a_megatron_command_does_not_hide_is_not_switched_on(cli: Cli) -> None:
    """A third of the exchanges of tensor parallelism hides without a switch; three quarters with --tp-comm-overlap."""
    Path("more.sh").write_text(MEGATRON.replace("--overlap-grad-reduce", "--overlap-grad-reduce --tp-comm-overlap"))
    ran = cli("export", "megatron.sh", "--to", "megatron-lm")
    assert "--overlap-grad-reduce" in ran.out
    assert "--tp-comm-overlap" not in ran.out
    without, with_it = (ask(cli, f"estimate {file}") for file in ("megatron.sh", "more.sh"))
    assert seconds(without, "tensor-parallel communication") > 1.5 * seconds(with_it, "tensor-parallel communication")


def test_what_an_export_says_has_no_words_of_python(cli: Cli) -> None:
    ran = cli("export", "axolotl.yml", "--gpus", "8", "--free", "layout,gpus", "--to", "axolotl")
    assert ran.code == 0
    assert not any(word in ran.out + ran.err for word in ("free", "('", "None"))


def test_a_tool_is_not_said_to_lack_what_its_own_stack_does(cli: Cli) -> None:
    Path("titan.toml").write_text(TITAN)
    ran = cli("export", "titan.toml", "--gpus", "8", "--to", "torchtitan")
    assert ran.code == 0
    assert "no setting" not in ran.out + ran.err


# Plans of a file whose batch follows the layout.

PLAN = "plan axolotl.yml --dataset alpaca --free layout,gpus --max-gpus 32"


def test_axolotl_splits_packed_sequences_one_at_a_time(cli: Cli) -> None:
    """It refuses context_parallel_size beside sample_packing and a micro-batch above 1."""
    plans = ask(cli, PLAN)["candidates"]
    assert plans
    assert all(one["layout"]["cp"] == 1 for one in plans)
    Path("alone.yml").write_text(AXOLOTL.replace("micro_batch_size: 2", "micro_batch_size: 1"))
    options = ("--gpus", "8", "--cp", "2", "--free", "grad-accum", "--global-batch", "32")
    assert "cp 2" in cli("estimate", "alone.yml", *options).out
    refused = cli("estimate", "axolotl.yml", *options)
    assert refused.code == 2
    assert "axolotl splits packed sequences over cp 2 GPUs one at a time, not 2" in refused.err


def test_plans_with_several_batches_say_each(cli: Cli) -> None:
    ran = cli(*PLAN.split())
    chosen = next(line for line in ran.out.splitlines() if line.startswith("GPUs"))
    assert "dp 8" in chosen
    assert chosen.endswith(", global batch 64")
    assert any("global batch" in line and "layout" in line for line in ran.out.splitlines())
    fixed = cli(*PLAN.split(), "--global-batch", "64").out
    assert "FITS" in fixed
    assert ", global batch 64" not in fixed.split("Answers")[0]


def test_a_scenario_of_the_api_is_shown_in_a_line() -> None:
    import xe_sizer

    assert str(xe_sizer.load("axolotl.yml")) == "Scenario(axolotl.yml, model=meta-llama/Llama-3.1-8B, job=sft)"


@pytest.mark.parametrize(("gpus", "told"), [(8, "8 GPUs in whole servers"), (4, "4 GPUs")])
def test_the_minimum_says_whether_parts_of_a_server_count(cli: Cli, gpus: int, told: str) -> None:
    lines = cli("estimate", "axolotl.yml", "--gpus", str(gpus)).out.splitlines()
    found = next(line for line in lines if "minimum that fits" in line)
    assert found.partition("minimum that fits")[2].strip() == told
