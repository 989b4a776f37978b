"""From a serving question to replicas: placements, memory, load, limits, cost."""

from __future__ import annotations

from itertools import pairwise
from operator import attrgetter

import numpy as np
import pytest
from serving_cases import asked, job, problems, served

from xe_sizer.serving.job import TARGET_LOAD
from xe_sizer.serving.memory import rank_weight_bytes
from xe_sizer.serving.search_space import legal_placements
from xe_sizer.serving.summary import build_cost, summarise

GIB = 2**30
H100S = "dell-xe9680-h100"
PRICED: dict[str, object] = {"cost__price_per_gpu_hour": 3.0}


# Questions


def test_defaults_say_that_they_are() -> None:
    resolved = asked()
    for key, value in (("serve.input_tokens", 1024.0), ("serve.output_tokens", 256.0), ("serve.percentile", 95.0)):
        assert (attrgetter(key)(resolved.values), resolved.origins[key]) == (value, "default")
    assert resolved.origins["serve.max_sequences"] == "stack"
    assert resolved.load is None
    assert asked(serve__batch=3).load == "batch"
    assert asked(serve__request_rate=3).amount == 3


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"layout__tp": 3}, "tp 3 does not divide the 32 heads"),
        ({"layout__pp": 33}, "pp 33 is more than the 32 layers"),
        ({"layout__ep": 2}, "no experts"),
        ({"model": "mixtral-8x7b", "layout__ep": 3}, "ep 3 does not divide the 8 experts"),
        ({"gpus": 2, "layout__tp": 2, "layout__dp": 2}, "not a multiple of"),
        ({"gpu": "a100-sxm-80gb", "precision": "fp8"}, "has no fp8"),
        ({"serve__scheme": "w7a16"}, "no format of 7 bits"),
        ({"serve__engine": "vlm"}, "vllm"),
        ({"model": "lama-3.1-8b"}, "llama-3.1-8b"),
    ],
)
def test_what_cannot_be_is_refused(flags: dict[str, object], words: str) -> None:
    assert any(words in problem for problem in problems(**flags))


def test_all_problems_come_at_once() -> None:
    assert len(problems(model="lama-3.1-8b", serve__engine="vlm")) == 2
    assert len(problems(model="lama-3.1-8b", serve__scheme="w7a16")) == 2


def test_a_prompt_beyond_the_positions_is_warned_of() -> None:
    assert any("8,192 positions" in warning for warning in asked("llama-3-8b", serve__input_tokens=9000).warnings)
    assert not any("positions" in warning for warning in asked("llama-3-8b", serve__input_tokens=7000).warnings)


# ReplicaLayouts


@pytest.mark.parametrize("name", ["llama-3.1-70b", "mixtral-8x7b", "qwen2.5-7b", "deepseek-v3", "phi-3-medium-4k"])
@pytest.mark.parametrize("most", [1, 8, 16])
def test_placements_are_legal(name: str, most: int) -> None:
    made = job(name, server=H100S)
    found = legal_placements(made, {}, most)
    assert len(found) == len({tuple(row) for row in zip(found.tp, found.pp, found.ep, found.dp, strict=True)}) > 0
    assert np.all(found.gpus <= most)
    assert np.all(np.diff(found.gpus) >= 0)
    assert np.all(made.model.heads % found.tp == 0)
    assert np.all(found.tp <= 8)
    assert np.all(found.pp <= made.model.layers)
    experts = made.model.experts
    if experts is None:
        assert np.all((found.ep == 1) & (found.dp == 1))
    else:
        assert np.all(experts.count % found.ep == 0)
        assert np.all((found.tp * found.dp) % found.ep == 0)


def test_fixed_sizes_are_kept() -> None:
    made = job("mixtral-8x7b", server=H100S)
    found = legal_placements(made, {"tp": 4, "ep": 2}, None)
    assert set(found.tp) == {4}
    assert set(found.ep) == {2}
    chosen = served("mixtral-8x7b", server=H100S, layout__tp=4, layout__pp=2, serve__batch=1).placement
    assert (chosen.tp[0], chosen.pp[0]) == (4, 2)


@pytest.mark.parametrize(
    ("name", "flags", "shape"),
    [
        ("llama-3.1-405b", {"gpu": "l4", "gpus": 48}, (8, 6)),
        ("llama-3.1-405b", {"gpu": "a100-sxm-80gb", "gpus": 12}, (4, 3)),
        ("llama-3.1-405b", {"gpu": "a100-sxm-40gb", "serve__batch": 1}, (8, 3)),
        ("deepseek-v3", {"gpu": "rtx-4090", "serve__batch": 1}, (8, 5)),
        ("llama-3.1-405b", {"server": H100S, "serve__weights": "fp8", "serve__batch": 1}, (8, 1)),
    ],
)
def test_as_many_stages_as_it_takes(name: str, flags: dict[str, object], shape: tuple[int, int]) -> None:
    """16-bit weights of 405 B take 17 GB of 48 cards of 24 GB, 68 GB of 12 of 80, 34 GB of 24 of 40."""
    found = served(name, **flags)
    assert found.fits
    assert (found.placement.tp[0], found.placement.pp[0]) == shape


