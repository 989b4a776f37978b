"""What an engine makes of the laws of an accelerator, what one replica gets of a test, and ranges, by hand."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace
from serving_cases import asked, job

from xe_sizer.laws.collectives import ALL_REDUCE
from xe_sizer.laws.device import Efficiency
from xe_sizer.laws.network import network
from xe_sizer.serving.job import ReplicaLayouts, ServingJob, Traffic, serving_job, wide_modules
from xe_sizer.serving.search import constant_arrivals, offered_load
from xe_sizer.serving.step_time import Work, fastest, step_time
from xe_sizer.serving.uncertainty import allowed_latencies, find_spread, span
from xe_sizer.software.number_formats import FORMATS, Scheme

H100S = "dell-xe9680-h100"
ONE = ReplicaLayouts.of()
MADE = job(server=H100S)
WIDE = Scheme(FORMATS["bf16"], FORMATS["bf16"], FORMATS["bf16"], "bf16")
W4 = Scheme(FORMATS["int4-plain"], FORMATS["bf16"], FORMATS["bf16"], "bf16")
W8A8 = Scheme(FORMATS["fp8"], FORMATS["fp8"], FORMATS["bf16"], "fp8")


def remade(scheme: Scheme = WIDE, efficiency: Efficiency | None = None, **sections: dict[str, object]) -> ServingJob:
    """The job with another scheme, and some settings of the engine changed, by section."""
    engine = MADE.engine
    changed = {name: msgspec.structs.replace(getattr(engine, name), **values) for name, values in sections.items()}
    chosen = efficiency or MADE.efficiency
    return serving_job(MADE.model, msgspec.structs.replace(engine, **changed), scheme, MADE.server, chosen)


# Products


@pytest.mark.parametrize("scheme", [WIDE, W4, W8A8])
def test_an_engines_share_of_the_bandwidth_scales_products(scheme: Scheme) -> None:
    full, half = _streaming(scheme, 1.0), _streaming(scheme, 0.5)
    for law in ("matmul", "scan_matmul", "expert_matmul"):
        one, other = getattr(full.device, law), getattr(half.device, law)
        assert other.memory_efficiency == pytest.approx(one.memory_efficiency / 2)
        assert other.flops_efficiency == one.flops_efficiency


def _streaming(scheme: Scheme, share: float) -> ServingJob:
    rates = msgspec.structs.replace(MADE.engine.efficiency, streaming=share)
    return serving_job(
        MADE.model, msgspec.structs.replace(MADE.engine, efficiency=rates), scheme, MADE.server, MADE.efficiency
    )


def test_an_engines_share_of_decoding_scales_its_attention() -> None:
    rates = [msgspec.structs.replace(MADE.engine.efficiency, decode=share) for share in (1.0, 0.5)]
    full, half = (
        serving_job(
            MADE.model, msgspec.structs.replace(MADE.engine, efficiency=one), WIDE, MADE.server, MADE.efficiency
        )
        for one in rates
    )
    assert half.device.decode.memory_efficiency == pytest.approx(full.device.decode.memory_efficiency / 2)


def test_a_cache_in_fp8_streams_no_faster_than_its_elements_are_widened() -> None:
    """132 multiprocessors of an H100 at 1.98 GHz: 0.5 elements in a clock are 131 GB/s of its 3,350."""
    cached = replace(WIDE, cache=FORMATS["fp8"])
    laws = [
        remade(scheme, kernels={"fp8_widened": {"hopper": rate}}).device.decode
        for scheme, rate in ((cached, 0.5), (cached, 1000.0), (WIDE, 0.5))
    ]
    assert laws[0].memory_efficiency == pytest.approx(0.5 * 132 * 1.98e9 / 3.35e12, rel=0.02)
    assert laws[1] == laws[2] == MADE.device.decode


def test_casts_of_their_own_take_three_microseconds_and_three_bytes() -> None:
    """Where kernels are not fused; products of 16 bit cast nothing."""
    fused, own = (remade(W8A8, kernels={"fused_casts": one}) for one in (True, False))
    wide = remade(WIDE, kernels={"fused_casts": False}).device.matmul
    assert own.device.matmul.floor_s - fused.device.matmul.floor_s == pytest.approx(3e-6)
    assert (fused.device.matmul.cast_bytes_per_element, own.device.matmul.cast_bytes_per_element) == (0.0, 3.0)
    assert wide.cast_bytes_per_element == 0.0
    assert fused.device.matmul.floor_s == wide.floor_s


def test_narrow_weights_stream_as_their_kernels_do() -> None:
    plain = remade(W4).device
    name = W4.weights.name
    kernel = MADE.engine.narrow_kernel(W4.weights)
    slow = msgspec.structs.replace(kernel, bandwidth_share=kernel.bandwidth_share / 2, compute_share=0.25)
    engine = msgspec.structs.replace(MADE.engine, narrow={**MADE.engine.narrow, name: slow})
    slower = serving_job(MADE.model, engine, W4, MADE.server, MADE.efficiency).device
    assert slower.matmul.memory_efficiency == pytest.approx(plain.matmul.memory_efficiency / 2)
    ratio = slower.matmul.flops_efficiency / plain.matmul.flops_efficiency
    assert ratio == pytest.approx(0.25 / kernel.compute_share)
    same = serving_job(MADE.model, engine, WIDE, MADE.server, MADE.efficiency).device
    assert same.matmul.memory_efficiency == MADE.device.matmul.memory_efficiency


def test_fixed_efficiencies_are_those_given() -> None:
    given = remade(efficiency=Efficiency(flops=0.5, memory=0.25))
    assert given.device.matmul.flops_efficiency == 0.5
    assert given.device.matmul.memory_efficiency == 0.25
    assert given.request_s == 0.0
    assert MADE.request_s == MADE.engine.request_s


def test_the_engines_own_all_reduce_starts_sooner() -> None:
    library = network(MADE.server).scale_up[ALL_REDUCE]
    floor = 1.5e-6
    own = remade(exchanges={"all_reduce": "custom", "floor_us": 1.5}).network.scale_up[ALL_REDUCE]
    assert own.alpha_s == tuple(min(alpha, floor) for alpha in library.alpha_s)
    assert remade(exchanges={"all_reduce": "nccl"}).network.scale_up[ALL_REDUCE].alpha_s == library.alpha_s


def test_modules_that_stay_in_16_bit() -> None:
    assert wide_modules(WIDE) == frozenset()
    assert wide_modules(W4) == {"head", "router", "embedding", "norm", "vision"}
    experts = Scheme(FORMATS["mxfp4"], FORMATS["bf16"], FORMATS["bf16"], "bf16")
    assert {"qkv", "mlp", "output_projection", "head"} <= wide_modules(experts)


def test_groups_are_ranks_and_stages_at_work() -> None:
    placements = ReplicaLayouts.of(tp=[1, 2, 1], pp=[1, 4, 2], dp=[1, 1, 8])
    assert MADE.groups(placements).tolist() == [1, 4, 16]
    assert job(serve__engine="hf-transformers").groups(ReplicaLayouts.of(pp=4)).tolist() == [1]


def test_engines_that_compute_all_logits_pay_for_all() -> None:
    few, every = (remade(kernels={"all_logits": one}) for one in (False, True))
    prompt, decode = Work(prefills=2, prefill_tokens=300), Work(decodes=600, decode_past=10)
    name = "head and sampling"
    assert step_time(every, ONE, prompt).parts[name][0] == step_time(few, ONE, decode).parts[name][0]
    assert step_time(few, ONE, prompt).parts[name][0] == step_time(few, ONE, Work(decodes=2)).parts[name][0]


# What nothing can beat


def test_a_token_reads_the_weights_once() -> None:
    """Llama 3.1 8B without its embedding is 15.01 GB, and 3.35 TB/s read it in 4.5 ms; the cache comes on top."""
    ttft_s, tpot_s, request_s = fastest(MADE, ONE, Traffic(1000.0, 101.0), 1.0)
    bandwidth = MADE.device.bandwidth_bytes_per_s
    weights = 2 * (8_030_261_248 - 128256 * 4096)
    cache = 131072 * 1050
    assert tpot_s == pytest.approx((weights + cache) / bandwidth, rel=0.01)
    flops = 2 * 1000 * 6_979_321_856
    assert flops / 989.4e12 < ttft_s < 1.2 * flops / 989.4e12  # kernels between the products move memory
    assert request_s == pytest.approx(ttft_s + 100 * tpot_s, rel=1e-12)
    drafted = fastest(MADE, ONE, Traffic(1000.0, 101.0, draft_tokens=1, acceptance_rate=1.0), 1.0)
    assert drafted[1] == pytest.approx(tpot_s / 2, rel=0.02)
    assert fastest(MADE, ONE, Traffic(1000.0, 1.0), 1.0)[1] == 0.0
    hit = fastest(MADE, ONE, Traffic(4000.0, 101.0, prefix_hit_share=0.75), 1.0)
    assert hit[0] == pytest.approx(ttft_s, rel=0.1)


# What one replica gets of a test


def test_a_test_is_given_out_in_turn() -> None:
    lengths: dict[str, object] = {"serve__input_tokens": 500, "serve__output_tokens": 20}
    closed = offered_load(asked(gpus=1, serve__concurrency=64, serve__requests=640, **lengths), 4)
    assert (closed.concurrency, len(closed.inputs)) == (16, 160)
    few = offered_load(asked(gpus=1, serve__concurrency=1, serve__requests=10, **lengths), 4)
    assert (few.concurrency, len(few.inputs)) == (1, 3)
    even = offered_load(
        asked(gpus=1, serve__request_rate=8.0, serve__requests=40, serve__arrivals="constant", **lengths), 4
    )
    assert even.arrivals_s.tolist() == pytest.approx([0.5 * place for place in range(10)])
    assert even.concurrency is None
    burst = offered_load(asked(gpus=1, serve__requests=12, **lengths), 4)
    assert burst.arrivals_s.tolist() == [0.0] * 3
    chance = offered_load(asked(gpus=1, serve__request_rate=8.0, serve__requests=4000, **lengths), 4)
    assert np.diff(chance.arrivals_s).mean() == pytest.approx(0.5, rel=0.1)
    assert constant_arrivals(5.0, 3).tolist() == [0.0, 0.2, 0.4]


# Ranges


def test_limits_are_kept_with_the_confidence_asked_for() -> None:
    plain = asked(serve__concurrency=4, limits__max_ttft_s=1.0, limits__max_tpot_s=0.1)
    assert allowed_latencies(plain) == (1.0, 0.1)
    sure = asked(serve__concurrency=4, limits__max_ttft_s=1.0, limits__max_tpot_s=0.1, limits__confidence=0.9)
    expected = tuple(
        limit / spread.quantile(0.9)
        for limit, spread in ((1.0, span(sure, "ttft").spread), (0.1, span(sure, "tpot").spread))
        if spread is not None
    )
    assert allowed_latencies(sure) == pytest.approx(expected)
    one = replace(sure, limits=msgspec.structs.replace(sure.limits, max_tpot_s=None))
    assert allowed_latencies(one)[1] is None


def test_a_cost_varies_as_one_over_the_rate() -> None:
    resolved = asked(serve__concurrency=4)
    cost, rate = find_spread(resolved, "cost_per_million_tokens"), span(resolved, "throughput").spread
    assert cost is not None
    assert rate is not None
    assert cost.quantile(0.9) == pytest.approx(1.0 / rate.quantile(0.1), rel=1e-6)
    memory, gpus = find_spread(resolved, "headroom_gib"), find_spread(resolved, "gpus")
    assert memory is not None
    assert gpus is not None
    assert (gpus.low, gpus.high) == (1.0, 1.0)
    assert (memory.low, memory.high) == pytest.approx((0.97, 1.03))
