"""Which placements there are, which one is chosen, and how many replicas, against lists and sums made by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from msgspec.structs import replace
from serving_cases import altered, asked, job, served

from xe_sizer.result.serving import AGGREGATED, ALIKE, DISAGGREGATED
from xe_sizer.serving.advice import certainty_words, effect_words, gpus_per_load, less_sure, time_words
from xe_sizer.serving.estimate import ServingEstimate, alike, build_cases, fewest_gpus, missed, missed_for
from xe_sizer.serving.job import ReplicaLayouts, ServingJob
from xe_sizer.serving.memory import sessions_held, static_peak
from xe_sizer.serving.search import choose
from xe_sizer.serving.search_space import legal_placements, worthwhile
from xe_sizer.serving.summary import better_words

H100S = "dell-xe9680-h100"
CHAT: dict[str, object] = {"serve__input_tokens": 1000, "serve__output_tokens": 200}


def placed(made: ServingJob, most: int | None, **fixed: int) -> list[tuple[int, int, int, int]]:
    found = legal_placements(made, fixed, most)
    return list(zip(*(getattr(found, name).tolist() for name in ("tp", "pp", "ep", "dp")), strict=True))


def dense(*sizes: tuple[int, int]) -> list[tuple[int, int, int, int]]:
    return [(tp, pp, 1, 1) for tp, pp in sizes]


# Placements


def test_ranks_first_then_stages() -> None:
    """Llama 3.1 8B has 32 heads and 32 layers: a pipeline only where a node has no more ranks."""
    made = job(server=H100S)
    assert placed(made, 8) == dense((1, 1), (2, 1), (4, 1), (8, 1))
    assert placed(made, 16) == dense((1, 1), (2, 1), (4, 1), (8, 1), (8, 2))
    assert placed(made, 1) == dense((1, 1))
    assert placed(made, 40)[3:] == dense((8, 1), (8, 2), (8, 3), (8, 4), (8, 5))


def test_odd_numbers_of_gpus_take_odd_numbers_of_stages() -> None:
    assert placed(job(server=H100S), 12) == dense(
        (1, 1), (2, 1), (1, 3), (4, 1), (1, 5), (2, 3), (8, 1), (2, 5), (4, 3)
    )


def test_fixed_sizes_leave_all_stages() -> None:
    made = job(server=H100S)
    assert placed(made, 16, tp=2) == dense((2, 1), (2, 2), (2, 3), (2, 4), (2, 5), (2, 6), (2, 8))
    assert placed(made, 16, pp=2) == dense((1, 2), (2, 2), (4, 2), (8, 2))
    assert placed(made, None, tp=2, pp=7) == dense((2, 7))
    assert placed(made, 4, tp=8) == []
    assert placed(made, None, pp=33) == []


def test_ranks_divide_the_heads() -> None:
    """Qwen2.5 7B has 28: eight ranks do not, so that stages follow from four on."""
    assert placed(job("qwen2.5-7b", server=H100S), 8) == dense((1, 1), (2, 1), (4, 1), (4, 2))


def test_experts_are_split_given_out_or_served_by_ranks_of_their_own() -> None:
    found = placed(job("mixtral-8x7b", server=H100S), 4)
    assert found == [
        (1, 1, 1, 1),
        (1, 1, 2, 2),
        (2, 1, 1, 1),
        (2, 1, 2, 1),
        (1, 3, 1, 1),
        (1, 1, 4, 4),
        (4, 1, 1, 1),
        (4, 1, 4, 1),
    ]
    assert placed(job("mixtral-8x7b", server=H100S), 4, tp=4) == [(4, 1, 1, 1), (4, 1, 4, 1)]
    assert placed(job("mixtral-8x7b", server=H100S), 4, tp=4, ep=2) == [(4, 1, 2, 1)]
    assert placed(job("mixtral-8x7b", server=H100S), None, tp=1, dp=8, pp=1) == [(1, 1, 8, 8)]


def test_ranks_left_over_share_an_expert() -> None:
    assert ReplicaLayouts.of(tp=[1, 8, 8, 2], ep=[1, 1, 4, 4], dp=[1, 1, 1, 4]).expert_tp.tolist() == [1, 8, 2, 2]
    assert ReplicaLayouts.of(tp=2, pp=3, dp=4).gpus.tolist() == [24]
    assert ReplicaLayouts.of(ep=4).expert_tp.tolist() == [1]


def test_engines_without_ranks_have_stages_alone() -> None:
    """`device_map` splits layers over the GPUs of a node."""
    found = placed(job(server=H100S, serve__engine="hf-transformers"), 4)
    assert found == dense((1, 1), (1, 2), (1, 3), (1, 4))


def test_the_fewest_stages_that_fit_and_twice_and_four_times_as_many() -> None:
    many = ReplicaLayouts.of(tp=[1, 1, 1, 1, 1, 2, 2, 4], pp=[1, 2, 3, 4, 8, 1, 2, 1])
    fitting = np.array([False, True, True, True, True, False, False, True])
    assert worthwhile(many, fitting).tolist() == [False, True, False, True, True, False, True, True]


# Cases


def test_of_those_that_fit_the_first_by_the_keys() -> None:
    resolved = asked("llama-3.1-70b", server=H100S, serve__concurrency=4)
    cases = build_cases(resolved, ReplicaLayouts.of(tp=[1, 2, 4, 8]))
    assert cases.fitting.tolist() == [False, True, True, True]
    assert cases.order(np.array([0, 5, 4, 4]), np.array([0, 0, 2, 1])) == 3
    none = replace(cases, fitting=np.zeros(4, dtype=bool))
    assert none.order(np.array([0, 0, 0, 0])) == 3  # the least of each rank's need
    assert none.need_bytes.argmin() == 3
    parts = cases.memory.fixed
    each = cases.need_bytes - sum(parts.values())
    assert each.tolist() == pytest.approx([resolved.must_hold * 327_680 / tp for tp in (1, 2, 4, 8)], rel=0.02)
    assert fewest_gpus(resolved) == 2
    assert fewest_gpus(asked("llama-3.1-70b", server=H100S, gpus=1, layout__tp=1, serve__concurrency=4)) == 2


def test_a_growing_batch_must_fit_as_a_whole() -> None:
    """Requests beside the first take what two need more than one; all of them stand beside what software takes."""
    resolved = asked(serve__engine="hf-transformers", serve__batch=8, **CHAT)
    one = ReplicaLayouts.of()
    live = [sum(static_peak(resolved.job, one, n, 1000.0, 200.0).values()) for n in (1.0, 2.0, 8.0)]
    cases = build_cases(resolved, one)
    beside = sum(cases.memory.fixed[name] for name in ("CUDA context", "communicators", "workspaces"))
    card = resolved.job.server.accelerator.memory_bytes
    assert cases.need_bytes[0] == pytest.approx(float(beside[0] + live[2][0]), rel=1e-12)
    assert cases.holds[0] == pytest.approx(float(1 + (card - beside - live[0])[0] / (live[1] - live[0])[0]), rel=1e-12)
    holds = float(cases.holds[0])
    assert sessions_held(resolved.job, one, 1000.0, 200.0)[0] == math.floor(holds)
    for batch, fits in ((math.floor(holds), True), (math.ceil(holds), False)):
        asked_for = asked(serve__engine="hf-transformers", serve__batch=batch, **CHAT)
        assert bool(build_cases(asked_for, one).fitting[0]) == fits


def test_a_pool_must_hold_one_request_and_the_longest() -> None:
    """Two cards of 24 GB for 16 GB of weights: the rest holds a request; not one of 131,072 tokens, which is 17 GB."""
    short = build_cases(asked(gpu="l4", serve__concurrency=4, **CHAT), ReplicaLayouts.of())
    assert short.fitting[0]
    assert short.holds[0] == pytest.approx(short.memory.pool_bytes[0] / (1200 * 131_072))
    long = build_cases(asked(gpu="l4", serve__concurrency=4, serve__max_model_len=131_072, **CHAT), ReplicaLayouts.of())
    assert not long.fitting[0]
    assert long.holds[0] == short.holds[0]
    fixed = sum(size[0] for size in long.memory.fixed.values())
    assert long.need_bytes[0] == pytest.approx(fixed + 131_072 * 131_072)


def test_misses_are_counted_in_tenths() -> None:
    """1.1^3 = 1.331: three steps; what is kept is no miss, however well."""
    resolved = asked(serve__concurrency=4, limits__max_ttft_s=1.0, limits__max_tpot_s=0.1)
    ttft_s, tpot_s = np.array([0.5, 1.0, 1.05, 1.3, 0.2]), np.array([0.1, 0.02, 0.05, 0.05, 0.2])
    assert missed(resolved, ttft_s, tpot_s).tolist() == [0, 0, 1, 3, 8]
    free = asked(serve__batch=4)
    assert missed(free, ttft_s, tpot_s).tolist() == [0] * 5


def test_where_nothing_keeps_the_limits_gpus_count_as_misses() -> None:
    miss, gpus = np.array([8.0, 0.0, 1.0]), np.array([1.0, 2.0, 8.0])
    assert missed_for(miss, gpus, np.array([True, True, True])).tolist() == miss.tolist()
    counted = missed_for(miss, gpus, np.array([True, False, True]))
    assert counted.tolist() == [8.0, 7.0, 1.0 + 22.0]  # log 2 / log 1.1 = 7.3, log 8 / log 1.1 = 21.8
    assert alike(np.array([1.0, 1.1, 1.04, 2.0])).tolist() == [0, 1, 0, 7]


# Replicas


@pytest.mark.parametrize(
    ("gpus", "layout", "replicas"),
    [
        (8, (1, 1), 8),
        (15, (1, 3), 4),  # two in a server of eight
        (32, (8, 2), 2),
        (12, (4, 1), 3),
        (18, (1, 3), 6),
        (24, (1, 3), 6),
    ],
)
def test_replicas_lie_inside_servers(gpus: int, layout: tuple[int, int], replicas: int) -> None:
    found = served(server=H100S, gpus=gpus, layout__tp=layout[0], layout__pp=layout[1], serve__request_rate=1.0, **CHAT)
    assert found.replicas == replicas


def test_replicas_are_as_many_as_the_load_needs() -> None:
    """The load over 85 % of what one takes where nobody limits latencies, over all of it where somebody does."""
    one = served(layout__tp=1, gpus=1, serve__request_rate=1.0, **CHAT)
    most = one.choice.top_rate
    for share, replicas in ((0.8, 1), (0.84, 1), (0.86, 2), (1.69, 2), (1.71, 3), (8.4, 10)):
        found = served(layout__tp=1, layout__pp=1, serve__request_rate=share * most, **CHAT)
        assert found.replicas == replicas, share
        assert found.point.requests_per_s == pytest.approx(share * most / replicas)
    free = served(layout__tp=1, layout__pp=1, **CHAT)
    assert free.point.requests_per_s == pytest.approx(0.98 * free.choice.full_rate)


def test_the_time_of_a_replica_goes_to_prompts_and_answers() -> None:
    """A request takes its part of the replica's time for its prompt, the rest for its answer: 1 / rate in all."""
    found = served(gpus=1, serve__concurrency=16, **CHAT)
    whole_s = found.point.prompt_s + found.point.answer_s
    assert whole_s == pytest.approx(1.0 / found.point.requests_per_s, rel=0.02)
    batch = served(gpus=1, serve__batch=16, **CHAT).point
    assert batch.prompt_s == pytest.approx(batch.ttft_s / 16)
    assert batch.answer_s == pytest.approx((batch.request_s - batch.ttft_s) / 16)
    assert batch.requests_per_s == pytest.approx(16 / batch.request_s)


