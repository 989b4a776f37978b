"""Forms of adapters: bytes and products of low-rank ones, by arithmetic on their sizes."""

from __future__ import annotations

import numpy as np
import pytest
from cases import REGISTRY, graph
from msgspec.structs import replace

from xe_sizer.graph.inputs import Adapter, AdapterForm, Block, GraphInputs, Learning, LowRank, Place
from xe_sizer.graph.operators import Kernels, Matmul, MemoryBound, Operator
from xe_sizer.graph.transformer import layer_operators
from xe_sizer.graph.weights import Weight, layer_weights

LLAMA = REGISTRY.model("llama-2-7b")
TOKENS = 256


def products(form: LowRank) -> dict[str, Matmul]:
    learning = Learning(False, {"q": form})
    operators = layer_operators(graph(LLAMA, learning, batch=1, sequence=TOKENS))
    return {op.name: op for op in operators if isinstance(op, Matmul) and op.adapter}


@pytest.mark.parametrize("freezes", [False, True])
def test_a_frozen_first_matrix_has_no_gradient_and_keeps_no_input(freezes: bool) -> None:
    """LoRA-FA: A neither learns nor keeps its 4-byte copy of the input; B keeps what it reads."""
    found = products(LowRank(8, freezes_first=freezes))
    first, second = found["q adapter A"], found["q adapter B"]
    assert first.weight_gradient is not freezes
    assert float(first.saved_bytes[0]) == (0 if freezes else 4 * TOKENS * 4096)
    assert float(second.saved_bytes[0]) == 4 * TOKENS * 8


def test_a_frozen_first_matrix_stands_beside_the_weight() -> None:
    weight = next(each for each in layer_weights(LLAMA, LLAMA.layer_kinds[0][0]) if each.name == "down")
    learns, frozen = (Adapter(LowRank(16, freezes_first=freezes), (weight,)) for freezes in (False, True))
    assert (learns.parameters, frozen.parameters) == (16 * (4096 + 11008), 16 * 4096)
    assert float(frozen.buffer_bytes(np.ones(1))[0]) == 4 * 16 * 11008
    assert frozen.matrices == ((4096, 16),)
    assert float(replace(learns, form=LowRank(4)).on_rank(np.array([8.0]))[0]) == 4 * (11008 / 8 + 4096)


# Kernels around an adapter: how they cast, drop and add, on 2 of 4 tensor-parallel ranks.

TP, INPUTS, OUTPUTS, RANK = 2, 4096, 4096 / 2, 8
FROZEN = Learning(False, {"q": LowRank(RANK)})
WAYS = {
    # Adapters in the model's type; float32 ones that read a float32 copy; and those whose products autocast narrows.
    "base": ({"adapter_element_bytes": 2.0}, False),
    "wide": ({}, False),
    "autocast": ({}, True),
}


def around(way: str, magnitudes: bool = False, returned: float | None = None, **learning: object) -> GraphInputs:
    options, autocast = WAYS[way]
    learns = replace(FROZEN, adapters={"q": LowRank(RANK, magnitudes=magnitudes)}, **options, **learning)
    made = graph(LLAMA, learns, Kernels(fused_qkv=False), batch=1, sequence=TOKENS, tp=TP)
    return replace(made, autocast=autocast, returned_element_bytes=returned)


def named(inputs: GraphInputs) -> dict[str, Operator]:
    return {op.name: op for op in layer_operators(inputs)}


def numbers(op: Operator, *fields: str) -> list[float]:
    return [float(np.sum(getattr(op, field))) / TOKENS for field in fields]


@pytest.mark.parametrize(
    ("way", "forward", "backward", "launched", "held"),
    [
        # Scale 4 bytes and add 2 of the output; back, add the gradient of the input.
        ("base", 6 * OUTPUTS, 6 * INPUTS + 2 * OUTPUTS, [2, 2], 2 * 2 * OUTPUTS),
        ("wide", 6 * INPUTS + 24 * OUTPUTS, 12 * INPUTS + 14 * OUTPUTS, [5, 6], 5 * 2 * OUTPUTS),
        ("autocast", 12 * INPUTS + 6 * OUTPUTS, 18 * INPUTS + 2 * OUTPUTS, [4, 5], 2 * 2 * OUTPUTS),
    ],
)
@pytest.mark.parametrize("drops", [False, True])
def test_an_adapter_casts_scales_and_adds(
    way: str, forward: float, backward: float, launched: list[float], held: float, drops: bool
) -> None:
    """Dropout reads and writes what the products read, and a mask of one byte, and lives until the module returns."""
    added = named(around(way, adapter_dropout=drops))["q adapter add"]
    size = {"base": 2, "wide": 4, "autocast": 2}[way]
    dropped = drops * (2 * size + 1) * INPUTS
    assert numbers(added, "forward_bytes", "backward_bytes") == [forward + dropped, backward + dropped]
    assert [count * TOKENS for count in numbers(added, "forward_launches", "backward_launches")] == [
        count + drops for count in launched
    ]
    of_input = drops * INPUTS * (2 if way == "base" else 4)
    assert numbers(added, "temporary_bytes") == [held + of_input]
    assert isinstance(added, MemoryBound)
    assert added.adapter


