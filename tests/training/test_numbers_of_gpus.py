"""How many GPUs: the fewest that fit and keep the limits; the groups a search leaves out; ranges of what comes out."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from cases import ask, job
from msgspec.structs import replace

from xe_sizer.laws.device import Efficiency
from xe_sizer.software.uncertainty import SPEED_OF_LIGHT, Spread
from xe_sizer.training import uncertainty as ranges
from xe_sizer.training.estimate import MinimumGpus, TrainingEstimate, smallest_count
from xe_sizer.training.layout import OFFLOAD
from xe_sizer.training.search import size
from xe_sizer.training.search_space import gpu_counts, legal_layouts, parallel_groupings, removed_by_rules

LLAMA = {"model": "llama-2-7b", "job": "sft", "stack": "deepspeed", "train.seq_len": 2048, "train.global_batch": 64}


def sized(**flags: object) -> TrainingEstimate:
    return size(ask({**LLAMA, **{key.replace("__", "."): value for key, value in flags.items()}}))


def test_an_open_count_is_the_fewest_that_fit_with_room() -> None:
    """One fewer does not fit with something to spare, or is no count that is tried."""
    found = sized(partial_servers=True)
    assert found.gpus == found.minimum_gpus.that_fit_unasked
    assert found.gpus in found.minimum_gpus.counts
    fewer = [count for count in found.minimum_gpus.counts if count < found.gpus]
    alone = [sized(gpus=count, layout__offload="none") for count in fewer]
    assert all(not one.ok or not one.roomy for one in alone)


def test_the_fewest_that_fit_do_not_depend_on_the_batch_that_is_assumed() -> None:
    """Three servers hold 70B in full with a batch of 192, as where they are asked for; 128 goes with two or four."""
    whole = {"model": "llama-3.1-70b", "job": "sft", "stack": "deepspeed", "server": "dell-xe9680-h100"}
    alone = {**whole, "train.seq_len": 4096, "layout.offload": "none", "limits.max_gpus": 64}
    open_ = ask(alone)
    assert MinimumGpus(replace(open_, at_batch=None)).that_fit == 32
    assert (MinimumGpus(open_).that_fit, MinimumGpus(open_).offloads) == (24, False)
    assert open_.fitted_to(24).job.global_batch == 192 == ask({**alone, "gpus": 24}).job.global_batch
    assert size(ask({**alone, "gpus": 24})).fits
    assert not size(ask({**alone, "gpus": 16})).fits
    assert ask({**alone, "train.global_batch": 128}).at_batch is None


def test_an_open_count_keeps_every_limit() -> None:
    """A third of the hours takes more GPUs, and the count before misses them."""
    few = sized(train__steps=1000)
    limited = sized(train__steps=1000, limits__max_hours=few.hours / 3)
    assert limited.ok
    assert limited.gpus > few.gpus
    assert not sized(train__steps=1000, limits__max_hours=few.hours / 3, gpus=limited.gpus // 2).ok


def test_limits_that_no_count_keeps_leave_the_fewest() -> None:
    few = sized(train__steps=1000)
    hopeless = sized(train__steps=1000, limits__max_hours=1e-9)
    assert not hopeless.ok
    assert hopeless.gpus == few.gpus


def test_what_fits_on_no_count_is_sized_on_a_node() -> None:
    """Without sharding 70 billion parameters fit nowhere; at most 4 GPUs are the most that are tried of a node."""
    never = {"model": "llama-2-70b", "layout__tp": 1, "layout__pp": 1, "layout__zero": 1}
    assert sized(**never).gpus == 8
    assert sized(**never, limits__max_gpus=4).gpus == 4
    assert not sized(**never).fits


def test_fewest_with_any_layout_is_no_more_than_unasked() -> None:
    """Offloading a 70 billion model fits on fewer, and it says so."""
    fewest = MinimumGpus(ask({**LLAMA, "model": "llama-2-70b", "partial_servers": True}))
    assert fewest.that_fit is not None
    assert fewest.that_fit_unasked is not None
    assert fewest.that_fit < fewest.that_fit_unasked
    assert fewest.offloads
    on_cards = replace(fewest, resolved=replace(fewest.resolved, fixed={"offload": OFFLOAD.index("none")}))
    assert not on_cards.offloads  # the user said that nothing is offloaded
    assert on_cards.that_fit is not None
    assert on_cards.that_fit > fewest.that_fit
    small = MinimumGpus(ask({**LLAMA, "job": "lora"}))
    assert small.that_fit == small.counts[0]
    assert not small.offloads


def test_the_smallest_count_among_chunks() -> None:
    made = ask({**LLAMA, "job": "lora"})
    chunks = [legal_layouts(made.rules, (4,)), legal_layouts(made.rules, (8,))]
    assert smallest_count(made.job, chunks, 0.0) == 4
    assert smallest_count(made.job, chunks[1:], 0.0) == 8
    assert smallest_count(made.job, chunks, 1e15) is None


def test_numbers_of_gpus_that_are_tried() -> None:
    def counts(**flags: object) -> tuple[int, ...]:
        return ask({**LLAMA, **{key.replace("__", "."): value for key, value in flags.items()}}).gpu_numbers(64)

    assert counts() == gpu_counts(8, 64, parts=False)
    assert counts(partial_servers=True) == gpu_counts(8, 64, parts=True)
    assert counts(gpus=4) == gpu_counts(8, 64, parts=True)
    assert counts(gpus=16) == gpu_counts(8, 64, parts=False)
    assert counts(limits__max_gpus=7) == gpu_counts(8, 7, parts=True)
    assert counts(limits__max_gpus=8) == gpu_counts(8, 8, parts=False)
    assert counts(server=None, gpu="h100-sxm-80gb") == gpu_counts(8, 64, parts=True)
    assert counts(stack="unsloth", job="lora") == (1,)


def test_the_price_of_runs() -> None:
    """2.5 an hour for each GPU."""
    asked = ask({**LLAMA, "gpus": 8, "cost.price_per_gpu_hour": 2.5})
    found = asked.run_cost(np.array([1.0, 10.0]), np.array([8, 3]))
    assert found is not None
    assert found.tolist() == [20.0, 75.0]
    assert ask(LLAMA).run_cost(np.array([1.0]), np.array([8])) is None


def test_passes_over_a_data_set() -> None:
    """1,000 steps of 64 samples are 64,000: twice 32,000."""
    asked = ask({**LLAMA, "train.steps": 1000, "data.samples": 32_000})
    assert asked.epochs == 2.0
    assert asked.fixed_steps
    assert not ask({**LLAMA, "train.epochs": 1, "data.samples": 32_000}).fixed_steps
    unknown = ask({**LLAMA, "train.epochs": 1})
    assert unknown.fixed_steps  # of an epoch that nobody knows
    assert unknown.epochs is None


# --- groupings of GPUs


@pytest.mark.parametrize("count", [1, 2, 6, 12, 16])
def test_groupings_are_all_ways_to_write_a_count(count: int) -> None:
    sizes = range(1, count + 1)
    expected = [
        (tp, cp, pp, dp)
        for tp in sizes for cp in sizes for pp in sizes for dp in sizes
        if tp * cp * pp * dp == count
    ]  # fmt: skip
    assert sorted(parallel_groupings((count,))) == sorted(expected)


def test_groupings_that_each_rule_removes() -> None:
    """8 GPUs, a batch of 3: 20 ways to write 8 as four factors; of 32 heads and layers all degrees divide."""
    asked = ask({**LLAMA, "stack": "megatron-lm", "gpus": 8, "train.global_batch": 3, "train.padding": "packed"})
    found = {rule.name: rule.removed for rule in removed_by_rules(asked.rules, (8,))}
    every = list(parallel_groupings((8,)))
    assert len(every) == 20
    by_context = [one for one in every if one[1] > 1]  # 2,048 tokens are not split: 2,048 for each of two at least
    rest = [one for one in every if one[1] == 1]
    by_batch = [one for one in rest if one[3] not in (1, 3)]
    assert found["tensor-parallel"] == 0
    assert found["context-parallel"] == len(by_context)
    assert found["pipeline"] == 0
    assert found["batch"] == len(by_batch)
    assert found["between fields"] >= 0
    narrow = {rule.name: rule.removed for rule in removed_by_rules(ask({**LLAMA, "gpus": 8}).rules, (8,))}
    assert narrow["tensor-parallel"] == len([one for one in every if one[0] > 1])  # no tensor parallelism
    assert narrow["pipeline"] == len([one for one in rest if one[0] == 1 and one[2] > 1])


# --- ranges


def test_fixed_fractions_have_the_stack_s_own_error() -> None:
    made = job(stack="deepspeed")
    fixed = ranges.uncertainty(made, Efficiency(0.5, 0.5))
    error = made.stack.uncertainty
    assert (fixed.low, fixed.high) == pytest.approx((1.0 / (1.0 + error), 1.0 + error))
    light = ranges.uncertainty(made, Efficiency(ideal=True))
    assert light is SPEED_OF_LIGHT


def test_a_calibrated_stack_has_its_owner_s_error() -> None:
    made = job(stack="deepspeed")
    stack = msgspec.structs.replace(made.stack, calibrated_on="30 runs of ours", uncertainty=0.12)
    found = ranges.uncertainty(replace(made, stack=stack), Efficiency())
    assert "12 %" in found.evidence
    assert "30 runs of ours" in found.evidence
    assert (found.low, found.high) == pytest.approx((1.0 / 1.12, 1.12))
    assert found.calibrated


@pytest.mark.parametrize(
    ("launch_us", "group"),
    [(9.9, "launched by graphs or C++"), (10.0, "launched from Python"), (12.0, "launched from Python")],
)
def test_spread_goes_with_how_kernels_are_launched(launch_us: float, group: str) -> None:
    made = job(stack="deepspeed")
    host = msgspec.structs.replace(made.stack.host, forward_launch_us=launch_us)
    stack = msgspec.structs.replace(made.stack, host=host)
    found = ranges.conditions(replace(made, stack=stack), assumed=False)
    assert found == ("stated", group, "stack of its own")


def test_a_range_has_room_on_both_sides() -> None:
    for stack in ("megatron-lm", "hf-bf16"):
        found = ranges.uncertainty(job(stack=stack), Efficiency())
        assert found.low < 1.0 < found.high
        wider = ranges.uncertainty(job(stack=stack), Efficiency(), assumed=True)
        assert wider.high / wider.low >= found.high / found.low * 0.999
    assert ranges.kin(job(stack="hf-bf16").stack) == ("hf-bf16", job(stack="hf-bf16").stack.parent)


def test_memory_is_doubtful_beyond_what_is_likely() -> None:
    """At a share of the card at which three in four suffice the doubt begins."""
    made = job(stack="megatron-lm", train__seq_len=512)
    likely = ranges.memory_suffices(made.lengths_assumed).quantile(0.75)
    card = made.server.accelerator.memory_bytes
    peaks = card / likely * np.array([0.5, 0.999, 1.001, 2.0])
    assert ranges.memory_doubtful(made, peaks).tolist() == [False, False, True, True]


def test_the_spread_of_peaks_is_that_of_measured_ones() -> None:
    spread: Spread = ranges.peak_spread()
    assert spread.low < spread.high
