"""Every remedy proposes what a user could do about the layout that was sized: words, keys and efforts by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cases import REGISTRY, ask

from xe_sizer.scenario.change import Change
from xe_sizer.training import remedies
from xe_sizer.training.estimate import TrainingEstimate
from xe_sizer.training.lengths import histogram_lengths
from xe_sizer.training.sizing import size

# Llama 2 7B: 32 heads, 32 layers. Batches of 48 sequences of 4,096 tokens on 8 H100.
FIXED = {
    "stack": "megatron-lm", "gpus": 8, "train.seq_len": 4096, "train.global_batch": 48, "train.micro_batch": 6,
    "layout.tp": 1, "layout.pp": 1, "layout.dp": 8, "layout.zero": 1, "layout.recompute": "full",
}  # fmt: skip
ADAPTERS = {
    "job": "lora", "stack": "deepspeed", "gpus": 8, "layout.zero": 3, "lora.rank": 40, "lora.targets": ["all-linear"],
    "train.seq_len": 1024,
}  # fmt: skip
HIDDEN_AWAY = {**ADAPTERS, "layout.offload": "params+activations"}


def sized(flags: Mapping[str, object], **more: object) -> TrainingEstimate:
    asked = {"model": "llama-2-7b", "job": "sft", **flags, **more}
    return size(ask({key: value for key, value in asked.items() if value is not None}))


def with_layout(estimate: TrainingEstimate, **sizes: int) -> TrainingEstimate:
    """The estimate as if its layout had these sizes."""
    arrays = {name: np.array([value]) for name, value in sizes.items()}
    layouts = replace(estimate.layouts, **arrays)
    return replace(estimate, choice=replace(estimate.choice, layouts=layouts))


def with_fixed(estimate: TrainingEstimate, **fixed: int) -> TrainingEstimate:
    return replace(estimate, resolved=replace(estimate.resolved, fixed=fixed))


def proposed(
    remedy: Callable[[TrainingEstimate, Any], Iterator[Change]], estimate: TrainingEstimate
) -> list[tuple[str, dict[str, object], int]]:
    return [(change.words, dict(change.values), change.effort) for change in remedy(estimate, REGISTRY)]


@pytest.fixture(scope="module")
def full() -> TrainingEstimate:
    return sized(FIXED)


@pytest.fixture(scope="module")
def adapters() -> TrainingEstimate:
    return sized(ADAPTERS)


def test_the_loss_that_holds_no_logits_is_proposed_once(full: TrainingEstimate) -> None:
    words = "chunked cross-entropy without float32 logits"
    assert proposed(remedies.chunked_loss, full) == [(words, {"loss": "fused"}, 1)]
    assert proposed(remedies.chunked_loss, sized(FIXED, loss="fused")) == []


def test_gradients_that_wait_whole_can_be_reduced_earlier() -> None:
    """FSDP under accelerate keeps whole gradients while it accumulates; a single micro-batch has none to keep."""
    fsdp = {"stack": "hf-bf16", "gpus": 8, "layout.zero": 3, "train.micro_batch": 1, "train.seq_len": 512}
    ((words, values, effort),) = proposed(remedies.earlier_reduction, sized({**fsdp, "train.global_batch": 32}))
    called = sized(fsdp).resolved.job.stack.settings["train.reduce_every_micro_batch"]
    assert words == f"gradients reduced in every micro-batch ({called})"
    assert (values, effort) == ({"train.reduce_every_micro_batch": True}, 1)
    assert proposed(remedies.earlier_reduction, sized({**fsdp, "train.global_batch": 8})) == []


@pytest.mark.parametrize(
    ("micro", "smaller"), [(1, []), (2, [1]), (3, [1]), (4, [2, 1]), (6, [3, 1]), (8, [4, 2, 1]), (12, [6, 3, 1])]
)
def test_micro_batches_are_halved_and_quartered(full: TrainingEstimate, micro: int, smaller: list[int]) -> None:
    found = proposed(remedies.smaller_micro_batch, with_layout(full, micro_batch=micro))
    assert found == [(f"micro-batch {one} instead of {micro}", {"train.micro_batch": one}, 1) for one in smaller]


def test_recomputation_goes_as_far_as_there_is_a_switch(full: TrainingEstimate) -> None:
    selective, whole = ((f"{name} recomputation", {"layout.recompute": name}, 2) for name in ("selective", "full"))
    found = [proposed(remedies.recomputation, with_layout(full, recompute=code)) for code in range(3)]
    assert found == [[selective, whole], [whole], []]
    without = with_layout(sized(ADAPTERS, stack="hf-trainer", **{"layout.zero": None}), recompute=0)
    assert proposed(remedies.recomputation, without) == [whole]  # which has no selective one


def test_states_are_sharded_where_ranks_share_them(full: TrainingEstimate) -> None:
    def stages(**sizes: int) -> list[object]:
        found = proposed(remedies.zero_stage, with_layout(full, **sizes))
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
    assert proposed(remedies.tensor_parallel, full) == tensor
    assert proposed(remedies.pipeline_stages, full) == stages
    for name, remedy in (("tp", remedies.tensor_parallel), ("pp", remedies.pipeline_stages)):
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
    for name, remedy in (("tp", remedies.tensor_parallel), ("pp", remedies.pipeline_stages)):
        wide = with_layout(with_fixed(odd, **{name: 2}), **{name: 2}, dp=4)
        assert [values for _, values, _ in proposed(remedy, wide)] == [{f"layout.{name}": 4}]


def test_tensor_groups_stay_inside_a_node(full: TrainingEstimate) -> None:
    wide = with_layout(with_fixed(full, tp=4), tp=4, dp=8)
    assert [values for _, values, _ in proposed(remedies.tensor_parallel, wide)] == [{"layout.tp": 8}]


def test_stacks_without_groups_are_not_told_of_them(adapters: TrainingEstimate) -> None:
    alone = with_fixed(sized(ADAPTERS, stack="unsloth", gpus=1, **{"layout.zero": None}), tp=1, pp=1)
    alone = with_layout(alone, dp=8)
    assert proposed(remedies.tensor_parallel, alone) == []
    assert proposed(remedies.pipeline_stages, alone) == []


def test_optimizers_shrink_on_the_card_alone(full: TrainingEstimate) -> None:
    zero = sized(FIXED, stack="deepspeed")
    assert [values for _, values, _ in proposed(remedies.small_optimizer, zero)] == [
        {"optimizer": "adamw-8bit"},
        {"optimizer": "paged-adamw-8bit"},
    ]
    assert {effort for _, _, effort in proposed(remedies.small_optimizer, zero)} == {3}
    assert proposed(remedies.small_optimizer, with_layout(zero, offload=1)) == []


@pytest.mark.parametrize(("rank", "smaller"), [(64, [32, 16, 8]), (40, [20, 10]), (16, [8]), (15, []), (8, [])])
def test_ranks_of_adapters_are_halved_down_to_eight(adapters: TrainingEstimate, rank: int, smaller: list[int]) -> None:
    given = replace(adapters.resolved, values={**adapters.resolved.values, "lora.rank": rank})
    found = proposed(remedies.smaller_adapters, replace(adapters, resolved=given))
    assert found == [(f"adapters of rank {one} instead of {rank}", {"lora.rank": one}, 4) for one in smaller]


def test_adapters_on_fewer_projections_cost_quality(adapters: TrainingEstimate, full: TrainingEstimate) -> None:
    found = proposed(remedies.fewer_adapters, adapters)
    assert found
    assert all(words.startswith("adapters on ") and words.endswith(" alone") for words, _, _ in found)
    assert {effort for _, _, effort in found} == {6}
    assert all(set(values) == {"lora.targets"} for _, values, _ in found)
    assert proposed(remedies.fewer_adapters, full) == []


def test_a_lighter_stack_costs_quality_where_the_model_learns() -> None:
    """A stack of float32 masters names the one that trains in 16 bit: adapters do not suffer from that."""
    stack = "hf-trainer"
    trained = sized({"stack": stack, "gpus": 8, "train.seq_len": 512, "train.micro_batch": 1})
    lighter = trained.resolved.job.stack.lighter
    ((words, values, effort),) = proposed(remedies.lighter_stack, trained)
    assert words.startswith(f"stack {lighter} (")
    assert words.endswith(f") instead of {stack}")
    assert (values, effort) == ({"stack": lighter}, 6)
    under_adapters = sized(ADAPTERS, stack=stack, **{"layout.zero": None})
    assert [effort for _, _, effort in proposed(remedies.lighter_stack, under_adapters)] == [3]


def test_weights_that_learn_are_loaded_in_16_bit_instead_of_a_lighter_stack() -> None:
    """The release that loads float32 has both; the key is the user's own, and keeps the release."""
    flags = {"stack": "hf-trainer@4.57", "gpus": 8, "train.seq_len": 512, "train.micro_batch": 1}
    wide = sized(flags)
    change = {"train.weights_dtype": "bf16"}
    assert proposed(remedies.narrower_weights, wide) == [("weights loaded in bf16 instead of fp32", change, 6)]
    assert proposed(remedies.lighter_stack, wide) == []
    assert proposed(remedies.narrower_weights, sized(flags, **change)) == []
    assert len(proposed(remedies.lighter_stack, sized(flags, **change))) == 1
    for stack in ("megatron-lm", "hf-bf16"):
        assert proposed(remedies.narrower_weights, sized({**flags, "stack": stack})) == []
    adapted = sized(flags, job="lora")
    assert proposed(remedies.narrower_weights, adapted) == []
    quantised = sized({**flags, "stack": "trl", "job": "qlora", "gpus": 1})
    assert proposed(remedies.narrower_weights, quantised) == [("weights loaded in bf16 instead of fp32", change, 2)]
    assert proposed(remedies.narrower_weights, sized({**flags, "job": "qlora", "gpus": 1})) == []
    assert len(proposed(remedies.lighter_stack, adapted)) == 1