@pytest.mark.parametrize(
    ("way", "drops", "kept"), [("base", False, 0), ("base", True, 2 + 1), ("wide", False, 4), ("wide", True, 4 + 1),
                               ("autocast", False, 2), ("autocast", True, 2 + 1)],
)  # fmt: skip
def test_an_adapter_keeps_what_its_products_read(way: str, drops: bool, kept: float) -> None:
    """A copy of the input in the type of the product, where it is another tensor; and the mask of dropout."""
    found = named(around(way, adapter_dropout=drops))
    first, second = found["q adapter A"], found["q adapter B"]
    assert numbers(first, "saved_bytes", "m") == [kept * INPUTS, 1]
    assert [count * TOKENS for count in numbers(first, "n", "k", "copies")] == [RANK, INPUTS, 1]
    assert numbers(second, "saved_bytes") == [RANK * (2 if way == "base" else 4)]
    assert [count * TOKENS for count in numbers(second, "n", "k", "copies")] == [OUTPUTS, RANK, 1]
    assert isinstance(first, Matmul)
    assert (first.adapter, first.grouped, first.computed, first.operand_bytes) == (True, False, False, None)
    # The base product keeps the input as it is where the adapter reads that.
    assert numbers(found["q"], "saved_bytes") == [INPUTS * 2 if way == "base" and not drops else 0]


@pytest.mark.parametrize(
    ("way", "drops", "returned", "waits"),
    [
        ("base", False, None, 2 * OUTPUTS),
        ("wide", False, None, 2 * OUTPUTS + 2 * INPUTS),
        ("wide", True, None, 2 * OUTPUTS + (2 + 4) * INPUTS),
        ("autocast", False, None, 2 * OUTPUTS + (2 + 4) * INPUTS),
        # An input that is float32 already is no copy.
        ("autocast", False, 4.0, 4 * OUTPUTS + 4 * INPUTS),
    ],
)
def test_what_waits_while_an_adapter_computes(way: str, drops: bool, returned: float | None, waits: float) -> None:
    """The frozen weight's result, the module's input, and a float32 copy; with the sum, its own output twice."""
    found = named(around(way, returned=returned, adapter_dropout=drops))
    for name in ("q adapter A", "q adapter B"):
        assert numbers(found[name], "forward_temporary_bytes") == [waits]
    outputs = 2 * OUTPUTS * (4 if way == "wide" else 2)
    assert numbers(found["q adapter add"], "forward_temporary_bytes") == [waits + outputs]


def test_adapters_in_place_write_over_the_result_of_the_product() -> None:
    targets = dict.fromkeys(("q", "k", "v"), LowRank(RANK))
    kernels = Kernels(fused_qkv=False, adapters="in-place")
    inputs = replace(graph(LLAMA, Learning(False, targets), kernels, sequence=TOKENS, tp=TP), autocast=True)
    added = named(inputs)["q adapter add"]
    assert numbers(added, "forward_temporary_bytes", "forward_bytes") == [2 * OUTPUTS, 6 * OUTPUTS]


def test_magnitudes_take_the_norm_of_the_adapted_weight_in_every_forward() -> None:
    """peft dora.py: of a weight's element B A, copy, scaled, sum and norm; of an output its scaling by magnitudes."""
    n, k = OUTPUTS, INPUTS
    for way, size in (("wide", 4), ("base", 2)):
        op = named(around(way, magnitudes=True))["q adapter magnitudes"]
        weights = n * k * ((1 + 1 + 2 + 3 + 1) * size + 2) + 2 * k * k * size
        outputs = (2 + 2 + 2 + 3) * TOKENS * n * size
        found = [count * TOKENS for count in numbers(op, "forward_bytes", "backward_bytes")]
        assert found == pytest.approx([weights + outputs, outputs])
        assert numbers(op, "saved_bytes") == [n * (2 + size)]
        assert numbers(op, "temporary_bytes") == [pytest.approx((4 * n + k) * k * size / TOKENS)]
    weight = next(each for each in layer_weights(LLAMA, LLAMA.layer_kinds[0][0]) if each.name == "q")
    assert Adapter(LowRank(RANK, magnitudes=True), (weight,)).parameters == RANK * (4096 + 4096) + 4096
    assert not LowRank(RANK, magnitudes=True).joins


