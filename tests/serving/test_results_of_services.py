"""Figures and words of a result, each from the estimate that it sums up."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from msgspec.structs import replace
from serving_cases import altered, problems, served

from xe_sizer.serving import summary
from xe_sizer.serving.estimate import ServingEstimate
from xe_sizer.serving.load import LOADS
from xe_sizer.serving.memory import adapter_bytes
from xe_sizer.serving.summary import (
    build_adapters,
    build_benchmark,
    build_cost,
    build_throughput,
    load_curve,
    serve_memory,
    shortage,
    summarise,
    with_operators,
)

GIB = 2.0**30
H100S = "dell-xe9680-h100"
CHAT: dict[str, object] = {"serve__input_tokens": 1000, "serve__output_tokens": 200, "layout__tp": 1, "layout__pp": 1}
WAYS: dict[str, dict[str, object]] = {
    "rate": {"server": H100S, "gpus": 4, "serve__request_rate": 20.0, "cost__price_per_gpu_hour": 2.0},
    "users": {"server": H100S, "gpus": 4, "serve__users": 500},
    "concurrency": {"server": H100S, "gpus": 4, "serve__concurrency": 64},
    "batch": {"serve__batch": 16},
}


@cache
def base(way: str) -> ServingEstimate:
    """Estimates that tests change further; what is made of them is made anew."""
    return served(**{**CHAT, **WAYS[way]})


def estimate(way: str) -> ServingEstimate:
    return replace(base(way))


@pytest.mark.parametrize("way", ["rate", "users", "concurrency", "batch"])
def test_rates_of_a_service_are_those_of_its_replicas(way: str) -> None:
    one = estimate(way)
    result, rate = summarise(one), one.taken_per_s
    replicas = 1 if way == "batch" else 4
    assert result.replicas.count == replicas
    assert result.throughput.requests_per_s == rate
    assert result.throughput.output_tokens_per_s == pytest.approx(200 * rate)
    assert result.throughput.total_tokens_per_s == pytest.approx(1200 * rate)
    assert result.throughput.output_tokens_per_s_per_gpu == pytest.approx(200 * rate / replicas)
    assert result.throughput.tokens_per_s_per_user == pytest.approx(1 / one.point.tpot_s)
    assert result.per_replica.requests_per_s == pytest.approx(rate / replicas)
    assert result.per_replica.output_tokens_per_s == pytest.approx(200 * rate / replicas)
    assert result.per_replica.concurrency == pytest.approx(one.in_flight / replicas)
    assert result.replicas.max_load == pytest.approx(one.choice.top_load * replicas)
    assert result.throughput.requests_in_flight == pytest.approx(one.in_flight)
    pool = result.kv_cache
    assert pool.pool_tokens == pytest.approx(one.choice.holds * 1200)
    assert pool.max_concurrency == min(one.choice.holds, one.resolved.job.engine.batching.max_sequences)
    assert pool.pool_bytes == one.cache_bytes


def test_what_is_not_bounded_is_not_a_number() -> None:
    one = altered(estimate("rate"), ttft_s=math.inf, request_s=math.inf)
    latency = summarise(one).latency
    assert (latency.ttft_s.expected, latency.ttft_s.low, latency.request_s.high) == (None, None, None)
    assert latency.tpot_s.expected == one.point.tpot_s
    assert latency.tpot_s.low is not None
    assert latency.tpot_s.low <= latency.tpot_s.expected <= (latency.tpot_s.high or 0)
    assert [at.percentile for at in latency.percentiles] == list(one.point.percentiles)
    for at, values in zip(latency.percentiles, one.point.percentiles.values(), strict=True):
        assert (at.ttft_s, at.tpot_s, at.request_s) == values


def test_parts_of_a_step_sum_to_it_and_its_operators_too() -> None:
    one = estimate("rate")
    result = summarise(one)
    for phase, step in ((result.phases.decode, one.point.decode), (result.phases.prefill, one.point.prefill)):
        assert phase.seconds == pytest.approx(float(step.total_s[0]))
        assert sum(part.seconds for part in phase.components) == pytest.approx(phase.seconds)
        assert sum(part.share for part in phase.components) == pytest.approx(1.0)
        assert all(part.seconds > 0 for part in phase.components)
        assert [module.seconds for module in phase.modules] == [float(each[0]) for each in step.modules.values()]
    full = with_operators(result, one)
    assert full.phases.decode.operators
    assert full.phases.prefill.operators
    assert replace(full, phases=result.phases) == result


def test_all_gpus_are_paid_for_by_what_is_served() -> None:
    """4 GPUs at 2 an hour."""
    one = estimate("rate")
    cost, rate = build_cost(one), build_throughput(one)
    assert cost.per_hour == 8.0
    assert cost.per_million_tokens == pytest.approx(8.0 / (rate.total_tokens_per_s * 3600 / 1e6))
    assert cost.billed_gpus == 4
    assert build_cost(estimate("users")).billed_gpus is None
    energy = cost.energy_kwh_per_million_tokens
    assert energy is not None
    halved = build_cost(altered(one, amount=one.resolved.amount / 2)).energy_kwh_per_million_tokens
    assert halved is not None


# The load curve.


@pytest.mark.parametrize("way", ["rate", "users", "concurrency"])
def test_a_curve_is_the_service_at_other_loads(way: str) -> None:
    """Each point as `Load.served` has it of one replica, times the four that work."""
    one = estimate(way)
    found, resolved = one.choice.curve, one.resolved
    assert found is not None
    points = list(load_curve(one))
    assert len(points) > 5
    loads = [point.load for point in points]
    assert loads == sorted(loads)
    load = LOADS[resolved.load]
    for point in (points[0], points[len(points) // 2]):
        rates, (mean, at) = load.served(resolved, found, np.array([point.load / 4]), None, resolved.percentile)
        assert point.requests_per_s == pytest.approx(4 * float(rates[0]), rel=1e-6)
        assert point.request_s == pytest.approx(float(mean.request_s[0]), rel=1e-6)
        if load.by_chance:
            assert point.judged is not None
            assert point.judged.percentile == resolved.percentile
            assert point.judged.ttft_s == pytest.approx(float(at.ttft_s[0]), rel=1e-6)
        else:
            assert point.judged is None
    assert list(load_curve(estimate("batch"))) == []
    assert list(load_curve(altered(one, curve=None))) == []


# Memory.


def test_the_ledger_of_a_gpu_sums_to_what_the_engine_takes() -> None:
    one = estimate("rate")
    memory = serve_memory(one)
    assert memory.peak_bytes == sum(part.bytes for part in memory.components)
    assert memory.peak_bytes == pytest.approx(one.peak_bytes, abs=2)
    assert memory.headroom_bytes == memory.usable_bytes - memory.peak_bytes
    assert (memory.phase, memory.gpu) == ("as allocated", "all alike")
    assert all(part.terms for part in memory.components if part.name == "weights")
    assert not any(part.terms for part in serve_memory(one, details=False).components)
    staged = served(**{**CHAT, "layout__pp": 2}, server=H100S, gpus=2, serve__concurrency=8)
    assert serve_memory(staged).gpu == "fullest pipeline stage"


def test_what_is_missing_is_said_with_what_takes_it() -> None:
    """Weights of 70B in 16 bit, 131.4 GiB, on one card."""
    one = served("llama-3.1-70b", serve__concurrency=4, **CHAT)
    assert not one.fits
    message = shortage(one).message
    sizes = one.memory_parts
    missing = one.peak_bytes - one.usable_bytes
    assert missing > 0
    assert f"weights {summary._gib(sizes['weights'])}, KV cache of one request" in message
    assert f"{summary._gib(missing)} GiB missing" in message
    assert message.startswith(f"needs {summary._gib(one.peak_bytes)} GiB per GPU")
    assert message.endswith("GiB)")
    assert summary._gib(3.5 * GIB) == "3.50"
    assert summarise(one).memory.phase == "one request"


# Words.


def warnings(one: ServingEstimate) -> str:
    return "\n".join(summary.find_warnings(one))


def test_gpus_that_no_replica_uses_stay_idle() -> None:
    assert "2 of the 6 GPUs stay idle: replicas have 1" in warnings(altered(estimate("rate"), gpus=6))
    assert "stay idle" not in warnings(estimate("rate"))


def test_requests_that_wait_are_counted() -> None:
    """Room for 10.7 at each of four replicas: 40 run at once; the rest waits."""
    full = altered(estimate("concurrency"), places=10.7, in_flight=16.0)
    assert "40 of the 64 requests run at once: the others wait in the queue" in warnings(full)
    for room in (15.5, 16.0):
        assert "run at once" not in warnings(altered(estimate("concurrency"), places=room, in_flight=16.0))
    waves = altered(estimate("batch"), places=5.9)
    assert "5 of the 16 requests of the batch run at once: a replica runs it in waves" in warnings(waves)
    assert "in waves" not in warnings(altered(estimate("batch"), places=16.0))
    tiny = altered(estimate("batch"), places=0.5)
    assert "1 of the 16 requests of the batch run at once" in warnings(tiny)


def test_a_service_near_its_end_is_told_of_limits() -> None:
    one = estimate("rate")
    top = one.taken_per_s / 4

    def told(share: float) -> bool:
        changed = altered(one, full_rate=top / share, top_load=top / share)
        return "of what they sustain" in warnings(changed)

    assert told(0.95) == (0.9 < altered(one, full_rate=top / 0.95).utilisation <= 1.0)
    assert not told(0.5)
    limited = served(**{**CHAT, **WAYS["rate"]}, limits__max_ttft_s=5.0)
    assert "of what they sustain" not in warnings(altered(limited, full_rate=top / 0.95, top_load=top / 0.95))


def test_what_a_service_cannot_take_is_said() -> None:
    one = altered(estimate("rate"), full_rate=3.0, top_load=2.997)
    message = summary._overload(one).message
    assert message == "20 requests/s are more than the 11.9 that 4 replicas of 1 GPU sustain"
    none = summary._overload(altered(estimate("rate"), full_rate=0.0)).message
    assert "too small for the longest of requests that vary this much" in none


def test_a_server_that_fails_leaves_the_others() -> None:
    """Four replicas in one server, or twelve in two of six each."""
    one = estimate("rate")
    assert list(summary._failing(altered(one, top_load=100.0))) == [
        "all 4 replicas are in one server: if it fails, nothing serves (--gpus 16 on 2 servers keeps the service up)"
    ]
    two = served(**{**CHAT, "server": H100S, "gpus": 12, "serve__request_rate": 60.0})
    assert two.replicas == 12
    least = 60.0 / 6
    assert list(summary._failing(altered(two, top_load=least))) == []
    (words,) = summary._failing(altered(two, top_load=least * 0.5))
    assert words == (
        "6 of the 12 replicas are in one server: if it fails, the others take 30 of 60 "
        "(--gpus 24 on 3 servers keeps the service up)"
    )
    assert list(summary._failing(estimate("batch"))) == []


def test_a_replica_over_several_servers_stops_with_each_of_them() -> None:
    large = served("llama-3.1-405b", server=H100S, serve__concurrency=4, layout__tp=8, layout__pp=2, gpus=16)
    assert list(summary._spanning(large)) == ["the only replica spans 2 servers: one failure stops it all"]
    assert list(summary._spanning(estimate("rate"))) == []


# Tests of so many requests.


@pytest.mark.parametrize("load", [{"serve__concurrency": 16}, {"serve__request_rate": 8.0}])
def test_a_benchmark_prints_what_its_requests_make(load: dict[str, object]) -> None:
    """Two replicas see 40 requests each; rates are of both."""
    one = served(**CHAT, **load, server=H100S, gpus=2, serve__requests=80, limits__max_ttft_s=0.5)
    found, test = build_benchmark(one), one.choice.test
    assert found is not None
    assert test is not None
    rate = one.requests_per_s
    assert found.requests == 80
    assert found.requests_per_s.expected == rate
    assert found.input_tokens == round(float(test.inputs.mean()) * 80)
    assert found.output_tokens == round(float(test.outputs.mean()) * 80)
    assert found.output_tokens_per_s.expected == pytest.approx(rate * float(test.outputs.mean()))
    assert found.total_tokens_per_s.expected == pytest.approx(rate * float((test.inputs + test.outputs).mean()))
    assert found.mean_concurrency == pytest.approx(rate * float(test.request_s.mean()))
    assert found.ttft_s.mean.expected == pytest.approx(float(test.ttft_s.mean()))
    assert found.ttft_s.p99 == pytest.approx(float(np.percentile(test.ttft_s, 99)))
    assert found.ttft_s.median <= found.ttft_s.p90 <= found.ttft_s.p95 <= found.ttft_s.p99
    assert found.itl_s.mean.expected == pytest.approx(test.mean_gap_s)
    assert found.itl_s.p90 == test.gap_at_s(90.0)
    assert found.e2e_latency_s.mean.expected == pytest.approx(float(test.request_s.mean()))
    kept = test.goodput(0.5, None) / test.requests_per_s
    assert found.goodput_per_s == pytest.approx(rate * kept)
    assert 0 < kept <= 1
    low, high = (side / rate for side in (found.requests_per_s.low, found.requests_per_s.high))
    assert found.duration_s.low == pytest.approx(test.duration_s / high)
    assert found.duration_s.high == pytest.approx(test.duration_s / low)
    closed = "serve__concurrency" in load
    assert found.arrivals == ("closed-loop" if closed else one.resolved.arrivals)
    assert (found.concurrency, found.request_rate) == ((16, None) if closed else (None, 8.0))
    if not closed:
        assert rate * high <= 8.0 * (1 + 1e-9)  # nothing is faster than requests come
    assert build_benchmark(altered(one, test=None)) is None


# Adapters.


def test_adapters_of_a_service_and_what_they_take_of_a_step() -> None:
    one = served(**CHAT, serve__concurrency=8, serve__adapters=12, lora__rank=16)
    found = build_adapters(one)
    assert found is not None
    adapters = one.resolved.job.adapters
    assert adapters is not None
    assert (found.count, found.held, found.rank) == (12, adapters.held, 16)
    held = float(adapter_bytes(one.resolved.job.model, adapters, one.placement)[0])
    assert (found.bytes, found.adapter_bytes) == (held, pytest.approx(held / adapters.held))
    assert 1 <= found.distinct <= 8
    parts = {name: float(each[0]) for name, each in one.point.decode.parts.items()}
    assert found.share == pytest.approx(found.seconds / sum(parts.values()))
    assert found.seconds in parts.values()
    assert build_adapters(estimate("rate")) is None


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"model": "bge-m3", "serve__output_tokens": 5}, "bge-m3 is an encoder and writes no tokens"),
        ({"model": "t5-base"}, "t5-base is an encoder-decoder, and inference is sized of decoders alone"),
        ({"serve__images": 2}, "llama-3.1-8b takes no images, as far as its profile says"),
        ({"serve__batch": 4, "serve__prefill_replicas": 1},
         "a batch is one replica's and takes no 'prefill_replicas'"),
    ],
)  # fmt: skip
def test_what_cannot_be_served_is_refused(flags: dict[str, object], words: str) -> None:
    assert any(words in told for told in problems(**flags))
