"""Seconds of operators: which law each product follows, and what its backward adds, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from xe_sizer.graph.operators import Array, Attention, Collective, Matmul, MemoryBound, RankShape, Scan
from xe_sizer.laws.attention import AttentionLaw, DecodeLaw, decode_attention_time_s
from xe_sizer.laws.collectives import ALL_GATHER, ALL_REDUCE, CollectiveLaw, Network, collective_time_s, copy_time_s
from xe_sizer.laws.matmul import GROUPED_EFFICIENCY, MatmulLaw, grouped_share
from xe_sizer.laws.network import exchange_times
from xe_sizer.laws.operator_time import (
    COMPUTE,
    LAUNCH,
    MEMORY,
    Device,
    exposed_launch_time_s,
    launch_counts,
    memory_bound_time_s,
    operator_sizes,
    operator_times,
    operator_work,
)

# Sharp rooflines that reach their peaks: the larger of FLOPs / peak and bytes / bandwidth, and the floor.
SHARP = MatmulLaw(floor_s=1e-3, flops_efficiency=1.0, memory_efficiency=1.0, sharpness=np.inf, misaligned=1.0)
ATTENTION = AttentionLaw(
    floor_s=1e-3, flops_efficiency=0.5, half_length=0.0, memory_efficiency=0.25, backward_flops_efficiency=0.25
)
MASKED = replace(ATTENTION, flops_efficiency=0.2, backward_flops_efficiency=0.1)
DEVICE = Device(
    matmul=SHARP,
    peak_flops_per_s=1e6,
    attention=ATTENTION,
    masked_attention=MASKED,
    attention_peak_flops_per_s=1e5,
    narrow_attention_peak_flops_per_s=2e5,
    adapter_matmul=replace(SHARP, floor_s=2e-3),
    adapter_peak_flops_per_s=1e4,
    expert_matmul=replace(SHARP, floor_s=3e-3),
    scan_matmul=replace(SHARP, floor_s=4e-3),
    bandwidth_bytes_per_s=1e12,
    memory_bound_efficiency=0.5,
    memory_bound_floor_s=5e-3,
    element_bytes=2.0,
)


def array(*values: float) -> Array:
    return np.array(values, dtype=float)


def matmul(**changed: object) -> Matmul:
    sizes = {"m": array(10), "n": array(20), "k": array(30), "copies": array(1)}
    plain = {"name": "up", "module": "mlp", "layers": 1.0, "saved_bytes": array(0)}
    flags = {"input_gradient": True, "weight_gradient": True, "learns": True}
    return Matmul(**{**plain, **sizes, **flags, **changed})  # type: ignore[arg-type]


FLOPS = 2 * 10 * 20 * 30


@pytest.mark.parametrize(
    ("input_gradient", "weight_gradient", "products"),
    [(True, True, 2), (True, False, 1), (False, True, 1), (False, False, 0)],
)
def test_one_product_for_each_gradient(input_gradient: bool, weight_gradient: bool, products: int) -> None:
    op = matmul(input_gradient=input_gradient, weight_gradient=weight_gradient, layers=3.0)
    (time,) = operator_times([op], DEVICE)
    each = 3 * (FLOPS / 1e6 + 1e-3)
    assert time.forward_s == pytest.approx(each)
    assert time.backward_s == pytest.approx(products * each)
    assert time.weight_s == pytest.approx(each * weight_gradient)


def test_gradients_move_their_own_operands() -> None:
    """On a slow memory: 2 bytes of each operand and result, a weight of 1 byte where it is the second operand."""
    slow = replace(DEVICE, bandwidth_bytes_per_s=1.0, weight_element_bytes=1.0, matmul=replace(SHARP, floor_s=0.0))
    (time,) = operator_times([matmul()], slow)
    assert time.forward_s == pytest.approx(2 * (10 * 30 + 10 * 20) + 20 * 30)
    # dA[m,k] = dC[m,n] W[n,k]; dW[k,n] = A[k,m] dC[m,n], whose second operand has n m elements.
    assert time.weight_s == pytest.approx(2 * (30 * 10 + 30 * 20) + 10 * 20)
    assert time.backward_s - time.weight_s == pytest.approx(2 * (10 * 20 + 10 * 30) + 20 * 30)


def test_copies_pay_one_floor_and_tiles_a_second_forward() -> None:
    """Eight experts in one kernel: eight times the product, one launch. Tiles run the forward again in the backward."""
    (grouped,) = operator_times([matmul(copies=array(8), grouped=True)], DEVICE)
    assert grouped.forward_s == pytest.approx(8 * FLOPS / 1e6 + 3e-3)
    (tiled,) = operator_times([matmul(tiles=array(4))], DEVICE)
    assert tiled.forward_s == pytest.approx(FLOPS / 1e6 + 1e-3)
    assert tiled.backward_s == pytest.approx(3 * (FLOPS / 1e6 + 1e-3))
    (empty,) = operator_times([matmul(m=array(0), copies=array(8))], DEVICE)
    assert [float(side[0]) for side in (empty.forward_s, empty.backward_s)] == [0.0, 0.0]


def test_copies_that_run_one_after_the_other_pay_a_floor_each() -> None:
    """Eight kernels, but for grouped ones; a product of one number is a product."""
    (apart,) = operator_times([matmul(copies=array(8), apart=True)], DEVICE)
    assert apart.forward_s == pytest.approx(8 * (FLOPS / 1e6 + 1e-3))
    (grouped,) = operator_times([matmul(copies=array(8), apart=True, grouped=True)], DEVICE)
    assert grouped.forward_s == pytest.approx(8 * FLOPS / 1e6 + 3e-3)
    (together,) = operator_times([matmul(copies=array(8))], DEVICE)
    assert together.forward_s == pytest.approx(8 * FLOPS / 1e6 + 1e-3)
    (one,) = operator_times([matmul(m=array(1), n=array(1), k=array(1), copies=array(8))], DEVICE)
    assert one.forward_s == pytest.approx(8 * 2 / 1e6 + 1e-3)


@pytest.mark.parametrize(
    ("changed", "peak", "floor"),
    [
        ({}, 1e6, 1e-3),
        ({"adapter": True}, 1e4, 2e-3),
        ({"grouped": True}, 1e6, 3e-3),
        ({"grouped": True, "adapter": True}, 1e4, 3e-3),
        ({"module": "head"}, 1e5, 4e-3),
    ],
)
def test_the_law_of_a_product(changed: dict[str, object], peak: float, floor: float) -> None:
    device = replace(DEVICE, wide_modules=frozenset({"head"}))
    (time,) = operator_times([matmul(**changed)], device)
    assert time.forward_s == pytest.approx(FLOPS / peak + floor)


def test_a_grouped_product_of_a_wide_module() -> None:
    """It reaches the grouped share of what scans reach, and its knee nearly adds what the memory takes."""
    device = replace(DEVICE, wide_modules=frozenset({"mlp"}))
    (time,) = operator_times([matmul(grouped=True)], device)
    assert time.forward_s == pytest.approx(FLOPS / (GROUPED_EFFICIENCY * 1e5) + 4e-3, rel=1e-6)


def test_a_grouped_kernel_rises_with_the_smallest_side_of_its_products() -> None:
    """0.65 up to 1,024; half of the way to 1 at the geometric mean with 8,192, and all of it there and beyond."""
    middle = (1024 * 8192) ** 0.5
    sides = [100.0, 1024.0, middle, 8192.0, 20000.0]
    expected = pytest.approx([0.65, 0.65, 0.825, 1.0, 1.0])
    assert grouped_share(sides, 1e5, 1e5) == expected
    assert grouped_share(1e5, sides, 1e5) == expected
    assert grouped_share(1e5, 1e5, sides) == expected


def attention(**changed: object) -> Attention:
    plain = {"name": "core", "module": "attention", "layers": 2.0, "saved_bytes": array(0)}
    sizes = {
        "batch": array(3),
        "heads": array(4),
        "kv_heads": array(2),
        "query": array(5),
        "key": array(5),
        "pairs": array(15),
    }
    heads = {"qk_head_dim": 8, "v_head_dim": 16, "kernel": "flash", "statistics_bytes": array(0)}
    return Attention(**{**plain, **sizes, **heads, **changed})  # type: ignore[arg-type]


SCORES = 2 * 3 * 4 * 15 * (8 + 16)  # FLOPs of both products over the pairs that the mask leaves
OPERANDS = 2 * (3 * 4 * 5 * 24 + 3 * 2 * 5 * 24)  # bytes of Q and output, K and V


def test_flash_attention_computes_its_scores_again() -> None:
    """Five products against two at the backward's own efficiency; 2.5 times the bytes."""
    slow = replace(DEVICE, bandwidth_bytes_per_s=1e5)
    (time,) = operator_times([attention()], slow)
    forward = SCORES / (0.5 * 1e5) + OPERANDS / (0.25 * 1e5) + 1e-3
    backward = 2.5 * SCORES / (0.25 * 1e5) + 2.5 * OPERANDS / (0.25 * 1e5) + 1e-3
    assert time.forward_s == pytest.approx(2 * forward)
    assert time.backward_s == pytest.approx(2 * backward)
    assert time.weight_s == 0


