"""Attention to picked blocks by hand: MiniMax sparse attention and InfLLM v2, with kernels, with a mask, and dense."""

from __future__ import annotations

import numpy as np
import pytest
from cases import GPT, graph
from msgspec.structs import replace

from xe_sizer.graph.inputs import GraphInputs, Learning
from xe_sizer.graph.model import ModelShape, SparseIndexer
from xe_sizer.graph.operators import Attention, Kernels, Operator
from xe_sizer.graph.transformer import layer_operators

B, S, TP = 3, 70, 2
# 16 query heads over 4 of keys and values, of 64; a rank of two has 8 and 2.
ROPE = replace(GPT, kv_heads=4, position="rope", learned_positions=0)
MSA = replace(ROPE, indexer=SparseIndexer(4, 12, 20, "msa", block_tokens=10))
INFLLM = replace(ROPE, indexer=SparseIndexer(16, 64, 20, "infllm-v2", block_tokens=10, key_tokens=5, dense_tokens=69))
PAGED, DECODE = Kernels(cache="paged", block_rate=0.13), Kernels(attention="decode", cache="paged", block_rate=0.13)
CAUSAL, PICKED = S * (S + 1) / 2, 20 * 21 / 2 + 50 * 20


def of(model: ModelShape, kernels: Kernels, tp: int = TP, sequence: int = S) -> GraphInputs:
    return graph(model, Learning(True), kernels, batch=B, sequence=sequence, tp=tp)


def named(inputs: GraphInputs) -> dict[str, Operator]:
    return {op.name: op for op in layer_operators(inputs)}


def attends(inputs: GraphInputs, name: str = "attention") -> Attention:
    op = named(inputs)[name]
    assert isinstance(op, Attention)
    return op


def numbers(op: Operator, *fields: str) -> list[float]:
    return [float(np.sum(getattr(op, field))) for field in fields]


def test_each_rank_scores_for_its_groups_of_heads() -> None:
    """Two of four heads of 12 score every pair of 70 tokens; one key serves all, on every rank, in 16 bit."""
    found, ranking = named(of(MSA, PAGED)), attends(of(MSA, PAGED), "indexer")
    assert numbers(ranking, "heads", "kv_heads", "pairs", "forward_flops") == [2, 1, CAUSAL, 2 * B * 2 * CAUSAL * 12]
    assert (ranking.narrow, ranking.cached_element_bytes) == (False, 2.0)
    assert "indexer cast" not in found
    assert numbers(found["qkv"], "n", "k") == [(8 + 2 * 2) * 64 + 2 * 12 + 12, 1024]
    apart = named(of(MSA, replace(PAGED, fused_qkv=False)))
    assert numbers(apart["indexer q"], "n", "k") == [2 * 12, 1024]
    assert numbers(apart["indexer k"], "n", "k") == [12, 1024]
    assert "indexer head weights" not in apart
    # A float32 score of each block of 10 tokens and head, written once and read three times.
    assert numbers(found["key selection"], "forward_bytes") == pytest.approx([4 * 4 * B * 2 * CAUSAL / 10])


def test_heads_that_rank_together_are_on_every_rank() -> None:
    """Four heads of 12, whole on each of two ranks, score 17.5 means of four keys, for one ranking of all heads."""
    qsa = replace(ROPE, indexer=SparseIndexer(4, 12, 20, "qsa", block_tokens=4, key_tokens=4))
    found, ranking = named(of(qsa, PAGED)), attends(of(qsa, PAGED), "indexer")
    assert numbers(ranking, "heads", "kv_heads", "pairs") == [4, 1, CAUSAL / 4]
    assert numbers(found["qkv"], "n") == [(8 + 2 * 2) * 64 + 4 * 12 + 12]
    assert numbers(found["key selection"], "forward_bytes") == pytest.approx([4 * 4 * B * CAUSAL / 4])


def test_more_ranks_than_heads_hold_copies() -> None:
    """Eight ranks share four heads of keys and values, and of the indexer: each has one."""
    assert numbers(named(of(MSA, replace(PAGED, fused_qkv=False), tp=8))["indexer q"], "n") == [12]
    assert numbers(attends(of(MSA, PAGED, tp=8), "indexer"), "heads") == [1]


def test_a_query_attends_to_its_blocks() -> None:
    """Prompts at a rate of their own; decodes read 20 keys for each head, wherever they stand."""
    prompt, decode = attends(of(MSA, PAGED)), attends(of(MSA, DECODE))
    assert numbers(prompt, "pairs", "kv_heads", "qk_head_dim") == [PICKED, 2, 64]
    assert (prompt.gathers, np.ravel(prompt.peak_share).tolist()) == (False, [0.13])
    one = replace(of(MSA, DECODE), rank=replace(of(MSA, DECODE).rank, sequence=np.array([1.0]), past=np.array([500.0])))
    assert numbers(attends(one), "pairs", "loaded_keys") == [20, 20]
    assert numbers(decode, "heads") == [8]


