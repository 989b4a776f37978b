"""Every remedy proposes what a user could do about the layout that was sized: words, keys and efforts by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cases import REGISTRY
from msgspec.structs import replace
from remedy_cases import ADAPTERS, FIXED, HIDDEN_AWAY, proposed, sized, with_fixed, with_layout

from xe_sizer.scenario.provenance import with_values
from xe_sizer.training import advice
from xe_sizer.training.estimate import TrainingEstimate


@pytest.fixture(scope="module")
def full() -> TrainingEstimate:
    return sized(FIXED)


@pytest.fixture(scope="module")
def adapters() -> TrainingEstimate:
    return sized(ADAPTERS)


def test_the_loss_that_holds_no_logits_is_proposed_once(full: TrainingEstimate) -> None:
    words = "chunked cross-entropy without float32 logits"
    assert proposed(advice.chunked_loss, full) == [(words, {"loss": "fused"}, 1)]
    assert proposed(advice.chunked_loss, sized(FIXED, loss="fused")) == []


def test_gradients_that_wait_whole_can_be_reduced_earlier() -> None:
    """FSDP under accelerate keeps whole gradients while it accumulates; a single micro-batch has none to keep."""
    fsdp = {"stack": "hf-bf16", "gpus": 8, "layout.zero": 3, "train.micro_batch": 1, "train.seq_len": 512}
    ((words, values, effort),) = proposed(advice.earlier_reduction, sized({**fsdp, "train.global_batch": 32}))
    called = sized(fsdp).resolved.job.stack.settings["train.reduce_every_micro_batch"]
    assert words == f"gradients reduced in every micro-batch ({called})"
    assert (values, effort) == ({"train.reduce_every_micro_batch": True}, 1)
    assert proposed(advice.earlier_reduction, sized({**fsdp, "train.global_batch": 8})) == []


@pytest.mark.parametrize(
    ("micro", "smaller"), [(1, []), (2, [1]), (3, [1]), (4, [2, 1]), (6, [3, 1]), (8, [4, 2, 1]), (12, [6, 3, 1])]
)
def test_micro_batches_are_halved_and_quartered(full: TrainingEstimate, micro: int, smaller: list[int]) -> None:
    found = proposed(advice.smaller_micro_batch, with_layout(full, micro_batch=micro))
    assert found == [(f"micro-batch {one} instead of {micro}", {"train.micro_batch": one}, 1) for one in smaller]


def test_recomputation_goes_as_far_as_there_is_a_switch(full: TrainingEstimate) -> None:
    selective, whole = ((f"{name} recomputation", {"layout.recompute": name}, 2) for name in ("selective", "full"))
    found = [proposed(advice.recomputation, with_layout(full, recompute=code)) for code in range(3)]
    assert found == [[selective, whole], [whole], []]
    without = with_layout(sized(ADAPTERS, stack="hf-trainer", **{"layout.zero": None}), recompute=0)
    assert proposed(advice.recomputation, without) == [whole]  # which has no selective one


def test_states_are_sharded_where_ranks_share_them(full: TrainingEstimate) -> None:
    def stages(**sizes: int) -> list[object]:
        found = proposed(advice.zero_stage, with_layout(full, **sizes))
        assert all(words == f"ZeRO stage {values['layout.zero']}" and effort == 2 for words, values, effort in found)
        return [values["layout.zero"] for _, values, _ in found]

    assert stages(zero=0) == [1, 2, 3]
    assert stages(zero=1) == [2, 3]
    assert stages(zero=3) == []
    assert stages(zero=0, pp=2) == [1]  # gradients of pipeline stages are not sharded
    assert stages(zero=0, dp=1) == []
    assert stages(zero=0, dp=1, cp=2) == [1, 2, 3]


def test_wider_tensor_and_pipeline_groups_keep_the_gpus(full: TrainingEstimate) -> None:
    """Twice, four and eight times what was fixed, with the replicas that are left."""
    tensor = [(f"tp {times} instead of 1", {"layout.tp": times, "layout.dp": 8 // times}, 2) for times in (2, 4, 8)]
    stages = [(f"pp {times} instead of 1", {"layout.pp": times, "layout.dp": 8 // times}, 3) for times in (2, 4, 8)]
    assert proposed(advice.tensor_parallel, full) == tensor
    assert proposed(advice.pipeline_stages, full) == stages
    for name, remedy in (("tp", advice.tensor_parallel), ("pp", advice.pipeline_stages)):
        wide = with_layout(with_fixed(full, **{name: 2}), **{name: 2}, dp=4)
        assert [(words, values) for words, values, _ in proposed(remedy, wide)] == [
            (f"{name} 4 instead of 2", {f"layout.{name}": 4}),
            (f"{name} 8 instead of 2", {f"layout.{name}": 8}),
        ]
        assert proposed(remedy, with_fixed(full, dp=8)) == []  # the search tries what is open
        assert proposed(remedy, with_layout(full, dp=3)) == []  # three replicas are not halved
        model = replace(full.resolved.job.model, heads=12, layers=12)
        odd = replace(full, resolved=replace(full.resolved, job=replace(full.resolved.job, model=model)))
        assert [next(iter(values.values())) for _, values, _ in proposed(remedy, odd)] == [2, 4]  # 8 divides no 12


def test_degrees_divide_heads_and_layers(full: TrainingEstimate) -> None:
    """12 heads or layers in groups of 4, not of 8."""
    model = replace(full.resolved.job.model, heads=12, layers=12)
    odd = replace(full, resolved=replace(full.resolved, job=replace(full.resolved.job, model=model)))
    for name, remedy in (("tp", advice.tensor_parallel), ("pp", advice.pipeline_stages)):
        wide = with_layout(with_fixed(odd, **{name: 2}), **{name: 2}, dp=4)
        assert [values for _, values, _ in proposed(remedy, wide)] == [{f"layout.{name}": 4}]


def test_tensor_groups_stay_inside_a_node(full: TrainingEstimate) -> None:
    wide = with_layout(with_fixed(full, tp=4), tp=4, dp=8)
    assert [values for _, values, _ in proposed(advice.tensor_parallel, wide)] == [{"layout.tp": 8}]


def test_stacks_without_groups_are_not_told_of_them(adapters: TrainingEstimate) -> None:
    alone = with_fixed(sized(ADAPTERS, stack="unsloth", gpus=1, **{"layout.zero": None}), tp=1, pp=1)
    alone = with_layout(alone, dp=8)
    assert proposed(advice.tensor_parallel, alone) == []
    assert proposed(advice.pipeline_stages, alone) == []


def test_optimizers_shrink_on_the_card_alone(full: TrainingEstimate) -> None:
    zero = sized(FIXED, stack="deepspeed")
    assert [values for _, values, _ in proposed(advice.small_optimizer, zero)] == [
        {"optimizer": "adamw-8bit"},
        {"optimizer": "paged-adamw-8bit"},
    ]
    assert {effort for _, _, effort in proposed(advice.small_optimizer, zero)} == {4}
    assert proposed(advice.small_optimizer, with_layout(zero, offload=1)) == []


@pytest.mark.parametrize(("rank", "smaller"), [(64, [32, 16, 8]), (40, [20, 10]), (16, [8]), (15, []), (8, [])])
def test_ranks_of_adapters_are_halved_down_to_eight(adapters: TrainingEstimate, rank: int, smaller: list[int]) -> None:
    given = replace(adapters.resolved, values=with_values(adapters.resolved.values, {"lora.rank": rank}))
    found = proposed(advice.smaller_adapters, replace(adapters, resolved=given))
    assert found == [(f"adapters of rank {one} instead of {rank}", {"lora.rank": one}, 5) for one in smaller]


def test_adapters_on_fewer_projections_cost_quality(adapters: TrainingEstimate, full: TrainingEstimate) -> None:
    found = proposed(advice.fewer_adapters, adapters)
    assert found
    assert all(words.startswith("adapters on ") and words.endswith(" alone") for words, _, _ in found)
    assert {effort for _, _, effort in found} == {6}
    assert all(set(values) == {"lora.targets"} for _, values, _ in found)
    assert proposed(advice.fewer_adapters, full) == []


def test_a_lighter_stack_costs_quality_where_the_model_learns() -> None:
    """A stack of float32 masters names the one that trains in 16 bit: adapters do not suffer from that."""
    stack = "hf-trainer"
    trained = sized({"stack": stack, "gpus": 8, "train.seq_len": 512, "train.micro_batch": 1})
    lighter = trained.resolved.job.stack.lighter
    ((words, values, effort),) = proposed(advice.lighter_stack, trained)
    assert words.startswith(f"stack {lighter} (")
    assert words.endswith(f") instead of {stack}")
    assert (values, effort) == ({"stack": lighter}, 6)
    under_adapters = sized(ADAPTERS, stack=stack, **{"layout.zero": None})
    assert [effort for _, _, effort in proposed(advice.lighter_stack, under_adapters)] == [3]


def test_weights_that_learn_are_loaded_in_16_bit_instead_of_a_lighter_stack() -> None:
    """The release that loads float32 has both; the key is the user's own, and keeps the release."""
    flags = {"stack": "hf-trainer@4.57", "gpus": 8, "train.seq_len": 512, "train.micro_batch": 1}
    wide = sized(flags)
    change = {"train.weights_dtype": "bf16"}
    assert proposed(advice.narrower_weights, wide) == [("weights loaded in bf16 instead of fp32", change, 6)]
    assert proposed(advice.lighter_stack, wide) == []
    assert proposed(advice.narrower_weights, sized(flags, **change)) == []
    assert len(proposed(advice.lighter_stack, sized(flags, **change))) == 1
    for stack in ("megatron-lm", "hf-bf16"):
        assert proposed(advice.narrower_weights, sized({**flags, "stack": stack})) == []
    adapted = sized(flags, job="lora")
    assert proposed(advice.narrower_weights, adapted) == []
    quantised = sized({**flags, "stack": "trl", "job": "qlora", "gpus": 1})
    assert proposed(advice.narrower_weights, quantised) == [("weights loaded in bf16 instead of fp32", change, 2)]
    assert proposed(advice.narrower_weights, sized({**flags, "job": "qlora", "gpus": 1})) == []
    assert len(proposed(advice.lighter_stack, adapted)) == 1


