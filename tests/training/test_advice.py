"""Which remedies are taken, in which order, and what is said of them: by stand-ins for estimates, and end to end."""

from __future__ import annotations

import itertools
import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cases import REGISTRY, ask
from msgspec.structs import replace

from xe_sizer.errors import InputError
from xe_sizer.result.common import Advice
from xe_sizer.scenario.read import Change, changed
from xe_sizer.scenario.trials import Option
from xe_sizer.training import advice
from xe_sizer.training.advice import advise, beyond_the_speed_of_light, with_the_same_data
from xe_sizer.training.estimate import TrainingEstimate
from xe_sizer.training.resolve import resolve
from xe_sizer.training.search import size

GIB, HOUR_S = 2.0**30, 3600.0
BATCH_64 = {"gpus": 8, "train.global_batch": 64, "train.seq_len": 4096}


def sized(**flags: object) -> TrainingEstimate:
    return size(ask({"model": "llama-2-7b", "job": "sft", **{key.replace("__", "."): v for key, v in flags.items()}}))


def stand_in(**figures: object) -> Any:
    """An estimate that fits and is roomy: 60 of 80 GiB, 1,000 s, 8 GPUs, 1 million tokens in fixed steps."""
    known: dict[str, Any] = {
        "fits": True, "ok": True, "roomy": True, "gpus": 8, "total_s": 1000.0, "fixed_steps": True, "tokens": 1e6,
        "peak": 60.0, "usable": 80.0, "host": 0.0, "has_host": None, "host_unknown": False, "headroom": True,
        "asked_gpus": 8, "micro": 4, "card": "card", "confidence": None,
    }  # fmt: skip
    known.update(figures)
    has = known["has_host"]
    server = SimpleNamespace(
        host_usable_bytes=None if has is None else has * GIB,
        host_memory_bytes=None if has is None else has * GIB,
        accelerator=SimpleNamespace(name=known["card"]),
    )
    resolved = SimpleNamespace(
        fixed_steps=known["fixed_steps"], gpus=known["asked_gpus"],
        job=SimpleNamespace(read_tokens=known["tokens"], server=server),
    )  # fmt: skip
    return SimpleNamespace(
        resolved=resolved, fits=known["fits"], ok=known["ok"], roomy=known["roomy"], gpus=known["gpus"],
        total_s=known["total_s"], confidence=known["confidence"],
        choice=SimpleNamespace(fits_with_headroom=known["headroom"]),
        peak_bytes=known["peak"] * GIB, usable_bytes=known["usable"] * GIB, host_unknown=known["host_unknown"],
        ledger=SimpleNamespace(host_bytes=np.array([known["host"] * GIB])),
        layouts=SimpleNamespace(micro_batch=np.array([known["micro"]])),
    )  # fmt: skip


def option(effort: int = 1, values: dict[str, object] | None = None, **figures: object) -> Option[Any]:
    return Option(Change("words", values or {}, effort), stand_in(**figures))


def test_a_mend_leaves_a_little_room() -> None:
    """2 % of the card stay free: 78.4 of 80 GiB."""
    before = stand_in(ok=False, fits=False)
    assert advice.mends(before, stand_in(peak=78.39))
    assert advice.mends(before, stand_in(peak=78.4))
    assert not advice.mends(before, stand_in(peak=78.41))
    assert not advice.mends(before, stand_in(headroom=False))
    assert not advice.mends(before, stand_in(ok=False))
    assert not advice.mends(before, stand_in(tokens=2e6))


def test_what_must_be_bought_likely_fits() -> None:
    """Tight on the hardware at hand is for the user to try; tight on more of it, or on another card, is no advice."""
    before = stand_in(ok=False, fits=False)
    assert advice.mends(before, stand_in(roomy=False))
    assert not advice.mends(before, stand_in(roomy=False, gpus=16))
    assert not advice.mends(before, stand_in(roomy=False, card="larger"))
    assert advice.mends(before, stand_in(gpus=16))
    assert advice.mends(stand_in(ok=False, confidence=0.5), stand_in(roomy=False, gpus=16))


