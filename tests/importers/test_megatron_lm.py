"""Megatron-LM's scripts and configurations as scenarios."""

from pathlib import Path

import pytest

from xe_sizer.errors import InputError
from xe_sizer.interop.draft import READ
from xe_sizer.interop.read import Imported, read_foreign
from xe_sizer.interop.source import Asked

SCRIPT = """\
#!/bin/bash
TP=${TP:-2}
DISTRIBUTED=(--nproc_per_node 8 --nnodes ${NNODES:-4})
MODEL_ARGS=(
    --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32
    --group-query-attention --num-query-groups 8 --swiglu --untie-embeddings-and-output-weights
    --max-position-embeddings 8192 --tokenizer-type NullTokenizer --vocab-size 128256
)
TRAIN="--micro-batch-size 1 --global-batch-size 128 \\
    --seq-length 8192 --train-iters 500 --bf16 --use-distributed-optimizer"
torchrun ${DISTRIBUTED[@]} pretrain_gpt.py ${MODEL_ARGS[@]} $TRAIN \\
    --tensor-model-parallel-size $TP --sequence-parallel --made-up-flag 3 # --fp8-format hybrid
"""


def read(tmp_path: Path, name: str, text: str, **given: str) -> Imported:
    path = tmp_path / name
    path.write_text(text)
    return read_foreign([path], Asked(given=given))


def values(found: Imported) -> dict[str, object]:
    return {key: fact.value for key, fact in found.facts.items()}


def test_a_launch_script(tmp_path: Path) -> None:
    found = read(tmp_path, "train.sh", SCRIPT)
    expected = {
        "model": "llama-3-8b", "job": "pretrain", "stack": "megatron-lm", "gpus": 32, "train.seq_len": 8192,
        "train.micro_batch": 1, "train.global_batch": 128, "train.steps": 500, "layout.tp": 2, "layout.pp": 1,
        "layout.zero": 1, "layout.sequence_parallel": True, "precision": "bf16", "train.padding": "packed",
    }  # fmt: skip
    assert found.tool.name == "megatron-lm"
    assert {key: values(found).get(key) for key in expected} == expected
    assert found.facts["train.global_batch"].where.line == 9  # type: ignore[union-attr]
    assert [each.key for each in found.unknown] == ["made_up_flag"]


def test_variables_that_are_passed_win(tmp_path: Path) -> None:
    assert values(read(tmp_path, "train.sh", SCRIPT, TP="4"))["layout.tp"] == 4


def test_a_sourced_configuration_without_a_launch(tmp_path: Path) -> None:
    text = """\
HF_MODEL_CKPT=Qwen/Qwen3-8B
MODEL_ARGS=" \\
    --num-layers 36 --hidden-size 4096 --ffn-hidden-size 12288 --num-attention-heads 32 \\
    --group-query-attention --num-query-groups 8 --kv-channels 128 --swiglu \\
    --untie-embeddings-and-output-weights --seq-length 4096 --bf16 "
"""
    found = read(tmp_path, "model.sh", text)
    assert values(found)["model"] == "qwen3-8b"
    assert [each.key for each in found.missing] == ["gpus"]


def test_a_functional_test(tmp_path: Path) -> None:
    text = """\
ENV_VARS:
  NCCL_ALGO: Ring
MODEL_ARGS:
  --num-layers: 12
  --hidden-size: 512
  --num-attention-heads: 8
  --micro-batch-size: 4
  --global-batch-size: 32
  --vocab-file: ${DATA_PATH}/bpe/vocab.json
  --merge-file: ${DATA_PATH}/bpe/merges.txt
  --recompute-granularity: full
  --recompute-method: uniform
  --bf16: true
TEST_TYPE: regular
"""
    found = read(tmp_path, "model_config.yaml", text)
    assert found.facts["model.layers"].origin == READ
    assert {key: values(found)[key] for key in ("model.vocab", "layout.recompute", "train.micro_batch")} == {
        "model.vocab": 50304, "layout.recompute": "full", "train.micro_batch": 4,
    }  # fmt: skip
    assert not found.unknown


@pytest.mark.parametrize(
    ("flags", "job"),
    [
        ("--sft", "sft"),
        ("--perform-rl-step", "grpo"),
        ("--export-kd-teacher-load teacher", "distill"),
        ("", "pretrain"),
    ],
)
def test_jobs(tmp_path: Path, flags: str, job: str) -> None:
    text = SCRIPT.replace("--made-up-flag 3", flags)
    assert values(read(tmp_path, "train.sh", text))["job"] == job


def test_tests_of_inference_are_no_training(tmp_path: Path) -> None:
    text = "MODE: inference\nMODEL_ARGS:\n  --num-layers: 12\n  --hidden-size: 512\n  --top-k: 1\n  --bf16: true\n"
    assert values(read(tmp_path, "model_config.yaml", text))["job"] == "inference"


def test_a_script_that_is_sourced_may_lie_deeper(tmp_path: Path) -> None:
    inner = tmp_path / "beside" / "examples" / "paper"
    inner.mkdir(parents=True)
    (inner / "LAUNCH.sh").write_text(SCRIPT)
    assert values(read(tmp_path, "figure.sh", "TP=8\n. `pwd`/LAUNCH.sh\n"))["layout.tp"] == 8
    (tmp_path / "beside" / "LAUNCH.sh").write_text("echo another")
    with pytest.raises(InputError):
        read(tmp_path, "figure.sh", "TP=8\n. `pwd`/LAUNCH.sh\n")


def test_nothing_is_run(tmp_path: Path) -> None:
    read(tmp_path, "train.sh", f"$(touch {tmp_path}/made)\n" + SCRIPT)
    assert not (tmp_path / "made").exists()
