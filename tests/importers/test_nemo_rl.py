"""NeMo RL: recipes with those that they start from, both of its trainers, and what writes answers."""

from pathlib import Path

import pytest

from xe_sizer.interop.read import Imported, read_foreign
from xe_sizer.interop.source import Asked

# In the form of examples/configs/grpo_math_1B.yaml, with fewer keys.
BASE = """\
grpo:
  num_prompts_per_step: 32
  num_generations_per_prompt: 16
  max_num_epochs: 1
  max_num_steps: 1000000
  use_dynamic_sampling: false
  batch_multiplier: 1
  val_period: 10
  async_grpo: {enabled: false, max_trajectory_age_steps: 1, in_flight_weight_updates: false}
loss_fn: {reference_policy_kl_penalty: 0.01}
checkpointing: {enabled: true, save_period: 10}
policy:
  model_name: Qwen/Qwen2.5-1.5B
  train_global_batch_size: 512
  train_micro_batch_size: 4
  logprob_batch_size: ${policy.train_micro_batch_size}
  max_total_sequence_length: 512
  precision: bfloat16
  dtensor_cfg:
    enabled: true
    tensor_parallel_size: 1
    context_parallel_size: 1
    activation_checkpointing: false
    cpu_offload: false
    lora_cfg: {enabled: false, match_all_linear: true, dim: 8, alpha: 32, dropout: 0.0, target_modules: []}
  megatron_cfg:
    enabled: false
    activation_checkpointing: false
    recompute_granularity: full
    tensor_model_parallel_size: 1
    pipeline_model_parallel_size: 1
    expert_model_parallel_size: 1
    moe_permute_fusion: true
    empty_unused_memory_level: 1
    optimizer: {optimizer: adam, bf16: true, use_distributed_optimizer: true, optimizer_cpu_offload: false}
    fp8_cfg: {enabled: false, fp8: e4m3, fp8_recipe: blockwise}
  dynamic_batching: {enabled: false}
  sequence_packing:
    enabled: true
    train_mb_tokens: ${mul:${policy.max_total_sequence_length}, ${policy.train_micro_batch_size}}
  optimizer:
    name: torch.optim.AdamW
    kwargs: {lr: 5.0e-6}
  scheduler:
  - {name: LinearLR, kwargs: {total_iters: 50}}
  - milestones: [50]
  generation:
    backend: vllm
    max_new_tokens: ${policy.max_total_sequence_length}
    vllm_cfg: {tensor_parallel_size: 1, gpu_memory_utilization: 0.6, precision: "${policy.precision}"}
    colocated: {enabled: true, resources: {gpus_per_node: null, num_nodes: null}}
data: {train: {dataset_name: OpenMathInstruct-2, split_validation_size: 0.05}}
cluster: {gpus_per_node: 1, num_nodes: 1}
"""
CHILD = """\
defaults: ../base.yaml
grpo: {num_prompts_per_step: 64, num_generations_per_prompt: 32, max_num_steps: 500}
policy:
  model_name: meta-llama/Llama-3.1-8B-Instruct
  train_micro_batch_size: 1
  logprob_batch_size: 2
  max_total_sequence_length: 4096
  generation: {vllm_cfg: {tensor_parallel_size: 2}}
cluster: {gpus_per_node: 8, num_nodes: 2}
"""
APART = """\
defaults: child.yaml
grpo: {async_grpo: {enabled: true, in_flight_weight_updates: true}}
policy: {generation: {colocated: {enabled: false, resources: {gpus_per_node: 8, num_nodes: 1}}}}
"""
MEGATRON = """\
defaults: child.yaml
policy:
  optimizer: null
  dtensor_cfg: {enabled: false}
  megatron_cfg: {enabled: true, tensor_model_parallel_size: 2, pipeline_model_parallel_size: 2,
                 activation_checkpointing: true}
  generation: {vllm_cfg: {precision: fp8}}
"""


def written(tmp_path: Path, **recipes: str) -> Path:
    """The folder of the recipes that start from the base."""
    (tmp_path / "base.yaml").write_text(BASE)
    folder = tmp_path / "recipes"
    folder.mkdir(exist_ok=True)
    for name, text in ({"child": CHILD} | recipes).items():
        (folder / f"{name}.yaml").write_text(text)
    return folder


def imported(path: Path) -> Imported:
    found = read_foreign([path], Asked())
    assert found.tool.name == "nemo-rl"
    assert not found.unknown
    return found


def facts(found: Imported) -> dict[str, object]:
    return {key: fact.value for key, fact in found.facts.items() if not fact.aside}


