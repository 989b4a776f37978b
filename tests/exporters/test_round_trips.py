"""Configurations of tools that are imported, exported to the same tool and imported again: the same scenario."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from xe_sizer.cli.command import answer_to
from xe_sizer.cli.export import exported_plan
from xe_sizer.cli.read_back import differences, other_estimate, read_back
from xe_sizer.interop.read import Imported, read_foreign
from xe_sizer.interop.source import Asked
from xe_sizer.interop.write import exporter_named, is_elsewhere
from xe_sizer.profiles.catalogue import Registry
from xe_sizer.scenario.read import read_scenario

AXOLOTL_LORA = """\
base_model: meta-llama/Llama-3.1-8B
adapter: lora
lora_r: 16
lora_alpha: 32
lora_dropout: 0.05
lora_target_modules: [q_proj, v_proj]
lora_modules_to_save: [embed_tokens, lm_head]
sequence_len: 4096
sample_packing: true
micro_batch_size: 2
gradient_accumulation_steps: 4
num_epochs: 2
optimizer: paged_adamw_8bit
gradient_checkpointing: true
plugins: [axolotl.integrations.liger.LigerPlugin]
liger_rope: true
liger_rms_norm: true
liger_fused_linear_cross_entropy: true
save_steps: 200
eval_steps: 100
"""
AXOLOTL_EIGHT_BITS = """\
base_model: Qwen/Qwen2.5-7B
adapter: lora
load_in_8bit: true
lora_r: 8
lora_alpha: 16
lora_target_linear: true
sequence_len: 2048
micro_batch_size: 4
max_steps: 300
group_by_length: true
flash_attention: true
plugins: [axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin]
cut_cross_entropy: true
"""
AXOLOTL_FSDP = """\
base_model: Qwen/Qwen2.5-7B
sequence_len: 2048
sample_packing: true
micro_batch_size: 1
gradient_accumulation_steps: 8
num_epochs: 1
optimizer: adamw_torch_fused
bf16: true
gradient_checkpointing: true
attn_implementation: flash_attention_2
fsdp_version: 2
fsdp_config:
  offload_params: true
  auto_wrap_policy: TRANSFORMER_BASED_WRAP
  reshard_after_forward: true
"""
LLAMA_FACTORY_FSDP = """\
model: Qwen/Qwen3-4B
model_class: llm
template: qwen3
train_dataset: data/sft.yaml
kernel_config: {name: auto}
dist_config: {name: fsdp2, reshard_after_forward: false}
cutoff_len: 2048
micro_batch_size: 2
num_train_epochs: 1
bf16: true
flash_attn: flash_attention_2
enable_activation_checkpointing: true
"""
LLAMA_FACTORY_FULL = """\
model_name_or_path: Qwen/Qwen2.5-7B
stage: sft
finetuning_type: full
dataset: alpaca_en_demo
template: qwen
cutoff_len: 2048
per_device_train_batch_size: 1
gradient_accumulation_steps: 2
num_train_epochs: 3.0
pure_bf16: true
use_galore: true
galore_rank: 128
enable_liger_kernel: true
flash_attn: fa2
save_strategy: "no"
"""
LLAMA_FACTORY_DPO = """\
model_name_or_path: meta-llama/Llama-3.1-8B
stage: dpo
finetuning_type: lora
lora_rank: 8
lora_alpha: 16
lora_dropout: 0.1
lora_target: q_proj,v_proj
additional_target: embed_tokens
pref_beta: 0.1
pref_loss: sigmoid
dataset: dpo_en_demo
template: llama3
cutoff_len: 2048
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
num_train_epochs: 1
bf16: true
optim: lion_32bit
eval_strategy: steps
eval_steps: 250
"""
TRL_FSDP = """\
model_name_or_path: Qwen/Qwen2.5-7B
dataset_name: trl-lib/Capybara
max_length: 2048
per_device_train_batch_size: 1
gradient_accumulation_steps: 4
max_steps: 100
bf16: true
gradient_checkpointing: true
fsdp: true
fsdp_config: {version: 2, reshard_after_forward: true, cpu_offload: true}
"""
TRL_SFT = """\
model_name_or_path: Qwen/Qwen2.5-7B
dataset_name: trl-lib/Capybara
use_peft: true
lora_r: 32
lora_alpha: 64
lora_dropout: 0.1
lora_target_modules: all-linear
load_in_4bit: true
max_length: 2048
packing: true
per_device_train_batch_size: 2
gradient_accumulation_steps: 8
num_train_epochs: 1
use_liger_kernel: true
bf16: true
gradient_checkpointing: true
eval_strategy: steps
eval_steps: 100
"""
TORCHTUNE = """\
output_dir: /tmp/lora
model:
  _component_: torchtune.models.llama3_1.lora_llama3_1_8b
  lora_attn_modules: [q_proj, v_proj, output_proj]
  apply_lora_to_mlp: true
  lora_rank: 8
  lora_alpha: 16
  lora_dropout: 0.05