def test_what_settles_a_tight_memory_is_named() -> None:
    """Each change that is told makes the job likely to fit, and the run is on the longest samples."""
    tight = sized(stack="deepspeed", gpus=2, gpu="h100-sxm-80gb", train__micro_batch=4, train__seq_len=8192,
                  train__global_batch=16, layout__zero=3, layout__recompute="full")  # fmt: skip
    assert not tight.roomy
    *changes, run = advice.settle(tight, REGISTRY)
    assert [one.partition(" ")[0] for one in changes] == ["micro-batch", "sequences"]
    assert all(int(re.findall(r": (\d+) %$", one)[0]) >= 75 for one in changes)
    assert run == "a run of 2 steps shows the peak"
    varied = sized(data__profile="alpaca", train__seq_len=1024, gpus=1)
    assert (
        advice.settle(varied, REGISTRY)[-1] == "a run of 2 steps on samples of the longest 1,024 tokens shows the peak"
    )


def test_a_host_of_unknown_memory_is_like_ours() -> None:
    known, unknown = stand_in(has_host=100.0), stand_in()
    assert advice.mends(known, stand_in(host=100.0, has_host=100.0))
    assert not advice.mends(known, stand_in(host=101.0, has_host=100.0))
    assert advice.mends(known, stand_in(host=101.0, has_host=200.0))
    assert not advice.mends(known, stand_in(host=101.0))
    assert advice.mends(known, stand_in(host=99.0))
    assert advice.mends(unknown, stand_in(host=101.0))


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        # the card at hand, other hardware, another training
        (option(7, roomy=False), option(8)),
        (option(12, roomy=False), option(13)),
        (option(12), option(13, gpus=1, total_s=1.0)),
        # room, then effort, then GPUs, then time
        (option(5), option(1, roomy=False)),
        (option(1, gpus=64), option(2)),
        (option(2, total_s=2000.0), option(2, gpus=16)),
        (option(2), option(2, total_s=1001.0)),
    ],
)
def test_what_asks_least_comes_first(better: Option[Any], worse: Option[Any]) -> None:
    place = advice.least_effort_first(SimpleNamespace(gpus=8))  # type: ignore[arg-type]
    assert place(better) < place(worse)


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (option(8, total_s=5000.0), option(0, roomy=False)),
        (option(7, total_s=5000.0), option(8)),
        (option(0, total_s=5000.0), option(1)),
        (option(7, total_s=900.0), option(1)),
    ],
)
def test_what_gains_most_comes_first_where_nothing_lacks(better: Option[Any], worse: Option[Any]) -> None:
    assert advice.largest_gain_first(better) < advice.largest_gain_first(worse)


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ({"total_s": 949.0}, True),
        ({"total_s": 950.0}, False),
        ({"total_s": 900.0, "fits": False}, False),
        ({"total_s": 900.0, "ok": False}, False),
        ({"total_s": 900.0, "tokens": 1.49e6}, True),
        ({"total_s": 900.0, "tokens": 1.5e6}, False),
    ],
)
def test_faster_is_a_twentieth_less_for_the_same_data(figures: dict[str, object], expected: bool) -> None:
    assert advice.is_faster(stand_in(), stand_in(**figures)) is expected


def test_what_misses_limits_may_be_faster_than_what_did() -> None:
    assert advice.is_faster(stand_in(ok=False), stand_in(ok=False, total_s=900.0))


def test_passes_over_the_data_read_what_they_read() -> None:
    assert advice.reads_no_more(stand_in(fixed_steps=False), stand_in(tokens=9e6))
    assert not advice.reads_no_more(stand_in(), stand_in(tokens=9e6))


@pytest.mark.parametrize(
    ("after", "words"),
    [(294.0, "+194 %"), (295.0, "2.95 x the"), (1234.0, "12.3 x the"), (118.0, "+18 %"), (60.0, "-40 %"),
     (100.4, "same"), (100.6, "+1 %"), (100.0, "same")],
)  # fmt: skip
def test_changes_as_people_say_them(after: float, words: str) -> None:
    assert advice.difference_words(100.0, after) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(59.9, "59.9 s"), (60.0, "1.00 min"), (5399.0, "90.0 min"), (5400.0, "1.5 h"), (359_999.0, "100 h"),
     (360_000.0, "100 h"), (400_000.0, "111 h"), (36_180.0, "10.1 h"), (3_600_000.0, "1,000 h")],
)  # fmt: skip
def test_times_in_the_unit_of_reports(seconds: float, words: str) -> None:
    assert advice.time_words(seconds) == words