def test_a_recipe_stands_over_the_one_that_it_starts_from(tmp_path: Path) -> None:
    found = imported(written(tmp_path) / "child.yaml")
    said = facts(found)
    assert (said["model"], said["job"], said["stack"]) == ("meta-llama/Llama-3.1-8B-Instruct", "grpo", "nemo-rl")
    assert (said["gpus"], said["train.global_batch"], said["train.micro_batch"]) == (16, 512, 1)
    assert (said["rollout.prompts"], said["rollout.group"], said["rollout.tp"]) == (64, 32, 2)
    assert (said["layout.zero"], said["layout.recompute"], said["train.padding"]) == (3, "none", "none")
    assert (said["train.steps"], said["train.checkpoint_every"], said["train.reference"]) == (500, 10, "copy")
    assert said["rollout.log_prob_micro_batch"] == 2
    assert "rollout.max_output_tokens" not in said  # a prompt and its answer share the sequence
    where = found.facts["train.global_batch"].where
    assert where is not None
    assert where.name.endswith("base.yaml")


def test_a_base_that_is_not_there_is_told(tmp_path: Path) -> None:
    path = tmp_path / "alone.yaml"
    path.write_text(CHILD)
    found = imported(path)
    assert [each.key for each in found.lost] == ["defaults"]
    assert facts(found)["train.global_batch"] == 512  # NeMo RL's own


def test_a_base_that_is_named_beside_fills_in_what_is_left(tmp_path: Path) -> None:
    folder = written(tmp_path, own=CHILD.replace("../base.yaml", "elsewhere.yaml"))
    said = facts(read_foreign([folder / "own.yaml", tmp_path / "base.yaml"], Asked()))
    assert (said["rollout.prompts"], said["train.checkpoint_every"]) == (64, 10)


def test_a_recipe_that_starts_from_itself_ends(tmp_path: Path) -> None:
    folder = written(tmp_path, child=CHILD.replace("../base.yaml", "child.yaml"))
    assert "defaults" in [each.key for each in imported(folder / "child.yaml").lost]


def test_values_lists_and_marked_groups_take_the_place_of_groups(tmp_path: Path) -> None:
    text = CHILD + "data: {train: {_override_: true, data_path: mine}}\n"
    text = text.replace("policy:\n", "policy:\n  optimizer: null\n  scheduler: [{name: ConstantLR}]\n")
    keys = imported(written(tmp_path, child=text) / "child.yaml").tool.keys
    from xe_sizer.interop.source import open_source

    found = keys(open_source(tmp_path / "recipes" / "child.yaml"))
    assert [name for name in found if name.startswith("policy.optimizer")] == ["policy.optimizer"]
    assert [name for name in found if name.startswith("policy.scheduler")] == ["policy.scheduler.0.name"]
    assert [name for name in found if name.startswith("data.train")] == ["data.train.data_path"]


def test_answers_on_gpus_of_their_own_are_taken_from_the_cluster(tmp_path: Path) -> None:
    said = facts(imported(written(tmp_path, apart=APART) / "apart.yaml"))
    assert (said["gpus"], said["rollout.gpus"]) == (16, 8)
    assert (said["rollout.asynchronous"], said["rollout.max_staleness"], said["rollout.partial"]) == (True, 1, True)
    one_node = APART.replace("num_nodes: 1", "num_nodes: null").replace("gpus_per_node: 8", "gpus_per_node: 2")
    one_node += "cluster: {num_nodes: 1}\n"
    said = facts(imported(written(tmp_path, apart=one_node) / "apart.yaml"))
    assert (said["gpus"], said["rollout.gpus"]) == (8, 2)


def test_megatron_has_its_own_arguments(tmp_path: Path) -> None:
    found = imported(written(tmp_path, megatron=MEGATRON) / "megatron.yaml")
    said = facts(found)
    assert (said["stack"], said["layout.tp"], said["layout.pp"], said["layout.zero"]) == ("nemo-rl-megatron", 2, 2, 1)
    assert (said["layout.recompute"], said["precision"], said["rollout.weights"]) == ("full", "bf16", "fp8")
    assert not found.lost  # the model has no experts, whose kernels the base sets
    modules = MEGATRON.replace("activation_checkpointing: true", "activation_checkpointing: true, "
                               "recompute_granularity: selective, recompute_modules: [mlp]")  # fmt: skip
    said = facts(imported(written(tmp_path, megatron=modules) / "megatron.yaml"))
    assert (said["layout.recompute"], said["layout.recompute_modules"]) == ("selective", ("mlp",))
    eight = MEGATRON.replace("enabled: true,", "enabled: true, fp8_cfg: {enabled: true, fp8_recipe: mxfp8},")
    said = facts(imported(written(tmp_path, megatron=eight) / "megatron.yaml"))
    assert (said["precision"], said["train.fp8_recipe"]) == ("fp8", "mxfp8")


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ("sequence_packing: {enabled: false}, dynamic_batching: {enabled: true, train_mb_tokens: 8192}",
         {"train.padding": "grouped-by-length", "train.micro_batch": 2}),
        ("sequence_packing: {enabled: false}", {"train.padding": "longest-in-global-batch", "train.micro_batch": 1}),
        ("dtensor_cfg: {cpu_offload: true, dp_replicate_size: 2}",
         {"layout.offload": "params", "layout.zero_group": 8}),
        ("dtensor_cfg: {lora_cfg: {enabled: true, dim: 128}}",
         {"job": "grpo", "lora.rank": 128, "lora.targets": ("all-linear",), "train.reference": "copy"}),
        ("generation: {backend: sglang, sglang_cfg: {tp_size: 4, mem_fraction_static: 0.7}}",
         {"rollout.engine": "sglang", "rollout.tp": 4, "rollout.gpu_memory_utilization": 0.7}),
    ],
)  # fmt: skip
def test_settings_of_the_policy(tmp_path: Path, change: str, wanted: dict[str, object]) -> None:
    text = f"defaults: child.yaml\npolicy: {{{change}}}\n"
    said = facts(imported(written(tmp_path, other=text) / "other.yaml"))
    assert {key: said.get(key) for key in wanted} == wanted


