"""Files of preference and reinforcement learning: what they say of answers, and that scenarios of them run."""

from __future__ import annotations

from pathlib import Path

import pytest

from xe_sizer.cli.main import main
from xe_sizer.interop.read import Imported, read_foreign
from xe_sizer.interop.source import Asked

MODEL = "Qwen/Qwen2.5-0.5B"
SWIFT = f"""\
NPROC_PER_NODE=4 swift rlhf --rlhf_type grpo --model {MODEL} --tuner_type full --per_device_train_batch_size 4 \\
  --gradient_accumulation_steps 4 --num_generations 8 --max_length 1024 --max_completion_length 2048 --use_vllm true \\
  --vllm_mode colocate --vllm_gpu_memory_utilization 0.5 --sleep_level 1 --offload_optimizer true
"""
AXOLOTL = f"""\
base_model: {MODEL}
datasets: [{{path: x}}]
rl: grpo
sequence_len: 512
micro_batch_size: 4
gradient_accumulation_steps: 4
num_epochs: 1
trl: {{num_generations: 8, max_completion_length: 1024, use_vllm: true, beta: 0.01}}
vllm: {{tensor_parallel_size: 1, data_parallel_size: 2, gpu_memory_utilization: 0.85}}
"""
FACTORY = f"""\
model_name_or_path: {MODEL}
stage: ppo
finetuning_type: lora
reward_model: saves/reward
cutoff_len: 2048
max_new_tokens: 512
per_device_train_batch_size: 2
gradient_accumulation_steps: 4
ppo_buffer_size: 2
dataset: x
template: qwen
bf16: true
"""
MEGATRON = f"""\
torchrun --nproc_per_node 8 train_rl.py --num-layers 24 --hidden-size 896 --num-attention-heads 14 \\
  --group-query-attention --num-query-groups 2 --ffn-hidden-size 4864 --swiglu --normalization RMSNorm \\
  --seq-length 4096 --max-position-embeddings 32768 --micro-batch-size 1 --global-batch-size 128 --bf16 \\
  --use-mcore-models --tokenizer-type HuggingFaceTokenizer --tokenizer-model {MODEL} --train-iters 10 \\
  --vocab-size 151936 --perform-rl-step \\
  --grpo-prompts-per-step 16 --grpo-group-size 8 --grpo-iterations 1 --grpo-kl-beta 0
"""
PREFERENCES = f"""\
model_name_or_path: {MODEL}
dataset_name: x
loss_type: sigmoid
precompute_ref_log_probs: true
max_length: 1024
per_device_train_batch_size: 2
"""
FILES = {
    "swift.sh": SWIFT, "axolotl.yml": AXOLOTL, "factory.yaml": FACTORY, "megatron.sh": MEGATRON,
    "dpo.yaml": PREFERENCES,
}  # fmt: skip


def read(folder: Path, name: str, text: str = "") -> Imported:
    path = folder / name
    path.write_text(text or FILES[name])
    return read_foreign([path], Asked(hardware={"gpus": 4}))


def said(folder: Path, name: str, text: str = "") -> dict[str, object]:
    return {key: fact.value for key, fact in read(folder, name, text).facts.items()}


@pytest.mark.parametrize("name", FILES)
def test_a_scenario_of_the_file_runs(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / name
    path.write_text(FILES[name])
    assert main(["estimate", str(path), "--gpus", "4", "--gpu", "h100-sxm-80gb"]) in (0, 1), capsys.readouterr().err


def test_ms_swift_counts_prompts_and_answers_apart(tmp_path: Path) -> None:
    found = said(tmp_path, "swift.sh")
    assert (found["train.seq_len"], found["rollout.max_output_tokens"]) == (1024 + 2048, 2048)
    assert found["rollout.prompts"] == 4 * 4 * 4 // 8
    assert (found["rollout.sleep"], found["rollout.offload"]) == ("weights-to-host", "optimizer")
    assert (found["rollout.gpu_memory_utilization"], found["train.reference"]) == (0.5, "copy")


def test_a_server_beside_axolotl_has_gpus_of_its_own(tmp_path: Path) -> None:
    found = said(tmp_path, "axolotl.yml")
    assert (found["rollout.gpus"], found["rollout.tp"], found["rollout.colocated"]) == (2, 1, False)
    assert found["rollout.prompts"] == 4 * 4 * 2 // 8  # of the two GPUs that train
    assert (found["train.seq_len"], found["train.reference"]) == (512 + 1024, "copy")
    assert said(tmp_path, "axolotl.yml", AXOLOTL.replace("grpo", "dpo") + "precompute_ref_log_probs: true\n")[
        "train.reference"
    ] == "precomputed"  # fmt: skip


def test_answers_of_llama_factory_fill_a_buffer(tmp_path: Path) -> None:
    found = said(tmp_path, "factory.yaml")
    assert (found["rollout.prompts"], found["rollout.group"], found["rollout.updates"]) == (2 * 4 * 4 * 2, 1, 4)
    assert (found["rollout.max_output_tokens"], found["train.reference"]) == (512, "adapters-off")
    assert "adapters" in next(each.why for each in read(tmp_path, "factory.yaml").lost if each.key == "reward_model")
    api = FACTORY.replace("saves/reward", "http://localhost:8000\nreward_model_type: api")
    assert said(tmp_path, "factory.yaml", api)["train.reward_model"] == "none"


def test_a_reference_by_name_is_a_copy_beside_adapters(tmp_path: Path) -> None:
    text = FACTORY.replace("stage: ppo", f"stage: dpo\nref_model: {MODEL}")
    assert said(tmp_path, "factory.yaml", text)["train.reference"] == "copy"


def test_megatron_is_told_prompts_and_groups(tmp_path: Path) -> None:
    found = said(tmp_path, "megatron.sh")
    assert (found["rollout.prompts"], found["rollout.group"], found["rollout.updates"]) == (16, 8, 1)
    assert found["train.reference"] == "none"
    usual = said(tmp_path, "megatron.sh", MEGATRON.replace(" --grpo-iterations 1 --grpo-kl-beta 0", ""))
    assert (usual["rollout.updates"], usual["train.reference"]) == (2, "copy")
