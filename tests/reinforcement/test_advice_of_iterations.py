"""Advice to reinforcement learning: an engine where the trainer writes, partial rollouts where stacks have them."""

from __future__ import annotations

import xe_sizer
from xe_sizer.result.common import Advice


def advice(stack: str) -> tuple[Advice, ...]:
    rollout = {"prompts": 64, "group": 8, "output_tokens": 512}
    found = xe_sizer.estimate(
        model="llama-3.2-1b", gpu="h100-sxm-80gb", gpus=8, job="grpo", stack=stack, rollout=rollout, details=True
    )
    return found.advice


def test_the_trainer_s_own_model_is_advised_an_engine_and_no_partial_rollouts() -> None:
    """TRL generates with transformers unless it is told to use vLLM."""
    said = advice("trl")
    assert said[0].change == "vllm generates the responses"
    assert "'engine': 'vllm'" in said[0].command
    assert not [one for one in said if "partial rollouts" in one.change]


def test_partial_rollouts_are_advised_where_the_stack_trains_on_older_answers() -> None:
    said = advice("verl")
    assert [one for one in said if "partial rollouts" in one.change]
    assert not [one for one in said if "generates the responses" in one.change]
