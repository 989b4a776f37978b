"""A pass is its kernels, exchanges and gaps, and what learns beside the layers; and what is left out or padded."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cases import REGISTRY, ask, job, layouts
from msgspec.structs import replace

from xe_sizer.training import resolve as resolving
from xe_sizer.training.evaluation import Evaluation
from xe_sizer.training.memory import Ledger, fits
from xe_sizer.training.memory_parts import update_workspace
from xe_sizer.training.model_states import keeps_fresh_gradients
from xe_sizer.training.search import size
from xe_sizer.training.summary import summarise

CASES: dict[str, dict[str, object]] = {
    "images": {"model": "qwen2-vl-2b", "job": "sft", "stack": "hf-trainer", "data.images": 1, "train.seq_len": 2048},
    "generator": {"model": "electra-base", "job": "pretrain", "stack": "hf-trainer", "train.seq_len": 512},
    "neither": {"model": "llama-3.2-1b", "job": "sft", "stack": "hf-trainer", "train.seq_len": 2048},
}


@pytest.mark.parametrize("case", CASES)
def test_a_pass_is_the_sum_of_what_runs_in_it(case: str) -> None:
    """An encoder of images and a generator add theirs: passes, launches that nothing hides, and recomputation."""
    one = Evaluation(ask(CASES[case]).job, layouts(micro_batch=[1, 2], recompute=[0, 2]))
    sides = (one.forward_run_s + one.gaps_s[0], one.backward_run_s + one.gaps_s[1], one.kernels_s[2])
    for whole, own, beside, encoder, generator in zip(
        (one.forward_s, one.backward_s, one.weight_s), sides, one.beside_s, one.encoder_s, one.generator_s, strict=True
    ):
        np.testing.assert_allclose(beside, encoder + generator)
        np.testing.assert_allclose(whole, own + beside)
        assert np.any(encoder > 0) == (case == "images")
        assert np.any(generator > 0) == (case == "generator")
    for part, name in ((one.encoder, "encoder_s"), (one.generator, "generator_s")):
        if part is not None:
            own = (part.forward_run_s + part.gaps_s[0], part.backward_run_s + part.gaps_s[1], part.kernels_s[2])
            for side, expected in zip(getattr(one, name), own, strict=True):
                np.testing.assert_allclose(side[0], expected[0])


def test_layers_are_run_again_on_each_stage_that_has_them() -> None:
    """Full recomputation is one more forward of the layers, a half of them on each of two stages."""
    made = ask({"model": "llama-3.2-1b", "job": "sft", "stack": "megatron-lm", "train.seq_len": 2048}).job
    one = Evaluation(made, layouts(pp=[1, 2], recompute=2))
    none = Evaluation(made, layouts(pp=[1, 2], recompute=0))
    assert not np.any(none.recompute_s)
    layers = np.asarray(sum(time.forward_s for time in one.times[0]))
    whole = np.broadcast_to(one.critical_shapes.broadcast(np.broadcast_to(layers, (1,))), (2,))
    assert one.recompute_s[0].tolist() == pytest.approx([float(whole[0]), float(whole[1]) / 2], rel=1e-6)
    longer = one.backward_run_s - none.backward_run_s
    np.testing.assert_allclose(longer, one.recompute_s, rtol=1e-6)


def stand_in(padding: str, packs: bool, compares: bool, fine_tunes: bool = True) -> tuple[Any, Any]:
    stack = SimpleNamespace(defaults=SimpleNamespace(padding=padding), supports=SimpleNamespace(packs_answers=packs))
    return stack, SimpleNamespace(kind=SimpleNamespace(fine_tunes=fine_tunes), compares=compares)


@pytest.mark.parametrize(
    ("padding", "packs", "compares", "fine_tunes", "usual"),
    [
        ("packed", False, False, True, "packed"),
        ("packed", False, True, True, "longest-in-micro-batch"),  # answers are compared, and it packs none
        ("packed", True, True, True, "packed"),
        ("to-seq-len", False, True, True, "to-seq-len"),
        ("none", True, False, True, "none"),
        ("to-seq-len", False, False, False, "packed"),  # a model that is made reads full sequences
    ],
)
def test_samples_are_padded_as_the_stack_does(
    padding: str, packs: bool, compares: bool, fine_tunes: bool, usual: str
) -> None:
    assert resolving.usual_padding(*stand_in(padding, packs, compares, fine_tunes)) == usual


def test_adapters_on_all_linear_layers_are_on_the_products_of_the_projector() -> None:
    tower = REGISTRY.model("qwen2-vl-2b").vision
    assert tower is not None
    assert resolving._products(tower, ["all-linear", "q"]) == ("projector_0", "projector_1")
    assert resolving._products(tower, ["q"]) == ()


@pytest.mark.parametrize(
    ("vision", "images", "asked", "rollout", "words"),
    [
        (
            True,
            None,
            None,
            None,
            "m is trained without its image encoder, as no sample has images: data.images=1 adds it",
        ),
        (True, None, None, "rollout", "m is trained without its image encoder: prompts are text"),
        (False, None, None, None, None),
        (True, "some", None, None, None),
        (True, None, 0, None, None),
    ],
)
def test_an_encoder_that_is_left_out_is_told(
    vision: bool, images: object, asked: int | None, rollout: object, words: str | None
) -> None:
    made: Any = SimpleNamespace(
        model=SimpleNamespace(name="m", vision=True if vision else None), images=images,
        method=SimpleNamespace(kind=SimpleNamespace(rollout=rollout)),
    )  # fmt: skip
    scenario: Any = SimpleNamespace(
        values=SimpleNamespace(data=SimpleNamespace(images=asked)),
        caller=SimpleNamespace(setting=lambda key, value: f"{key}={value}"),
    )
    assert list(resolving.left_out(scenario, made)) == ([] if words is None else [words])


def test_gradients_of_a_micro_batch_are_fresh_unless_they_are_added_up() -> None:
    """Buffers that persist, or several micro-batches, take them in; ZeRO-3 has its shards alone."""
    plain = ask({"model": "llama-3.2-1b", "job": "sft", "stack": "hf-trainer", "train.seq_len": 2048}).job
    shapes = layouts(dp=8, zero=[0, 2, 3, 0, 3], grad_accum=[1, 1, 1, 4, 4])
    no, first = np.zeros(5, dtype=bool), np.array([True, False, False, False, False])
    persist = plain.stack.states.gradients_persist
    expected = [0 if persist else 1, 0 if persist else 1, 1, 0, 1]
    assert keeps_fresh_gradients(plain, shapes, no).tolist() == expected
    assert keeps_fresh_gradients(plain, shapes, first).tolist() == [0, *expected[1:]]


def test_a_short_result_has_no_table_of_what_stands_beside_the_model() -> None:
    one = size(ask({"model": "llama-3.2-1b", "job": "dpo", "stack": "hf-bf16", "gpus": 8, "train.seq_len": 1024}))
    assert [row.name for row in summarise(one).beside] == ["reference model"]
    assert summarise(one, details=False).beside == ()


def test_states_fit_a_host_to_its_last_byte() -> None:
    """What is as large as its room fits; card and host must both do; a host of which nobody knows holds all."""
    made = ask({"model": "llama-3.2-1b", "job": "sft", "stack": "deepspeed", "train.seq_len": 2048}).job
    known = replace(made, server=made.server.with_host_memory(256.0))
    card, host = known.server.accelerator.memory_bytes, known.server.host_usable_bytes
    assert host is not None
    peaks = np.array([card, card, card + 1, card - 100])
    ledger = Ledger({"all": peaks[None, None]}, np.array([host, host + 1, 0.0, host]))
    assert fits(ledger, known, 0.0).tolist() == [True, False, False, True]
    assert fits(ledger, known, 100.0).tolist() == [False, False, False, True]
    unknown = replace(made, server=replace(made.server, host_memory_bytes=None))
    assert fits(ledger, unknown, 0.0).tolist() == [True, True, False, True]


def test_nothing_passes_back_through_a_frozen_encoder_unless_it_must() -> None:
    """The projector behind it learns; recomputed adapters make the embeddings of the encoder need gradients."""
    case = {**CASES["images"], "stack": "torchtune"}
    shapes = layouts(recompute=[0, 2])
    frozen, hooked = (Evaluation(ask({**case, "job": kind}).job, shapes).encoder for kind in ("sft", "lora"))
    assert frozen is not None
    assert hooked is not None
    assert [side.tolist() for side in frozen.runs_back] == [[0, 0], [0, 0], [1, 1]]
    assert [side.tolist() for side in hooked.runs_back] == [[0, 1]] * 3
    assert not np.any(frozen.recompute_s)
    assert [bool(again) for again in hooked.recompute_s[0]] == [False, True]


def test_a_head_updated_at_once_has_its_gradient_where_the_logits_were() -> None:
    """32,000 x 4,096 elements and the norm before them, 2 bytes each, beside what the loss leaves; adapters have none.

    Only where a step has one micro-batch.
    """
    given = {"model": "llama-2-7b", "stack": "torchtune", "optimizer": "sgd", "train.seq_len": 64}
    shapes = layouts(grad_accum=[1, 2])
    one = Evaluation(ask({**given, "job": "sft"}).job, shapes)
    found, loss = update_workspace(one).value, (one.saved.loss_live + one.wide_logits) * one.has_head
    expected = 2 * 4096 * (32_000 + 1) - np.broadcast_to(loss, found[:, 1].shape)[0, 0]
    assert found.max(axis=(0, 1)).tolist() == pytest.approx([expected, 0.0], rel=1e-9)
    adapters = Evaluation(ask({**given, "job": "lora"}).job, shapes)
    assert not np.any(update_workspace(adapters).value)


@pytest.mark.parametrize(
    ("stack", "sized", "apart"),
    [
        ("megatron-lm", {}, False),  # gradient_accumulation_fusion
        ("megatron-lm@2021.12", {}, True),  # before it
        ("nanotron", {}, True),  # its accumulators are apart
        ("nemo", {}, False),
        ("megatron-lm", {"job": "lora"}, None),  # frozen weights have no gradients
    ],
)
def test_gradients_are_added_in_their_product_or_apart(stack: str, sized: dict[str, Any], apart: bool | None) -> None:
    made = job("llama-2-7b", stack=stack, **sized)
    found = Evaluation(made, layouts())
    (up,) = (each for each in found.operators[0] if each.name == "gate and up")
    traffic = [each.backward_bytes for each in found.operators[0] if each.name == "gate and up weight traffic"]
    moved = 2.0 * made.stack.states.gradient_bytes  # read and written
    assert up.accumulated_bytes == (0.0 if apart in (True, None) else moved)
    assert [float(each[0]) for each in traffic] == ([moved * 2 * 4096 * 11008] if apart else [])