def test_gradients_that_a_stack_keeps_in_float32_may_have_16_bit() -> None:
    flags = {"stack": "megatron-lm", "gpus": 8, "train.seq_len": 512, "train.micro_batch": 1}
    change = {"train.gradient_dtype": "bf16"}
    assert proposed(advice.narrower_gradients, sized(flags)) == [("gradients in bf16 instead of fp32", change, 4)]
    assert proposed(advice.narrower_gradients, sized(flags, **change)) == []
    assert proposed(advice.narrower_gradients, sized({**flags, "job": "lora"})) == []
    for stack in ("nemo", "hf-bf16", "deepspeed"):
        assert proposed(advice.narrower_gradients, sized({**flags, "stack": stack})) == []


OPTIMIZER, PARAMS = "optimizer states", "parameters and optimizer"
HOST = "in host memory"


def offloads(estimate: TrainingEstimate) -> list[tuple[str, dict[str, object]]]:
    found = proposed(advice.more_offload, estimate)
    known = estimate.resolved.job.server.host_memory_bytes is not None
    efforts = [3 if known and values["layout.offload"] == "optimizer" else 5 for _, values, _ in found]
    assert [effort for _, _, effort in found] == efforts
    return [(words, values) for words, values, _ in found]


def test_states_go_to_the_host_with_the_stage_that_shards_them() -> None:
    """DeepSpeed offloads its optimizer from ZeRO 1 on, and weights of several ranks with ZeRO 3 alone."""
    zero = sized(FIXED, stack="deepspeed")
    assert zero.resolved.job.stack.supports.offload_from_zero == 1
    third = "ZeRO stage 3 with parameters"
    expected = [
        (f"{OPTIMIZER} {HOST}", {"layout.offload": "optimizer"}),
        (f"{third} and optimizer {HOST}", {"layout.offload": "params", "layout.zero": 3}),
        (f"activations {HOST}", {"layout.offload": "activations"}),
        (f"{OPTIMIZER} and activations {HOST}", {"layout.offload": "optimizer+activations"}),
        (f"{third}, optimizer and activations {HOST}", {"layout.offload": "params+activations", "layout.zero": 3}),
    ]
    assert offloads(zero) == expected
    none = offloads(with_layout(zero, zero=0))
    assert none[0] == (f"ZeRO stage 1 with {OPTIMIZER} {HOST}", {"layout.offload": "optimizer", "layout.zero": 1})
    assert offloads(with_layout(with_fixed(zero, tp=1), zero=0))[0] == expected[0]  # an open stage is the search's
    assert offloads(with_layout(zero, zero=1, dp=1))[1] == (f"{PARAMS} {HOST}", {"layout.offload": "params"})
    assert "layout.zero" in offloads(with_layout(zero, zero=1, dp=1, cp=2))[1][1]
    assert "layout.zero" not in offloads(with_layout(zero, zero=3))[1][1]