def test_blocks_of_a_window_are_wasted_as_those_of_a_sequence_of_its_width() -> None:
    """Where half the rate is reached at 3 keys, 5 keys take 1 + 3 / 5 times as long, and a window of 2 of them 2.5."""
    slow = replace(DEVICE, attention=replace(DEVICE.attention, half_length=3.0), bandwidth_bytes_per_s=1e20)
    whole, narrow, wide = (operator_times([attention(window=window)], slow)[0].forward_s for window in (None, 2, 7))
    once = SCORES / (0.5 * 1e5)
    assert [whole, narrow, wide] == pytest.approx([2 * (times * once + 1e-3) for times in (1.6, 2.5, 1.6)])


def test_eager_attention_multiplies_and_moves_all_scores() -> None:
    """25 of 25 pairs, where the mask leaves 15; 8 passes over 3 x 4 x 25 scores in the forward, 10 in the backward."""
    slow = replace(DEVICE, bandwidth_bytes_per_s=1e5)
    (time,) = operator_times([attention(kernel="eager")], slow)
    all_pairs, one_pass_s = SCORES * 25 / 15, 2 * 3 * 4 * 25 / (0.5 * 1e5)
    forward = all_pairs / (0.5 * 1e5) + OPERANDS / (0.25 * 1e5) + 1e-3 + 8 * one_pass_s
    backward = 2 * all_pairs / (0.25 * 1e5) + 2.5 * OPERANDS / (0.25 * 1e5) + 1e-3 + 10 * one_pass_s
    assert time.forward_s == pytest.approx(2 * forward)
    assert time.backward_s == pytest.approx(2 * backward)


