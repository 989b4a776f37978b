"""What a user reads adds up: totals, shares and ranges of whole estimates."""

from __future__ import annotations

import pytest
from cases import REGISTRY

from xe_sizer.result.training import Result
from xe_sizer.scenario.read import read_scenario
from xe_sizer.studies.estimate import estimate

QUESTIONS: dict[str, dict[str, object]] = {
    "fits": {"model": "llama-2-7b", "server": "dell-xe9680-h100", "gpus": 8, "job": "sft", "stack": "hf-trainer"},
    "too big": {"model": "llama-2-70b", "gpu": "h100-sxm-80gb", "gpus": 1, "job": "sft", "layout.zero": 0},
    "open": {"model": "mixtral-8x7b", "server": "nvidia-dgx-a100", "job": "lora", "data.profile": "dell-design-guide"},
    "packed": {"model": "gpt2", "gpu": "rtx-4090", "gpus": 2, "job": "pretrain", "data.tokens": 1e8},
}


@pytest.fixture(scope="module", params=QUESTIONS)
def result(request: pytest.FixtureRequest) -> Result:
    return estimate(read_scenario(None, QUESTIONS[request.param], {}), REGISTRY)


def test_memory_components_sum_to_the_peak(result: Result) -> None:
    memory = result.memory
    assert sum(component.bytes for component in memory.components) == pytest.approx(memory.peak_bytes, rel=1e-9)
    assert memory.usable_bytes - memory.peak_bytes == pytest.approx(memory.headroom_bytes, abs=1)
    assert all(component.formula and component.source for component in memory.components)


def test_time_components_sum_to_the_step_and_shares_to_one(result: Result) -> None:
    time = result.time
    assert sum(component.seconds for component in time.components) == pytest.approx(time.step_s.expected, rel=1e-9)
    assert sum(component.share for component in time.components) == pytest.approx(1.0, rel=1e-9)
    assert time.total_s.expected == pytest.approx(time.steps * time.step_s.expected, rel=1e-9)


def test_ranges_are_ordered_and_utilisation_is_possible(result: Result) -> None:
    for span in (result.time.step_s, result.time.total_s, result.cost.gpu_hours):
        assert 0 < span.low < span.expected < span.high
    assert 0 < result.time.mfu <= result.time.hfu < 1


def test_the_layout_uses_all_gpus_and_the_whole_batch(result: Result) -> None:
    layout, gpus = result.layout, result.gpus
    assert layout.tp * layout.pp * layout.cp * layout.dp == gpus.count
    assert layout.micro_batch * layout.grad_accum * layout.dp == result.scenario["train"]["global_batch"]
    hours = result.time.total_s.expected / 3600 * gpus.count
    assert result.cost.gpu_hours.expected == pytest.approx(hours, rel=1e-9)


def test_tokens_are_real_ones_and_padding(result: Result) -> None:
    data = result.data
    assert data.real_tokens == pytest.approx(data.processed_tokens * (1 - data.padding_share), rel=1e-9)
    per_step = data.processed_tokens / result.time.steps
    rate = per_step / result.time.step_s.expected / result.gpus.count
    assert result.time.tokens_per_s_per_gpu == pytest.approx(rate, rel=1e-9)


def test_fitting_means_room(result: Result) -> None:
    assert result.verdict.fits is (result.memory.headroom_bytes >= 0)
    if result.gpus.minimum_that_fits is not None and result.verdict.fits:
        assert result.gpus.minimum_that_fits <= result.gpus.count