def test_what_does_not_fit_is_judged_where_least_is_missing() -> None:
    found = served("llama-3.1-405b", server=H100S, gpus=8, serve__concurrency=16)
    assert not found.fits
    assert found.placement.gpus[0] == 8


def test_limits_that_are_missed_are_missed_by_least() -> None:
    flags: dict[str, object] = {"server": H100S, "gpus": 8, "serve__request_rate": 5.0, "limits__max_tpot_s": 0.01}
    missed = [
        served("llama-3.1-70b", layout__tp=tp, layout__pp=1, **flags).point.percentiles[95.0][1] for tp in (2, 4, 8)
    ]
    chosen = served("llama-3.1-70b", **flags)
    assert not chosen.ok
    assert chosen.point.percentiles[95.0][1] <= 1.1 * min(missed)


def test_a_limit_that_nothing_keeps_overloads_nobody() -> None:
    found = served(serve__request_rate=1000.0, limits__max_ttft_s=1e-4)
    assert not found.ok
    assert found.utilisation <= TARGET_LOAD
    assert np.isfinite(found.point.ttft_s)


def test_gpus_that_are_there_are_used() -> None:
    found = served(server=H100S, gpus=8, serve__request_rate=1.0)
    assert found.gpus == 8


@pytest.mark.parametrize("load", [{"serve__request_rate": 1.0}, {"serve__batch": 4}, {"serve__concurrency": 4}])
@pytest.mark.parametrize(("gpus", "spare"), [(2, 1), (4, 1), (4, 3), (7, 2)])
def test_spare_replicas_come_out_of_the_gpus_asked_for(load: dict[str, object], gpus: int, spare: int) -> None:
    found = served(server=H100S, gpus=gpus, serve__spare_replicas=spare, **load)
    assert found.replicas > spare
    assert found.gpus <= gpus


def test_more_spare_replicas_than_gpus() -> None:
    found = problems(server=H100S, gpus=2, serve__spare_replicas=2, serve__request_rate=1.0)
    assert any("spare" in problem for problem in found)


@pytest.mark.parametrize("load", [{"serve__request_rate": 2.0}, {"serve__batch": 2}, {"serve__concurrency": 2}])
def test_an_answer_of_one_token_has_no_time_per_further_token(load: dict[str, object]) -> None:
    found = served(serve__output_tokens=1, limits__max_tpot_s=1e-3, **load)
    assert found.gpus == 1
    assert found.point.tpot_s == 0
    assert summarise(found).verdict.ok


@pytest.mark.parametrize("amount", [1, 10, 1000, 5000])
def test_requests_in_flight_obey_littles_law(amount: int) -> None:
    """N = X R of the whole service, and a request is its first token and the others."""
    found = served(serve__concurrency=amount, serve__output_tokens=64)
    point = found.point
    assert found.requests_per_s * point.request_s == pytest.approx(amount)
    assert found.in_flight == pytest.approx(amount)
    assert point.request_s == pytest.approx(point.ttft_s + 63 * point.tpot_s)
    assert point.ttft_s > 0


def test_hardly_any_load_is_hardly_inside() -> None:
    found = served(serve__request_rate=0.001)
    assert found.point.running == pytest.approx(0.001 * found.point.request_s, rel=0.1)


def test_half_of_skewed_answers_are_shorter_than_the_mean() -> None:
    """The median of a log-normal is its mean over sqrt(1 + spread squared)."""
    found = served(serve__request_rate=0.5, serve__output_tokens=400, serve__output_spread=2.0).point
    half = found.percentiles[50.0]
    assert half[2] - half[0] == pytest.approx((400 / 5**0.5 - 1) * half[1], rel=1e-6)
    assert half[2] < 0.6 * found.request_s


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"serve__weights": "mxfp4"}, "experts alone"),
        ({"model": "gpt-oss-20b", "serve__weights": "mxfp4"}, None),
        ({"serve__draft_tokens": 3}, "acceptance_rate"),
    ],
)
def test_what_would_have_no_effect_is_refused(flags: dict[str, object], words: str | None) -> None:
    if words is None:
        assert served(**flags).fits
    else:
        assert any(words in problem for problem in problems(**flags))


