"""The closed form of requests in flight beside the simulation of the engine's scheduler."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving_cases import job

from xe_sizer.serving.job import ReplicaLayouts, ServingJob, Traffic
from xe_sizer.serving.memory import serving_memory
from xe_sizer.serving.queueing import curve, in_flight
from xe_sizer.serving.simulation import offered, simulate

JOBS = {
    name: job(model, server="dell-xe9680-h100", serve__engine=name)
    for name, model in (("vllm", "llama-3.1-8b"), ("sglang", "mixtral-8x7b"), ("tensorrt-llm", "gemma-2-9b"))
}


def closed_form(made: ServingJob, traffic: Traffic, clients: float, tp: int = 2) -> tuple[float, float, float]:
    placement = ReplicaLayouts.of(tp=tp)
    found = curve(made, placement, serving_memory(made, placement, traffic.inputs), traffic)
    rate, at = in_flight(found, traffic, clients)
    return float(rate[0]), float(at.tpot_s[0]), float(at.ttft_s[0])


@settings(max_examples=25, deadline=None)
@given(
    engine=st.sampled_from(sorted(JOBS)),
    inputs=st.floats(100, 3000),
    outputs=st.floats(150, 1000),
    clients=st.integers(2, 64),
)
def test_throughput_and_time_per_token_are_those_of_a_long_test(
    engine: str, inputs: float, outputs: float, clients: int
) -> None:
    """Lengths that spread mix the phases of requests, and the middle of a long test is steady."""
    made, placement, traffic = JOBS[engine], ReplicaLayouts.of(tp=2), Traffic(inputs, outputs, 0.5, 0.5)
    memory = serving_memory(made, placement, inputs)
    found = simulate(made, placement, memory, traffic, offered(traffic, 30 * clients + 100, clients))
    length_s = found.finish_s.max()
    ended = (found.finish_s > 0.3 * length_s) & (found.finish_s < 0.8 * length_s)
    rate = found.outputs[ended].sum() / found.outputs.mean() / (0.5 * length_s)
    tpot_s = (found.finish_s - found.first_s)[ended].sum() / (found.outputs[ended] - 1.0).sum()
    closed_rate, closed_tpot_s, _ = closed_form(made, traffic, clients)
    assert closed_rate == pytest.approx(rate, rel=0.06)
    assert closed_tpot_s == pytest.approx(tpot_s, rel=0.06)


@pytest.mark.parametrize("outputs", [256, 1024, 4096, 16384])
def test_the_first_token_does_not_wait_longer_for_longer_answers(outputs: float) -> None:
    """Ten requests of one prompt length: prompts are further apart, if anything, where answers are long."""
    made = JOBS["vllm"]
    _, _, first_s = closed_form(made, Traffic(1024, outputs), 10, tp=1)
    _, _, shortest_s = closed_form(made, Traffic(1024, 128), 10, tp=1)
    assert 0.6 * shortest_s < first_s < 1.2 * shortest_s  # steps on a longer cache take longer


@pytest.mark.parametrize("clients", [4, 16])
def test_the_time_to_the_first_token_is_that_of_the_test(clients: int) -> None:
    made, placement, traffic = JOBS["vllm"], ReplicaLayouts.of(), Traffic(1000, 400, 0.5, 0.5)
    memory = serving_memory(made, placement, 1000)
    found = simulate(made, placement, memory, traffic, offered(traffic, 100 * clients, clients))
    _, _, first_s = closed_form(made, traffic, clients, tp=1)
    middle = found.ttft_s[10 * clients : 90 * clients]
    assert first_s == pytest.approx(float(middle.mean()), rel=0.12)


def test_time_in_flight_is_the_sum_of_its_parts() -> None:
    made, traffic = JOBS["vllm"], Traffic(1000, 300)
    for clients in (1, 8, 64, 400, 3000):
        rate, tpot_s, first_s = closed_form(made, traffic, clients)
        assert clients / rate == pytest.approx(first_s + 299 * tpot_s, rel=1e-9)
        assert np.isfinite(first_s)