OPTIMIZER, PARAMS = "optimizer states", "parameters and optimizer"
HOST = "in host memory"


def offloads(estimate: TrainingEstimate) -> list[tuple[str, dict[str, object]]]:
    found = proposed(remedies.more_offload, estimate)
    assert {effort for _, _, effort in found} <= {4}
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
    assert proposed(remedies.less_offload, away) == [
        (f"only {OPTIMIZER} and activations {HOST}", {"layout.offload": "optimizer+activations"}, 2),
        (f"only activations {HOST}", {"layout.offload": "activations"}, 2),
        (f"only {PARAMS} {HOST}", {"layout.offload": "params"}, 2),
        (f"only {OPTIMIZER} {HOST}", {"layout.offload": "optimizer"}, 2),
        ("no offload", {"layout.offload": "none"}, 2),
    ]
    assert proposed(remedies.less_offload, with_layout(away, offload=0)) == []


def test_what_the_user_chose_to_save_memory_with_can_be_dropped(full: TrainingEstimate) -> None:
    assert proposed(remedies.dropped_choices, full) == [
        ("recompute none instead of full", {"layout.recompute": "none"}, 0),
        ("recompute selective instead of full", {"layout.recompute": "selective"}, 0),
        ("ZeRO stage 0 instead of 1", {"layout.zero": 0}, 0),
    ]
    half = with_layout(with_fixed(full, recompute=1), recompute=1)
    assert [words for words, _, _ in proposed(remedies.dropped_choices, half)] == [
        "recompute none instead of selective"
    ]
    assert proposed(remedies.dropped_choices, with_fixed(full, tp=1)) == []


