"""What a step writes to and reads from a cache of keys and values."""

from __future__ import annotations

import numpy as np
import pytest
from cases import GPT, REGISTRY
from msgspec.structs import replace

from xe_sizer.graph.inputs import GraphInputs, Learning
from xe_sizer.graph.model import LayerEmbedding, ModelShape
from xe_sizer.graph.operators import Attention, Kernels, Matmul, MemoryBound, RankShape
from xe_sizer.graph.transformer import embedding_operators, layer_operators
from xe_sizer.graph.weights import count_parameters
from xe_sizer.serving.job import ReplicaLayouts
from xe_sizer.serving.memory import sequence_bytes
from xe_sizer.software.number_formats import format_of

LLAMA = REGISTRY.model("llama-3.1-8b")  # 8 of 32 heads keep keys and values of 128 elements
WIDTH = 2 * 8 * 128


def step(
    model: ModelShape,
    kernels: Kernels,
    batch: float,
    new: float,
    past: float,
    cached: float | None = None,
    tp: float = 1,
) -> GraphInputs:
    sizes = {"batch": batch, "sequence": new, "past": past, "tp": tp, "expert_tp": tp}
    one = {name: np.array([1.0]) for name in ("cp", "ep", "sequence_parallel")}
    rank = RankShape(**one, **{name: np.array([float(size)]) for name, size in sizes.items()})
    return GraphInputs(model, rank, kernels, Learning(base=False), cached_element_bytes=cached)


def writes(inputs: GraphInputs) -> list[MemoryBound]:
    return [op for op in layer_operators(inputs) if isinstance(op, MemoryBound) and op.name == "cache write"]


def attentions(inputs: GraphInputs) -> list[Attention]:
    return [op for op in layer_operators(inputs) if isinstance(op, Attention)]


@pytest.mark.parametrize("kind", ["none", "in-attention"])
def test_no_kernel_of_its_own_writes_the_cache(kind: str) -> None:
    assert writes(step(LLAMA, Kernels(cache=kind), 4, 1, 1000)) == []


@pytest.mark.parametrize(("cached", "size"), [(None, 2), (1.0, 1)])
def test_a_paged_cache_takes_the_new_tokens_alone(cached: float | None, size: float) -> None:
    """Read in 16 bit, written in the cache's format, however long the cache is."""
    for past in (0, 1000):
        (write,) = writes(step(LLAMA, Kernels(cache="paged"), 4, 3, past, cached))
        assert write.forward_bytes[0] == 4 * 3 * WIDTH * (2 + size)
        assert write.forward_launches == 1
        assert (write.backward_bytes.tolist(), write.backward_launches) == ([0], 0)
        assert write.layers == 32


def test_keys_and_values_are_copied_to_all_query_heads_where_kernels_know_no_groups() -> None:
    """32 query heads: keys and values of 8 are read, and written for 32, after the cache itself; 4 kernels for 2."""
    (plain,), (repeated,) = (
        writes(step(LLAMA, Kernels(cache="concatenated", repeats_kv=repeats), 4, 1, 1000, 1.0))
        for repeats in (False, True)
    )
    assert plain.forward_bytes[0] == 2 * 4 * 1001 * WIDTH
    assert repeated.forward_bytes[0] == plain.forward_bytes[0] + 4 * 1001 * (32 + 8) * 256 * 2
    assert (float(np.max(plain.forward_launches)), float(np.max(repeated.forward_launches))) == (2, 4)
    for write in (plain, repeated):
        assert (write.backward_bytes.tolist(), write.backward_launches) == ([0], 0)
    (whole,) = writes(step(GPT, Kernels(cache="concatenated", repeats_kv=True), 1, 1, 100))
    assert whole.forward_bytes[0] == 2 * 101 * 2 * 16 * 64 * 2  # as many heads of keys as of queries
    (split,) = writes(step(LLAMA, Kernels(cache="concatenated", repeats_kv=True), 4, 1, 1000, 1.0, tp=4))
    assert split.forward_bytes[0] == repeated.forward_bytes[0] / 4


def test_a_concatenated_cache_is_copied_whole() -> None:
    (write,) = writes(step(LLAMA, Kernels(cache="concatenated"), 4, 1, 1000))
    assert write.forward_bytes[0] == 2 * 4 * 1001 * WIDTH * 2


def test_ranks_write_their_heads_and_one_at_least() -> None:
    sizes = [writes(step(LLAMA, Kernels(cache="paged"), 1, 1, 9, tp=tp))[0].forward_bytes[0] for tp in (1, 8, 32)]
    assert sizes == [4 * WIDTH, 4 * WIDTH / 8, 4 * WIDTH / 8]


