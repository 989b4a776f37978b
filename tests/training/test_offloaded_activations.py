"""Activations in host memory: what stays on the card, what the host holds, and what the copies take."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from tests.cases import ask, job, layouts
from xe_sizer.errors import InputError
from xe_sizer.evidence.names import RecordRegistry
from xe_sizer.evidence.records import Batch, Record
from xe_sizer.evidence.training_scenario import build_scenario
from xe_sizer.laws.collectives import copy_time_s
from xe_sizer.training.layout import OFFLOAD, RECOMPUTE, can_offload, offloaded_parts
from xe_sizer.training.memory import memory_ledger
from xe_sizer.training.search import size
from xe_sizer.training.step_time import timeline

ACTIVATIONS, TRANSFERS = OFFLOAD.index("activations"), "transfers to and from host memory"
LAYERS, HIDDEN, TOKENS = 32, 4096, 32_768  # Llama 2 7B
LAYER_INPUT_BYTES = TOKENS * HIDDEN * 2.0  # what full recomputation keeps of a layer
LONG = {"train__seq_len": TOKENS, "train__padding": "packed", "train__global_batch": 8}


def held(offload: str, **sizes: int) -> tuple[float, float]:
    """Activations at the end of the forward [bytes], and what one node's memory holds [bytes]."""
    one = job("llama-2-7b", stack="generic", **LONG)
    ledger = memory_ledger(one, layouts(recompute=2, offload=OFFLOAD.index(offload), **sizes))
    return float(ledger.components["activations"][0, 0, 0]), float(ledger.host_bytes[0])


def test_two_layers_are_left_on_the_card() -> None:
    (whole, none), (left, _) = held("none"), held("activations")
    assert none == 0.0
    assert whole - left == pytest.approx((LAYERS - 2) * LAYER_INPUT_BYTES)


def test_the_host_holds_the_layers_of_all_ranks_of_a_node() -> None:
    assert held("activations")[1] == pytest.approx(LAYERS * LAYER_INPUT_BYTES)
    assert held("activations", dp=8)[1] == pytest.approx(8 * LAYERS * LAYER_INPUT_BYTES)


def test_what_is_offloaded_together_adds_up() -> None:
    together, apart = held("optimizer+activations")[1], held("optimizer")[1] + held("activations")[1]
    assert together == pytest.approx(apart)
    assert held("optimizer+activations")[0] == held("activations")[0]


def test_a_pipeline_keeps_no_other_micro_batch_on_the_card() -> None:
    assert held("activations", pp=4, grad_accum=8)[0] == pytest.approx(2 * LAYER_INPUT_BYTES)


def transfers_s(tokens: int) -> float:
    flags = {"model": "llama-2-7b", "train.seq_len": tokens, "train.padding": "packed", "train.global_batch": 1}
    one = ask({**flags, "train.steps": 1, "stack": "generic"}).job
    line = timeline(one, layouts(recompute=2, offload=ACTIVATIONS))
    return float(line.components[TRANSFERS][0])


def test_long_sequences_hide_the_copies_of_layer_inputs() -> None:
    """A layer's input takes 2 h bytes a token over PCIe, its kernels 24 h h FLOPs and more: hidden."""
    assert transfers_s(32_768) == 0.0


def test_copies_that_take_longer_than_the_kernels_are_exposed() -> None:
    """Without recomputation a layer of Llama 2 7B keeps over 30 h bytes a token, more than the kernels hide."""
    flags = {"model": "llama-2-7b", "train.seq_len": 4096, "train.padding": "packed", "train.global_batch": 2}
    one = ask({**flags, "train.steps": 1, "stack": "generic"}).job
    once, twice = (
        timeline(one, layouts(offload=ACTIVATIONS, grad_accum=count)).components[TRANSFERS][0] for count in (1, 2)
    )
    least_s = 2 * 32 * 30 * 4096 * HIDDEN / one.server.pcie_bytes_per_s
    whole = timeline(one, layouts())
    assert once >= least_s - float(np.sum([part[0] for part in whole.components.values()]))
    assert once > 0.0
    assert twice == pytest.approx(2 * once)


def test_parts_of_an_offload() -> None:
    assert offloaded_parts("none") == frozenset()
    assert offloaded_parts("params+activations") == {"optimizer", "params", "activations"}
    assert can_offload("optimizer+activations", ("none", "optimizer", "activations"))
    assert not can_offload("params+activations", ("none", "optimizer", "activations"))