def test_the_share_of_offloading_is_said_where_it_is_dropped() -> None:
    away = sized(HIDDEN_AWAY)
    fixed = with_fixed(away, offload=away.resolved.fixed["offload"])
    moved = sum(away.component_s[part] for part in ("transfers to and from host memory", "offload"))
    share = round(100 * moved / sum(away.component_s.values()))
    found = proposed(remedies.dropped_choices, fixed)
    assert len(found) == 5
    assert found[-1] == (f"no offload, as offloading takes {share} % of a step", {"layout.offload": "none"}, 0)


@pytest.mark.parametrize(("share", "packs", "tried"), [(0.21, True, 1), (0.2, True, 0), (0.21, False, 0)])
def test_packing_is_tried_from_a_fifth_of_padding_on(share: float, packs: bool, tried: int) -> None:
    stack = SimpleNamespace(supports=SimpleNamespace(packing=packs))
    sequences = SimpleNamespace(padding_share=np.array([share]))
    job = SimpleNamespace(stack=stack)
    estimate: Any = SimpleNamespace(resolved=SimpleNamespace(job=job), choice=SimpleNamespace(sequences=sequences))
    expected = [("packing in place of padding", {"train.padding": "packed"}, 3)]
    assert proposed(remedies.packed_samples, estimate) == tried * expected


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
    found = proposed(remedies.better_checkpoints, estimate)
    assert [next(iter(values.values())) for _, values, _ in found] == expected
    assert all(effort == 1 for _, _, effort in found)
    if expected == [60, True]:
        words = [words for words, _, _ in found]
        assert words == ["a checkpoint every 60 steps (Young/Daly) instead of every 100", "asynchronous checkpoints"]
    run.saves = np.array([0.0])
    assert not any("asynchronous" in words for words, _, _ in proposed(remedies.better_checkpoints, estimate))


