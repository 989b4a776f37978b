"""Many scenarios at once: each is answered as if it was alone, and those of one job share arrays."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from cases import REGISTRY

from xe_sizer.errors import InputError
from xe_sizer.scenario.read import read_scenario
from xe_sizer.scenario.scenario import Scenario, serves
from xe_sizer.studies.estimate import answer_all, estimate, serve
from xe_sizer.training import search

LORA = {"model": "llama-2-13b", "job": "lora", "server": "dell-xe9680-h100", "data.profile": "alpaca"}
FULL = {"model": "llama-3.1-8b", "job": "sft", "stack": "hf-trainer", "server": "dell-xe9680-h100"}
MANY: list[dict[str, Any]] = [
    {**LORA, "gpus": 8, "train.global_batch": 64},
    {**FULL, "gpus": 8, "train.global_batch": 64},
    {**LORA, "gpus": 16, "train.global_batch": 64, "limits.max_hours": 0.2},
    {**LORA, "gpus": 24, "train.global_batch": 64},  # no legal layout
    {**LORA, "gpus": 32, "train.global_batch": 64, "cost.price_per_gpu_hour": 2.0, "limits.max_cost": 1.0},
    {**FULL, "gpus": 2, "train.global_batch": 64},
    {**FULL, "train.global_batch": 64},
    {**FULL, "gpus": 16},
    {**FULL, "gpus": 16, "layout.tp": 2, "train.global_batch": 64},
    {**FULL, "gpus": 16, "train.micro_batch": 2, "train.grad_accum": 4},
    {"model": "llama-3.1-8b", "gpu": "l40s", "serve.request_rate": 3},
    {"model": "llama-3.1-8b", "gpu": "h100-sxm-80gb", "gpus": 8, "job": "grpo", "train.steps": 20},
    {"model": "llama-3.1-8b", "gpu": "h100-sxm-80gb", "gpus": 8, "precision": "fp4"},
]  # fmt: skip


def alone(scenario: Scenario) -> object:
    try:
        return (serve if serves(scenario) else estimate)(scenario, REGISTRY, False)
    except InputError as error:
        return error


def plain(answer: object) -> object:
    return [str(one) for one in answer.problems] if isinstance(answer, InputError) else msgspec.to_builtins(answer)


def test_each_is_answered_as_if_it_was_alone() -> None:
    scenarios = [read_scenario(None, flags, {}) for flags in MANY]
    together = answer_all(scenarios, REGISTRY, False)
    assert [plain(answer) for answer in together] == [plain(alone(scenario)) for scenario in scenarios]
    assert [place for place, answer in enumerate(together) if isinstance(answer, InputError)] == [
        3,
        8,
        12,
    ]  # no legal layout, no tensor parallelism, no fp4


def test_scenarios_of_one_job_share_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    choose_each = search.choose_each

    def counted(job: Any, sets: Any, headroom: float) -> Any:
        asked.append(len(sets))
        return choose_each(job, sets, headroom)

    monkeypatch.setattr(search, "choose_each", counted)
    scenarios = [read_scenario(None, {**LORA, "gpus": gpus, "train.global_batch": 64}, {}) for gpus in (8, 16, 32)]
    answer_all(scenarios, REGISTRY, False)
    assert asked[0] == 3