def test_only_more_than_now_goes_to_the_host() -> None:
    zero = sized(FIXED, stack="deepspeed")

    def more(now: int) -> list[object]:
        return [values["layout.offload"] for _, values in offloads(with_layout(zero, offload=now))]

    assert more(1) == ["params", "optimizer+activations", "params+activations"]
    assert more(2) == ["params+activations"]
    assert more(3) == ["optimizer+activations", "params+activations"]
    assert more(4) == ["params+activations"]
    assert more(5) == []


def test_weights_in_4_bit_stay_on_the_card() -> None:
    found = offloads(sized(ADAPTERS, job="qlora"))
    assert [values["layout.offload"] for _, values in found] == ["optimizer", "activations", "optimizer+activations"]


def test_stacks_offload_what_they_can(full: TrainingEstimate) -> None:
    names = {str(values["layout.offload"]) for _, values in offloads(full)}
    supported = full.resolved.job.stack.supports.offload
    assert "params" not in supported
    assert names == {"optimizer", "activations", "optimizer+activations"}


def test_states_come_back_to_the_card_one_by_one() -> None:
    away = sized(HIDDEN_AWAY)
    assert proposed(advice.less_offload, away) == [
        (f"only {OPTIMIZER} and activations {HOST}", {"layout.offload": "optimizer+activations"}, 2),
        (f"only activations {HOST}", {"layout.offload": "activations"}, 2),
        (f"only {PARAMS} {HOST}", {"layout.offload": "params"}, 2),
        (f"only {OPTIMIZER} {HOST}", {"layout.offload": "optimizer"}, 2),
        ("no offload", {"layout.offload": "none"}, 2),
    ]
    assert proposed(advice.less_offload, with_layout(away, offload=0)) == []