tokenizer: {_component_: torchtune.models.llama3.llama3_tokenizer, path: /tmp/tokenizer.model, max_seq_len: 4096}
dataset: {_component_: torchtune.datasets.alpaca_cleaned_dataset, packed: true}
batch_size: 2
gradient_accumulation_steps: 8
epochs: 3
save_every_n_steps: 500
optimizer: {_component_: torch.optim.AdamW, fused: true, lr: 3e-4}
loss: {_component_: torchtune.modules.loss.LinearCrossEntropyLoss}
enable_activation_checkpointing: true
enable_activation_offloading: true
dtype: bf16
"""
TORCHTITAN = """\
[model]
name = "llama3"
flavor = "8B"
[optimizer]
name = "AdamW"
lr = 3e-4
[training]
local_batch_size = 1
seq_len = 8192
steps = 1000
[parallelism]
data_parallel_shard_degree = -1
fsdp_reshard_after_forward = "never"
tensor_parallel_degree = 2
[activation_checkpoint]
mode = "selective"
[compile]
enable = false
"""
MEGATRON_SHAPE = """\
#!/bin/bash
torchrun --nnodes 1 --nproc_per_node 8 pretrain_gpt.py \\
  --num-layers 24 --hidden-size 2048 --num-attention-heads 16 --ffn-hidden-size 5504 --swiglu \\
  --seq-length 4096 --max-position-embeddings 4096 --position-embedding-type rope --rotary-base 50000 \\
  --normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights \\
  --tokenizer-type NullTokenizer --vocab-size 50000 \\
  --micro-batch-size 2 --global-batch-size 64 --train-iters 500 --lr 3e-4 --bf16 \\
  --tensor-model-parallel-size 2 --sequence-parallel --use-distributed-optimizer \\
  --recompute-granularity selective --hidden-dropout 0 --attention-dropout 0 --async-save --save out --save-interval 100
"""
NEMO = """\
recipe: TrainFinetuneRecipeForNextTokenPrediction
step_scheduler: {global_batch_size: 64, local_batch_size: 1, num_epochs: 2, ckpt_every_steps: 500, val_every_steps: 100}
model:
  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained
  pretrained_model_name_or_path: meta-llama/Llama-3.2-1B
peft:
  _target_: nemo_automodel.components._peft.lora.PeftConfig
  match_all_linear: true
  dim: 8
  alpha: 32
  dropout: 0.1
