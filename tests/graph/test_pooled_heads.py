"""Heads that are no logits of the vocabulary: products, bytes and logits by hand, on 2 of 4 tensor-parallel ranks."""

from __future__ import annotations

import numpy as np
import pytest
from cases import GPT, graph
from msgspec.structs import replace

from xe_sizer.graph.inputs import GraphInputs, Learning
from xe_sizer.graph.model import CLASSES, NO_HEAD, REPLACED, VALUES, WORDS
from xe_sizer.graph.operators import LOSSES, Kernels, Matmul, MemoryBound, Operator
from xe_sizer.graph.transformer import head_operators, logits_per_rank

B, S, H = 3, 40, GPT.hidden
TOKENS = B * S
RESIDENT = TOKENS / 2  # norms are sharded over 2 tensor-parallel ranks
STATES = RESIDENT * H * 2  # bytes of the hidden state between the blocks
FROZEN = Learning(False)


def of(head: str, learning: Learning | None = None, **changes: object) -> GraphInputs:
    kernels = Kernels(loss=LOSSES["eager"])
    sizes = {"batch": B, "sequence": S, "tp": 2, "sequence_parallel": 1}
    inputs = graph(GPT.headed(head), learning or Learning(True), kernels, **sizes)
    return replace(inputs, **changes)


def named(inputs: GraphInputs) -> dict[str, Operator]:
    return {op.name: op for op in head_operators(inputs)}


def product(op: Operator) -> tuple[float, ...]:
    """Rows, columns and inner size of a product, and what it keeps [bytes]."""
    assert isinstance(op, Matmul)
    assert op.copies.tolist() == [1.0]
    return tuple(float(np.sum(size)) for size in (op.m, op.n, op.k, op.saved_bytes))


def moved(op: Operator) -> tuple[float, ...]:
    """Bytes and launches of both directions, what is kept, and what the backward holds."""
    assert isinstance(op, MemoryBound)
    sides = (op.forward_bytes, op.backward_bytes, op.forward_launches, op.backward_launches)
    return tuple(float(np.sum(size)) for size in (*sides, op.saved_bytes, op.temporary_bytes))


def test_a_classifier_reads_one_state_of_each_sequence() -> None:
    """RobertaClassificationHead: dense, tanh (2 passes; backward reads output and gradient, 3), two classes."""
    found, pooled = named(of(CLASSES)), B * H * 2
    assert list(found) == ["final norm", "pooler", "pooler activation", "classifier", "loss"]
    assert product(found["pooler"]) == (B, H, H, pooled)
    assert moved(found["pooler activation"]) == (2 * pooled, 3 * pooled, 1, 1, pooled, 2 * pooled)
    assert product(found["classifier"]) == (B, 2, H, pooled)
    assert moved(found["loss"]) == (4 * B * 2 * 4, 4 * B * 2 * 4, 6, 5, 0, 2 * B * 2 * 4)
    assert logits_per_rank(of(CLASSES)).tolist() == [2 * B]


def test_a_value_is_computed_for_every_token() -> None:
    found = named(of(VALUES))
    assert list(found) == ["final norm", "score"]
    assert product(found["score"]) == (TOKENS, 1, H, STATES)
    assert logits_per_rank(of(VALUES)).tolist() == [TOKENS]
    assert product(named(of(VALUES, FROZEN))["score"])[3] == 0


def test_a_discriminator_transforms_every_state_before_its_value() -> None:
    """ElectraDiscriminatorPredictions: dense, GELU on what that returns, a value of each token."""
    found = named(of(REPLACED, returned_element_bytes=4.0))
    assert list(found) == ["final norm", "head transform", "head activation", "score", "loss"]
    assert product(found["head transform"]) == (RESIDENT, H, H, STATES)
    made = 2 * STATES  # float32
    assert moved(found["head activation"]) == (2 * made, 3 * made, 1, 1, made, 2 * made)
    assert product(found["score"]) == (TOKENS, 1, H, STATES)
    assert moved(found["loss"]) == (4 * TOKENS * 4, 4 * TOKENS * 4, 6, 5, 0, 2 * TOKENS * 4)
    assert logits_per_rank(of(REPLACED)).tolist() == [TOKENS]


