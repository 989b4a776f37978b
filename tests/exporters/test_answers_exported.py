"""Reinforcement learning for verl: what it is told of a plan, what an import reads back, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xe_sizer.errors import InputError
from xe_sizer.interop.read import read_foreign
from xe_sizer.interop.source import Asked
from xe_sizer.interop.write import Plan, export, exporter_named

PLAN: dict[str, Any] = {
    "model": "Qwen/Qwen2.5-7B", "job": "grpo", "precision": "bf16", "optimizer": "adamw", "train.seq_len": 3072,
    "train.micro_batch": 2, "train.global_batch": 512, "train.steps": 50, "train.reference": "copy",
    "layout.zero": 3, "layout.recompute": "full", "rollout.prompts": 128, "rollout.group": 8,
    "rollout.max_output_tokens": 2048, "rollout.engine": "vllm", "rollout.tp": 2, "gpus": 16, "nodes": 2,
}  # fmt: skip
answers = st.fixed_dictionaries(
    {
        "job": st.sampled_from(["grpo", "ppo"]),
        "train.seq_len": st.sampled_from([3072, 10_240]),
        "train.micro_batch": st.sampled_from([1, 4]),
        "train.reference": st.sampled_from(["none", "copy"]),
        "layout.cp": st.sampled_from([1, 2]),
        "layout.zero": st.sampled_from([0, 1, 2, 3]),
        "layout.tp": st.sampled_from([1, 4]),
        "layout.ep": st.sampled_from([1, 2]),
        "layout.recompute": st.sampled_from(["none", "selective", "full"]),
        "layout.offload": st.sampled_from(["none", "params", "activations"]),
        "rollout.group": st.sampled_from([4, 16]),
        "rollout.updates": st.sampled_from([1, 2]),
        "rollout.tp": st.sampled_from([1, 2]),
        "rollout.sleep": st.sampled_from(["none", "weights-dropped"]),
        "rollout.offload": st.sampled_from(["none", "optimizer", "params"]),
        "rollout.gpu_memory_utilization": st.sampled_from([0.5, 0.85]),
        "rollout.engine": st.sampled_from(["vllm", "sglang"]),
    }
)


@settings(max_examples=60, deadline=None)
@given(values=answers)
def test_a_plan_of_answers_is_read_back(values: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    plan, verl = PLAN | values, exporter_named("verl")
    try:
        exported = export(Plan(plan), verl)
    except InputError:
        assert plan["layout.zero"] == 1 or plan["layout.tp"] * plan["layout.ep"] > 1 or plan[
            "layout.recompute"
        ] == "selective"  # fmt: skip
        return
    path = tmp_path_factory.mktemp("plan") / "run.sh"
    path.write_text(exported.written.text)
    found = read_foreign([path], Asked())
    unsaid = {key for key, _ in exported.unsaid}
    for key in (key for key in verl.says if key in plan and key not in unsaid):
        fact = found.facts.get(key)
        assert (fact.value if fact else {"layout.tp": 1, "layout.ep": 1}.get(key)) == plan[key], key
    assert not found.unknown, [each.key for each in found.unknown]
    assert not found.missing


def test_the_command_counts_prompts() -> None:
    text = export(Plan(PLAN), exporter_named("verl")).written.text
    assert "data.train_batch_size=128 " in text
    assert "actor_rollout_ref.actor.ppo_mini_batch_size=64 " in text  # 512 answers in groups of 8
    assert "data.max_prompt_length=1024 " in text
    assert "trainer.n_gpus_per_node=8 " in text


@pytest.mark.parametrize(
    "changed", [{"job": "sft"}, {"layout.offload": "optimizer"}, {"rollout.gpus": 8}, {"layout.zero": 1}]
)
def test_what_verl_has_no_word_for_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        export(Plan(PLAN | changed), exporter_named("verl"))


@pytest.mark.parametrize("tool", ["trl", "axolotl", "megatron", "torchtune"])
def test_answers_are_not_written_for_tools_that_would_not_write_them(tool: str) -> None:
    with pytest.raises(InputError):
        export(Plan(PLAN), exporter_named(tool))
