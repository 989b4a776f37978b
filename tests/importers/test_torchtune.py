"""Configurations and commands of torchtune."""

from pathlib import Path

import pytest

from xe_sizer.interop.read import Imported, read_foreign
from xe_sizer.interop.source import Asked
from xe_sizer.interop.tools.torchtune import catalogue_name

BASE = """
output_dir: /out/run
model:
  _component_: torchtune.models.BUILDER
tokenizer:
  _component_: torchtune.models.llama3.llama3_tokenizer
  path: ${output_dir}/tokenizer.model
  max_seq_len: 4096
batch_size: 2
gradient_accumulation_steps: 8
epochs: 1
optimizer:
  _component_: torch.optim.AdamW
loss:
  _component_: torchtune.modules.loss.LinearCrossEntropyLoss
dtype: bf16
"""


def read(folder: Path, builder: str, more: str = "", name: str = "job.yaml") -> Imported:
    path = folder / name
    path.write_text(BASE.replace("BUILDER", builder) + more)
    return read_foreign([path], Asked())


@pytest.mark.parametrize(
    ("builder", "name"),
    [
        ("qwen2_0_5b", "qwen2-0.5b"), ("qwen2_5_0_5b", "qwen2.5-0.5b"), ("qwen2_5_7b_instruct", "qwen2.5-7b"),
        ("llama3_70b", "llama-3-70b"), ("llama3_2_1b", "llama-3.2-1b"), ("mistral_7b", "mistral-7b-v0.1"),
        ("llama4_scout_17b_16e", "llama-4-scout-17b-16e"), ("gemma2_27b", "gemma-2-27b"), ("llama2", None),
    ],
)  # fmt: skip
def test_builders_by_the_names_of_the_catalogue(builder: str, name: str | None) -> None:
    assert catalogue_name(builder) == name


def test_all_weights_over_several_gpus(tmp_path: Path) -> None:
    found = read(tmp_path, "llama3_1.llama3_1_8b", "enable_activation_checkpointing: true\nfsdp_cpu_offload: true\n")
    facts = {key: fact.value for key, fact in found.facts.items()}
    assert facts["model"] == "llama-3.1-8b"
    assert facts["job"] == "sft"
    assert (facts["layout.zero"], facts["layout.recompute"], facts["layout.offload"]) == (3, "full", "params")
    assert (facts["train.weights_dtype"], facts["loss"], facts["train.seq_len"]) == ("bf16", "fused", 4096)
    assert [each.key for each in found.missing] == ["gpus"]
    assert not found.unknown


