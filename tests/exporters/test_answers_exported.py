"""Reinforcement learning and preferences for tools that do them: what each is told, is read back, or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xe_sizer.errors import InputError
from xe_sizer.interop.read import Imported, read_foreign
from xe_sizer.interop.source import Asked
from xe_sizer.interop.write import Exported, Plan, export, exporter_named

PLAN: dict[str, Any] = {
    "model": "Qwen/Qwen2.5-7B", "job": "grpo", "precision": "bf16", "optimizer": "adamw", "train.seq_len": 3072,
    "train.micro_batch": 2, "train.grad_accum": 16, "train.global_batch": 512, "train.steps": 50,
    "train.reference": "copy", "layout.zero": 3, "layout.recompute": "full", "rollout.prompts": 128, "rollout.group": 8,
    "rollout.max_output_tokens": 2048, "rollout.engine": "vllm", "rollout.tp": 2, "gpus": 16, "nodes": 2,
    "gpus_per_node": 8,
}  # fmt: skip
TOOLS = ("verl", "nemo-rl", "openrlhf", "trl", "ms-swift")
answers = st.fixed_dictionaries(
    {
        "job": st.sampled_from(["grpo", "grpo", "ppo"]),
        "train.seq_len": st.sampled_from([3072, 10_240]),
        "train.micro_batch": st.sampled_from([1, 4]),
        "train.reference": st.sampled_from(["none", "copy"]),
        "train.reward_model": st.sampled_from(["none", None]),
        "layout.cp": st.sampled_from([1, 2]),
        "layout.zero": st.sampled_from([0, 1, 2, 3]),
        "layout.tp": st.sampled_from([1, 4]),
        "layout.ep": st.sampled_from([1, 2]),
        "layout.recompute": st.sampled_from(["none", "selective", "full"]),
        "layout.offload": st.sampled_from(["none", "params", "activations"]),
        "rollout.group": st.sampled_from([4, 16]),
        "rollout.updates": st.sampled_from([1, 2]),
        "rollout.tp": st.sampled_from([1, 2]),
        "rollout.gpus": st.sampled_from([None, 8]),
        "rollout.sleep": st.sampled_from(["none", "weights-dropped"]),
        "rollout.offload": st.sampled_from(["none", "optimizer", "params"]),
        "rollout.gpu_memory_utilization": st.sampled_from([0.5, 0.85]),
        "rollout.engine": st.sampled_from(["vllm", "sglang", "hf-transformers"]),
    }
)


def exported(tool: str, plan: dict[str, Any]) -> Exported:
    return export(Plan({key: value for key, value in plan.items() if value is not None}), exporter_named(tool))


def read_back(tool: str, found: Exported, plan: dict[str, Any], folder: Path) -> Imported:
    path = folder / f"job{exporter_named(tool).ending}"
    path.write_text(found.written.text)
    for name, text in found.written.beside.items():
        (folder / name).write_text(text)
    return read_foreign([path], Asked(hardware={"gpus": plan["gpus"]} if tool == "trl" else {}))


def check(tool: str, plan: dict[str, Any], folder: Path) -> None:
    """All that a tool says of a plan comes back."""
    found = exported(tool, plan)
    again = read_back(tool, found, plan, folder)
    unsaid = {key for key, _ in found.unsaid}
    usual = {
        "layout.tp": 1, "layout.ep": 1, "layout.cp": 1, "layout.offload": "none", "rollout.sleep": "none",
        "train.reference": "copy",
    }  # fmt: skip
    of_engine = {"rollout.tp", "rollout.gpu_memory_utilization", "rollout.sleep", "rollout.offload", "train.seq_len"}
    for key in (key for key in exporter_named(tool).says if plan.get(key) is not None and key not in unsaid):
        if key in of_engine and plan["rollout.engine"] == "hf-transformers":
            continue  # the trainer's own model writes, whose prompts are as long as they are
        fact = again.facts.get(key)
        value = fact.written if fact else usual.get(key)
        assert (list(value) if isinstance(value, tuple) else value) == plan[key], f"{tool}, {key}"
    assert not again.unknown, [each.key for each in again.unknown]
    assert not again.missing


@pytest.mark.parametrize("tool", TOOLS)
@settings(max_examples=60, deadline=None)
@given(values=answers)
def test_a_plan_of_answers_is_read_back(
    tool: str, values: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    plan = PLAN | values
    ranks = plan["gpus"] // (plan["layout.tp"] * plan["layout.cp"])
    plan["train.grad_accum"] = plan["train.global_batch"] // (plan["train.micro_batch"] * ranks)
    try:
        exported(tool, plan)
    except InputError:
        return  # what each refuses is in the tests below
    check(tool, plan, tmp_path_factory.mktemp("plan"))


PLANS: dict[str, tuple[dict[str, Any], ...]] = {
    "verl": (
        {},
        {"job": "ppo", "rollout.group": 1, "rollout.prompts": 512},
        {"layout.zero": 1, "layout.tp": 4},
        {"rollout.gpus": 8, "rollout.asynchronous": True, "rollout.max_staleness": 1},
        {"rollout.gpus": 8, "rollout.asynchronous": True, "rollout.max_staleness": 2, "rollout.partial": True},
        {"rollout.gpus": 8, "rollout.asynchronous": False, "layout.zero": 1, "layout.tp": 4},
        {"gpus": 8, "nodes": 1, "rollout.gpus": 6, "rollout.asynchronous": True, "job": "ppo", "rollout.group": 1},
        {"train.reward_model": "Qwen/Qwen3-8B", "gpus": 24, "nodes": 3, "reward.gpus": 8, "reward.engine": "sglang",
         "reward.tp": 4},
        {"job": "distill-on-policy", "train.teacher_model": "Qwen/Qwen3-32B", "train.reference": "none", "gpus": 24,
         "nodes": 3, "teacher.gpus": 8, "teacher.tp": 4, "teacher.engine": "vllm", "train.teacher_top_k": 32,
         "rollout.group": 1},
        {"environment.turns": 4, "environment.turn_tokens": 64},
        {"train.fused_kernels": ["rotary", "norm", "activation", "linear-log-probabilities"]},
    ),
    "nemo-rl": (
        {},
        {"rollout.gpus": 8, "rollout.asynchronous": True, "rollout.max_staleness": 2, "rollout.partial": True,
         "rollout.sleep": "none"},
        {"layout.zero": 1, "layout.tp": 4, "layout.pp": 2, "layout.recompute": "selective",
         "layout.recompute_modules": ["mlp"], "rollout.max_sequences": 64},
        {"job": "ppo", "train.reward_model": "none", "rollout.updates": 2, "rollout.log_prob_micro_batch": 8},
        {"job": "distill-on-policy", "train.teacher_model": "Qwen/Qwen3-32B", "train.reference": "none",
         "train.teacher_top_k": 32},
        {"rollout.oversampling": 2},
        {"job": "distill-on-policy", "train.teacher_model": "Qwen/Qwen3-32B", "train.reference": "none", "gpus": 32,
         "nodes": 4, "teacher.gpus": 8, "teacher.tp": 4, "train.teacher_top_k": 1, "rollout.gpus": 8,
         "rollout.asynchronous": True, "rollout.max_staleness": 1},
        {"train.reward_model": "Qwen/Qwen3-8B", "gpus": 24, "nodes": 3, "reward.gpus": 8, "reward.tp": 2},
        {"job": "ppo", "train.reward_model": "Qwen/Qwen3-8B", "gpus": 8, "nodes": 1, "reward.gpus": 2},
    ),
    "openrlhf": (
        {"rollout.sleep": "weights-to-host", "rollout.offload": "optimizer", "train.padding": "none"},
        {"rollout.gpus": 8, "train.reference": "none"},
        {"job": "ppo", "rollout.gpus": 8, "rollout.asynchronous": True, "rollout.max_staleness": 2, "layout.zero": 2},
        {"job": "ppo", "gpus": 32, "nodes": 4, "rollout.gpus": 8, "critic.gpus": 8, "reward.gpus": 4,
         "reference.gpus": 4},
        {"job": "ppo", "gpus": 24, "nodes": 3, "rollout.gpus": 8, "critic.gpus": 8, "reward.with_critic": True},
        {"train.reward_model": "Qwen/Qwen3-8B", "gpus": 24, "nodes": 3, "rollout.gpus": 8, "reward.gpus": 8},
    ),
    "trl": (
        {"rollout.sleep": "weights-dropped"},
        {"rollout.engine": "hf-transformers", "rollout.updates": 2},
        {"rollout.gpus": 8, "rollout.gpu_memory_utilization": 0.8, "rollout.sleep": "none", "train.grad_accum": 32},
        {"gpus": 8, "nodes": 1, "rollout.gpus": 4, "rollout.sleep": "none", "train.grad_accum": 64},
        {"adapter": "lora", "lora.rank": 16, "lora.targets": ["q_proj"], "train.reference": "adapters-off"},
    ),
    "ms-swift": (
        {"rollout.sleep": "weights-to-host", "rollout.offload": "params"},
        {"gpus": 8, "nodes": 1, "rollout.gpus": 4, "rollout.sleep": "none", "train.grad_accum": 64},
        {"gpus": 32, "nodes": 4, "rollout.gpus": 16, "rollout.sleep": "none", "rollout.gpu_memory_utilization": 0.8},
        {"layout.zero": 2, "layout.offload": "optimizer", "train.backend": "deepspeed", "layout.recompute": "none"},
        {"job": "ppo", "rollout.engine": "hf-transformers", "rollout.group": 1, "rollout.prompts": 512,
         "train.steps": None, "train.epochs": 2},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("tool", "changed"), [(tool, each) for tool, plans in PLANS.items() for each in plans])
def test_plans_of_answers_are_written(tool: str, changed: dict[str, Any], tmp_path: Path) -> None:
    check(tool, PLAN | changed, tmp_path)


PREFERENCES: dict[str, Any] = {
    key: value for key, value in PLAN.items() if not key.startswith("rollout.")
} | {"job": "dpo", "train.global_batch": 512, "train.padding": "longest-in-micro-batch"}  # fmt: skip


@pytest.mark.parametrize("tool", ["nemo-rl", "openrlhf", "trl", "ms-swift"])
@pytest.mark.parametrize("job", ["dpo", "reward"])
def test_plans_of_preferences_are_written(tool: str, job: str, tmp_path: Path) -> None:
    plan = PREFERENCES | {"job": job, "train.reference": "copy" if job == "dpo" else None}
    if tool == "nemo-rl":
        plan["train.padding"] = "longest-in-global-batch"
    check(tool, plan | {"rollout.engine": None}, tmp_path)


@pytest.mark.parametrize(
    ("tool", "wanted"),
    [
        ("verl", ("data.train_batch_size=128 ", "actor_rollout_ref.actor.ppo_mini_batch_size=64 ")),
        ("nemo-rl", ("num_prompts_per_step: 128\n", "train_global_batch_size: 512\n", "gpus_per_node: 8\n")),
        ("openrlhf", ("--rollout.batch_size 128 ", "--train.batch_size 512 ", "--vllm.num_engines 8 ",
                      "--data.max_samples 6400 ")),
        ("trl", ("generation_batch_size: 1024\n", "max_steps: 100\n", "vllm_max_model_length: 3072\n")),
        ("ms-swift", ("--generation_batch_size 1024 ", "--max_length 1024", "NNODES=2 NPROC_PER_NODE=8 swift rlhf ")),
    ],
)  # fmt: skip
def test_files_count_as_their_tools_do(tool: str, wanted: tuple[str, ...]) -> None:
    text = exported(tool, PLAN).written.text
    assert [each for each in wanted if each not in text] == []


@pytest.mark.parametrize(
    ("tool", "changed", "named"),
    [
        ("verl", {"job": "sft"}, "sft"),
        ("verl", {"layout.offload": "optimizer"}, "layout.offload"),
        ("verl", {"rollout.gpus": 11, "gpus": 24, "nodes": 3}, "the same number of GPUs"),
        ("verl", {"job": "distill-on-policy", "train.teacher_model": "Qwen/Qwen3-32B"}, "--teacher-gpus"),
        ("verl", {"layout.zero": 1}, "layout.zero"),
        ("nemo-rl", {"job": "kto"}, "kto"),
        ("nemo-rl", {"rollout.gpus": 4}, "whole nodes"),
        ("nemo-rl", {"layout.offload": "activations"}, "layout.offload"),
        ("nemo-rl", {"job": "ppo"}, "reward model"),
        ("nemo-rl", {"train.reward_model": "Qwen/Qwen3-8B"}, "reward model"),
        ("nemo-rl", {"train.reward_model": "Qwen/Qwen3-8B", "reward.gpus": 2}, "whole nodes"),
        ("nemo-rl", {"job": "distill-on-policy", "teacher.gpus": 8}, "written ahead"),
        ("openrlhf", {"job": "kto"}, "kto"),
        ("openrlhf", {"layout.pp": 2}, "layout.pp"),
        ("openrlhf", {"layout.offload": "params"}, "layout.offload"),
        ("openrlhf", {"job": "ppo", "rollout.gpus": 8}, "GPUs of its own"),
        ("openrlhf", {"job": "ppo", "critic.gpus": 8, "reward.gpus": 4}, "only where the engine"),
        ("openrlhf", {"rollout.gpus": 5, "gpus": 16}, "the same number of GPUs"),
        ("verl", {"job": "ppo", "critic.gpus": 8}, "critic.gpus"),
        ("trl", {"job": "ppo"}, "job"),
        ("trl", {"rollout.gpus": 16, "gpus": 32, "nodes": 4}, "one node"),
        ("trl", {"rollout.gpus": 8, "rollout.engine": "hf-transformers"}, "rollout.gpus"),
        ("trl", {"rollout.gpus": 3, "gpus": 8, "nodes": 1}, "whole replicas"),
        ("trl", {"layout.cp": 2}, "sequences"),
        ("ms-swift", {"rollout.gpus": 4}, "whole nodes"),
        ("ms-swift", {"rollout.gpus": 16, "rollout.tp": 16, "gpus": 32, "nodes": 4}, "does not divide 8 GPUs"),
        ("ms-swift", {"layout.offload": "activations"}, "layout.offload"),
        ("ms-swift", {"job": "ppo"}, "vllm"),
        ("ms-swift", {"layout.tp": 2}, "layout.tp"),
        ("trl", {"rollout.engine": "sglang"}, "rollout.engine"),
        ("nemo-rl", {"rollout.engine": "hf-transformers"}, "rollout.engine"),
    ],
)  # fmt: skip
def test_what_a_tool_has_no_word_for_is_refused_by_name(tool: str, changed: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=named):
        exported(tool, PLAN | changed)


def test_what_a_tool_would_refuse_is_left_out() -> None:
    rated = {"train.evaluate_every": 10, "train.reward_model": "Qwen/Qwen3-8B", "rollout.partial": True}
    found = export(Plan(PLAN | rated, asked=rated), exporter_named("openrlhf"))
    assert {"train.evaluate_every", "rollout.partial"} <= {key for key, _ in found.unsaid}
    assert "eval." not in found.written.text.split("python3")[1]
    assert "--eval.steps 10" in exported("openrlhf", PLAN | rated | {"train.reward_model": "none"}).written.text
    assert "estimator reinforce " in exported("openrlhf", PLAN | {"rollout.group": 1}).written.text
    taught = {"job": "distill-on-policy", "train.teacher_model": "Qwen/Qwen3-32B", "rollout.oversampling": 2}
    assert "rollout.oversampling" in dict(exported("nemo-rl", PLAN | taught).unsaid)


@pytest.mark.parametrize("tool", ["axolotl", "megatron", "torchtune"])
def test_answers_are_not_written_for_tools_that_would_not_write_them(tool: str) -> None:
    with pytest.raises(InputError):
        exported(tool, PLAN)