def test_what_the_user_chose_to_save_memory_with_can_be_dropped(full: TrainingEstimate) -> None:
    assert proposed(advice.dropped_choices, full) == [
        ("recompute none instead of full", {"layout.recompute": "none"}, 0),
        ("recompute selective instead of full", {"layout.recompute": "selective"}, 0),
        ("ZeRO stage 0 instead of 1", {"layout.zero": 0}, 0),
    ]
    half = with_layout(with_fixed(full, recompute=1), recompute=1)
    assert [words for words, _, _ in proposed(advice.dropped_choices, half)] == ["recompute none instead of selective"]
    assert proposed(advice.dropped_choices, with_fixed(full, tp=1)) == []


def test_the_share_of_offloading_is_said_where_it_is_dropped() -> None:
    away = sized(HIDDEN_AWAY)
    fixed = with_fixed(away, offload=away.resolved.fixed["offload"])
    moved = sum(away.component_s[part] for part in ("transfers to and from host memory", "offload"))
    share = round(100 * moved / sum(away.component_s.values()))
    found = proposed(advice.dropped_choices, fixed)
    assert len(found) == 5
    assert found[-1] == (f"no offload, as offloading takes {share} % of a step", {"layout.offload": "none"}, 0)


PADDED, FEWER = "packing instead of padding", "packing the samples into fewer sequences"


