"""Sizes of operators: masks by brute force, FLOPs and launches by hand."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from msgspec.structs import replace

from xe_sizer.graph.operators import (
    Attention,
    Collective,
    Kernels,
    Matmul,
    MemoryBound,
    RankShape,
    Scan,
    attended_positions,
    attention_groups,
    group_sizes,
    launches,
    stacked,
)

ZERO, ONE = np.zeros(1), np.ones(1)


def brute_force_pairs(queries: int, keys: int, window: int | None) -> int:
    """Counts the cells of a causal mask whose last query sees the last key; a query sees at most `window` keys."""
    count = 0
    for row in range(queries):
        last = keys - queries + row
        first = 0 if window is None else max(0, last - window + 1)
        count += last - first + 1
    return count


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (7, 7), (1, 9), (4, 9), (9, 9), (16, 16)])
@pytest.mark.parametrize("window", [None, 1, 2, 3, 5, 9, 100])
def test_attended_positions_by_brute_force(queries: int, keys: int, window: int | None) -> None:
    assert attended_positions(queries, keys, window) == brute_force_pairs(queries, keys, window)


def test_attended_positions_of_many_shapes_at_once() -> None:
    pairs = attended_positions(np.array([3, 8]), np.array([8, 8]), np.array([4, 4]))
    assert pairs.tolist() == [brute_force_pairs(3, 8, 4), brute_force_pairs(8, 8, 4)]


def rank_shape(**sizes: float) -> RankShape:
    names = {"batch": 2, "sequence": 4096, "tp": 4, "cp": 2, "ep": 1, "expert_tp": 4, "sequence_parallel": 1}
    return RankShape(**{name: np.array([float(size)]) for name, size in {**names, **sizes}.items()})


def test_tokens_of_a_rank() -> None:
    """Context parallelism cuts the sequence, sequence parallelism what lies between the tensor-parallel regions."""
    assert rank_shape().tokens == 4096
    assert rank_shape().resident_tokens == 1024
    assert rank_shape(sequence_parallel=0).resident_tokens == 4096


def product(input_gradient: bool, weight_gradient: bool, learns: bool) -> Matmul:
    return Matmul("x", "mlp", 1.0, ZERO, 2 * ONE, 3 * ONE, 5 * ONE, 7 * ONE, input_gradient, weight_gradient, learns)


@pytest.mark.parametrize(
    ("gradients", "backward_flops", "backward_launches"),
    [
        ((True, True, True), 2 * 420, 2.0),
        ((True, False, False), 420, 1.0),
        ((True, True, False), 420, 2.0),
        ((False, True, True), 420, 1.0),
    ],
)
def test_product_of_seven_2_by_5_by_3(
    gradients: tuple[bool, bool, bool], backward_flops: int, backward_launches: float
) -> None:
    """2 x 2 x 3 x 5 x 7 = 420 FLOPs a product; a gradient that is thrown away is launched, but is no useful FLOP."""
    op = product(*gradients)
    assert op.forward_flops == 420
    assert op.backward_flops == backward_flops
    assert launches(op) == (1.0, backward_launches)


def attention(kernel: str) -> Attention:
    return Attention(
        name="attention", module="attention", layers=1.0, saved_bytes=ZERO, batch=2 * ONE, heads=8 * ONE,
        kv_heads=2 * ONE, query=4 * ONE, key=16 * ONE, pairs=attended_positions(4 * ONE, 16 * ONE), qk_head_dim=24,
        v_head_dim=16, kernel=kernel, statistics_bytes=ZERO,
    )  # fmt: skip


def test_attention_flops_and_operands() -> None:
    """58 pairs; a pair costs 2 x 24 FLOPs for its score and 2 x 16 for its value."""
    op = attention("flash")
    assert op.forward_flops == 2 * 8 * 58 * (2 * 24 + 2 * 16)
    queries_and_output, keys_and_values = 8 * 4 * (24 + 16), 2 * 16 * (24 + 16)
    assert op.operand_bytes(1.0) == 2 * (queries_and_output + keys_and_values)


def test_launches_of_the_other_operators() -> None:
    assert launches(attention("eager"))[0] > launches(attention("flash"))[0]
    assert launches(MemoryBound("x", "norm", 1.0, ZERO, ONE, ONE, 7.0, 14.0, ZERO)) == (7.0, 14.0)
    there = (("all_gather", ONE),)
    assert launches(Collective("x", "mlp", 1.0, ZERO, "tp", there, (*there, *there))) == (1.0, 2.0)
    with pytest.raises(TypeError, match="str"):
        launches("an operator")  # type: ignore[arg-type]


# Launches where there is work, and none where there is not.


def test_products_of_their_own_are_launched_one_by_one() -> None:
    apart = replace(product(True, True, True), apart=True)
    assert [side.tolist() for side in launches(apart)] == [[7], [14]]
    beside = replace(apart, grouped=True)
    assert [side.tolist() for side in launches(beside)] == [[7 * 15], [7 * 2 * 20]]
    assert [side.tolist() for side in launches(replace(apart, m=ZERO))] == [[0], [0]]


def test_blocks_of_a_ring_are_attended_to_one_after_the_other() -> None:
    ring = replace(attention("flash"), blocks=4 * ONE)
    assert [side.tolist() for side in launches(ring)] == [[4], [12]]
    assert [side.tolist() for side in launches(replace(attention("eager"), blocks=4 * ONE))] == [[20], [32]]
    assert [side.tolist() for side in launches(replace(ring, batch=ZERO))] == [[0], [0]]


def test_a_scan_launches_its_kernels() -> None:
    """2 x 3 x 5 x 7 and 2 x 2 x 4 x 6 FLOPs, twice and once, in 4 kernels; backward 2.5 times as many."""
    products = ((3 * ONE, 5 * ONE, 7 * ONE, 2 * ONE), (2 * ONE, 4 * ONE, 6 * ONE, ONE))
    scan = Scan("scan", "state_space", 1.0, ZERO, products, ONE, ONE, ZERO, 4.0, "mamba-2")
    assert scan.forward_flops.tolist() == [2 * (2 * 105 + 48)]
    assert [side.tolist() for side in launches(scan)] == [[4], [10]]
    assert [side.tolist() for side in launches(replace(scan, moved_bytes=ZERO))] == [[0], [0]]


def test_what_moves_or_sends_nothing_is_not_launched() -> None:
    idle = MemoryBound("x", "norm", 1.0, ZERO, ZERO, ONE, 7.0, 14.0, ZERO)
    assert [side.tolist() for side in launches(idle)] == [[0], [14]]
    sent = Collective("x", "mlp", 1.0, ZERO, "tp", (("all_gather", ZERO), ("all_reduce", ONE)), ())
    assert [side.tolist() for side in launches(sent)] == [[1], [0]]


def test_keys_and_values_that_attention_reads() -> None:
    """16 keys of 2 heads in 2 sequences; a format of the cache's own; values that are part of the keys; a window."""
    op, queries = attention("flash"), 2 * 8 * 4 * (24 + 16)
    assert op.operand_bytes(2.0).tolist() == [2 * queries + 2 * 2 * 2 * 16 * 40]
    assert replace(op, cached_element_bytes=1.0).operand_bytes(2.0).tolist() == [2 * queries + 2 * 2 * 16 * 40]
    assert replace(op, values_in_keys=True).key_value_elements.tolist() == [2 * 2 * 16 * 24]
    assert replace(op, loaded_keys=5 * ONE).key_value_elements.tolist() == [2 * 2 * 5 * 40]
    assert replace(op, blocks=3 * ONE).operand_bytes(2.0).tolist() == [3 * 2 * queries + 2 * 2 * 2 * 16 * 40]