def test_hardly_loaded_replicas_run_less_than_one_request() -> None:
    found = served(gpus=1, serve__request_rate=0.01, **CHAT).point
    assert found.running <= 0.01 * found.request_s * (1 + 1e-9)
    assert found.running == pytest.approx(0.01 * found.request_s, rel=0.05)
    busy = served(gpus=1, serve__request_rate=8.0, **CHAT).point
    assert busy.running <= 8.0 * busy.request_s


def test_batches_on_given_gpus_take_the_largest_replica() -> None:
    found = choose(asked(server=H100S, gpus=8, serve__batch=4, **CHAT), ReplicaLayouts.of(tp=[1, 2, 4, 8]))
    assert found.placement.tp[0] == 8
    fewest = choose(asked(server=H100S, serve__batch=4, **CHAT), ReplicaLayouts.of(tp=[1, 2, 4, 8]))
    assert fewest.placement.tp[0] == 1


# Which of two services is better

RATE = served(server=H100S, gpus=2, layout__tp=1, layout__pp=1, serve__request_rate=4.0, **CHAT)


def service(gpus: int, rate: float, ok: bool = True) -> ServingEstimate:
    """So many GPUs with one replica each, of so many requests a second together."""
    ttft_s = 0.1 if ok else math.inf
    return altered(
        RATE, replicas=gpus, top_rate=rate / gpus, full_rate=rate / gpus, ttft_s=ttft_s,
        percentiles={95.0: (ttft_s, 0.01, 1.0)}, spare_replicas=0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("apart", "together", "better"),
    [(20, 21, DISAGGREGATED), (21, 22, ALIKE), (20, 20, ALIKE), (21, 20, AGGREGATED), (22, 21, ALIKE)],
)
def test_fewer_gpus_by_a_twentieth_are_better(apart: int, together: int, better: str) -> None:
    assert better_words(service(apart, 10.0), service(together, 10.0), "gpus") == better