def test_no_placement_says_what_stands_in_the_way() -> None:
    found = problems(model="llama-3.1-8b", server=H100S, gpus=8, layout__tp=16)
    assert any("tp" in problem and "16" in problem for problem in found)


# Memory


@pytest.mark.parametrize(
    ("name", "weights", "least"),
    [
        ("llama-3.1-8b", "bf16", 1),
        ("llama-3.1-70b", "bf16", 2),
        ("llama-3.1-70b", "int4", 1),
        ("llama-3.1-405b", "fp8", 8),
        ("deepseek-v3", "fp8-block", 16),
        ("mixtral-8x7b", "bf16", 2),
    ],
)
def test_fewest_h100s_that_hold_a_model(name: str, weights: str, least: int) -> None:
    """Weights over 80 GB cards in powers of two; 405 B in fp8 are served on one such node, 671 B on two."""
    found = served(name, server=H100S, serve__weights=weights, serve__batch=1, serve__input_tokens=512)
    assert found.fits
    assert found.minimum == least


@pytest.mark.parametrize("name", ["llama-3.1-8b", "llama-3.1-70b", "mixtral-8x7b", "gemma-2-9b"])
@pytest.mark.parametrize("engine", ["vllm", "tensorrt-llm", "lmdeploy", "gpt-fast"])
def test_what_fits_is_inside_the_card(name: str, engine: str) -> None:
    found = served(name, server=H100S, serve__engine=engine, serve__batch=1)
    memory = found.memory
    assert sum(float(size[0]) for size in memory.fixed.values()) + memory.pool_bytes[0] <= memory.usable_bytes
    held = rank_weight_bytes(found.resolved.job.model, found.resolved.job.scheme, found.placement)
    assert memory.fixed["weights"][0] == held[0]


def test_what_does_not_fit_is_said_to_be_so() -> None:
    found = served("llama-3.1-70b", gpus=1, serve__batch=1)
    assert not found.fits
    assert (found.choice.minimum, found.minimum) == (None, 2)  # on the GPUs asked for, and on any number
    longest = served("llama-3.1-8b", gpus=1, serve__batch=1, serve__input_tokens=2_000_000)
    assert not longest.fits


@pytest.mark.parametrize("name", ["llama-3.1-8b", "llama-2-13b", "gemma-2-9b"])
def test_a_larger_card_never_serves_less(name: str) -> None:
    """H200 is H100 with more and faster memory; 80 GB of A100 against 40 differ in both too."""
    for small, large in (("h100-sxm-80gb", "h200-sxm-141gb"), ("a100-sxm-40gb", "a100-sxm-80gb")):
        less, more = (served(name, gpu=gpu, gpus=1) for gpu in (small, large))
        assert more.choice.holds > less.choice.holds
        assert more.requests_per_s >= less.requests_per_s


# Load


@pytest.mark.parametrize("rate", [0.5, 5.0, 50.0, 500.0])
def test_replicas_take_the_load(rate: float) -> None:
    found = served(serve__request_rate=rate)
    assert found.requests_per_s == pytest.approx(rate)
    assert 0 < found.utilisation <= 1
    assert found.replicas * found.choice.top_rate >= rate
    if found.replicas > 1:
        of_one = found.choice.top_rate * TARGET_LOAD
        assert (found.replicas - 1) * of_one < rate <= found.replicas * of_one


def test_without_a_limit_on_latency_replicas_are_not_run_to_their_end() -> None:
    found = served(serve__request_rate=500.0)
    assert found.utilisation <= TARGET_LOAD
    assert found.point.percentiles[99.0][0] < 10 * found.point.ttft_s


def test_spare_replicas_come_out_of_the_gpus_that_are_given() -> None:
    found = served(serve__request_rate=4.0, gpus=8, layout__tp=2, serve__spare_replicas=1)
    assert (found.gpus, found.replicas, found.working_replicas) == (8, 4, 3)
    assert found.point.requests_per_s == pytest.approx(4.0 / 3)


def test_ranks_that_each_hold_part_of_a_request_hold_none() -> None:
    """Attention ranks do not share a cache: eight of them with room for a third of a request each cannot serve it."""
    long = served("deepseek-v3", gpu="h200-sxm-141gb", layout__dp=8, layout__tp=1, layout__ep=8, gpus=8,
                  serve__weights="fp8-block", serve__input_tokens=4_000_000, serve__output_tokens=1)  # fmt: skip
    assert long.choice.holds < 1
    assert not long.fits


