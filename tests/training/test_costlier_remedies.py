"""Remedies that change more than the layout: other GPUs, another method, shorter sequences."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from remedy_cases import ADAPTERS, FIXED, proposed, sized

from xe_sizer.scenario.schema import CostSection
from xe_sizer.training import advice
from xe_sizer.training.estimate import TrainingEstimate
from xe_sizer.training.token_lengths import histogram_lengths


@pytest.fixture(scope="module")
def full() -> TrainingEstimate:
    return sized(FIXED)


@pytest.fixture(scope="module")
def adapters() -> TrainingEstimate:
    return sized(ADAPTERS)


def test_gpu_counts_around_those_at_hand(full: TrainingEstimate) -> None:
    def counts(estimate: TrainingEstimate) -> list[object]:
        found = proposed(advice.other_counts, estimate)
        assert all(effort == 9 and set(values) == {"gpus"} for _, values, effort in found)
        return [values["gpus"] for _, values, _ in found]

    assert counts(full) == [4, 16, 32, 64]
    assert counts(replace(full, gpus=1)) == [2, 4, 8]
    assert proposed(advice.other_counts, full)[0][0] == "4 GPUs instead of 8"
    assert counts(sized(FIXED, **{"limits.max_gpus": 16})) == [4, 16]


def test_a_desk_holds_four_cards() -> None:
    """Of a bare desktop card four go into a machine; a stack on one card has no more."""
    asked = {"gpus": 2, "stack": "hf-bf16", "train.seq_len": 512, "job": "qlora", "gpu": "rtx-4090"}
    desk = sized(asked)
    assert [values["gpus"] for _, values, _ in proposed(advice.other_counts, desk)] == [1, 4]
    alone = sized({**asked, "gpus": 1, "stack": "unsloth"})
    assert not alone.resolved.job.stack.supports.several_gpus
    assert proposed(advice.other_counts, alone) == []
    assert proposed(advice.more_gpus, alone) == []


@pytest.mark.parametrize(
    ("enough", "most", "expected"), [(16, None, [16]), (8, None, []), (None, None, []), (16, 16, [16]), (16, 12, [])]
)
def test_as_many_gpus_as_it_takes(
    full: TrainingEstimate, enough: int | None, most: int | None, expected: list[int]
) -> None:
    made = full if most is None else sized(FIXED, **{"limits.max_gpus": most})
    asked: Any = SimpleNamespace(resolved=made.resolved, gpus=8, minimum_gpus=SimpleNamespace(that_fit_unasked=enough))
    found = proposed(advice.more_gpus, asked)
    assert found == [(f"{count} GPUs instead of 8", {"gpus": count}, 9) for count in expected]


def test_fewer_gpus_than_at_hand_are_not_counted(full: TrainingEstimate) -> None:
    """Where the user has all the GPUs allowed, nobody looks for the fewest."""
    made = sized(FIXED, **{"limits.max_gpus": 8})
    asked: Any = SimpleNamespace(resolved=made.resolved, gpus=8, minimum_gpus=None)
    assert proposed(advice.more_gpus, asked) == []


CARDS = (
    # GiB and segment, beside one of 80 GiB of a data centre
    ("a", 88.0, "data-centre"), ("b", 144.0, "data-centre"), ("c", 145.0, "data-centre"), ("d", 96.0, "desktop"),
)  # fmt: skip


class Catalogue:
    def larger_gpus(self, gpu: Any, times: float) -> list[Any]:
        cards = [SimpleNamespace(name=name, memory_bytes=gib * 2**30, segment=kind) for name, gib, kind in CARDS]
        return [card for card in cards if card.memory_bytes >= times * gpu.memory_bytes]


def carded(price: float | None = None, max_cost: float | None = None) -> Any:
    given = SimpleNamespace(limits=SimpleNamespace(max_cost=max_cost), cost=CostSection(price_per_gpu_hour=price))
    gpu = SimpleNamespace(name="mine", memory_bytes=80 * 2**30, segment="data-centre")
    job = SimpleNamespace(server=SimpleNamespace(accelerator=gpu))
    return SimpleNamespace(gpus=8, resolved=SimpleNamespace(job=job, scenario=SimpleNamespace(values=given)))


def test_larger_cards_by_size_and_segment() -> None:
    """The next size up has at most 1.8 times the memory, at least 1.1 times."""
    kinds = ((advice.next_card, 8, "ab"), (advice.larger_card, 10, "c"), (advice.other_card, 11, "d"))
    for remedy, effort, names in kinds:
        found = list(remedy(carded(), Catalogue()))  # type: ignore[arg-type]
        assert [change.values for change in found] == [{"gpu": name, "gpus": 8} for name in names]
        assert {change.effort for change in found} == {effort}
    (larger,) = advice.larger_card(carded(), Catalogue())  # type: ignore[arg-type]
    assert larger.words == "c (145 GiB) instead of mine"
    (priced,) = advice.larger_card(carded(price=2.5), Catalogue())  # type: ignore[arg-type]
    assert priced.words == "c (145 GiB) instead of mine, not at the price given"
    assert list(advice.larger_card(carded(max_cost=100.0), Catalogue())) == []  # type: ignore[arg-type]


def test_lighter_methods_for_what_fine_tunes(full: TrainingEstimate, adapters: TrainingEstimate) -> None:
    assert proposed(advice.lighter_method, full)[:2] == [
        ("LoRA instead of full fine-tuning", {"job": "lora"}, 13),
        ("QLoRA instead of full fine-tuning", {"job": "qlora"}, 14),
    ]
    assert proposed(advice.lighter_method, adapters)[0] == ("QLoRA instead of LoRA", {"job": "qlora"}, 13)
    assert proposed(advice.lighter_method, sized(FIXED, job="pretrain")) == []


def of_lengths(counts: Mapping[int, int], seq_len: int = 4096, padding: str = "longest-in-micro-batch") -> Any:
    """So many samples of each length."""
    lengths = histogram_lengths(list(counts), list(counts.values()))
    job = SimpleNamespace(seq_len=seq_len, lengths=lengths, padding=padding)
    return SimpleNamespace(resolved=SimpleNamespace(job=job))


FEW_LONG, MANY_LONG, ONE_LENGTH = {1000: 99, 4096: 1}, {1000: 3, 4096: 1}, {4096: 10}


def test_sequences_are_halved_where_that_cuts_little() -> None:
    """2,048 of 99,000 + 4,096 tokens are cut off: 2 %; of three samples in four 2,048 of 7,096: 29 %."""
    assert proposed(advice.half_sequences, of_lengths(FEW_LONG)) == [
        ("sequences of 2,048 tokens instead of 4,096, which cuts 2 % of the tokens", {"train.seq_len": 2048}, 6)
    ]
    assert proposed(advice.half_sequences, of_lengths(MANY_LONG)) == []
    for unharmed in (of_lengths(ONE_LENGTH), of_lengths(MANY_LONG, padding="packed")):
        words, values = "sequences of 2,048 tokens instead of 4,096", {"train.seq_len": 2048}
        assert proposed(advice.half_sequences, unharmed) == [(words, values, 6)]


def test_shorter_sequences_are_another_training() -> None:
    """At 1,024 tokens 3,072 of 7,096 are cut off, at 512 all but 4 x 512."""
    assert proposed(advice.shorter_sequences, of_lengths(MANY_LONG)) == [
        ("sequences of 2,048 tokens instead of 4,096, which cuts 29 % of the tokens", {"train.seq_len": 2048}, 16),
        ("sequences of 1,024 tokens instead of 4,096, which cuts 43 % of the tokens", {"train.seq_len": 1024}, 16),
        ("sequences of 512 tokens instead of 4,096, which cuts 71 % of the tokens", {"train.seq_len": 512}, 16),
    ]
    few = [values["train.seq_len"] for _, values, _ in proposed(advice.shorter_sequences, of_lengths(FEW_LONG))]
    assert few == [1024, 512]  # half is the milder remedy's
    assert proposed(advice.shorter_sequences, of_lengths({1000: 1}, 2047)) == []  # a quarter is too short
    nearly = [
        values["train.seq_len"] for _, values, _ in proposed(advice.shorter_sequences, of_lengths({1700: 99, 4096: 1}))
    ]
    assert nearly == [1024, 512]


def test_a_cut_of_half_a_per_cent_is_said() -> None:
    """Of 1,000 samples of 200 tokens and a few of 1,200 that are halved: 600 tokens of each."""
    for few, said in ((1, ""), (2, ", which cuts 1 % of the tokens")):  # 0.3 and 0.6 %
        ((words, _, _),) = proposed(advice.half_sequences, of_lengths({200: 1000, 1200: few}, 1200))
        assert words == f"sequences of 600 tokens instead of 1,200{said}"


# What learns, and what stands beside it.

DPO = {"job": "dpo", "stack": "hf-bf16", "gpus": 8, "train.seq_len": 1024, "layout.zero": 3}


def test_a_reference_comes_from_the_model_itself_or_from_before() -> None:
    """Without its adapters, where it has some; computed beforehand where there is one at all."""
    off = ("the reference from the model with its adapters off, without a copy",
           {"train.reference": "adapters-off"}, 1)  # fmt: skip
    before = ("reference log-probabilities computed beforehand", {"train.reference": "precomputed"}, 2)
    assert proposed(advice.reference_elsewhere, sized(DPO)) == [before]
    assert proposed(advice.reference_elsewhere, sized(DPO, adapter="lora", **{"train.reference": "copy"})) == [
        off, before,
    ]  # fmt: skip
    shared = sized(DPO, adapter="lora", **{"train.reference": "adapters-off"})
    assert proposed(advice.reference_elsewhere, shared) == [before]
    assert proposed(advice.reference_elsewhere, sized(DPO, **{"train.reference": "precomputed"})) == []
    assert proposed(advice.reference_elsewhere, sized(FIXED)) == []


def test_jobs_that_take_any_adapter_are_offered_lighter_ones(full: TrainingEstimate) -> None:
    """LoRA in place of all weights, then QLoRA; a copied reference becomes the model without its adapters."""
    lora = ("LoRA instead of all weights", {"adapter": "lora"}, 13)
    qlora = ("QLoRA instead of all weights", {"adapter": "qlora"}, 14)
    plain = sized(DPO)
    assert proposed(advice.fewer_learning_weights, plain) == [lora, qlora]
    copied = sized(DPO, **{"train.reference": "copy"})
    assert [values for _, values, _ in proposed(advice.fewer_learning_weights, copied)] == [
        {"adapter": "lora", "train.reference": "adapters-off"},
        {"adapter": "qlora", "train.reference": "adapters-off"},
    ]
    adapted = sized(DPO, adapter="lora")
    assert proposed(advice.fewer_learning_weights, adapted) == [("QLoRA instead of LoRA", {"adapter": "qlora"}, 13)]
    weightier = sized(DPO, adapter="dora")
    assert [values["adapter"] for _, values, _ in proposed(advice.fewer_learning_weights, weightier)] == [
        "lora", "qlora",
    ]  # fmt: skip
    assert proposed(advice.fewer_learning_weights, sized(DPO, adapter="qlora")) == []
    assert proposed(advice.fewer_learning_weights, full) == []


def test_all_weights_or_one_lighter_adapter_are_the_others() -> None:
    """What a table of ways to train offers: back to all weights with a copy, and the next lighter kind."""

    def others(estimate: TrainingEstimate) -> list[tuple[str, dict[str, object], int]]:
        return [(one.words, dict(one.values), one.effort) for one in advice.other_adapters(estimate)]

    assert others(sized(DPO)) == [("LoRA instead of all weights", {"adapter": "lora"}, 13)]
    lighter = ("QLoRA instead of LoRA", {"adapter": "qlora"}, 13)
    assert others(sized(DPO, adapter="lora")) == [("all weights instead of LoRA", {"adapter": "none"}, 13), lighter]
    shared = sized(DPO, adapter="lora", **{"train.reference": "adapters-off"})
    whole = ("all weights instead of LoRA", {"adapter": "none", "train.reference": "copy"}, 13)
    assert others(shared) == [whole, lighter]
