"""What context-parallel ranks exchange, work on and keep: gathers, rings, heads for sequences, and both."""

from __future__ import annotations

import numpy as np
import pytest
from cases import GPT, graph
from msgspec.structs import replace

from xe_sizer.graph.inputs import Learning
from xe_sizer.graph.operators import Attention, Collective, Kernels, Operator
from xe_sizer.graph.transformer import layer_operators

# 16 heads of 64 over 8 of keys and values, sequences of 8,192 tokens in 2 bytes: queries are 16 MiB, keys 8 MiB.
GROUPED = replace(GPT, kv_heads=8)
MIB = 2**20


def operators(kind: str, cp: int, heads: int, tp: int = 1, flash: str = "flash") -> tuple[Operator, ...]:
    kernels = Kernels(context=kind, attention=flash)  # type: ignore[arg-type]
    return layer_operators(graph(GROUPED, Learning(True), kernels, sequence=8192, cp=cp, head_ranks=heads, tp=tp))


def messages(found: tuple[Operator, ...], group: str) -> list[tuple[list[tuple[str, float]], list[tuple[str, float]]]]:
    sides = [(op.forward, op.backward) for op in found if isinstance(op, Collective) and op.group == group]
    return [tuple([(operation, float(size[0]) / MIB) for operation, size in side] for side in both) for both in sides]  # type: ignore[misc]


def core(found: tuple[Operator, ...]) -> Attention:
    return next(op for op in found if isinstance(op, Attention))


def test_keys_and_values_of_the_whole_sequence_are_gathered_or_passed_on() -> None:
    gathered = ([("all_gather", 16.0)], [("all_gather", 16.0), ("reduce_scatter", 16.0)])
    assert messages(operators("all-gather", 4, 1), "cp") == [gathered]
    assert messages(operators("ring", 4, 1), "cp") == [([("ring", 16.0)], [("ring", 32.0)])]
    assert messages(operators("ring", 4, 1), "heads") == []


def test_ulysses_sends_a_part_of_the_sequence_of_all_heads_for_all_of_a_part_of_them() -> None:
    """A quarter of the tokens: queries 4 MiB, keys and values 2 MiB each; the output 4 MiB."""
    there, back = [("all_to_all", 8.0)], [("all_to_all", 4.0)]
    assert messages(operators("ulysses", 4, 4), "heads") == [(there, there), (back, back)]


def test_heads_of_tensor_ranks_are_those_that_are_exchanged() -> None:
    """Of 4 tensor ranks each has a quarter of the heads, and sends a half of its tokens of these."""
    there, back = [("all_to_all", 16.0 / 8 + 2 * 8.0 / 8)], [("all_to_all", 16.0 / 8)]
    assert messages(operators("ulysses", 2, 2, tp=4), "heads") == [(there, there), (back, back)]


def test_heads_of_keys_are_copied_where_there_are_fewer_than_ranks() -> None:
    """16 ranks and 8 heads of keys: a sixteenth of queries and output, 1 MiB each, and twice 0.5 MiB copied once."""
    there, back = [("all_to_all", 1.0 + 2 * 1.0)], [("all_to_all", 1.0)]
    assert messages(operators("ulysses", 16, 16), "heads") == [(there, there), (back, back)]
    assert core(operators("ulysses", 16, 16)).kv_heads.tolist() == [1]


def test_a_ring_of_groups_that_share_out_heads() -> None:
    """8 ranks, 4 of which share out heads: 2 heads of keys and values, 4 MiB, pass a ring of 2."""
    found = operators("hybrid", 8, 4)
    assert messages(found, "cp") == [([("ring", 4.0)], [("ring", 8.0)])]
    one = core(found)
    assert (one.heads.tolist(), one.kv_heads.tolist(), one.query.tolist(), one.blocks.tolist()) == (
        [4],
        [2],
        [4096],
        [2],
    )


@pytest.mark.parametrize(("kind", "heads"), [("all-gather", 1), ("ring", 1), ("ulysses", 8), ("hybrid", 4)])
def test_every_kind_does_an_eighth_of_the_work(kind: str, heads: int) -> None:
    whole, part = core(operators(kind, 1, 1)), core(operators(kind, 8, heads))
    assert (8 * part.forward_flops).tolist() == pytest.approx(whole.forward_flops.tolist())
    assert (8 * part.statistics_bytes).tolist() == pytest.approx(whole.statistics_bytes.tolist())


def test_what_is_held_at_a_time() -> None:
    """Of 16 MiB of keys and values a gather holds all, a ring of 8 the block at work and the next, 4 MiB."""
    queries = 2 * 16.0 / 8
    found = {kind: core(operators(kind, 8, 1)).resident_bytes(2.0)[0] / MIB for kind in ("all-gather", "ring")}
    assert found == {"all-gather": queries + 16.0, "ring": queries + 4.0}
    assert core(operators("ulysses", 8, 8)).resident_bytes(2.0)[0] / MIB == queries + 2.0


def test_a_ring_reads_queries_again_for_every_block() -> None:
    ring, gather = (core(operators(kind, 8, 1)).operand_bytes(2.0)[0] / MIB for kind in ("ring", "all-gather"))
    assert (ring, gather) == (8 * 4.0 + 16.0, 4.0 + 16.0)


def test_ulysses_keeps_the_output_twice_but_no_fused_projection() -> None:
    """Of each token Q, K, V and output with whole sequences, and the output again as it goes on."""
    kept = core(operators("ulysses", 4, 4)).saved_bytes - core(operators("ulysses", 4, 4)).statistics_bytes
    assert kept[0] / MIB == pytest.approx(4.0 + 2 * 2.0 + 4.0 + 4.0)


def test_tensor_ranks_come_first() -> None:
    found = operators("ulysses", 2, 2, tp=4)
    assert (core(found).heads.tolist(), core(found).kv_heads.tolist()) == ([2], [1])
    assert np.all(core(found).query == 8192)