def test_an_effect_says_memory_host_gpus_micro_batch_and_time() -> None:
    before = stand_in(asked_gpus=None, total_s=7200.0)
    after = option(peak=40.0, gpus=16, micro=2, total_s=3600.0, host=300.0, has_host=2048.0)
    assert advice.effect(before, after) == (
        "40.0 of 80.0 GiB per GPU, 300 of 2,048 GiB of host memory per node, on 16 instead of 8 GPUs, "
        "micro-batch 2 instead of 4, 60.0 min instead of 2 h (-50 % time, same GPU-hours)"
    )


def test_an_effect_says_no_more_than_has_changed() -> None:
    words = "60.0 of 80.0 GiB per GPU"
    assert advice.effect(stand_in(fits=False), option()) == f"{words}, 16.7 min"
    assert advice.effect(stand_in(fits=False), option(roomy=False)) == f"{words} (tight), 16.7 min"
    assert advice.effect(stand_in(fits=False), option(gpus=16)) == f"{words}, 16.7 min"  # as asked
    told = option(values={"train.micro_batch": 2}, micro=2)
    assert advice.effect(stand_in(fits=False), told) == f"{words}, 16.7 min"
    slower = advice.effect(stand_in(), option(total_s=1200.0))
    assert slower == f"{words}, 20.0 min instead of 16.7 min (+20 % time)"
    unknown = option(host=1.0, host_unknown=True)
    assert advice.effect(stand_in(fits=False), unknown) == (
        f"{words}, 1 GiB of host memory per node (if available), 16.7 min"
    )
    assert "host" not in advice.effect(stand_in(fits=False), option(host=0.99, has_host=8.0))


def test_a_layout_in_the_words_of_a_scenario() -> None:
    assert [advice.layout_key(name) for name in ("tp", "micro_batch", "zero_group")] == [
        "layout.tp", "train.micro_batch", "layout.zero_group",
    ]  # fmt: skip
    assert advice.layout_value("sequence_parallel", 1) is True
    assert advice.layout_value("recompute", 2) == "full"
    assert advice.layout_value("offload", 2) == "params"
    assert advice.layout_value("tp", 4) == 4
    said = {"layout.sequence_parallel": False, "train.micro_batch": 2, "layout.recompute": "none"}
    assert advice.settings_words(said) == "no sequence-parallel, micro-batch 2, recompute none"
    assert advice.settings_words({"layout.sequence_parallel": True}) == "sequence-parallel"


def test_settings_that_another_layout_changes() -> None:
    """Of what the user fixed; nothing where the stack has no switch for it."""
    before = sized(stack="megatron-lm", layout__tp=8, layout__pp=1, **BATCH_64)
    other = replace(before.layouts, tp=np.array([2]), pp=np.array([1]), dp=np.array([4]))
    after: Any = SimpleNamespace(layouts=other)
    assert advice.other_settings(before, after) == {"layout.tp": 2}
    assert advice.other_settings(before, before) == {}
    plain = sized(stack="hf-trainer", gpus=1, train__seq_len=512, layout__recompute="full", train__micro_batch=2)
    assert "selective" not in plain.resolved.job.stack.supports.recompute
    half = replace(plain.layouts, recompute=np.array([1]), micro_batch=np.array([4]))
    none = replace(plain.layouts, recompute=np.array([0]), micro_batch=np.array([4]))
    assert advice.other_settings(plain, SimpleNamespace(layouts=half)) == {}  # type: ignore[arg-type]
    assert advice.other_settings(plain, SimpleNamespace(layouts=none)) == {  # type: ignore[arg-type]
        "layout.recompute": "none", "train.micro_batch": 4,
    }  # fmt: skip


def same_data(before: TrainingEstimate, **values: object) -> Change:
    return with_the_same_data(
        before, Change("packed", {key.replace("__", "."): v for key, v in values.items()}, 3), REGISTRY
    )