def test_a_decode_kernel_takes_the_longer_of_reading_and_multiplying() -> None:
    device = replace(DEVICE, decode=DecodeLaw(floor_s=1e-4, memory_efficiency=0.5, root_s_per_sqrt_byte=1e-6))
    (time,) = operator_times([attention(kernel="decode")], device)
    assert time.forward_s == pytest.approx(2 * (1e-4 + SCORES / (0.5 * 1e5) + 1e-6 * OPERANDS**0.5))
    assert time.backward_s == 0
    read = decode_attention_time_s([1.0, 0.0], 1e6, device.decode, 1e12, 1e6)
    assert read == pytest.approx([1e-4 + 1e6 / (0.5 * 1e6) + 1e-6 * 1e3, 0.0])


def scan(**changed: object) -> Scan:
    products = ((array(2), array(3), array(4), array(5)), (array(6), array(7), array(8), array(9)))
    plain = {"name": "scan", "module": "mixer", "layers": 2.0, "saved_bytes": array(0), "kernels": 3.0}
    sizes = {"products": products, "state_bytes": array(1e9), "moved_bytes": array(4e8), "walked": array(0)}
    return Scan(**{**plain, **sizes, "kind": "gated-delta-net", **changed})  # type: ignore[arg-type]


SCAN_FLOPS = 2 * 2 * 3 * 4 * 5 + 2 * 6 * 7 * 8 * 9


