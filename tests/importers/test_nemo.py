"""NeMo's configurations and recipes as scenarios."""

from pathlib import Path

import pytest

from xe_sizer.interop.read import Imported, read_foreign
from xe_sizer.interop.source import Asked

YAML = """\
trainer:
  devices: 8
  num_nodes: 2
  precision: bf16
  max_steps: 200
  val_check_interval: 50
exp_manager: {name: run}
model:
  restore_from_path: /models/llama-2-70b.nemo
  tensor_model_parallel_size: 8
  micro_batch_size: 1
  global_batch_size: 16
  megatron_amp_O2: %s
  activations_checkpoint_granularity: selective
  hidden_dropout: 0.0
  attention_dropout: 0.0
  peft:
    peft_scheme: %s
    lora_tuning: {adapter_dim: 16, target_modules: [attention_qkv, mlp_fc1]}
  data:
    train_ds:
      max_seq_length: 4096
      micro_batch_size: ${model.micro_batch_size}
  optim: {name: distributed_fused_adam}
"""
RECIPE = """\
import nemo_run as run
from nemo.collections.llm.recipes.qwen25 import qwen25_trainer

NAME = "qwen25_7b"


def pretrain_recipe(num_nodes: int = 2, num_gpus_per_node: int = 8, seq_length: int = 4096):
    return run.Partial(
        pretrain,
        trainer=qwen25_trainer(
            tensor_parallelism=2, num_nodes=num_nodes, num_gpus_per_node=num_gpus_per_node, max_steps=300,
            precision="bf16-mixed",
        ),
        data=run.Config(MockDataModule, seq_length=seq_length, global_batch_size=32, micro_batch_size=1),
    )
"""


def read(tmp_path: Path, name: str, text: str, **given: str) -> Imported:
    path = tmp_path / name
    path.write_text(text)
    return read_foreign([path], Asked(given=given))


def values(found: Imported) -> dict[str, object]:
    return {key: fact.value for key, fact in found.facts.items()}


def test_tuning_of_nemo_1(tmp_path: Path) -> None:
    found = read(tmp_path, "conf.yaml", YAML % ("true", "lora"))
    expected = {
        "model": "llama-2-70b", "job": "lora", "stack": "nemo", "gpus": 16, "lora.rank": 16,
        "lora.targets": ("qkv", "fc1"), "train.seq_len": 4096, "train.micro_batch": 1, "train.global_batch": 16,
        "layout.tp": 8, "layout.zero": 1, "layout.recompute": "selective", "precision": "bf16", "train.steps": 200,
        "train.evaluate_every": 50, "train.padding": "longest-in-global-batch", "train.dropout": 0.0,
    }  # fmt: skip
    assert found.tool.name == "nemo"
    assert {key: values(found).get(key) for key in expected} == expected
    assert not found.unknown


@pytest.mark.parametrize(
    ("scheme", "job"), [("null", "sft"), ("ptuning", "p-tuning"), ("ia3", "sft"), ("adapter", "lora")]
)
def test_jobs(tmp_path: Path, scheme: str, job: str) -> None:
    assert values(read(tmp_path, "conf.yaml", YAML % ("false", scheme)))["job"] == job


def test_autocast_keeps_float32_weights(tmp_path: Path) -> None:
    assert values(read(tmp_path, "conf.yaml", YAML % ("false", "null")))["train.weights_dtype"] == "fp32"


def test_a_recipe_of_nemo_2(tmp_path: Path) -> None:
    found = values(read(tmp_path, "qwen.py", RECIPE))
    expected = {
        "model": "qwen2.5-7b", "job": "pretrain", "gpus": 16, "layout.tp": 2, "train.seq_len": 4096,
        "train.global_batch": 32, "train.steps": 300, "precision": "bf16", "layout.zero": 1, "train.dropout": 0.0,
    }  # fmt: skip
    assert {key: found.get(key) for key in expected} == expected