def test_fixed_steps_are_as_many_as_the_same_data_take() -> None:
    """1,000 steps of 64 sequences of 4,096 tokens: 2,000 of half, or half as many of twice as large batches."""
    before = sized(stack="deepspeed", train__steps=1000, train__padding="packed", **BATCH_64)
    halved = same_data(before, train__seq_len=2048)
    assert halved.values == {"train.seq_len": 2048, "train.steps": 2000}
    assert halved.words == "packed (the same data in 2,000 optimizer steps instead of 1,000)"
    assert same_data(before, train__global_batch=128).values["train.steps"] == 500
    for unchanged in ({"layout__zero": 3}, {"train__seq_len": 4096}, {"train__seq_len": 2048, "train__steps": 7}):
        assert "steps" not in same_data(before, **unchanged).words
        assert same_data(before, **unchanged).effort == 3
    assert "train.steps" not in same_data(before, train__seq_len=-1).values  # which its estimate will find


def test_a_change_takes_a_step_at_least() -> None:
    few = sized(stack="deepspeed", train__steps=2, train__padding="packed", **BATCH_64)
    assert same_data(few, train__global_batch=1024).values["train.steps"] == 1


def test_a_usual_batch_may_change_with_the_gpus() -> None:
    """Where nobody fixed the batch it goes with the layout, and the steps with it."""
    before = sized(stack="hf-bf16", gpus=8, train__steps=1000, train__seq_len=512, train__micro_batch=1, layout__dp=8)
    after = ask({
        "model": "llama-2-7b", "job": "sft", "stack": "hf-bf16", "gpus": 16, "train.steps": 1000, "train.seq_len": 512,
        "train.micro_batch": 1, "layout.dp": 16,
    }).job  # fmt: skip
    ratio = after.global_batch / before.resolved.job.global_batch
    change = same_data(before, gpus=16, layout__dp=16)
    assert change.values.get("train.steps", 1000) == round(1000 / ratio)


def test_passes_over_the_data_count_their_own_steps() -> None:
    """12,800 samples in batches of 64: 200 steps a pass; of 128 it is 100."""
    before = sized(stack="deepspeed", data__samples=12_800, train__epochs=1, **BATCH_64)
    change = same_data(before, train__global_batch=128)
    assert change.values == {"train.global_batch": 128}
    assert change.words == "packed (the same data in 100 optimizer steps instead of 200)"


def test_packing_names_the_batch_that_keeps_the_steps() -> None:
    before = sized(stack="hf-bf16", job="lora", gpus=1, data__profile="alpaca", train__epochs=3, train__seq_len=2048)
    change = same_data(before, train__padding="packed")
    assert re.fullmatch(
        r"packed \(the same data in [\d,]+ optimizer steps instead of [\d,]+; a global .*\)", change.words
    )


def told(estimate: TrainingEstimate, most: int = 5) -> tuple[Advice, ...]:
    return advise(estimate, REGISTRY, most)


def changes(estimate: TrainingEstimate, most: int = 5) -> list[str]:
    return [one.change for one in told(estimate, most)]


def test_no_more_is_told_than_wanted() -> None:
    over = sized(stack="deepspeed", layout__zero=0, train__micro_batch=4, **BATCH_64)
    assert changes(over, 0) == []
    every = changes(over)
    assert changes(over, 1) == every[:1] == ["ZeRO stage 1"]
    assert len(every) <= 5
    hardware = [index for index, words in enumerate(every) if "instead of h100" in words]
    training = [index for index, words in enumerate(every) if "instead of full fine-tuning" in words]
    assert hardware
    assert training
    assert max(hardware) < min(training)
    assert min(hardware) == 2  # two of the card at hand come first


def test_an_offload_that_is_not_needed_is_dropped() -> None:
    away = sized(stack="deepspeed", layout__zero=3, layout__offload="params", **BATCH_64)
    assert away.ok
    assert changes(away)[0].startswith("no offload, as offloading takes ")


def test_a_layout_that_is_slow_is_left_open() -> None:
    slow = sized(stack="megatron-lm", layout__tp=8, **BATCH_64)
    assert slow.ok
    (one,) = changes(slow)
    assert one.startswith("a faster layout: tp ")
    assert changes(sized(stack="megatron-lm", **BATCH_64)) == []