def test_gpu_counts_around_those_at_hand(full: TrainingEstimate) -> None:
    def counts(estimate: TrainingEstimate) -> list[object]:
        found = proposed(remedies.other_counts, estimate)
        assert all(effort == 9 and set(values) == {"gpus"} for _, values, effort in found)
        return [values["gpus"] for _, values, _ in found]

    assert counts(full) == [4, 16, 32, 64]
    assert counts(replace(full, gpus=1)) == [2, 4, 8]
    assert proposed(remedies.other_counts, full)[0][0] == "4 GPUs instead of 8"
    assert counts(sized(FIXED, **{"limits.max_gpus": 16})) == [4, 16]


def test_a_desk_holds_four_cards() -> None:
    """Of a bare desktop card four go into a machine; a stack on one card has no more."""
    asked = {"gpus": 2, "stack": "hf-bf16", "train.seq_len": 512, "job": "qlora", "gpu": "rtx-4090"}
    desk = sized(asked)
    assert [values["gpus"] for _, values, _ in proposed(remedies.other_counts, desk)] == [1, 4]
    alone = sized({**asked, "gpus": 1, "stack": "unsloth"})
    assert not alone.resolved.job.stack.supports.several_gpus
    assert proposed(remedies.other_counts, alone) == []
    assert proposed(remedies.more_gpus, alone) == []


@pytest.mark.parametrize(
    ("enough", "most", "expected"), [(16, None, [16]), (8, None, []), (None, None, []), (16, 16, [16]), (16, 12, [])]
)
def test_as_many_gpus_as_it_takes(
    full: TrainingEstimate, enough: int | None, most: int | None, expected: list[int]
) -> None:
    made = full if most is None else sized(FIXED, **{"limits.max_gpus": most})
    asked: Any = SimpleNamespace(resolved=made.resolved, gpus=8, fewest=SimpleNamespace(that_fit_unasked=enough))
    found = proposed(remedies.more_gpus, asked)
    assert found == [(f"{count} GPUs instead of 8", {"gpus": count}, 9) for count in expected]


def test_fewer_gpus_than_at_hand_are_not_counted(full: TrainingEstimate) -> None:
    """Where the user has all the GPUs allowed, nobody looks for the fewest."""
    made = sized(FIXED, **{"limits.max_gpus": 8})
    asked: Any = SimpleNamespace(resolved=made.resolved, gpus=8, fewest=None)
    assert proposed(remedies.more_gpus, asked) == []


CARDS = (
    # GiB and segment, beside one of 80 GiB of a data centre
    ("a", 88.0, "data-centre"), ("b", 144.0, "data-centre"), ("c", 145.0, "data-centre"), ("d", 96.0, "desktop"),
)  # fmt: skip


class Catalogue:
    def larger_gpus(self, gpu: Any, times: float) -> list[Any]:
        cards = [SimpleNamespace(name=name, memory_bytes=gib * 2**30, segment=kind) for name, gib, kind in CARDS]
        return [card for card in cards if card.memory_bytes >= times * gpu.memory_bytes]


def carded(price: object = None, max_cost: float | None = None) -> Any:
    given = SimpleNamespace(limits=SimpleNamespace(max_cost=max_cost), cost=SimpleNamespace(price_per_gpu_hour=price))
    gpu = SimpleNamespace(name="mine", memory_bytes=80 * 2**30, segment="data-centre")
    job = SimpleNamespace(server=SimpleNamespace(accelerator=gpu))
    return SimpleNamespace(gpus=8, resolved=SimpleNamespace(job=job, given=SimpleNamespace(values=given)))


def test_larger_cards_by_size_and_segment() -> None:
    """The next size up has at most 1.8 times the memory, at least 1.1 times."""
    kinds = ((remedies.next_card, 8, "ab"), (remedies.larger_card, 10, "c"), (remedies.other_card, 11, "d"))
    for remedy, effort, names in kinds:
        found = list(remedy(carded(), Catalogue()))  # type: ignore[arg-type]
        assert [change.values for change in found] == [{"gpu": name, "gpus": 8} for name in names]
        assert {change.effort for change in found} == {effort}
    (larger,) = remedies.larger_card(carded(), Catalogue())  # type: ignore[arg-type]
    assert larger.words == "c (145 GiB) instead of mine"
    (priced,) = remedies.larger_card(carded(price=2.5), Catalogue())  # type: ignore[arg-type]
    assert priced.words == "c (145 GiB) instead of mine, not at the price given"
    assert list(remedies.larger_card(carded(max_cost=100.0), Catalogue())) == []  # type: ignore[arg-type]