@pytest.mark.parametrize(("blocks", "share"), [(1.0, 1.0), (2.0, 1.0), (8.0, 0.25)])
def test_a_ring_holds_two_blocks_at_a_time(blocks: float, share: float) -> None:
    op, queries, keys = attention("flash"), 2 * 8 * 4 * (24 + 16), 2 * 2 * 16 * 40
    assert replace(op, blocks=blocks * ONE).resident_bytes(2.0).tolist() == [2 * (queries + share * keys)]
    assert op.resident_bytes(2.0).tolist() == [2 * (queries + keys)]


def test_groups_of_ranks() -> None:
    """4 tensor ranks, experts over 8 groups of 2: 4 groups attend to sequences of their own; 6 ranks of context."""
    rank = rank_shape(ep=8, expert_tp=2, cp=6, head_ranks=3)
    sizes = {name: float(size[0]) for name, size in group_sizes(rank).items()}
    assert sizes == {"tp": 4, "cp": 2, "ep": 8, "dp": 4, "etp": 2, "heads": 3}
    assert attention_groups(rank_shape(ep=1, expert_tp=2)).tolist() == [1]
    assert rank_shape(past=7).keys.tolist() == [4096 + 7]


def test_arrays_are_stacked_in_their_order() -> None:
    rows = stacked([np.array([1.0]), np.array([2.0, 3.0])], (2,))
    assert rows.tolist() == [[1, 1], [2, 3]]


def test_kernels_are_those_that_a_stack_names() -> None:
    choice = SimpleNamespace(norm="eager", dispatch="to-all", unknown=1)
    chosen, usual = Kernels.chosen(choice, norm="fused"), Kernels()
    differ = {name for name in Kernels.__struct_fields__ if getattr(chosen, name) != getattr(usual, name)}
    assert (differ, chosen.dispatch) == ({"dispatch"}, "to-all")