def test_adapters_on_quantised_weights_on_one_gpu(tmp_path: Path) -> None:
    more = """
compile: true
"""
    builder = "llama2.qlora_llama2_7b\n  lora_attn_modules: [q_proj, output_proj]\n  apply_lora_to_mlp: true"
    found = read(tmp_path, builder, more, "7B_qlora_single_device.yaml")
    facts = {key: fact.value for key, fact in found.facts.items()}
    assert (facts["job"], facts["train.bits"], facts["train.quantiser"]) == ("qlora", 4, "torchao")
    assert facts["lora.targets"] == ("q_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    assert (facts["gpus"], facts["layout.zero"], facts["lora.rank"]) == (1, 0, 8)
    assert [each.key for each in found.lost] == ["compile"]


@pytest.mark.parametrize(("loss", "job"), [("DPOLoss", "dpo"), ("SimPOLoss", "simpo"), ("PPOLoss", "ppo")])
def test_preferences_by_the_loss(tmp_path: Path, loss: str, job: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(
        BASE.replace("BUILDER", "llama3.lora_llama3_8b").replace("modules.loss.LinearCrossEntropyLoss", f"rlhf.{loss}")
    )
    assert read_foreign([path], Asked()).facts["job"].value == job


def test_layers_of_which_every_second_is_recomputed(tmp_path: Path) -> None:
    facts = read(tmp_path, "llama3.llama3_8b", "ac_mode: selective\nac_option: 2\n").facts
    assert (facts["layout.recompute"].value, facts["layout.recompute_layers"].value) == ("full", 16)


def test_a_model_of_a_shape_of_its_own(tmp_path: Path) -> None:
    shape = "llama2.llama2\n  num_layers: 3\n  embed_dim: 96\n  num_heads: 2\n  vocab_size: 777\n  num_kv_heads: 2"
    facts = read(tmp_path, shape).facts
    assert (facts["model.layers"].value, facts["model.hidden"].value) == (3, 96)


def test_a_command_with_its_configuration(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(BASE.replace("BUILDER", "llama3.lora_llama3_8b"))
    script = tmp_path / "run.sh"
    script.write_text("tune run --nproc_per_node 4 lora_finetune_distributed --config own.yaml batch_size=6\n")
    facts = read_foreign([script], Asked()).facts
    assert (facts["gpus"].value, facts["train.micro_batch"].value, facts["job"].value) == (4, 6, "lora")


def test_a_command_whose_configuration_is_not_there(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("tune run full_finetune_single_device --config llama3/8B_full batch_size=6\n")
    found = read_foreign([script], Asked())
    assert found.facts["gpus"].value == 1
    assert "model" in {each.key for each in found.missing}


def test_references_that_lead_nowhere(tmp_path: Path) -> None:
    found = read(tmp_path, "llama3.llama3_8b", "profiler:\n  a: ${profiler.a}\nsave_every_n_steps: ${nowhere}\n")
    assert "train.checkpoint_every" not in found.facts


# As recipes/configs/dev/qwen3B_sync_grpo.yaml and qwen3B_async_grpo.yaml of torchtune have it, with fewer keys.
IN_TURN = """
model: {_component_: torchtune.models.qwen2_5.qwen2_5_3b}
tokenizer: {_component_: torchtune.models.qwen2_5.qwen2_5_tokenizer, max_seq_len: 1024}
batch_size: 2
grpo_samples: 16
forward_batch_size: 1
max_generated_tokens: 512
ppo_epochs: 1
num_steps: 200
optimizer: {_component_: torch.optim.AdamW, fused: true}
loss: {_component_: torchtune.dev.grpo.loss.GRPOSimpleLoss, kl_coeff: 0.01}
enable_activation_checkpointing: true
dtype: bf16
"""
APART = """
model: {_component_: torchtune.models.qwen2_5.qwen2_5_3b}
tokenizer: {_component_: torchtune.models.qwen2_5.qwen2_5_tokenizer, max_seq_len: 1024}
orchestration: {num_inference_workers: 4, num_postprocessing_workers: 1, num_training_workers: 2, num_steps: 250}
inference: {engine: vllm, tensor_parallel_dim: 1, max_generated_tokens: 512, batch_size: 1, group_size: 16,
            total_batch_size: "${eval:'1 * 16'}"}
training:
  batch_size: 16
  ppo_epochs: 1
  enable_activation_checkpointing: true
  enable_activation_offloading: true
  steps_before_weight_sync: 2
  optimizer: {_component_: torch.optim.AdamW}
  loss: {_component_: torchtune.dev.rl.linear_grpo_loss.LinearGRPOLoss}
"""


def test_answers_in_turn_with_the_training(tmp_path: Path) -> None:
    path = tmp_path / "grpo.yaml"
    path.write_text(IN_TURN)
    found = read_foreign([path], Asked(hardware={"gpus": 8}))
    facts = {key: fact.value for key, fact in found.facts.items()}
    assert (facts["job"], facts["layout.zero"], facts["train.micro_batch"], facts["train.global_batch"]) == (
        "grpo", 2, 32, 256
    )  # fmt: skip
    assert (facts["rollout.prompts"], facts["rollout.group"], facts["rollout.max_sequences"]) == (16, 16, 16)
    assert (facts["rollout.engine"], facts["train.seq_len"], facts["train.steps"]) == ("hf-transformers", 1536, 200)
    assert not found.lost


def test_answers_on_workers_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "grpo.yaml"
    path.write_text(APART)
    found = read_foreign([path], Asked())
    facts = {key: fact.value for key, fact in found.facts.items()}
    assert (facts["gpus"], facts["rollout.gpus"], facts["rollout.asynchronous"]) == (6, 4, True)
    assert (facts["train.micro_batch"], facts["train.global_batch"], facts["rollout.prompts"]) == (16, 32, 4)
    assert (facts["layout.recompute"], facts["layout.offload"], facts["train.steps"]) == ("full", "activations", 125)
    assert [each.key for each in found.lost] == ["orchestration.num_postprocessing_workers"]
    assert not found.unknown