def test_two_words_are_rows_of_the_matrix_of_the_vocabulary() -> None:
    found = named(of(WORDS))
    words = found["words"]
    assert product(words) == (TOKENS, 2, H, TOKENS * H * 2)
    assert isinstance(words, Matmul)
    assert (words.layers, words.input_gradient, words.weight_gradient, words.learns) == (1, True, True, True)
    assert logits_per_rank(of(WORDS)).tolist() == [2 * TOKENS]


@pytest.mark.parametrize(
    ("learning", "kept", "gradient", "learns"),
    [
        (FROZEN, 0, False, False),
        (replace(FROZEN, saved=("head",)), TOKENS * H * 2, True, True),
        (replace(FROZEN, frozen_gradients=True), 0, True, False),  # computed and thrown away
    ],
)
def test_words_learn_with_the_head(learning: Learning, kept: float, gradient: bool, learns: bool) -> None:
    words = named(of(WORDS, learning))["words"]
    assert isinstance(words, Matmul)
    assert (float(words.saved_bytes[0]), words.weight_gradient, words.learns) == (kept, gradient, learns)


def test_states_are_compared_with_those_of_all_candidates() -> None:
    """Pooling, Normalize and MultipleNegativesRankingLoss of sentence-transformers; 5 queries, 35 candidates."""
    inputs = of(NO_HEAD, compared=(np.array([5.0]), np.array([35.0])))
    found, pooled = named(inputs), B * H * 4
    assert list(found) == ["final norm", "pooling", "normalisation", "similarities", "loss"]
    assert moved(found["pooling"]) == (3 * STATES, 3 * STATES, 4, 4, STATES, 2 * STATES)
    assert moved(found["normalisation"]) == (3 * pooled, 3 * pooled, 3, 5, pooled, 2 * pooled)
    assert product(found["similarities"]) == (5, 35, H, 35 * H * 4)
    similarities = found["similarities"]
    assert isinstance(similarities, Matmul)
    assert (similarities.layers, float(similarities.backward_flops[0])) == (1, 2 * 2 * 5 * 35 * H)
    loss = LOSSES["eager"]
    assert moved(found["loss"])[:4] == (
        loss.forward_bytes * 5 * 35, loss.backward_bytes * 5 * 35, loss.forward_launches, loss.backward_launches,
    )  # fmt: skip
    assert logits_per_rank(inputs).tolist() == [5 * 35]


def test_states_alone_are_neither_compared_nor_scored() -> None:
    assert list(named(of(NO_HEAD))) == ["final norm"]
    assert logits_per_rank(of(NO_HEAD)).tolist() == [0]
    unnormed = of(NO_HEAD)
    assert named(replace(unnormed, model=replace(unnormed.model, final_norm=False))) == {}


@pytest.mark.parametrize("head", [CLASSES, VALUES, WORDS, REPLACED])
def test_many_layouts_at_once_are_each_as_alone(head: str) -> None:
    one = of(head)
    sizes = np.array([1.0, 2.0, 4.0])
    names = ("batch", "sequence", "tp", "cp", "ep", "expert_tp", "sequence_parallel")
    together = replace(one.rank, **{name: getattr(one.rank, name) * np.ones(3) for name in names})
    together = replace(together, tp=sizes)
    found = named(replace(one, rank=together))
    for place, tp in enumerate(sizes):
        alone = named(replace(one, rank=replace(one.rank, tp=np.array([tp]))))
        assert list(found) == list(alone)
        for name, op in alone.items():
            for field in op.__struct_fields__:
                value, whole = getattr(op, field), getattr(found[name], field)
                if isinstance(value, np.ndarray):
                    assert np.broadcast_to(whole, (3,))[place] == value.item()
    assert logits_per_rank(replace(one, rank=together)).shape == (3,)