def test_a_scan_multiplies_moves_and_walks_at_once() -> None:
    """At 1e5 FLOP/s, half of 1e12 bytes/s and 1.7 us a chunk, by their root of squares; 3 kernels start in 5 ms."""
    (time,) = operator_times([scan(walked=array(100))], DEVICE)
    once = ((SCAN_FLOPS / 1e5) ** 2 + (4e8 / (0.5 * 1e12)) ** 2 + (100 * 1.7e-6) ** 2) ** 0.5
    assert time.forward_s == pytest.approx(2 * (once + 3 * 5e-3))
    assert time.backward_s == pytest.approx(6.3 * time.forward_s)


def test_one_kernel_walks_as_long_as_it_was_measured_and_fixed_efficiencies_walk_for_nothing() -> None:
    """2.7 us a chunk for FlashInfer's; without laws, products at their share of the peak and bytes."""
    walked = scan(walked=array(1e6), fused=True)
    (time,) = operator_times([walked], replace(DEVICE, memory_bound_floor_s=0.0))
    assert time.forward_s == pytest.approx(2 * 2.7, rel=0.01)
    (fixed,) = operator_times([walked], replace(DEVICE, memory_bound_floor_s=0.0, scan_law_holds=False))
    products_s = SCAN_FLOPS / (DEVICE.scan_matmul.flops_efficiency * 1e5)
    assert fixed.forward_s == pytest.approx(2 * (products_s**2 + 8e-4**2) ** 0.5)
    flops, moved = (operator_work([walked], DEVICE)[0].flops[0], operator_work([walked], DEVICE)[0].moved_bytes[0])
    assert (flops, moved) == (pytest.approx(2 * SCAN_FLOPS), pytest.approx(2 * 4e8))


def moving(**changed: object) -> MemoryBound:
    plain = {"name": "norm", "module": "norm", "layers": 2.0, "saved_bytes": array(0), "temporary_bytes": array(0)}
    sizes = {
        "forward_bytes": array(1e9),
        "backward_bytes": array(3e9),
        "forward_launches": 1.0,
        "backward_launches": 4.0,
    }
    return MemoryBound(**{**plain, **sizes, **changed})  # type: ignore[arg-type]


def test_what_moves_memory_has_no_weights_of_its_own() -> None:
    for time in operator_times([moving(), attention(), scan()], DEVICE):
        assert time.weight_s.tolist() == [0.0]


def test_what_only_moves_memory_pays_bytes_and_launches() -> None:
    other = moving(forward_bytes=array(5e9), backward_bytes=array(7e9), forward_launches=2.0)
    first, second = operator_times([moving(), other], DEVICE)
    assert first.forward_s == pytest.approx(2 * (1e9 / 0.5e12 + 5e-3))
    assert first.backward_s == pytest.approx(2 * (3e9 / 0.5e12 + 4 * 5e-3))
    assert second.forward_s == pytest.approx(2 * (5e9 / 0.5e12 + 2 * 5e-3))
    assert second.backward_s == pytest.approx(2 * (7e9 / 0.5e12 + 4 * 5e-3))
    assert first.weight_s == 0


def test_without_a_backward_only_the_forward_is_timed() -> None:
    ops = [matmul(), attention(), moving(), scan()]
    both, alone = operator_times(ops, DEVICE), operator_times(ops, DEVICE, backward=False)
    assert [float(time.forward_s[0]) for time in both] == pytest.approx([float(time.forward_s[0]) for time in alone])
    assert [float(np.sum(alone[place].backward_s)) for place in (0, 2)] == [0.0, 0.0]