def test_lighter_methods_for_what_fine_tunes(full: TrainingEstimate, adapters: TrainingEstimate) -> None:
    assert proposed(remedies.lighter_method, full)[:2] == [
        ("LoRA instead of full fine-tuning", {"job": "lora"}, 13),
        ("QLoRA instead of full fine-tuning", {"job": "qlora"}, 14),
    ]
    assert proposed(remedies.lighter_method, adapters)[0] == ("QLoRA instead of LoRA", {"job": "qlora"}, 13)
    assert proposed(remedies.lighter_method, sized(FIXED, job="pretrain")) == []


def of_lengths(counts: Mapping[int, int], seq_len: int = 4096, padding: str = "longest-in-micro-batch") -> Any:
    """So many samples of each length."""
    lengths = histogram_lengths(list(counts), list(counts.values()))
    job = SimpleNamespace(seq_len=seq_len, lengths=lengths, padding=padding)
    return SimpleNamespace(resolved=SimpleNamespace(job=job))


FEW_LONG, MANY_LONG, ONE_LENGTH = {1000: 99, 4096: 1}, {1000: 3, 4096: 1}, {4096: 10}


def test_sequences_are_halved_where_that_cuts_little() -> None:
    """2,048 of 99,000 + 4,096 tokens are cut off: 2 %; of three samples in four 2,048 of 7,096: 29 %."""
    assert proposed(remedies.half_sequences, of_lengths(FEW_LONG)) == [
        ("sequences of 2,048 tokens instead of 4,096, which cuts 2 % of the tokens", {"train.seq_len": 2048}, 6)
    ]
    assert proposed(remedies.half_sequences, of_lengths(MANY_LONG)) == []
    for unharmed in (of_lengths(ONE_LENGTH), of_lengths(MANY_LONG, padding="packed")):
        words, values = "sequences of 2,048 tokens instead of 4,096", {"train.seq_len": 2048}
        assert proposed(remedies.half_sequences, unharmed) == [(words, values, 6)]


def test_shorter_sequences_are_another_training() -> None:
    """At 1,024 tokens 3,072 of 7,096 are cut off, at 512 all but 4 x 512."""
    assert proposed(remedies.shorter_sequences, of_lengths(MANY_LONG)) == [
        ("sequences of 2,048 tokens instead of 4,096, which cuts 29 % of the tokens", {"train.seq_len": 2048}, 16),
        ("sequences of 1,024 tokens instead of 4,096, which cuts 43 % of the tokens", {"train.seq_len": 1024}, 16),
        ("sequences of 512 tokens instead of 4,096, which cuts 71 % of the tokens", {"train.seq_len": 512}, 16),
    ]
    few = [values["train.seq_len"] for _, values, _ in proposed(remedies.shorter_sequences, of_lengths(FEW_LONG))]
    assert few == [1024, 512]  # half is the milder remedy's
    assert proposed(remedies.shorter_sequences, of_lengths({1000: 1}, 2047)) == []  # a quarter is too short
    nearly = [
        values["train.seq_len"]
        for _, values, _ in proposed(remedies.shorter_sequences, of_lengths({1700: 99, 4096: 1}))
    ]
    assert nearly == [1024, 512]


def test_a_cut_of_half_a_per_cent_is_said() -> None:
    """Of 1,000 samples of 200 tokens and a few of 1,200 that are halved: 600 tokens of each."""
    for few, said in ((1, ""), (2, ", which cuts 1 % of the tokens")):  # 0.3 and 0.6 %
        ((words, _, _),) = proposed(remedies.half_sequences, of_lengths({200: 1000, 1200: few}, 1200))
        assert words == f"sequences of 600 tokens instead of 1,200{said}"


def test_every_remedy_asks_at_least_the_effort_it_is_listed_with(full: TrainingEstimate) -> None:
    listed = {*remedies.GENTLE, *remedies.ON_THE_CARD, *remedies.OTHER_HARDWARE, *remedies.OTHER_METHOD}
    for estimate in (full, sized(ADAPTERS), sized(HIDDEN_AWAY)):
        for remedy in (*listed, *remedies.FOR_LIMITS):
            assert all(change.effort >= remedy.effort for change in remedy.changes(estimate, REGISTRY))
