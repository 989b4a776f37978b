"""What kernels of losses move and keep: variants from what they are made of, and names that they go by."""

from __future__ import annotations

import pytest
from cases import GPT, graph
from msgspec.structs import replace

from xe_sizer.graph.inputs import Learning
from xe_sizer.graph.model import MASKED
from xe_sizer.graph.operators import (
    DIVERGENCES,
    LEAST_MEMORY,
    LIKELIHOOD_BYTES,
    LOG_PROBABILITIES,
    LOSSES,
    Kernels,
    Loss,
    MemoryBound,
    divergence_names,
    log_probability_names,
    loss_names,
)
from xe_sizer.graph.transformer import head_operators, logits_per_rank

ALL = Learning(True)
KERNEL = Loss(
    "kernel", 10.0, 20.0, 3.0, 5.0, kept_bytes=4.0, live_bytes=7.0, frozen_bytes=9.0, answers_bytes=11.0,
    divided_bytes=8.0,
)  # fmt: skip


def test_logits_of_a_frozen_pass_or_divided_ones_may_be_the_most_that_lives() -> None:
    assert (KERNEL.beside_frozen().live_bytes, KERNEL.of_policy().live_bytes) == (9.0, 8.0)
    assert KERNEL.of_single_answers().beside_frozen().live_bytes == 11.0
    wide = KERNEL._replace(live_bytes=30.0)
    assert wide.beside_frozen() == wide.of_policy() == wide


def test_a_likelihood_of_half_the_sequences_is_half_an_eager_cross_entropy() -> None:
    """Chosen logits are copied (8) and log-softmaxed (8); back the eager kernel's 22 and an addition of 12."""
    both, eager = KERNEL.with_likelihood(), LOSSES["eager"]
    assert both.forward_bytes - KERNEL.forward_bytes == (8 + 8) / 2
    assert both.backward_bytes - KERNEL.backward_bytes == (eager.backward_bytes + 12) / 2
    assert both.backward_launches - KERNEL.backward_launches == eager.backward_launches
    assert both.forward_launches - KERNEL.forward_launches == 3  # copy, log-softmax, choice
    assert both.kept_bytes == KERNEL.kept_bytes + KERNEL.kept_bytes / 2
    assert both.live_bytes == KERNEL.live_bytes + LIKELIHOOD_BYTES


def test_kernels_that_work_in_the_type_of_the_logits_grow_with_it() -> None:
    given = KERNEL._replace(as_given=True).on(2.0)
    assert given[1:3] == (20.0, 40.0)
    assert (given.forward_launches, given.kept_bytes, given.live_bytes, given.frozen_bytes) == (3.0, 8.0, 14.0, 18.0)
    assert KERNEL.on(2.0) == KERNEL
    assert {loss.name for loss in LOSSES.values() if loss.as_given} == {"no-upcast"}


def test_models_that_hand_their_logits_over_as_they_are_have_a_narrow_kernel() -> None:
    assert LOSSES["eager"].of_narrow(True).name == "no-upcast"
    assert LOSSES["eager"].of_narrow(False).name == "eager"
    assert LOSSES["flash"].of_narrow(True).name == "flash"


def test_what_a_loss_keeps_lives_when_its_gradient_is_made() -> None:
    for loss in (*LOSSES.values(), *LOG_PROBABILITIES.values(), *DIVERGENCES.values()):
        assert 0 <= loss.kept_bytes <= loss.live_bytes
    assert LEAST_MEMORY.live_bytes == min(loss.live_bytes for loss in LOSSES.values())
    assert (loss_names(), log_probability_names()) == (tuple(LOSSES), tuple(LOG_PROBABILITIES))
    assert divergence_names() == tuple(DIVERGENCES)


@pytest.mark.parametrize("name", ["eager", "gathered"])
def test_a_rank_has_its_part_of_the_vocabulary_unless_it_gathers(name: str) -> None:
    """40 tokens, a vocabulary of 51,200 over 4 ranks; statistics of each token in float32, three of them."""
    kernel = LOSSES[name]
    inputs = graph(GPT, ALL, Kernels(loss=kernel), sequence=40, tp=4)
    logits = 40 * 51_200 / (1 if kernel.gathers else 4)
    assert logits_per_rank(inputs).tolist() == [logits]
    found = {op.name: op for op in head_operators(inputs)}
    loss = found["loss"]
    assert isinstance(loss, MemoryBound)
    assert (loss.forward_bytes.tolist(), loss.backward_bytes.tolist()) == (
        [kernel.forward_bytes * logits], [kernel.backward_bytes * logits],
    )  # fmt: skip
    assert (loss.layers, loss.forward_launches, loss.backward_launches) == (1, 6, 5)
    statistics = found["loss statistics"]
    assert [(kind, size.tolist()) for kind, size in statistics.forward] == [("all_reduce", [4 * 40])] * 3  # type: ignore[attr-defined]


def test_masked_tokens_alone_are_predicted_and_drawn_again() -> None:
    """15 % of 400 tokens; a generator draws a token for each: six passes over float32 logits."""
    both_ways = replace(GPT, bidirectional=True)
    masked = graph(both_ways, ALL, Kernels(predicted="masked"), sequence=400)
    assert logits_per_rank(masked).tolist() == pytest.approx([60 * 51_200])
    assert logits_per_rank(replace(masked, kernels=Kernels())).tolist() == [400 * 51_200]
    assert logits_per_rank(replace(masked, model=GPT)).tolist() == [400 * 51_200]
    generator = replace(masked, model=both_ways.headed(MASKED), kernels=Kernels())
    assert logits_per_rank(generator).tolist() == pytest.approx([60 * 51_200])
    (draw,) = (op for op in head_operators(generator) if op.name == "sampling")
    assert isinstance(draw, MemoryBound)
    assert draw.forward_bytes.tolist() == pytest.approx([6 * 4 * 60 * 51_200])
    assert (draw.backward_bytes.tolist(), draw.forward_launches, draw.backward_launches) == ([0], 6, 0)
