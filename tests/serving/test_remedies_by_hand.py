"""Remedies of a service: what each proposes for answers made up for it, and what advice makes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cases import REGISTRY
from msgspec.structs import replace
from serving_cases import altered, served

from xe_sizer.scenario.read import Change
from xe_sizer.serving import advice
from xe_sizer.serving.advice import advise
from xe_sizer.serving.estimate import ServingEstimate

H100S = "dell-xe9680-h100"
CHAT: dict[str, object] = {"serve__input_tokens": 1000, "serve__output_tokens": 200}
ONE = served(gpus=1, serve__concurrency=8, **CHAT)
RATE = served(gpus=1, serve__request_rate=4.0, **CHAT)
LARGE = served("llama-3.1-70b", gpus=1, serve__batch=1)
LIMITED = served(gpus=1, serve__concurrency=8, limits__max_ttft_s=2.0, limits__max_tpot_s=0.05, **CHAT)


def proposed(remedy: Callable[..., Iterator[Change]], found: ServingEstimate) -> list[dict[str, object]]:
    return [dict(change.values) for change in remedy(found, REGISTRY)]


def words(remedy: Callable[..., Iterator[Change]], found: ServingEstimate) -> list[str]:
    return [change.words for change in remedy(found, REGISTRY)]


def sizing(found: ServingEstimate, keeps: Callable[[float], bool]) -> ServingEstimate:
    """The estimate whose load, changed, is kept or not as is said."""

    def size(resolved: Any) -> Any:
        return SimpleNamespace(ok=keeps(resolved.amount))

    return replace(found, size=size)


# The share of the engine


def test_more_of_the_card_where_it_does_not_fit() -> None:
    assert proposed(advice.memory_share, LARGE) == [{"serve.gpu_memory_utilization": 0.95}]
    assert words(advice.memory_share, LARGE) == ["gpu_memory_utilization 0.95 instead of 0.9"]
    full = served("llama-3.1-70b", gpus=1, serve__batch=1, serve__gpu_memory_utilization=0.95)
    assert proposed(advice.memory_share, full) == []
    assert proposed(advice.memory_share, ONE) == []
    assert proposed(advice.memory_share, served(serve__engine="hf-transformers", serve__batch=4)) == []


def test_less_of_the_card_where_room_was_asked_for() -> None:
    """Free beside a share of 0.9: a tenth of the card less the graphs; 10 GiB take 0.9 - (10 GiB - room) / card."""
    found = served(gpus=1, serve__batch=1, limits__min_headroom_gib=10.0)
    card = found.usable_bytes
    room = 0.1 * card - found.resolved.job.engine.memory.graphs_gib * 2**30
    lower = np.floor(100 * (0.9 - (10 * 2**30 - room) / card)) / 100
    assert proposed(advice.memory_share, found) == [{"serve.gpu_memory_utilization": pytest.approx(lower)}]
    free = served(gpus=1, serve__batch=1, serve__engine="tensorrt-llm", limits__min_headroom_gib=20.0)
    now, pool = free.resolved.job.engine.memory.utilization, free.memory.pool_bytes[0]
    left = free.usable_bytes - pool - sum(size[0] for size in free.memory.fixed.values())
    lower = np.floor(100 * (now - (20 * 2**30 - left) / (pool / now))) / 100
    assert proposed(advice.memory_share, free) == [{"serve.gpu_memory_utilization": pytest.approx(lower)}]
    assert proposed(advice.memory_share, served(gpus=1, serve__batch=1, limits__min_headroom_gib=79.0)) == []
    assert proposed(advice.memory_share, served(gpus=1, serve__batch=1, limits__min_headroom_gib=1.0)) == []


# Formats and lengths


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({}, ["fp8", "int4"]),
        ({"serve__weights": "fp8"}, ["int4"]),
        ({"serve__weights": "int4"}, []),
        ({"gpu": "a100-sxm-80gb"}, ["int8", "int4"]),
    ],
)
def test_narrower_weights_halve_them_and_halve_them_again(flags: dict[str, object], expected: list[str]) -> None:
    found = served(serve__batch=1, **flags)
    changes = list(advice.narrower_weights(found))
    assert [change.values["serve.weights"] for change in changes] == expected
    assert [change.effort for change in changes] == [2 if name in ("fp8", "int8") else 3 for name in expected]


@pytest.mark.parametrize(
    ("scheme", "gpu", "expected"),
    [
        ("w16a16", "h100-sxm-80gb", ["w8a8k16", "w4a16k16"]),
        ("w8a8", "h100-sxm-80gb", ["w4a8k16"]),
        ("w8a16k8", "h100-sxm-80gb", ["w4a16k8"]),
    ],
)
def test_a_scheme_is_answered_with_a_scheme(scheme: str, gpu: str, expected: list[str]) -> None:
    found = served(serve__batch=1, serve__scheme=scheme, gpu=gpu)
    assert [change.values["serve.scheme"] for change in advice.narrower_weights(found)] == expected


def test_a_cache_of_8_bit_is_narrow_enough() -> None:
    assert proposed(advice.narrower_cache, ONE) == [{"serve.kv_cache": "fp8"}]
    assert proposed(advice.narrower_cache, served(serve__kv_cache="fp8")) == []
    assert proposed(advice.narrower_cache, served(serve__scheme="w16a16k16")) == [{"serve.scheme": "w16a16k8"}]


def test_prompts_are_halved_down_to_a_quarter_of_a_thousand() -> None:
    found = proposed(advice.shorter_prompts, served(serve__input_tokens=4096))
    assert found == [{"serve.input_tokens": tokens} for tokens in (2048.0, 1024.0, 512.0, 256.0)]
    assert proposed(advice.shorter_prompts, served(serve__input_tokens=511)) == []
    assert words(advice.shorter_prompts, served(serve__input_tokens=3000))[0] == (
        "prompts of 1,500 tokens instead of 3,000"
    )


def test_a_shorter_longest_sequence_has_room_for_the_mean_request() -> None:
    found = served(gpu="l4", gpus=1, serve__max_model_len=131_072, serve__concurrency=1)
    (change,) = advice.shorter_sequences(found)
    held = change.values["serve.max_model_len"]
    assert found.holds_one(int(str(held)))
    assert not found.holds_one(int(str(held)) + 1024)
    assert change.words == f"max_model_len {held:,} instead of 131,072"
    assert proposed(advice.shorter_sequences, ONE) == []
    long = served(gpu="l4", gpus=1, serve__max_model_len=131_072, serve__concurrency=1, serve__input_tokens=100_000)
    assert proposed(advice.shorter_sequences, long) == []


def test_limits_in_milliseconds_are_proposed_where_seconds_are_odd() -> None:
    both = served(serve__concurrency=1, limits__max_tpot_s=50, limits__max_ttft_s=500)
    assert proposed(advice.milliseconds, both) == [{"limits.max_ttft_s": "500ms", "limits.max_tpot_s": "50ms"}]
    assert words(advice.milliseconds, both) == ["max_ttft_s 500ms instead of 500 s and max_tpot_s 50ms instead of 50 s"]
    assert proposed(advice.milliseconds, LIMITED) == []


# Placements, GPUs and load


def test_sizes_that_were_fixed_are_left_open() -> None:
    wide = served("llama-3.1-70b", server=H100S, layout__tp=8, layout__pp=2, serve__concurrency=1)
    (change,) = advice.placement(wide)
    assert set(change.values) == {"layout.tp", "layout.pp"}
    assert change.words == f"another placement: tp {change.values['layout.tp']}, pp {change.values['layout.pp']}"
    assert proposed(advice.placement, ONE) == []
    assert proposed(advice.placement, served(server=H100S, layout__tp=1, serve__concurrency=1)) == []


def test_more_gpus_are_those_that_are_chosen_where_the_number_is_open() -> None:
    assert proposed(advice.more_gpus, LARGE) == [{"gpus": 2}]
    assert words(advice.more_gpus, LARGE) == ["2 GPUs instead of 1"]
    assert proposed(advice.more_gpus, ONE) == []
    fixed = served("llama-3.1-70b", server=H100S, gpus=1, layout__tp=1, serve__concurrency=1)
    assert proposed(advice.more_gpus, fixed) == [{"gpus": 2, "layout.tp": 2}]


def test_prompts_apart_where_nobody_says_where() -> None:
    assert proposed(advice.prefill_apart, RATE) == [{"serve.prefill_replicas": "auto"}]
    assert proposed(advice.prefill_apart, served()) == []
    assert proposed(advice.prefill_apart, served(serve__batch=4)) == []
    assert proposed(advice.prefill_apart, served(gpus=2, serve__request_rate=1.0, serve__spare_replicas=1)) == []
    assert proposed(advice.prefill_apart, served(serve__engine="tgi", serve__request_rate=1.0)) == []


def test_the_highest_load_below_is_found_to_a_hundredth() -> None:
    """Of 500 a second: 250, then 125 are kept; then geometric means, three digits down."""
    for most in (137.0, 240.0, 126.0, 3.0):
        (found,) = proposed(advice.less_load, altered(sizing(RATE, lambda amount, m=most: amount <= m), amount=500.0))
        kept = float(str(found["serve.request_rate"]))
        assert most / 1.011 <= kept <= most
    assert proposed(advice.less_load, sizing(RATE, lambda _: False)) == []


def test_whole_requests_are_whole() -> None:
    def least(most: float, asked: float, found: ServingEstimate = ONE) -> object:
        (change,) = advice.less_load(altered(sizing(found, lambda amount: amount <= most), amount=asked))
        return next(iter(change.values.values()))

    assert least(1.0, 500.0) == 1
    assert least(2.0, 7.0) == 2
    assert least(137.5, 500.0) == 137
    assert least(5.0, 7.0) == 5
    assert least(6.0, 7.0) == 6
    assert least(3.0, 7.0) == 3
    assert proposed(advice.less_load, altered(sizing(ONE, lambda amount: amount < 1.0), amount=4.0)) == []
    batch = served(gpus=1, serve__batch=16)
    (change,) = advice.less_load(sizing(batch, lambda amount: amount <= 4.0))
    assert (change.words, change.values) == ("4 requests in a batch instead of 16", {"serve.batch": 4})
    one = altered(sizing(RATE, lambda amount: amount <= 1.0), amount=2.0)
    assert words(advice.less_load, one) == ["1 request/s instead of 2"]
    assert proposed(advice.less_load, served()) == []


# Limits


def test_missed_limits_are_widened_step_by_step_and_as_wide_as_is_needed() -> None:
    """2 s are missed 1.7 times, 0.05 s are met."""
    found = altered(LIMITED, ttft_s=3.4, tpot_s=0.04)
    tried = [float(str(values["limits.max_ttft_s"])) for values in proposed(advice.wider_limits, found)]
    assert tried == [2.2, 2.5, 3.0, 3.4, 4.0, 6.0, 10.0, 20.0, 40.0]
    both = altered(LIMITED, ttft_s=3.0, tpot_s=0.07)
    assert proposed(advice.wider_limits, both)[0] == {"limits.max_ttft_s": 2.2, "limits.max_tpot_s": 0.055}
    assert words(advice.wider_limits, both)[0] == "max_ttft_s 2.2 instead of 2 and max_tpot_s 0.055 instead of 0.05"
    assert proposed(advice.wider_limits, altered(LIMITED, ttft_s=2.0, tpot_s=0.05)) == []
    late = served(gpus=1, serve__request_rate=4.0, limits__max_ttft_s=2.0, **CHAT)
    assert proposed(advice.wider_limits, altered(late, ttft_s=np.inf, percentiles={})) == []


def test_limits_that_are_met_by_little_are_loosened() -> None:
    met = altered(LIMITED, ttft_s=0.9, tpot_s=0.04)
    assert proposed(advice.looser_limits, met) == [
        {"limits.max_tpot_s": pytest.approx(0.05 * factor)} for factor in (1.25, 1.5, 2.0)
    ]
    assert len(proposed(advice.looser_limits, altered(LIMITED, ttft_s=1.1, tpot_s=0.04))) == 6
    assert proposed(advice.looser_limits, altered(LIMITED, ttft_s=1.0, tpot_s=0.051)) == []
    assert len(proposed(advice.looser_limits, altered(LIMITED, ttft_s=2.0, tpot_s=0.01))) == 3


def test_limits_as_sure_as_now() -> None:
    (change,) = advice.same_certainty(LIMITED)
    assert LIMITED.least_sure is not None
    asked = np.floor(100 * min(LIMITED.least_sure, 0.99)) / 100
    assert change.values == {"limits.confidence": pytest.approx(asked)}
    sure = served(gpus=1, serve__concurrency=1, limits__max_ttft_s=60.0, limits__max_tpot_s=10.0)
    assert [change.values["limits.confidence"] for change in advice.same_certainty(sure)] == [0.99]
    assert list(advice.same_certainty(served(gpus=1, serve__batch=1))) == []
    asked_for = served(gpus=1, serve__concurrency=1, limits__max_ttft_s=60.0, limits__confidence=0.8)
    assert list(advice.same_certainty(asked_for)) == []
    unsure = altered(LIMITED, ttft_s=2.5, tpot_s=0.01)
    assert list(advice.same_certainty(unsure)) == []


# Advice


def test_advice_is_sized_again() -> None:
    """What is said of a change is what the changed question answers."""
    found = served("llama-3.1-70b", gpus=1, serve__concurrency=4, **CHAT)
    for change in advise(found, REGISTRY):
        assert change.effect
    assert advise(found, REGISTRY, 0) == ()
    assert len(advise(found, REGISTRY, 1)) == 1
    assert len(advise(found, REGISTRY)) <= 5


def test_what_is_gained_takes_fewer_gpus_for_the_load() -> None:
    found = served("llama-3.1-70b", server=H100S, serve__request_rate=40.0, **CHAT)
    gains = [one for one in advise(found, REGISTRY) if "weights" in one.change or "cache" in one.change]
    assert gains
    for one in gains:
        assert "instead of" in one.effect


def test_a_narrower_format_says_what_the_same_gpus_take() -> None:
    found = served(gpus=1, serve__request_rate=2.0, **CHAT)
    narrow = [one for one in advise(found, REGISTRY) if "fp8 weights" in one.change]
    after = served(gpus=1, serve__request_rate=2.0, serve__weights="fp8", **CHAT)
    assert after.most_per_s > found.most_per_s / 0.95
    assert narrow
    assert "1 replica of 1 GPU, " in narrow[0].effect
    assert f"{1e3 * after.ttft_s:.1f} ms to the first token" in narrow[0].effect
    most, before = (np.floor(one.most_per_s * 10) / 10 for one in (after, found))  # three digits, downwards
    assert 10 < before < most < 100
    assert f"up to {most:g} requests/s instead of {before:g}" in narrow[0].effect


def test_concurrency_is_answered_in_tokens() -> None:
    found = served(gpus=1, serve__concurrency=64, **CHAT)
    narrow = [one for one in advise(found, REGISTRY) if one.change.startswith("fp8 weights")]
    after = served(gpus=1, serve__concurrency=64, serve__weights="fp8", **CHAT)
    assert narrow
    assert f"{after.taken_per_s * 200:,.0f} output tokens/s" in narrow[0].effect
    assert f"instead of {found.requests_per_s * 200:,.0f}" in narrow[0].effect