def test_launches_of_all_layers() -> None:
    """Product 1 + 2, flash attention 1 + 3, eager 5 + 8, scan 3 + 7.5, moving 1 + 4, gather 1; some in many layers."""
    gather = Collective("gather", "mlp", 7.0, array(0), "tp", ((ALL_GATHER, array(1e6)),), ())
    ops = [matmul(layers=3.0), attention(), attention(kernel="eager"), scan(), moving(), gather]
    assert launch_counts(ops) == (3 + 2 + 10 + 2 * 3 + 2 + 7, 3 * 2 + 2 * 3 + 2 * 8 + 2 * 7.5 + 2 * 4)


FLAT = CollectiveLaw((2, 4, 8), (1e-3, 2e-3, 3e-3), (1e9, 1e9, 1e9), (0.0, 0.0, 0.0))
NODE = Network(8, {ALL_GATHER: FLAT, ALL_REDUCE: FLAT}, scale_out_bytes_per_s=1e8, scale_out_alpha_s=1e-2)


def exchange(group: str, layers: float = 2.0) -> Collective:
    forward = ((ALL_GATHER, array(8e9)), (ALL_REDUCE, array(0.0)))
    return Collective("exchange", "mlp", layers, array(0), group, forward, ((ALL_REDUCE, array(8e9)),))


def rank(**sizes: float) -> RankShape:
    one = {"batch": 1, "sequence": 1, "tp": 1, "cp": 1, "ep": 1, "expert_tp": 1, "sequence_parallel": 0}
    return RankShape(**{name: array(size) for name, size in {**one, **sizes}.items()})


def test_exchanges_of_a_group_inside_a_node() -> None:
    """8 GB over 4 ranks: a gather carries 6 GB, an all-reduce 12; the law reaches 0.8 of its rate."""
    times = exchange_times([exchange("tp"), matmul()], rank(tp=4), NODE, 0.8)
    assert times["tp"][0] == pytest.approx(2 * (2e-3 + 6.0) / 0.8)
    assert times["tp"][1] == pytest.approx(2 * (2e-3 + 12.0) / 0.8)
    assert [float(side[0]) for name in ("cp", "ep") for side in times[name]] == [0.0] * 4
    forward, backward = exchange_times([exchange("tp")], rank(tp=4), NODE, 0.8, backward=False)["tp"]
    assert forward == times["tp"][0]
    assert backward == 0


def test_context_ranks_lie_outside_tensor_ranks() -> None:
    """With 4 tensor ranks a node of 8 has two of four context ranks: 3/4 of half the message leaves it."""
    forward, _ = exchange_times([exchange("cp", 1.0)], rank(tp=4, cp=4), NODE, 1.0)["cp"]
    assert forward == pytest.approx(0.75 * 8e9 / 2 / 1e8 + 1e-2 * 2)
    inside, _ = exchange_times([exchange("cp", 1.0)], rank(tp=2, cp=4), NODE, 1.0)["cp"]
    assert inside == pytest.approx(2e-3 + 6.0)


def test_one_rank_of_a_group_on_each_node() -> None:
    """8 tensor ranks fill a node: both context ranks have a NIC; two ranks inside exchange too."""
    forward, _ = exchange_times([exchange("cp", 1.0)], rank(tp=8, cp=2), NODE, 1.0)["cp"]
    apart = collective_time_s(ALL_GATHER, 8e9, 2, 1, NODE)
    assert float(forward[0]) == pytest.approx(float(apart))
    assert float(forward[0]) > 2 * float(collective_time_s(ALL_GATHER, 8e9, 2, 2, NODE))
    inside, _ = exchange_times([exchange("tp", 1.0)], rank(tp=2), NODE, 1.0)["tp"]
    assert inside == pytest.approx(1e-3 + 4.0)


def test_expert_ranks_lie_outside_the_ranks_of_an_expert() -> None:
    alone, _ = exchange_times([exchange("ep", 1.0)], rank(tp=4, ep=8, expert_tp=1), NODE, 1.0)["ep"]
    assert alone == pytest.approx(3e-3 + 7.0)
    split, _ = exchange_times([exchange("ep", 1.0)], rank(tp=4, ep=8, expert_tp=4), NODE, 1.0)["ep"]
    assert split == pytest.approx(7 / 8 * 8e9 / 2 / 1e8 + 1e-2 * 3)