def test_other_jobs_have_sections_of_their_own(tmp_path: Path) -> None:
    pairs = """\
dpo: {max_num_epochs: 1, max_num_steps: 150, val_period: 25}
policy:
  {model_name: meta-llama/Llama-3.2-1B-Instruct, train_global_batch_size: 128, train_micro_batch_size: 2,
   max_total_sequence_length: 1024, precision: bfloat16, dtensor_cfg: {enabled: true},
   sequence_packing: {enabled: false}}
cluster: {gpus_per_node: 8}
"""
    path = tmp_path / "dpo.yaml"
    path.write_text(pairs)
    said = facts(imported(path))
    assert (said["job"], said["train.global_batch"], said["train.steps"], said["gpus"]) == ("dpo", 128, 150, 8)
    assert not [key for key in said if key.startswith("rollout.")]
    adapted = pairs.replace("dpo:", "sft:").replace("dtensor_cfg: {", "dtensor_cfg: {lora_cfg: {enabled: true}, ")
    path.write_text(adapted)
    assert facts(imported(path))["job"] == "lora"


def test_a_command_changes_the_recipe_that_it_names(tmp_path: Path) -> None:
    folder = written(tmp_path)
    script = folder / "run.sh"
    script.write_text(
        "STEPS=30\nuv run examples/run_grpo.py --config recipes/child.yaml grpo.max_num_steps=$STEPS \\\n"
        "  cluster.num_nodes=4 ++policy.generation.vllm_kwargs.max_num_seqs=64 2>&1 | tee log\n"
    )
    said = facts(imported(script))
    assert (said["train.steps"], said["gpus"], said["rollout.max_sequences"]) == (30, 32, 64)


RATED = """\
defaults: child.yaml
data: {default: {env_name: reward_model}}
env:
  reward_model:
    {model_name: Qwen/Qwen3-8B, resources: {gpus_per_node: 4, num_nodes: 1}, dtensor_cfg: {tensor_parallel_size: 2}}
"""


def test_a_reward_model_has_gpus_of_the_cluster(tmp_path: Path) -> None:
    folder = written(tmp_path, other=RATED, one=f"{RATED}cluster: {{num_nodes: 1}}\n")
    said = facts(imported(folder / "other.yaml"))
    assert (said["train.reward_model"], said["reward.gpus"], said["reward.tp"]) == ("Qwen/Qwen3-8B", 4, 2)
    assert said["gpus"] == 8 + 4  # of the second node the rest stands idle
    said = facts(imported(folder / "one.yaml"))
    assert (said["gpus"], said["reward.gpus"]) == (4 + 4, 4)


def test_a_teacher_has_gpus_of_the_cluster(tmp_path: Path) -> None:
    own = "in_flight_weight_updates: true}, adv_estimator: {name: opd}"
    text = APART.replace("in_flight_weight_updates: true}", own) + (
        "cluster: {num_nodes: 4}\n"
        "on_policy_distillation:\n"
        "  enabled: true\n"
        "  teacher_model_by_agent_name: {default_teacher: Qwen/Qwen3-32B}\n"
        "  non_colocated_teachers:\n"
        "    {enabled: true, default_teacher_cfg: {tensor_model_parallel_size: 4, num_nodes: 1, gpus_per_node: 8}}\n"
    )
    said = facts(imported(written(tmp_path, other=text) / "other.yaml"))
    assert (said["job"], said["train.teacher_model"], said["train.teacher_top_k"]) == (
        "distill-on-policy", "Qwen/Qwen3-32B", 1,
    )  # fmt: skip
    assert (said["gpus"], said["rollout.gpus"], said["teacher.gpus"], said["teacher.tp"]) == (32, 8, 8, 4)


def test_slips_of_keys_are_told(tmp_path: Path) -> None:
    text = "defaults: child.yaml\ngrpo: {num_prompt_per_step: 8}\npolicy: {dtensor_cfg: {tensor_paralel_size: 2}}\n"
    folder = written(tmp_path, slip=text)
    found = read_foreign([folder / "slip.yaml"], Asked())
    assert {each.near for each in found.unknown} == {
        "grpo.num_prompts_per_step",
        "policy.dtensor_cfg.tensor_parallel_size",
    }