@pytest.mark.parametrize(
    ("share", "mean", "packs", "words"),
    [
        (0.21, 1700.0, True, PADDED),
        (0.2, 1700.0, True, None),
        (0.21, 900.0, False, None),
        (0.0, 900.0, True, FEWER),  # a micro-batch of one sample has no padding, and a step for each all the same
        (0.0, 900.0, False, None),
    ],
)
def test_packing_is_tried_from_a_fifth_of_padding_or_of_free_room_on(
    share: float, mean: float, packs: bool, words: str | None
) -> None:
    sequences = SimpleNamespace(padding_share=np.array([share]), longest_tokens=np.array([2048.0]))
    job = SimpleNamespace(
        packs=packs, seq_len=2048, padding="longest-in-micro-batch", lengths=SimpleNamespace(mean=mean)
    )
    estimate: Any = SimpleNamespace(resolved=SimpleNamespace(job=job), choice=SimpleNamespace(sequences=sequences))
    expected = [] if words is None else [(words, {"train.padding": "packed"}, 3)]
    assert proposed(advice.packed_samples, estimate) == expected


@pytest.mark.parametrize(
    ("pauses", "expected"),
    [
        ((100, 0.1, False), [60, True]),
        ((100, 0.1, True), [60]),
        ((60, 0.1, True), []),
        ((100, 0.0, False), [True]),
        ((None, 0.1, True), []),
    ],
)
def test_checkpoints_as_failures_have_them(pauses: tuple[int | None, float, bool], expected: list[object]) -> None:
    """60 steps lose least; a run that does not wait for storage cannot wait less."""
    every, failures, asynchronous = pauses
    said = SimpleNamespace(checkpoint_every=every, failures_per_gpu_day=failures, asynchronous=asynchronous)
    run = SimpleNamespace(best_every=np.array([60.0]), every=np.array([float(every or 60)]), saves=np.array([9.0]))
    estimate: Any = SimpleNamespace(run=run, resolved=SimpleNamespace(job=SimpleNamespace(pauses=said)))
    found = proposed(advice.better_checkpoints, estimate)
    assert [next(iter(values.values())) for _, values, _ in found] == expected
    assert all(effort == 1 for _, _, effort in found)
    if expected == [60, True]:
        words = [words for words, _, _ in found]
        assert words == ["a checkpoint every 60 steps (Young/Daly) instead of every 100", "asynchronous checkpoints"]
    run.saves = np.array([0.0])
    assert not any("asynchronous" in words for words, _, _ in proposed(advice.better_checkpoints, estimate))


def test_every_remedy_asks_at_least_the_effort_it_is_listed_with(full: TrainingEstimate) -> None:
    listed = {*advice.GENTLE, *advice.ON_THE_CARD, *advice.OTHER_HARDWARE, *advice.OTHER_METHOD}
    for estimate in (full, sized(ADAPTERS), sized(HIDDEN_AWAY)):
        for remedy in (*listed, *advice.FOR_LIMITS):
            assert all(change.effort >= remedy.effort for change in remedy.changes(estimate, REGISTRY))