def test_a_delta_is_as_large_as_its_weight_and_its_gradient_goes_on() -> None:
    """x D^T beside x W^T; autograd keeps D in float32, of which only the gradient of x has need."""
    inputs = around("wide")
    block = Block(inputs, {}, 1.0)
    rows, outputs, columns = (np.array([float(size)]) for size in (TOKENS, OUTPUTS, INPUTS))
    product, added = Place(block, "q", "qkv", rows, outputs, columns).delta()
    assert isinstance(product, Matmul)
    assert (product.computed, product.learns) == (True, True)
    assert product.operand_bytes is not None
    assert product.operand_bytes.tolist() == [OUTPUTS * INPUTS * 4]
    assert product.saved_bytes.tolist() == [OUTPUTS * INPUTS * 4 + TOKENS * INPUTS * 4]
    assert (product.m.tolist(), product.n.tolist(), product.k.tolist()) == ([TOKENS], [OUTPUTS], [INPUTS])
    assert numbers(product, "forward_temporary_bytes") == [2 * OUTPUTS + 2 * INPUTS]
    assert added.name == "q adapter add"


def test_products_one_after_the_other_read_what_the_one_before_gave() -> None:
    """Three of them, over 8 and 16 columns, of which the second does not learn."""
    rows, outputs, columns = (np.array([float(size)]) for size in (TOKENS, OUTPUTS, INPUTS))
    place = Place(Block(around("wide"), {}, 1.0), "q", "qkv", rows, outputs, columns)
    chain = list(place.chain(8, 16, learns=(True, False, True)))
    assert [op.name for op in chain] == ["q adapter 1", "q adapter 2", "q adapter 3"]
    assert [(op.k.tolist(), op.n.tolist()) for op in chain] == [
        ([INPUTS], [8]), ([8], [16]), ([16], [OUTPUTS]),
    ]  # fmt: skip
    assert [numbers(op, "saved_bytes")[0] for op in chain] == [4 * INPUTS, 0, 4 * 16]
    assert [op.learns for op in chain] == [True, False, True]


def test_adapters_of_experts_are_grouped_and_one_for_each() -> None:
    """Six experts of a rank with 40 tokens each: products, and bytes of all of them."""
    rows, outputs, columns = (np.array([float(size)]) for size in (40, 96, 64))
    block = Block(around("base"), {}, 1.0)
    one = Place(block, "expert_up", "experts", rows, outputs, columns)
    each = replace(one, experts=np.array([6.0]))
    for alone, six in zip(LowRank(4).operators(one), LowRank(4).operators(each), strict=True):
        fields = ("saved_bytes", "forward_temporary_bytes", "copies", "forward_bytes", "backward_bytes")
        for field in (*fields, "temporary_bytes"):
            if hasattr(alone, field):
                assert np.asarray(getattr(six, field)).tolist() == (6 * np.asarray(getattr(alone, field))).tolist()
        if isinstance(six, Matmul):
            assert six.grouped
            assert six.m.tolist() == [40]
    first = next(iter(LowRank(4).operators(replace(each, block=Block(around("wide"), {}, 1.0)))))
    assert first.saved_bytes.tolist() == [6 * 40 * 64 * 4]


def test_each_expert_has_an_adapter_of_its_own() -> None:
    """Eight experts of 64 x 96 over four ranks; A that does not learn stands beside each of them."""
    experts = Weight("expert_up", "experts", "linear", 64, 96, copies=8, split="expert")
    form = LowRank(4, freezes_first=True)
    one = Adapter(form, (experts,))
    assert one.parameters == 8 * 4 * 96
    assert Adapter(LowRank(4), (experts,)).on_rank(np.ones(1), 4.0).tolist() == [2 * 4 * (64 + 96)]
    assert one.buffer_bytes(np.ones(1), 4.0).tolist() == [2 * 4 * 4 * 64]
    assert Adapter(LowRank(4), (experts,)).buffer_bytes(np.ones(1)).tolist() == [0]
    assert AdapterForm().buffer_bytes(96, 64) == 0
    assert (AdapterForm().matrices(96, 64), AdapterForm().joins) == ((), False)


def test_adapters_on_weights_side_by_side_have_the_outputs_of_all() -> None:
    """Queries of 4,096 and keys and values of 1,024 outputs with 8 shards at most: 16 ranks have 256 and 128 each."""
    weights = tuple(
        Weight(name, "qkv", "linear", 4096, outputs, split="column", shards=shards)
        for name, outputs, shards in (("q", 4096, None), ("k", 1024, 8), ("v", 1024, 8))
    )
    one = Adapter(LowRank(8), weights)
    n, k = one.shard(np.array([1.0, 16.0]))
    assert (n.tolist(), k.tolist()) == ([4096 + 2048, 256 + 2 * 128], [4096, 4096])
    assert one.matrices == ((8, 4096), (6144, 8))
    rows = Adapter(LowRank(8), (Weight("o", "output_projection", "linear", 4096, 512, split="row"),))
    n, k = rows.shard(np.array([1.0, 16.0]))
    assert (n.tolist(), k.tolist()) == ([512, 512], [4096, 256])
