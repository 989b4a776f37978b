"""Scripts of ms-swift."""

from __future__ import annotations

from pathlib import Path

import pytest

from xe_sizer.interop.read import Imported, read_foreign
from xe_sizer.interop.source import Asked

LORA = """
nproc_per_node=2
CUDA_VISIBLE_DEVICES=0,1 NPROC_PER_NODE=$nproc_per_node \\
swift sft \\
    --model Qwen/Qwen3-8B \\
    --tuner_type lora \\
    --dataset 'some/data#500' 'other/data#500' \\
    --torch_dtype bfloat16 \\
    --per_device_train_batch_size 1 \\
    --lora_rank 16 \\
    --max_length 4096 \\
    --packing true \\
    --deepspeed zero2_offload \\
    --split_dataset_ratio 0.1 \\
    --gradient_accumulation_steps $(expr 16 / $nproc_per_node) \\
    --num_train_epochs 1
"""
MEGATRON = """
NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen3-30B-A3B --tensor_model_parallel_size 2 \\
    --expert_model_parallel_size 4 --pipeline_model_parallel_size 2 --micro_batch_size 1 --global_batch_size 32 \\
    --max_length 8192 --packing true
"""


def read(folder: Path, text: str, name: str = "train.sh", **hardware: object) -> Imported:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return read_foreign([file], Asked(hardware=hardware))


def test_a_script_says_the_job_its_batches_and_its_gpus(tmp_path: Path) -> None:
    found = read(tmp_path, LORA)
    said = {
        "model": "Qwen/Qwen3-8B", "job": "lora", "stack": "ms-swift", "gpus": 2, "train.seq_len": 4096,
        "train.micro_batch": 1, "train.grad_accum": 8, "train.global_batch": 16, "train.epochs": 1,
        "train.padding": "packed", "layout.zero": 2, "layout.offload": "optimizer", "lora.rank": 16,
    }  # fmt: skip
    assert {key: found.fact_of(key) for key in said} == said
    assert {found.facts[key].origin for key in said} == {"read"}
    assert found.facts["train.seq_len"].where is not None
    assert found.facts["train.seq_len"].where.line == 11
    assert [each.key for each in found.lost] == ["split_dataset_ratio"]
    assert not found.unknown
    assert not found.missing


def test_what_a_script_leaves_out_is_the_tools_default(tmp_path: Path) -> None:
    found = read(tmp_path, "swift sft --model Qwen/Qwen3-8B", gpus=4)
    filled = {
        "job": "lora", "train.micro_batch": 1, "lora.rank": 8, "lora.targets": ("all-linear",), "lora.dropout": 0.05,
        "layout.recompute": "full", "train.padding": "longest-in-micro-batch", "train.epochs": 3,
    }  # fmt: skip
    assert {key: found.fact_of(key) for key in filled} == filled
    assert {found.facts[key].origin for key in filled} == {"tool-default"}


def test_accumulation_makes_up_sixteen_sequences_where_the_script_says_the_gpus(tmp_path: Path) -> None:
    found = read(tmp_path, "NPROC_PER_NODE=4 swift sft --model Qwen/Qwen3-8B --per_device_train_batch_size 2")
    assert found.fact_of("train.grad_accum") == 2
    assert found.facts["train.grad_accum"].origin == "tool-default"


def test_megatron_trains_with_its_own_layout(tmp_path: Path) -> None:
    found = read(tmp_path, MEGATRON)
    said = {
        "job": "sft", "gpus": 8, "layout.tp": 2, "layout.pp": 2, "layout.ep": 4, "train.global_batch": 32,
        "train.grad_accum": 16, "layout.zero": 1, "layout.recompute": "selective", "train.padding": "packed",
    }  # fmt: skip
    assert {key: found.fact_of(key) for key in said} == said


@pytest.mark.parametrize(
    ("flags", "job"),
    [
        ("--tuner_type full", "sft"),
        ("--train_type lora --quant_bits 4 --quant_method bnb", "qlora"),
        ("--tuner_type lora --quant_bits 8", "lora"),
    ],
)
def test_the_job_follows_from_tuner_and_bits(flags: str, job: str, tmp_path: Path) -> None:
    assert read(tmp_path, f"swift sft --model Qwen/Qwen3-8B {flags}", gpus=1).fact_of("job") == job


def test_preferences_are_said_as_such(tmp_path: Path) -> None:
    found = read(tmp_path, "swift rlhf --rlhf_type dpo --model Qwen/Qwen3-8B --tuner_type lora", gpus=1)
    assert found.fact_of("job") == "dpo"
    assert found.fact_of("lora.rank") == 8


def test_a_launcher_starts_the_script_of_the_package(tmp_path: Path) -> None:
    text = "torchrun --nproc_per_node 8 --nnodes 2 swift/cli/sft.py --model Qwen/Qwen3-8B --unheard_of 1"
    found = read(tmp_path, text)
    assert found.fact_of("gpus") == 16
    assert found.fact_of("model") == "Qwen/Qwen3-8B"
    assert [each.key for each in found.unknown] == ["unheard_of"]


GROUPS = """\
NPROC_PER_NODE=4 swift rlhf --rlhf_type grpo --model Qwen/Qwen3-8B --tuner_type full --dataset d \\
    --per_device_train_batch_size 4 --num_generations 8 --max_completion_length 1024 --use_vllm true \\
    --vllm_max_model_len 4096 --vllm_mode server --vllm_server_host 127.0.0.1 --vllm_server_port 8000
"""
SERVER = "swift rollout --model Qwen/Qwen3-8B --vllm_tensor_parallel_size 2 --vllm_data_parallel_size 2"


@pytest.mark.parametrize("beside", [False, True])
def test_an_engine_on_gpus_of_its_own_is_that_of_its_command(tmp_path: Path, beside: bool) -> None:
    if beside:
        (tmp_path / "rollout.sh").write_text(SERVER)
    found = read(tmp_path, GROUPS if beside else f"{SERVER} &\n{GROUPS}")
    said = {key: fact.value for key, fact in found.facts.items()}
    assert (said["gpus"], said["rollout.gpus"], said["rollout.tp"], said["train.seq_len"]) == (8, 4, 2, 4096)
    assert not any("vllm" in each.key for each in found.lost)


def test_an_engine_that_no_file_starts_is_told(tmp_path: Path) -> None:
    found = read(tmp_path, GROUPS)
    assert "rollout.gpus" not in found.facts
    assert any("--rollout-gpus" in each.why for each in found.lost)


def test_a_teacher_is_named_and_what_the_student_writes_is_told(tmp_path: Path) -> None:
    text = "swift rlhf --rlhf_type gkd --model Qwen/Qwen3-8B --tuner_type full --teacher_model Qwen/Qwen3-32B --lmbda "
    found = read(tmp_path, f"NPROC_PER_NODE=8 {text}1 --dataset d\n")
    assert found.facts["train.teacher_model"].value == "Qwen/Qwen3-32B"
    assert [each.key for each in found.lost if each.key == "lmbda"]
    assert not [
        each.key for each in read(tmp_path, f"NPROC_PER_NODE=8 {text}0 --dataset d\n").lost if each.key == "lmbda"
    ]