def test_a_stack_that_cannot_says_so() -> None:
    with pytest.raises(InputError, match="cannot offload activations"):
        ask({"model": "mpt-7b", "stack": "llm-foundry", "layout.offload": "activations"})


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("activations", "activations"),
        ("optimizer+params", "params"),
        ("params, optimizer and activations", "params+activations"),
        ("activations+optimizer", "optimizer+activations"),
        ("none", "none"),
    ],
)
def test_records_name_several_in_any_order(said: str, meant: str) -> None:
    record = Record(
        id="one", job="sft", model="llama-2-7b", gpu="h100-sxm-80gb", gpus=8, seq_len=2048, offload=said,
        batch=Batch(micro=1, total=8),
    )  # fmt: skip
    assert build_scenario(record, RecordRegistry()).flags["layout.offload"] == meant


def chosen(**flags: str) -> tuple[str, str]:
    """Recomputation and offload of the layout that Unsloth's user gets."""
    asked = {"model": "llama-2-7b", "gpu": "h100-sxm-80gb", "gpus": 1, "job": "lora", "train.seq_len": 2048}
    sized = size(ask({**asked, "train.padding": "packed", "stack": "unsloth", **flags}))
    return RECOMPUTE[int(sized.layouts.recompute[0])], OFFLOAD[int(sized.layouts.offload[0])]


def test_unsloth_offloads_where_it_recomputes_unless_told_otherwise() -> None:
    """use_gradient_checkpointing is "unsloth": for records and scenarios alike."""
    assert chosen(**{"layout.recompute": "full"}) == ("full", "activations")
    assert chosen(**{"layout.recompute": "none"}) == ("none", "none")
    assert chosen(**{"layout.recompute": "full", "layout.offload": "none"}) == ("full", "none")
    assert chosen(**{"layout.recompute": "full", "stack": "unsloth@2024.5"}) == ("full", "none")
    assert chosen(**{"layout.recompute": "full", "stack": "hf-trainer"}) == ("full", "none")


def test_a_number_of_layers_is_offloaded_and_the_others_stay() -> None:
    """Of 32 layers 12 leave but for the two on the way: 22 are on the card; 12 are copied, and lie on the host."""

    def of(layers: int | None) -> tuple[float, float]:
        one = job(
            "llama-2-7b", stack="megatron-lm", layout__offload="activations", layout__offload_layers=layers, **LONG
        )
        ledger = memory_ledger(one, layouts(recompute=2, offload=ACTIVATIONS))
        return float(ledger.components["activations"][0, 0, 0]), float(ledger.host_bytes[0])

    (every, hosted), (some, fewer), (most, as_every) = of(None), of(12), of(64)
    assert (some - every) / LAYER_INPUT_BYTES == pytest.approx(32 - 12)
    assert (hosted, fewer) == pytest.approx((32 * LAYER_INPUT_BYTES, 12 * LAYER_INPUT_BYTES))
    assert (most, as_every) == (every, hosted)


def test_other_micro_batches_keep_the_layers_that_stay() -> None:
    """The first of 4 stages has 8 layers, 6 of which leave: 4 micro-batches keep two each, and two are on the way."""
    flags = {"layout__offload": "activations", "layout__offload_layers": 6}
    one = job("llama-2-7b", stack="megatron-lm", **flags, **LONG)
    ledger = memory_ledger(one, layouts(recompute=2, offload=ACTIVATIONS, pp=4, grad_accum=8))
    assert float(ledger.components["activations"][0, 0, 0]) == pytest.approx((4 * 2 + 2) * LAYER_INPUT_BYTES)


def test_a_number_of_layers_needs_activations_that_leave() -> None:
    with pytest.raises(InputError, match="and none are offloaded"):
        ask({"model": "llama-2-7b", "stack": "megatron-lm", "job": "sft", "layout.offload_layers": 4})


def test_kernels_that_hide_nothing_expose_every_layer_s_copies() -> None:
    """All 32 layers go out and come back at the host's rate."""
    one = job("llama-2-7b", stack="generic", **LONG)
    slow = replace(one, stack=replace(one.stack, overlap=replace(one.stack.overlap, sharding=0.0)))
    line = timeline(slow, layouts(recompute=2, offload=ACTIVATIONS))
    expected = 2 * float(copy_time_s(LAYERS * LAYER_INPUT_BYTES, one.server.pcie_bytes_per_s))
    assert float(line.components[TRANSFERS][0]) == pytest.approx(expected, rel=1e-3)