distributed: {strategy: fsdp2, tp_size: 1, cp_size: 1}
loss_fn: {_target_: nemo_automodel.components.loss.masked_ce.MaskedCrossEntropy}
dataset: {_target_: nemo_automodel.components.datasets.llm.squad.make_squad_dataset, seq_length: 2048}
validation_dataset: {_target_: nemo_automodel.components.datasets.llm.squad.make_squad_dataset}
packed_sequence: {packed_sequence_size: 2048}
optimizer: {_target_: torch.optim.AdamW, lr: 1.0e-5}
"""
VERL = """\
python3 -m verl.trainer.main_ppo \\
  algorithm.adv_estimator=grpo \\
  data.train_files=gsm8k.parquet data.train_batch_size=128 data.max_prompt_length=512 data.max_response_length=1024 \\
  actor_rollout_ref.model.path=Qwen/Qwen2.5-7B \\
  actor_rollout_ref.model.enable_gradient_checkpointing=True actor_rollout_ref.model.use_remove_padding=True \\
  actor_rollout_ref.model.lora_rank=32 actor_rollout_ref.model.lora_alpha=64 \\
  actor_rollout_ref.model.target_modules=all-linear \\
  actor_rollout_ref.actor.ppo_mini_batch_size=64 actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4 \\
  actor_rollout_ref.actor.use_kl_loss=True \\
  actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.n=8 \\
  actor_rollout_ref.rollout.tensor_model_parallel_size=2 actor_rollout_ref.rollout.gpu_memory_utilization=0.6 \\
  trainer.n_gpus_per_node=8 trainer.nnodes=1 trainer.test_freq=5 trainer.save_freq=20 trainer.total_epochs=15
"""
VLLM = """\
vllm serve meta-llama/Llama-3.1-8B --tensor-parallel-size 2 --max-model-len 8192 --max-num-seqs 128 \\
  --gpu-memory-utilization 0.85 --kv-cache-dtype fp8
"""
SGLANG = """\
python3 -m sglang.launch_server --model-path Qwen/Qwen3-8B --tp-size 2 --context-length 16384 \\
  --mem-fraction-static 0.8 --max-running-requests 64
"""
FILES = {
    "adapters of some modules": ("axolotl", "job.yml", AXOLOTL_LORA),
    "frozen weights in 8 bits": ("axolotl", "job.yml", AXOLOTL_EIGHT_BITS),
    "FSDP with weights in host memory": ("axolotl", "job.yml", AXOLOTL_FSDP),
    "FSDP that keeps gathered weights": ("llama-factory", "job.yaml", LLAMA_FACTORY_FSDP),
    "FSDP of transformers": ("trl", "job.yaml", TRL_FSDP),
    "pure bfloat16 and GaLore": ("llama-factory", "job.yaml", LLAMA_FACTORY_FULL),
    "preferences": ("llama-factory", "job.yaml", LLAMA_FACTORY_DPO),
    "QLoRA": ("trl", "job.yaml", TRL_SFT),
    "activations in host memory": ("torchtune", "job.yaml", TORCHTUNE),
    "gathered weights that stay": ("torchtitan", "job.toml", TORCHTITAN),
    "a shape of its own": ("megatron-lm", "job.sh", MEGATRON_SHAPE),
    "evaluations": ("nemo-automodel", "job.yaml", NEMO),
    "answers": ("verl", "job.sh", VERL),
    "a service of vLLM": ("vllm", "job.sh", VLLM),
    "a service of SGLang": ("sglang", "job.sh", SGLANG),
}


def said(imported: Imported) -> dict[str, Any]:
    """What goes into the scenario or follows from it, but for the hardware and what no file of a tool says."""
    follows = ("train.grad_accum",)  # where global batch and micro-batch are said
    said = {key: fact for key, fact in imported.facts.items() if not fact.aside or key in follows}
    return {key: fact.written for key, fact in said.items() if not is_elsewhere(key)}


@pytest.mark.parametrize("name", FILES)
def test_a_configuration_comes_back_as_the_same_scenario(name: str, tmp_path: Path) -> None:
    tool, file, text = FILES[name]
    path, registry = tmp_path / file, Registry()
    path.write_text(text)
    first = read_foreign([path], Asked(hardware={"gpus": 8}))
    assert (first.missing, first.unknown) == ([], [])
    scenario = read_scenario(path, {}, {}, lambda _: first.document())
    answer = answer_to(scenario, registry)
    plan, exported = exported_plan(exporter_named(tool), scenario, answer, registry)
    second = read_back(exported, exporter_named(tool), {"gpus": 8})
    assert second is not None
    assert exported.unsaid == ()
    read, again = said(first), said(second)
    assert {key: again.get(key) for key in read} == read
    assert list(differences(plan, exported, second, registry)) == []
    assert other_estimate(second, scenario, answer, registry) is None