def test_another_layout_on_more_gpus_where_the_fixed_one_never_fits() -> None:
    """70 billion parameters on one stage without sharding fit on no number of GPUs."""
    flags = {"model": "llama-2-70b", "stack": "deepspeed", "layout.tp": 1, "layout.pp": 1, "layout.zero": 1, **BATCH_64}
    before = size(ask({"job": "sft", **flags}))
    assert before.minimum_gpus.that_fit_unasked is None
    found = [one for one in told(before) if one.change.startswith(("16 GPUs", "24 GPUs", "32 GPUs", "64 GPUs"))]
    assert found
    assert "instead of 8 with zero 3" in found[0].change
    limited = size(ask({"job": "sft", **flags, "limits.max_gpus": 8}))
    assert not any("GPUs instead of" in words for words in changes(limited))


def test_a_limit_on_hours_is_kept_by_less_padding_or_more_gpus() -> None:
    slow = sized(stack="hf-bf16", job="lora", gpus=1, data__profile="alpaca", train__epochs=3, train__seq_len=2048,
                 train__padding="to-seq-len", limits__max_hours=1.0)  # fmt: skip
    assert not slow.ok
    found = changes(slow)
    assert found[0].startswith("packing instead of padding")
    assert all(" instead of " in words or "packing" in words for words in found)


def test_a_price_that_nobody_knows_is_not_mended() -> None:
    priceless = sized(stack="deepspeed", gpu="h100-sxm-80gb", limits__max_cost=1.0, **BATCH_64)
    assert priceless.cost is None
    assert changes(priceless) == []
    assert changes(sized(stack="deepspeed", limits__max_cost=1e6, cost__price_per_gpu_hour=1.0, **BATCH_64)) == []


def test_tight_jobs_are_given_room() -> None:
    """A batch that fills the card, of lengths that nobody gave: what is told gives headroom, two changes at most."""
    tight = next(
        found
        for micro in range(1, 64)
        if not (found := sized(stack="deepspeed", gpus=1, job="lora", train__micro_batch=micro,
                               train__global_batch=micro, layout__recompute="none")).roomy
    )  # fmt: skip
    assert tight.fits
    found = told(tight)
    assert 1 <= len(found) <= 3
    assert not any("(tight)" in one.effect for one in found)


# Changes that are not estimated because they would miss the deadline at the speed of light.

JOB = {"model": "llama-2-7b", "gpu": "a100-sxm-80gb", "gpus": 8, "train.global_batch": 64, "data.profile": "alpaca"}
GPUS = ({}, {"gpus": 16}, {"gpus": 64}, {"gpu": "h100-sxm-80gb", "gpus": 8})
LENGTHS = ({}, {"train.seq_len": 256}, {"train.seq_len": 1024})
CHANGES = [Change("", {**gpus, **length}, 1) for gpus, length in itertools.product(GPUS, LENGTHS) if gpus or length]


@pytest.mark.parametrize("padding", ["packed", "to-seq-len", "longest-in-micro-batch"])
@pytest.mark.parametrize("job", ["sft", "lora"])
def test_what_is_hopeless_misses_the_deadline_when_it_is_estimated(job: str, padding: str) -> None:
    hopeless = 0
    for hours in (1e-5, 1e-3, 0.01, 0.05, 0.2, 1.0):
        before = size(ask({**JOB, "job": job, "train.padding": padding, "limits.max_hours": hours}))
        for change in CHANGES:
            if not beyond_the_speed_of_light(before, change, REGISTRY):
                continue
            hopeless += 1
            try:
                after = size(resolve(changed(before.resolved.scenario, change.values), REGISTRY))
            except InputError:
                continue
            assert after.hours > hours
    assert hopeless


@pytest.mark.parametrize("values", [{"gpus": 16, "job": "lora"}, {"layout.tp": 2}, {"optimizer": "sgd"}])
def test_other_changes_are_always_estimated(values: dict[str, object]) -> None:
    before = size(ask({**JOB, "limits.max_hours": 1e-6}))
    assert not beyond_the_speed_of_light(before, Change("", values, 1), REGISTRY)
    assert beyond_the_speed_of_light(before, Change("", {"gpus": 16}, 1), REGISTRY)


def test_nothing_is_hopeless_without_a_deadline() -> None:
    before = size(ask({**JOB, "limits.max_cost": 1e-6, "cost.price_per_gpu_hour": 2.0}))
    assert not any(beyond_the_speed_of_light(before, change, REGISTRY) for change in CHANGES)