@pytest.mark.parametrize("engine", ["vllm", "tgi", "tensorrt-llm"])
def test_more_load_never_needs_fewer_gpus_nor_is_faster(engine: str) -> None:
    found = [served(serve__engine=engine, gpus=1, serve__request_rate=rate) for rate in (0.1, 1.0, 4.0, 8.0)]
    for less, more in pairwise(found):
        for one, other in zip(less.point.percentiles[95.0], more.point.percentiles[95.0], strict=True):
            assert one <= other * (1 + 1e-9)
    gpus = [served(serve__engine=engine, serve__request_rate=rate).gpus for rate in (1.0, 20.0, 100.0, 400.0)]
    assert gpus == sorted(gpus)


def test_limits_are_kept_at_the_percentile() -> None:
    limits = {"limits__max_ttft_s": 0.5, "limits__max_tpot_s": 0.02}
    found = served(serve__request_rate=60.0, **limits)
    ttft_s, tpot_s, _ = found.point.percentiles[95.0]
    assert ttft_s <= 0.5 * (1 + 1e-6)
    assert tpot_s <= 0.02 * (1 + 1e-6)
    assert found.gpus >= served(serve__request_rate=60.0).gpus
    stricter = served(serve__request_rate=60.0, **limits, serve__percentile=99.0)
    assert stricter.gpus >= found.gpus


def test_percentiles_are_in_order() -> None:
    point = served(serve__request_rate=5.0, serve__input_spread=1.0, serve__output_spread=1.0).point
    assert set(point.percentiles) >= {50.0, 95.0, 99.0}
    for lower, higher in ((50.0, 95.0), (95.0, 99.0)):
        for one, other in zip(point.percentiles[lower], point.percentiles[higher], strict=True):
            assert one <= other


def test_spare_replicas_share_no_load_but_cost() -> None:
    plain = served(serve__request_rate=100.0, cost__price_per_gpu_hour=2.0)
    spare = served(serve__request_rate=100.0, cost__price_per_gpu_hour=2.0, serve__spare_replicas=2)
    assert spare.replicas == plain.replicas + 2
    assert spare.point.requests_per_s == plain.point.requests_per_s
    assert spare.cost == pytest.approx(2.0 * spare.gpus)
    assert spare.gpus > plain.gpus


def test_a_token_costs_what_the_hour_makes() -> None:
    found = served(serve__request_rate=10.0, serve__input_tokens=300, serve__output_tokens=100, **PRICED)
    assert found.cost == 3.0 * found.gpus
    cost = build_cost(found)
    assert cost.per_million_input_tokens is not None
    assert cost.per_million_output_tokens is not None
    hourly = 3600 * 10 * (300 * cost.per_million_input_tokens + 100 * cost.per_million_output_tokens) / 1e6
    assert hourly == pytest.approx(found.cost)
    assert served().cost is None


def test_idle_gpus_are_paid_for() -> None:
    found = served("llama-3.1-70b", serve__request_rate=1.0, gpus=7, **PRICED)
    assert found.gpus < 7
    assert found.cost == 21.0


def test_a_replica_that_is_kept_at_a_concurrency() -> None:
    found = [served(gpus=1, serve__concurrency=n) for n in (1, 8, 64)]
    assert [one.point.running for one in found] == [1, 8, 64]
    rates = [one.requests_per_s for one in found]
    assert rates == sorted(rates)
    for one, inside in zip(found, (1, 8, 64), strict=True):
        # Little's law: requests inside are the rate times how long each is inside.
        assert one.point.requests_per_s * one.point.request_s == pytest.approx(inside, rel=0.15)


def test_beyond_what_a_replica_holds_requests_wait() -> None:
    few, many = (served(gpus=1, serve__max_sequences=16, serve__concurrency=n) for n in (16, 160))
    assert many.point.running == 16
    assert many.point.requests_per_s == pytest.approx(few.point.requests_per_s, rel=1e-9)
    assert many.point.ttft_s > few.point.ttft_s
    assert many.point.tpot_s == few.point.tpot_s


@pytest.mark.parametrize("batch", [1, 4, 32])
def test_a_batch_makes_its_tokens_in_its_time(batch: int) -> None:
    found = served(serve__batch=batch, serve__output_tokens=100, gpus=1)
    point = found.point
    assert point.request_s == pytest.approx(point.ttft_s + 99 * point.tpot_s, rel=1e-9)
    assert point.requests_per_s == pytest.approx(batch / point.request_s, rel=1e-9)
    assert point.percentiles == {}
    assert 0 < found.prefill_share < 1


def test_tensor_parallel_ranks_decode_one_sequence_faster() -> None:
    steps = [
        served("llama-3.1-70b", server=H100S, gpus=tp, layout__tp=tp, serve__batch=1).point.tpot_s for tp in (2, 4, 8)
    ]
    assert steps == sorted(steps, reverse=True)
