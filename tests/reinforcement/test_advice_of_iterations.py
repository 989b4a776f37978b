"""Advice to reinforcement learning: an engine where the trainer writes, partial rollouts where stacks have them."""

from __future__ import annotations

from functools import cache

import xe_sizer
from xe_sizer.result.common import Advice


@cache
def advice(stack: str) -> tuple[Advice, ...]:
    rollout = {"prompts": 64, "group": 8, "output_tokens": 512}
    found = xe_sizer.estimate(
        model="llama-3.2-1b", gpu="h100-sxm-80gb", gpus=8, job="grpo", stack=stack, rollout=rollout, details=True
    )
    return found.advice


def test_an_engine_is_advised_where_the_trainer_itself_writes() -> None:
    """TRL generates with transformers unless it is told to use vLLM."""
    (first, *_) = advice("trl")
    assert first.change == "vllm writes the answers"
    assert "'engine': 'vllm'" in first.command
    assert not [one for one in advice("verl") if "writes the answers" in one.change]


def test_partial_rollouts_are_advised_where_the_stack_trains_on_older_answers() -> None:
    assert [one for one in advice("verl") if "partial rollouts" in one.change]
    assert not [one for one in advice("trl") if "partial rollouts" in one.change]