def test_queries_of_the_attention_score_means_of_its_keys() -> None:
    """Eight query heads of a rank score 70 / 5 keys of its two heads of keys; the model gets no weights for it."""
    found, ranking = named(of(INFLLM, PAGED)), attends(of(INFLLM, PAGED), "indexer")
    assert numbers(ranking, "heads", "kv_heads", "key", "pairs") == [8, 2, S / 5, CAUSAL / 5]
    assert numbers(found["qkv"], "n") == [(8 + 2 * 2) * 64]
    assert numbers(found["key selection"], "forward_bytes") == pytest.approx([4 * 4 * B * 2 * CAUSAL / 10])
    assert numbers(attends(of(INFLLM, PAGED)), "pairs") == [PICKED]


def test_short_sequences_attend_to_all_tokens() -> None:
    """Of 69 tokens no block is picked, so that nothing is scored and attention has its usual kernel."""
    short = of(INFLLM, PAGED, sequence=69)
    assert numbers(attends(short), "pairs") == [69 * 70 / 2]
    assert np.ravel(attends(short).peak_share).tolist() == [np.inf]
    assert numbers(attends(short, "indexer"), "forward_flops") == [0]
    assert numbers(named(short)["key selection"], "forward_bytes") == [0]


@pytest.mark.parametrize("attention", ["sdpa", "flash"])
def test_what_is_picked_is_a_mask_of_every_head(attention: str) -> None:
    """Traced: MiniMaxM3VLTextModel of transformers 5.24 keeps 33,554,432 bytes of 16 heads and 1,024 tokens.

    It keeps nothing of the indexer's scores.
    """
    kernels = Kernels(attention=attention, sparse_masked=("msa",))  # type: ignore[arg-type]
    masked, whole = of(MSA, kernels), of(ROPE, kernels)
    attention_op = attends(masked)
    assert np.ravel(attention_op.masked).tolist() == [1.0]
    log_sum_exp = B * 8 * S * 4
    assert numbers(attention_op, "statistics_bytes") == [log_sum_exp + B * 8 * S * S * 2]
    assert numbers(attends(whole), "statistics_bytes") == [log_sum_exp]
    made = named(masked)["picked mask"]
    assert numbers(made, "saved_bytes", "backward_bytes") == [0, 0]
    # While it is made: picked blocks and pairs, their negation, zeros and the mask, of 8 heads (traced: 7.1 bytes).
    assert numbers(made, "forward_temporary_bytes") == [B * S * S * 8 * 7]
    assert "indexer" not in named(masked)


def test_eager_attention_adds_the_mask_and_keeps_none() -> None:
    """Traced as above: with eager attention as much is kept with an indexer as without."""
    kernels = Kernels(attention="eager", sparse_masked=("msa",))
    assert numbers(attends(of(MSA, kernels)), "saved_bytes") == numbers(attends(of(ROPE, kernels)), "saved_bytes")
    assert attends(of(MSA, kernels)).masked is None


def test_engines_that_mask_read_all_keys_of_the_cache() -> None:
    """A decode reads 570 keys of each head; scores of 2 heads and masks of 8 are written and read."""
    kernels = Kernels(attention="decode", cache="paged", sparse_masked=("msa",))
    one = replace(
        of(MSA, kernels), rank=replace(of(MSA, kernels).rank, sequence=np.array([1.0]), past=np.array([569.0]))
    )
    found = attends(one)
    assert numbers(found, "pairs", "kv_heads") == [570, 2]
    assert (found.loaded_keys, found.peak_share) == (None, None)
    assert numbers(named(one)["picked mask"], "forward_bytes") == [B * 570 * (2 * 4 * 4 + 8 * 12)]


def test_heads_with_one_ranking_share_a_mask() -> None:
    dsa = replace(ROPE, indexer=SparseIndexer(5, 12, 20))
    found = attends(of(dsa, Kernels(sparse_masked=("dsa",))))
    assert numbers(found, "statistics_bytes") == [B * 8 * S * 4 + B * S * S * 2]


def test_a_stack_may_leave_the_indexer_out() -> None:
    """Its weights are there, and nothing works with them: every query attends to all tokens before it."""
    found = named(of(MSA, Kernels(sparse_dense=("msa",))))
    assert not {"indexer", "key selection", "picked mask"} & set(found)
    assert numbers(found["qkv"], "n") == [(8 + 2 * 2) * 64]
    assert numbers(found["attention"], "pairs") == [CAUSAL]