def test_work_of_operators_is_counted_whatever_their_laws() -> None:
    """FLOPs and bytes of all layers, forward and backward, and what each bound alone would take."""
    ops = (matmul(layers=3.0), attention(), moving())
    product, core, norm = operator_work(ops, DEVICE)
    assert [float(side[0]) for side in product.flops] == pytest.approx([3 * FLOPS, 6 * FLOPS])
    operands = 2 * (10 * 30 + 10 * 20 + 20 * 30)
    assert [float(side[0]) for side in product.moved_bytes] == pytest.approx([3 * operands, 6 * operands])
    assert [float(side[0]) for side in core.flops] == pytest.approx([2 * SCORES, 5 * SCORES])
    assert [float(side[0]) for side in core.moved_bytes] == pytest.approx([2 * OPERANDS, 5 * OPERANDS])
    assert [float(side[0]) for side in norm.moved_bytes] == pytest.approx([2e9, 6e9])
    assert product.bounds_s[COMPUTE] == pytest.approx(9 * FLOPS / 1e6)
    assert product.bounds_s[MEMORY] == pytest.approx(9 * operands / 1e12)
    assert product.bounds_s[LAUNCH] == pytest.approx(9 * 1e-3)
    assert norm.bounds_s[LAUNCH] == pytest.approx(2 * 5 * 5e-3)
    (forward_only,) = operator_work(ops[:1], DEVICE, backward=False)
    assert float(forward_only.flops[1][0]) == 0.0


def test_sizes_of_operators_by_name() -> None:
    assert {name: float(size[0]) for name, size in operator_sizes(matmul()).items()} == {"m": 10, "n": 20, "k": 30}
    assert float(operator_sizes(matmul(copies=array(8)))["copies"][0]) == 8
    found = {name: float(np.ravel(size)[0]) for name, size in operator_sizes(attention()).items()}
    assert found == {"sequences": 3, "heads": 4, "kv_heads": 2, "queries": 5, "keys": 5, "head_size": 8}
    assert float(operator_sizes(moving())["kernels"]) == 1.0
    assert float(operator_sizes(exchange("tp"))["message_bytes"][0]) == 8e9
    assert operator_sizes(scan()) == {}


def test_attention_with_a_mask_works_on_all_pairs_by_a_law_of_its_own() -> None:
    """100 pairs instead of 55: forward 4 x 100 x 8 FLOPs, backward 2.5 times as many; 2 bytes a pair of the mask."""
    sizes = {"batch": array(1, 1), "heads": array(1, 1), "kv_heads": array(1, 1), "query": array(10, 10)}
    op = Attention(
        name="attention", module="attention", layers=1.0, saved_bytes=array(0, 0), **sizes, key=array(10, 10),
        pairs=array(55, 55), qk_head_dim=8, v_head_dim=8, kernel="sdpa", statistics_bytes=array(0, 0),
        masked=array(0, 1),
    )  # fmt: skip
    (time,) = operator_times([op], DEVICE)
    assert time.forward_s == pytest.approx([1e-3 + 4 * 55 * 8 / 5e4, 1e-3 + 4 * 100 * 8 / 2e4], rel=1e-6)
    assert time.backward_s == pytest.approx([1e-3 + 10 * 55 * 8 / 2.5e4, 1e-3 + 10 * 100 * 8 / 1e4], rel=1e-6)
    slow = replace(DEVICE, bandwidth_bytes_per_s=1.0, masked_attention=replace(MASKED, memory_efficiency=1.0))
    (time,) = operator_times([replace(op, masked=array(1, 1))], slow)
    operands = 2 * 4 * 10 * 8
    assert time.forward_s == pytest.approx(operands + 200, rel=1e-2)
    assert time.backward_s == pytest.approx(2.5 * operands + 200, rel=1e-2)