def test_the_latent_is_written_once_for_all_heads() -> None:
    model = REGISTRY.model("deepseek-v3")
    for tp in (1, 8):
        for write in writes(step(model, Kernels(cache="paged"), 2, 1, 500, tp=tp)):
            assert write.forward_bytes[0] == 2 * (512 + 64) * 4


@pytest.mark.parametrize("cached", [None, 1.0])
def test_a_query_reads_the_whole_cache_in_its_format(cached: float | None) -> None:
    (found,) = attentions(step(LLAMA, Kernels(attention="decode", cache="paged"), 4, 1, 999, cached))
    queries = 4 * 32 * 256 * 2
    assert found.operand_bytes(2)[0] == queries + 4 * 1000 * WIDTH * (cached or 2)
    assert found.pairs[0] == 1000


def test_pieces_of_a_prompt_score_the_pairs_of_the_whole() -> None:
    kernels = Kernels(cache="paged")
    (whole,) = attentions(step(LLAMA, kernels, 1, 4096, 0))
    pieces = [attentions(step(LLAMA, kernels, 1, 1024, past))[0].forward_flops[0] for past in range(0, 4096, 1024)]
    assert sum(pieces) == pytest.approx(whole.forward_flops[0], rel=1e-12)
    assert whole.pairs[0] == 4096 * 4097 / 2


def test_a_window_reads_no_more_than_its_keys() -> None:
    model = replace(GPT, sliding_window=100, windowed_layers=2)
    full, windowed = attentions(step(model, Kernels(attention="decode", cache="paged"), 1, 1, 5000))
    assert full.key_value_elements[0] == 5001 * 16 * 128
    assert windowed.key_value_elements[0] == 100 * 16 * 128
    assert windowed.pairs[0] == 100
    short = attentions(step(model, Kernels(attention="decode", cache="paged"), 1, 1, 50))[1]
    assert short.key_value_elements[0] == 51 * 16 * 128


def test_a_query_on_a_latent_reads_it_once_for_all_heads() -> None:
    """DeepSeek-V2, section 2.1.2: the up-projections move into the query and the output."""
    model = REGISTRY.model("deepseek-v3")
    for found in attentions(step(model, Kernels(attention="decode", cache="paged"), 1, 1, 999)):
        assert (found.heads[0], found.kv_heads[0]) == (128, 1)
        assert (found.qk_head_dim, found.v_head_dim) == (512 + 64, 512)
        assert found.forward_flops[0] == 2 * 128 * 1000 * (576 + 512)


def test_the_latent_is_keys_and_values_at_once() -> None:
    (found, *_) = attentions(step(REGISTRY.model("deepseek-v3"), Kernels(attention="decode", cache="paged"), 1, 1, 999))
    assert found.key_value_elements[0] == 1000 * 576


def test_layers_that_borrow_keys_and_values_write_and_keep_none() -> None:
    """Of 4 layers the last 2 read what the second one keeps, and have an MLP twice as wide."""
    own = replace(LLAMA, layers=4)
    model = replace(own, borrowing_layers=2, borrowing_ffn=2 * own.ffn)
    made = step(model, Kernels(cache="paged", attention="decode"), 4, 1, 1000)
    assert [op.layers for op in writes(made)] == [2.0]
    assert sum(op.layers for op in attentions(made)) == 4.0
    one = ReplicaLayouts.of(tp=[1])
    held, whole = (float(sequence_bytes(each, format_of("bf16"), 1024, one, 16)[0]) for each in (model, own))
    assert held == whole / 2
    more = count_parameters(model).total - count_parameters(own).total
    assert more == 2 * (3 * own.hidden * own.ffn - 2 * own.hidden * own.kv_heads * own.head_dim)


def test_an_embedding_of_every_layer_is_looked_up_and_widened() -> None:
    """Rows of 4 x 16 elements a token; products from and to the hidden size, and one of the hidden size to all rows."""
    own = replace(LLAMA, layers=4)
    model = replace(own, layer_embedding=LayerEmbedding(size=16, vocab=1000))
    hidden = own.hidden
    added = 1000 * 4 * 16 + hidden * 4 * 16 + 16 + 4 * (2 * hidden * 16 + hidden)
    assert count_parameters(model).total - count_parameters(own).total == added
    lookup, before = (embedding_operators(step(each, Kernels(), 2, 8, 0))[0] for each in (model, own))
    assert float(lookup.forward_bytes[0] - before.forward_bytes[0]) == 2 * 16 * 4 * 16 * 2
    products = {op.name: op for op in layer_operators(step(model, Kernels(), 2, 8, 0)) if isinstance(op, Matmul)}
    sizes = {
        name: (float(products[name].n[0]), float(products[name].k[0])) for name in ("input gate", "input projection")
    }
    assert sizes == {"input gate": (16, hidden), "input projection": (hidden, 16)}