@pytest.mark.parametrize(("rate", "better"), [(10.6, DISAGGREGATED), (10.3, ALIKE), (9.6, ALIKE), (9.4, AGGREGATED)])
def test_more_requests_on_a_gpu_are_better(rate: float, better: str) -> None:
    """Against 5 a GPU: twice the GPUs with twice the rate are as good."""
    assert better_words(service(4, 2 * rate), service(2, 10.0), "max_requests_per_s") == better


def test_what_keeps_the_limits_alone_is_better() -> None:
    assert better_words(service(8, 10.0), service(2, 10.0, ok=False), "gpus") == DISAGGREGATED
    assert better_words(service(2, 10.0, ok=False), service(8, 10.0), "gpus") == AGGREGATED


# Words of advice


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0123, "12.3 ms"), (0.9994, "999 ms"), (0.9996, "1.00 s"), (12.34, "12.3 s"), (math.inf, "unbounded time")],
)
def test_times_are_told_in_three_digits(seconds: float, text: str) -> None:
    assert time_words(seconds) == text


def test_gpus_for_the_load_or_for_what_is_taken() -> None:
    """Two GPUs for 4 a second; given two GPUs, what they take of 10 a second; of a concurrency what they answer."""
    given = altered(RATE, top_rate=5.0, requests_per_s=2.0)
    assert gpus_per_load(given) == pytest.approx(2 / 10)
    assert gpus_per_load(altered(RATE, gpus=None, amount=4.0)) == pytest.approx(2 / 4)
    flight = served(server=H100S, gpus=2, layout__tp=1, layout__pp=1, serve__concurrency=8, **CHAT)
    assert gpus_per_load(altered(flight, requests_per_s=3.0, top_rate=50.0)) == pytest.approx(2 / 6)
    assert gpus_per_load(altered(RATE, top_rate=0.0, requests_per_s=2.0)) == pytest.approx(2 / 4)


