"""Iterations of a small model that tests of reinforcement learning share; on 8 H100 with every size given."""

from __future__ import annotations

from functools import cache

from cases import REGISTRY

from xe_sizer.reinforcement.estimate import ReinforcementEstimate
from xe_sizer.reinforcement.resolve import resolve
from xe_sizer.reinforcement.resolved import ResolvedReinforcement
from xe_sizer.reinforcement.search import size
from xe_sizer.scenario.read import read_scenario

ASKED: dict[str, object] = {
    "model": "llama-3.2-1b", "gpu": "h100-sxm-80gb", "job": "grpo", "stack": "generic", "gpus": 8, "train.steps": 100,
    "rollout.prompts": 64, "rollout.group": 8, "rollout.output_tokens": 600, "rollout.max_output_tokens": 2048,
    "rollout.tp": 1, "rollout.pp": 1, "layout.tp": 1, "layout.pp": 1, "layout.zero": 0, "train.micro_batch": 1,
}  # fmt: skip
PPO: dict[str, object] = {"job": "ppo", "rollout__group": 1, "rollout__prompts": 512}
POOLS: dict[str, object] = {"gpus": 16, "rollout__gpus": 8}


def resolved(**flags: object) -> ResolvedReinforcement:
    given = {**ASKED, **{name.replace("__", "."): value for name, value in flags.items()}}
    return resolve(read_scenario(None, given, {}), REGISTRY)


def sized(**flags: object) -> ReinforcementEstimate:
    return size(resolved(**flags))


@cache
def base(way: str = "turns") -> ReinforcementEstimate:
    """Estimates that tests change further; what is computed from them is computed anew."""
    ways: dict[str, dict[str, object]] = {
        "turns": {}, "critic": PPO, "pools": POOLS, "at once": {**POOLS, "rollout__asynchronous": True},
        "itself": {"stack": "trl"},
    }  # fmt: skip
    return sized(**ways[way])