def test_sides_that_fill_no_lines_slow_every_product_of_a_weight() -> None:
    """20 x 30 has rows of 4 and 2 elements: twice as long at a slowdown of 2; 64 x 128 fills whole lines."""
    slow = replace(DEVICE, matmul=replace(SHARP, misaligned=2.0, floor_s=0.0))
    odd, even = operator_times([matmul(), matmul(n=array(64), k=array(128))], slow)
    assert odd.forward_s == pytest.approx(2 * FLOPS / 1e6)
    assert odd.backward_s == pytest.approx(2 * 2 * FLOPS / 1e6)
    assert even.forward_s == pytest.approx(2 * 10 * 64 * 128 / 1e6)


def test_padded_vocabularies_and_adapters_are_not_slowed() -> None:
    slow = replace(DEVICE, matmul=replace(SHARP, misaligned=2.0, floor_s=0.0))
    (head,) = operator_times([matmul(module="head")], slow)
    assert head.forward_s == pytest.approx(FLOPS / 1e6)
    (adapter,) = operator_times([matmul(adapter=True)], replace(slow, adapter_matmul=slow.matmul))
    assert adapter.forward_s == pytest.approx(FLOPS / 1e4)


def test_adapters_in_float32_move_wider_elements_and_fill_whole_tiles() -> None:
    """40 x 8 results in tiles of 32 take four times the FLOPs; the weight's gradient, 8 x 30, fills 32 x 32."""
    narrow = matmul(adapter=True, m=array(40), n=array(8), input_gradient=False)
    law = replace(SHARP, floor_s=0.0, tile=32.0)
    (computing,) = operator_times([narrow], replace(DEVICE, adapter_matmul=law))
    assert computing.forward_s == pytest.approx(2 * 40 * 32 * 30 / 1e4)
    assert computing.backward_s == pytest.approx(2 * 32 * 32 * 40 / 1e4)
    moving = replace(
        DEVICE, adapter_matmul=replace(law, tile=1.0), adapter_peak_flops_per_s=1e15, bandwidth_bytes_per_s=1.0
    )
    (wide,) = operator_times([narrow], replace(moving, adapter_element_bytes=4.0))
    assert wide.forward_s == pytest.approx(4 * (40 * 30 + 40 * 8 + 30 * 8))


def test_every_head_reads_the_mask_of_its_own_tokens() -> None:
    """3 sequences of 4 heads: 2 bytes of 3 x 4 x 25 pairs on a memory so slow that nothing else counts."""
    law = replace(MASKED, memory_efficiency=1.0, floor_s=0.0)
    slow = replace(DEVICE, bandwidth_bytes_per_s=1e-6, masked_attention=law)
    (time,) = operator_times([attention(kernel="sdpa", masked=array(1))], slow)
    mask_bytes = 2 * 3 * 4 * 25
    assert time.forward_s == pytest.approx(2 * (OPERANDS + mask_bytes) / 1e-6, rel=1e-6)
    assert time.backward_s == pytest.approx(2 * (2.5 * OPERANDS + mask_bytes) / 1e-6, rel=1e-6)


# Memory-bound kernels, the host, and copies: numbers by hand.


def test_bytes_over_a_share_of_the_bandwidth_and_launches() -> None:
    assert memory_bound_time_s(8e9, 3.0, 1e12, 0.8, 2e-6) == pytest.approx(10e-3 + 6e-6, rel=1e-12)


def test_nothing_moved_nothing_launched() -> None:
    assert memory_bound_time_s([0.0, 1.0], 3.0, 1e12, 0.8, 2e-6)[0] == 0.0


def test_the_host_is_waited_for_only_where_kernels_are_shorter() -> None:
    """1000 launches of 5 us are 5 ms: 2 ms of kernels leave 3 ms of waiting, 7 ms of kernels none."""
    assert exposed_launch_time_s(1000, 5e-6, [2e-3, 7e-3]) == pytest.approx([3e-3, 0.0])


def test_copy_over_pcie_5_as_measured_on_an_h200() -> None:
    """55.4 GB/s of 63 measured with pinned memory (ml-engineering, network/README.md)."""
    assert copy_time_s(55.4e9, 63e9) == pytest.approx(1.0, rel=0.01)