LIMITED = served(server=H100S, gpus=1, serve__concurrency=8, limits__max_ttft_s=2.0, limits__max_tpot_s=0.05, **CHAT)


def test_a_change_that_is_less_sure_says_so() -> None:
    slower = altered(LIMITED, tpot_s=0.045)
    assert LIMITED.least_sure is not None
    assert slower.least_sure is not None
    assert slower.least_sure < LIMITED.least_sure
    assert less_sure(LIMITED, slower) == (slower.least_sure < min(LIMITED.least_sure, 0.9))
    assert not less_sure(slower, LIMITED)
    assert not less_sure(served(gpus=1, serve__batch=1), slower)
    then, now = (f"{100 * one.least_sure:.0f} %" for one in (slower, LIMITED) if one.least_sure)
    assert certainty_words(LIMITED, slower).endswith(f"{then}, now {now}")
    missing = altered(LIMITED, tpot_s=0.06)
    assert certainty_words(LIMITED, missing) == ""
    assert certainty_words(missing, slower).endswith(then)
    assert certainty_words(LIMITED, served(gpus=1, serve__batch=1)) == ""


def effect(before: ServingEstimate, after: ServingEstimate, gains: bool = False, **values: object) -> str:
    from xe_sizer.scenario.read import Change
    from xe_sizer.scenario.trials import Option

    return effect_words(before, Option(Change("a change", values, 1), after), gains)


def test_the_effect_of_a_change_by_hand() -> None:
    """Two replicas of one GPU, 4 a second of 10 that they take; before, three GPUs took 9."""
    after = altered(RATE, percentiles={95.0: (0.25, 0.0125, 3.0)}, top_rate=5.0)
    before = altered(RATE, replicas=3, top_rate=3.0)
    said = effect(before, after)
    assert said.startswith(
        "2 instead of 3 GPUs (2 replicas of 1 GPU), 250 ms to the first token (TTFT), 12.5 ms per token (TPOT), "
        "up to 10 requests/s"
    )
    assert "instead of 9" not in said
    assert "up to 10 requests/s instead of 9" in effect(before, after, True)
    assert effect(before, after, gpus=2).startswith("2 replicas of 1 GPU, ")
    assert effect(altered(before, fits=False), after).startswith("2 replicas of 1 GPU, ")
    assert effect(after, altered(after, replicas=1)).startswith("1 instead of 2 GPUs (1 replica of 1 GPU), ")
    wide = altered(after, placement=replace(after.placement, tp=np.array([2])))
    assert "(2 replicas of 2 GPUs)" in effect(after, wide)


def test_the_effect_on_requests_in_flight_is_told_in_tokens() -> None:
    before, after = (altered(LIMITED, requests_per_s=rate) for rate in (10.0, 15.0))
    assert "3,000 output tokens/s in all instead of 2,000" in effect(before, after, True)
    assert "3,000 output tokens/s in all;" in f"{effect(before, after)};" or "instead" not in effect(before, after)
    assert "still misses max_tpot_s" in effect(before, altered(after, tpot_s=0.06))
