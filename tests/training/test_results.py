"""What a result says of an estimate: losses, bounds, reasons, data, cost and the run, by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cases import ask
from msgspec.structs import replace

from xe_sizer.laws.hardware import HOST_RESERVE_BYTES
from xe_sizer.result.common import memory_word
from xe_sizer.scenario.limits import chance
from xe_sizer.training import summary
from xe_sizer.training.estimate import TrainingEstimate, find_spread, keeps_limits
from xe_sizer.training.evaluation import Evaluation
from xe_sizer.training.run import run_parts, start_up_s
from xe_sizer.training.search import size
from xe_sizer.training.summary import longest_part, summarise, with_operators
from xe_sizer.training.uncertainty import memory_suffices

GIB = 2.0**30
NOTHING = dict.fromkeys(summary.COMPUTE, 0.0)
STEPS = {"stack": "deepspeed", "train.steps": 1000, "train.seq_len": 512, "train.global_batch": 64}


def sized(**flags: object) -> TrainingEstimate:
    asked = {"model": "llama-2-7b", "job": "sft", **{key.replace("__", "."): value for key, value in flags.items()}}
    return size(ask(asked))


def test_compute_is_forward_backward_and_what_runs_again() -> None:
    assert summary.COMPUTE == ("forward", "backward", "frozen forward", "image encoder", "generator", "recompute")


@pytest.mark.parametrize(
    ("parts", "bound"),
    [
        ({"forward": 1.0, "backward": 2.0, "recompute": 1.0, "pipeline bubble": 3.9, "offload": 0.0}, "compute"),
        ({"forward": 1.0, "backward": 2.0, "recompute": 1.0, "pipeline bubble": 4.0, "offload": 0.0}, "compute"),
        (
            {"forward": 1.0, "backward": 2.0, "recompute": 1.0, "pipeline bubble": 4.1, "offload": 0.0},
            "pipeline bubble",
        ),
        ({"forward": 1.0, "pipeline bubble": 1.5, "offload": 1.6}, "offload"),
    ],
)
def test_the_part_that_binds_a_step(parts: dict[str, float], bound: str) -> None:
    assert longest_part({**NOTHING, **parts}) == bound


def losses(seconds: dict[str, float], ideal: dict[str, float]) -> list[tuple[str, float, float]]:
    none = {**NOTHING, "offload": 0.0, "pipeline bubble": 0.0}
    found = summary.find_losses({**none, **seconds}, {**none, **ideal})
    return [(one.name, pytest.approx(one.seconds), pytest.approx(one.share)) for one in found]


def test_losses_are_what_each_part_takes_beyond_the_speed_of_light() -> None:
    """Of 10 s 3 are lost by kernels, 2 by offloading."""
    seconds = {"forward": 3.0, "backward": 5.0, "offload": 2.0}
    ideal = {"forward": 2.0, "backward": 3.0}
    assert losses(seconds, ideal) == [("kernels below peak", 3.0, 0.3), ("offload", 2.0, 0.2)]


def test_what_slow_kernels_hide_is_taken_off_the_largest_losses() -> None:
    """4 s of kernels lost, of which 1 hides an exchange that shows at the speed of light; then all of it, and more."""
    seconds = {"forward": 6.0, "offload": 3.0, "pipeline bubble": 1.0}
    assert losses(seconds, {"forward": 2.0, "pipeline bubble": 2.0}) == [
        ("kernels below peak", 3.0, 0.3),
        ("offload", 3.0, 0.3),
    ]
    assert losses(seconds, {"forward": 2.0, "pipeline bubble": 6.0}) == [("offload", 2.0, 0.2)]


def memory(**figures: float | None) -> Any:
    known: dict[str, Any] = {
        "gpu": "pipeline stage 1 of 1", "phase": "loss", "peak_bytes": 60 * GIB, "usable_bytes": 80 * GIB,
        "host_bytes": 0.0, "host_available_bytes": None, "host_reserve_bytes": 32 * GIB,
    }  # fmt: skip
    known.update(figures)
    return SimpleNamespace(**known, headroom_bytes=known["usable_bytes"] - known["peak_bytes"])


def test_what_does_not_fit_is_said_in_figures() -> None:
    assert summary.memory_reasons(memory()) == ()
    assert summary.memory_reasons(memory(peak_bytes=80 * GIB)) == ()
    (card,) = summary.memory_reasons(memory(peak_bytes=100.5 * GIB))
    assert card.code == "out-of-memory"
    assert card.message == "needs 100 GiB per GPU, 80.0 GiB available, 20.5 GiB missing (loss)"
    (stage,) = summary.memory_reasons(memory(peak_bytes=90 * GIB, gpu="pipeline stage 4 of 4"))  # type: ignore[arg-type]
    assert stage.message.endswith("10.0 GiB missing (pipeline stage 4 of 4, loss)")


def test_what_the_host_lacks_is_said_less_what_its_system_takes() -> None:
    assert summary.memory_reasons(memory(host_bytes=900 * GIB)) == ()  # nobody knows how much there is
    assert summary.memory_reasons(memory(host_bytes=480 * GIB, host_available_bytes=512 * GIB)) == ()
    (host,) = summary.memory_reasons(memory(host_bytes=481 * GIB, host_available_bytes=512 * GIB))
    assert host.code == "out-of-host-memory"
    assert host.message == "offloading needs 481 GiB of host memory per node, 512 GiB available less 32 for the system"
    assert summary.memory_reasons(memory(host_available_bytes=16 * GIB)) == ()  # nothing asked of a small host


def test_times_of_a_result_follow_from_its_steps() -> None:
    found = sized(gpus=8, **STEPS)
    told = summarise(found)
    time, job = told.time, found.resolved.job
    assert time.step_s.expected == pytest.approx(found.step_s)
    assert sum(part.seconds for part in time.components) == pytest.approx(time.step_s.expected)
    assert sum(part.share for part in time.components) == pytest.approx(1.0)
    assert all(part.seconds > 0 for part in time.components)
    assert time.total_s.expected == pytest.approx(1000 * found.step_s)
    assert time.samples_per_s == pytest.approx(64 / found.step_s)
    assert time.tokens_per_s_per_gpu == pytest.approx(64 / found.step_s * found.tokens_per_sample / 8)
    peak = job.device.peak_flops_per_s
    needed, again = float(found.timeline.flops[0]), float(found.timeline.recompute_flops[0])
    assert time.mfu == pytest.approx(needed / (found.step_s * peak))
    assert time.hfu == pytest.approx((needed + again) / (found.step_s * peak))
    assert time.hfu >= time.mfu
    assert time.start_up_s == start_up_s(job)
    assert (time.goodput, time.run) == (None, ())
    assert time.modules
    assert time.ideal_step_s is not None
    assert 0 < time.ideal_step_s < time.step_s.expected
    assert sum(loss.seconds for loss in time.losses) == pytest.approx(time.step_s.expected - time.ideal_step_s)


def test_a_brief_result_leaves_out_what_only_a_full_report_shows() -> None:
    found = sized(gpus=8, **STEPS)
    brief, whole = summarise(found, details=False), summarise(found)
    assert (brief.sources, brief.time.modules, brief.time.losses, brief.gpus.minimum_that_fits) == ((), (), (), None)
    assert not any(part.terms for part in brief.memory.components)
    assert brief.gpus.minimum_offloads is False
    assert any(part.terms for part in whole.memory.components)
    assert whole.gpus.minimum_that_fits == found.minimum
    assert {source.name for source in whole.sources} >= {"accelerator h100-sxm-80gb", "stack deepspeed"}
    assert all(source.source for source in whole.sources)


def test_what_comes_with_every_micro_batch_says_so() -> None:
    """64 sequences on 8 GPUs in micro-batches of 2 are 4 of them."""
    found = sized(gpus=8, train__micro_batch=2, **STEPS)
    parts = {part.name: part for part in summarise(found).time.components}
    ((count, each),) = parts["forward"].terms
    assert (count.value, count.name, each.name) == (4.0, "micro-batches", "s each")
    assert each.value == pytest.approx(parts["forward"].seconds / 4)
    assert parts["optimizer"].terms == ()


def test_memory_of_a_result_is_in_whole_bytes() -> None:
    found = sized(gpus=8, **STEPS)
    told = summarise(found).memory
    assert told.peak_bytes == sum(part.bytes for part in told.components)
    assert all(part.bytes == int(part.bytes) for part in told.components)
    assert told.peak_bytes == pytest.approx(found.peak_bytes, abs=1)
    assert told.headroom_bytes == told.usable_bytes - told.peak_bytes
    assert told.host_reserve_bytes == HOST_RESERVE_BYTES
    assert told.gpu == "pipeline stage 1 of 1"
    assert told.trainable_parameters == 6_738_415_616
    assert max(moment.bytes for moment in told.moments) == pytest.approx(told.peak_bytes, rel=1e-6)
    assert told.allocated_bytes <= told.reserved_bytes <= told.device_bytes


def test_the_last_stage_of_a_pipeline_is_named() -> None:
    found = sized(stack="megatron-lm", gpus=8, layout__pp=4, layout__tp=1, train__seq_len=512, train__global_batch=64)
    stage, _ = found.ledger.worst()
    assert summarise(found).memory.gpu == f"pipeline stage {1 if stage == 0 else 4} of 4"


def test_data_that_are_read_and_padded() -> None:
    """10 steps of 64 sequences; 12,800 samples are half read."""
    found = sized(gpus=8, stack="deepspeed", train__steps=100, train__global_batch=64, data__samples=12_800,
                  data__mean_tokens=256, data__max_tokens=256, train__seq_len=512,
                  train__padding="to-seq-len")  # fmt: skip
    data = summarise(found).data
    assert (data.samples, data.samples_read, data.padding) == (12_800, 6400, "to-seq-len")
    assert data.epochs == 0.5
    assert data.sequence_tokens == 512
    assert data.processed_tokens == 6400 * 512
    assert data.padding_share == pytest.approx(0.5)
    assert data.real_tokens == pytest.approx(6400 * 256)


def test_cost_is_gpu_hours_times_a_price() -> None:
    found = sized(gpus=8, cost__price_per_gpu_hour=2.5, **STEPS)
    cost, time = summarise(found).cost, summarise(found).time
    for end in ("low", "expected", "high"):
        assert getattr(cost.gpu_hours, end) == pytest.approx(getattr(time.total_s, end) / 3600 * 8)
        assert cost.price is not None
        assert getattr(cost.price, end) == pytest.approx(getattr(cost.gpu_hours, end) * 2.5)
    assert found.cost == pytest.approx(found.hours * 8 * 2.5)
    assert summarise(sized(gpus=8, **STEPS)).cost.price is None
    assert cost.energy_kwh is not None
    assert cost.energy_formula


def test_nodes_of_a_count() -> None:
    for gpus, nodes, each in ((4, 1, 4), (8, 1, 8), (16, 2, 8)):
        told = summarise(sized(gpus=gpus, **STEPS), details=False).gpus
        assert (told.count, told.nodes, told.gpus_per_node) == (gpus, nodes, each)


def test_parts_of_a_run_that_is_interrupted() -> None:
    """A checkpoint every 100 of 1,000 steps."""
    found = sized(gpus=8, train__checkpoint_every=100, train__failures_per_gpu_day=0.1, **STEPS)
    told = summarise(found, details=False)
    parts = {name: float(value[0]) for name, value in run_parts(found.run).items()}
    assert {part.name: part.seconds for part in told.time.run} == {k: v for k, v in parts.items() if v > 0}
    assert sum(part.share for part in told.time.run) == pytest.approx(1.0)
    assert told.time.goodput == pytest.approx(1000 * found.step_s / found.total_s)
    saved = told.checkpoint
    assert (saved.every_steps, saved.count) == (100, 10)
    assert saved.bytes == pytest.approx(14 * 6_738_415_616)
    assert saved.bytes == saved.weights_bytes + saved.optimizer_bytes
    assert saved.write_bytes_per_s == 2e9
    assert saved.mean_time_between_failures_s == pytest.approx(86_400 / 0.8)
    assert saved.best_every_steps == int(found.run.best_every[0])
    assert saved.pause_s == pytest.approx(saved.save_s)
    assert not saved.asynchronous
    never = summarise(sized(gpus=8, **STEPS), details=False).checkpoint
    assert (never.every_steps, never.count, never.best_every_steps, never.mean_time_between_failures_s) == (
        None, 0, None, None,
    )  # fmt: skip


def test_operators_of_a_step_come_when_asked_for() -> None:
    found = sized(gpus=8, **STEPS)
    plain = summarise(found, details=False)
    assert not plain.time.operators
    rows = with_operators(plain, found).time.operators
    assert rows


# --- the verdict


def with_card(found: TrainingEstimate, memory_bytes: float) -> TrainingEstimate:
    job = found.resolved.job
    card = replace(job.server.accelerator, memory_bytes=memory_bytes)
    server = replace(job.server, accelerator=card)
    return replace(found, resolved=replace(found.resolved, job=replace(job, server=server)))


def test_room_on_the_card_makes_it_likelier_that_memory_suffices() -> None:
    found = sized(gpus=8, **STEPS)
    shares = (0.9, 1.0, 1.2, 1.5)
    chances = [with_card(found, share * found.peak_bytes).fit_probability for share in shares]
    known = [chance for chance in chances if chance is not None]
    assert known == sorted(known)
    assert known == [chance(memory_suffices(False), share) for share in shares]
    assert known[0] < known[-1]


def test_no_spread_takes_anything_off_what_is_counted() -> None:
    """On a card of just so much the spread decides, on one of less nothing helps."""
    found = sized(gpus=8, **STEPS)
    counted = sum(found.counted.values())
    assert set(found.counted) <= {"weights", "gradients", "optimizer states"}
    assert 0.5 * found.peak_bytes < counted < found.peak_bytes
    enough, less = with_card(found, counted * (1.0 + 1e-9)), with_card(found, counted * (1.0 - 1e-9))
    assert enough.known_chance(False) == chance(memory_suffices(False), enough.usable_bytes / found.peak_bytes) > 0.0
    assert less.known_chance(False) == less.known_chance(True) == less.card_chance == 0.0
    assert memory_word(less.fit_probability, less.fits) == "does-not-fit"


def test_frozen_weights_that_are_more_than_the_card_are_no_estimate() -> None:
    """70.6 billion weights of 2 bytes are 131 GiB, of which adapters take nothing off; 4 bit a weight are 33 GiB."""
    asked = {"model": "llama-3.1-70b", "gpu": "dgx-spark", "gpus": 1}
    found = size(ask({**asked, "job": "lora"}))
    assert found.counted["weights"] / GIB == pytest.approx(70.55e9 * 2 / GIB, rel=1e-3)
    assert found.fit_probability == 0.0
    verdict = summarise(found, details=False).verdict
    assert verdict.memory == "does-not-fit"
    assert verdict.reasons[0].message.endswith("(loss); the weights alone need 131 of 113 GiB")
    assert not size(ask({**asked, "job": "qlora"})).counted_too_much


def test_copies_of_frozen_models_are_counted_and_what_lies_on_the_host_is_not() -> None:
    def of(**flags: object) -> TrainingEstimate:
        return sized(gpus=8, layout__zero=2, **flags, **STEPS)

    here, away = of(layout__offload="none"), of(layout__offload="optimizer")
    assert here.counted["optimizer states"] > 0.0
    assert "optimizer states" not in away.counted
    assert "optimizer states" not in of(optimizer="paged-adamw-8bit").counted
    asked = {"model": "llama-2-7b", "job": "dpo", "gpus": 8, "layout.zero": 2, "layout.tp": 1, "layout.pp": 1}
    assert size(ask(asked)).counted["frozen copies"] == pytest.approx(6.74e9 * 2, rel=0.01)


def test_the_fewest_parts_that_are_too_much_are_named() -> None:
    def said(**counted: float) -> str:
        parts = {name.replace("_", " "): size * GIB for name, size in counted.items()}
        (reason,) = summary.memory_reasons(memory(peak_bytes=120 * GIB), parts)
        return str(reason.message).removeprefix("needs 120 GiB per GPU, 80.0 GiB available, 40.0 GiB missing (loss)")

    assert said(weights=81.0, gradients=9.0) == "; the weights alone need 81.0 of 80.0 GiB"
    assert said(optimizer_states=50.0, gradients=40.0, weights=9.0) == (
        "; the optimizer states and gradients alone need 90.0 of 80.0 GiB"
    )
    assert said(optimizer_states=40.0, gradients=30.0, weights=15.0) == (
        "; the optimizer states, gradients and weights alone need 85.0 of 80.0 GiB"
    )
    assert said(weights=80.0) == said() == ""


def test_the_host_may_be_what_memory_turns_on() -> None:
    away = sized(gpus=8, layout__offload="optimizer", layout__zero=2, **STEPS)
    needed = float(away.ledger.host_bytes[0])
    roomy = with_card(away, 10.0 * away.peak_bytes)

    def with_host(host_bytes: float | None) -> float | None:
        job = roomy.resolved.job
        server = replace(job.server, host_memory_bytes=host_bytes)
        return replace(roomy, resolved=replace(roomy.resolved, job=replace(job, server=server))).fit_probability

    card = with_card(sized(gpus=8, **STEPS), 1.0)
    alike = with_card(card, 0.8 * card.peak_bytes).fit_probability
    assert with_host(HOST_RESERVE_BYTES + 0.8 * needed) == alike
    assert with_host(HOST_RESERVE_BYTES + 100.0 * needed) == with_card(card, 10.0 * card.peak_bytes).fit_probability
    assert needed > 4 * GIB
    assert with_host(None) is None


def test_a_verdict_says_what_lacks_most() -> None:
    """Twice the hours allowed; half the card that is needed."""
    found = sized(gpus=8, **STEPS)
    limited = sized(gpus=8, limits__max_hours=found.hours / 2, **STEPS)
    assert limited.shortfall == pytest.approx(2.0)
    assert (limited.fits, limited.keeps_limits, limited.ok) == (True, False, False)
    assert with_card(found, found.peak_bytes / 2).shortfall == pytest.approx(2.0)
    assert found.ok
    assert found.usable_gib == found.resolved.job.server.accelerator.memory_bytes / GIB


def test_what_lacks_counts_headroom_and_the_host() -> None:
    """8 GiB that shall stay free; a host whose system takes all of it has a byte to spare."""
    found = sized(gpus=8, limits__min_headroom_gib=8, **STEPS)
    assert found.shortfall == pytest.approx((found.peak_bytes + 8 * GIB) / found.usable_bytes)
    away = sized(gpus=8, layout__offload="optimizer", layout__zero=2, **STEPS)
    needed, job = float(away.ledger.host_bytes[0]), away.resolved.job
    for host_bytes, share in (
        (HOST_RESERVE_BYTES, needed),
        (HOST_RESERVE_BYTES + 2 * needed, 0.5),
        (None, 0.0),
    ):
        server = replace(job.server, host_memory_bytes=host_bytes)
        asked = replace(away, resolved=replace(away.resolved, job=replace(job, server=server)))
        assert asked.host_share == pytest.approx(share)
    assert found.host_share == 0.0


def test_many_layouts_are_held_against_limits_at_once() -> None:
    """1,000 steps of 1 and of 4 s, in at most half an hour; and for at most 5 of 2.5 an hour and GPU on 8."""
    found = sized(gpus=8, limits__max_hours=0.5, **STEPS)
    two = found.layouts[np.array([0, 0])]
    assert keeps_limits(found.resolved, two, np.array([1.0, 4.0])).tolist() == [True, False]
    dear = sized(gpus=8, limits__max_cost=5.6, cost__price_per_gpu_hour=2.5, **STEPS)
    assert keeps_limits(dear.resolved, two, np.array([1.0, 1.01])).tolist() == [True, False]


def test_a_count_is_exact_and_a_time_is_not() -> None:
    found = sized(gpus=8, **STEPS)
    span, server = found.uncertainty, found.resolved.job.server
    exact = find_spread("gpus", span, server)
    assert exact is not None
    assert exact.low == exact.high
    hours = find_spread("hours", span, server)
    assert hours is not None
    assert (hours.low, hours.high) == (span.low, span.high)
    room = find_spread("headroom_gib", span, server)
    assert room is not None
    assert (room.low, room.high) != (span.low, span.high)


def test_light_needs_no_offload_and_no_fixed_fractions() -> None:
    away = sized(gpus=8, layout__offload="optimizer", layout__zero=2, **STEPS)
    assert away.ideal_s is not None
    assert away.ideal_s["offload"] == 0.0
    assert away.component_s["offload"] > 0.0
    assert sized(gpus=8, efficiency__flops=0.5, efficiency__memory=0.5, **STEPS).ideal_s is None


def test_the_fewest_gpus_are_at_most_those_that_fit() -> None:
    found = sized(gpus=8, **STEPS)
    none = with_card(found, found.peak_bytes / 2)
    assert replace(found, minimum_gpus=SimpleNamespace(that_fit=None)).minimum == 8  # type: ignore[arg-type]
    assert replace(found, minimum_gpus=SimpleNamespace(that_fit=4)).minimum == 4  # type: ignore[arg-type]
    assert replace(found, minimum_gpus=SimpleNamespace(that_fit=16)).minimum == 8  # type: ignore[arg-type]
    assert none.fits is False


@pytest.mark.parametrize(("here", "offload", "fewest", "expected"), [
    (True, 1, False, True), (True, 0, True, False), (False, 1, False, False), (False, 0, True, True),
])  # fmt: skip
def test_whether_so_few_gpus_have_to_offload(here: bool, offload: int, fewest: bool, expected: bool) -> None:
    """On the GPUs at hand it is the layout at hand that says so."""
    found = sized(gpus=8, **STEPS)
    moved = replace(found.layouts, offload=np.array([offload]))
    few: Any = SimpleNamespace(that_fit=8 if here else 4, offloads=fewest)
    asked = replace(
        found, choice=replace(found.choice, evaluation=Evaluation(found.choice.job, moved)), minimum_gpus=few
    )
    assert asked.minimum_offloads is expected


def test_frozen_weights_take_what_a_step_takes_longer_with_them() -> None:
    """A reference model's passes, in a step on one GPU without exchanges, are its row."""
    found = sized(job="dpo", gpus=8, **STEPS)
    (row,) = summarise(found).beside
    passes = float(found.timeline.components["frozen forward"][0])
    assert row.seconds == pytest.approx(passes, rel=0.2)
    assert 0 < row.seconds < 0.5 * found.step_s


@pytest.mark.parametrize(("kind", "alike"), [("lora", "adapters"), ("sft", "sft"), ("pretrain", "pretrain")])
def test_published_runs_that_are_alike_are_found_by_adapters_first(kind: str, alike: str) -> None:
    assert sized(job=kind, gpus=8, **STEPS).resolved.job.method.evidence == alike
