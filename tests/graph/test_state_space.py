"""State-space mixers: which layers a pattern makes, what a scan costs, and what a hybrid saves over attention."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from cases import GPT, REGISTRY, graph
from msgspec.structs import replace

from xe_sizer.graph.inputs import Learning, LowRank, model_adapters
from xe_sizer.graph.model import LayerKind, ModelShape, SharedBlocks, StateSpace
from xe_sizer.graph.operators import Attention, Collective, Kernels, Matmul, MemoryBound, Operator, Scan
from xe_sizer.graph.transformer import layer_operators
from xe_sizer.graph.weights import count_parameters, layer_weights
from xe_sizer.profiles.catalogue import load_stack
from xe_sizer.serving.job import ReplicaLayouts
from xe_sizer.serving.memory import sequence_bytes, state_bytes
from xe_sizer.software.adapter_targets import resolve_targets
from xe_sizer.software.number_formats import format_of

ALL = Learning(True)


def test_a_pattern_of_single_blocks_names_every_layer() -> None:
    kinds = dict(REGISTRY.model("nemotron-h-8b").layer_kinds)
    assert kinds == {LayerKind("state-space", None): 24, LayerKind(None, "dense"): 24, LayerKind("attention", None): 4}


def test_experts_in_every_second_layer_fall_between_the_mixers() -> None:
    """Jamba: attention in layers 4, 12, 20 and 28, experts in the odd ones, so attention is never beside experts."""
    kinds = dict(REGISTRY.model("jamba-v0.1").layer_kinds)
    assert kinds[LayerKind("attention", "dense")] == 4
    assert kinds[LayerKind("state-space", "experts")] == 16
    assert LayerKind("attention", "experts") not in kinds


@pytest.mark.parametrize("name", ["mamba2-2.7b", "qwen3-next-80b-a3b", "nemotron-3-super"])
def test_a_scan_grows_with_the_tokens_and_attention_with_their_square(name: str) -> None:
    model = REGISTRY.model(name)
    short, long = (layer_operators(graph(model, ALL, sequence=s)) for s in (4096, 8192))

    def flops(operators: tuple[object, ...], kind: type[Scan | Attention]) -> float:
        return sum(float((op.layers * op.forward_flops).sum()) for op in operators if isinstance(op, kind))

    assert flops(long, Scan) == pytest.approx(2 * flops(short, Scan), rel=1e-12)
    if flops(short, Attention):
        assert flops(long, Attention) == pytest.approx(4 * flops(short, Attention), rel=1e-3)


def test_scan_of_mamba_2_by_hand() -> None:
    """A chunk of 128 and a head of 64 with 128 states: 2 x 128 x 64 (128 + 128 + 128) FLOPs, and 2 x 128^3 a group."""
    model = REGISTRY.model("mamba2-2.7b")
    (scan,) = (op for op in layer_operators(graph(model, ALL, sequence=1024)) if isinstance(op, Scan))
    assert float(scan.forward_flops[0]) == 8 * (80 * 2 * 128 * 64 * 3 * 128 + 2 * 128**3)


@pytest.mark.parametrize(
    ("name", "states"),
    [("mamba-2.8b", 5120 * 16), ("mamba2-2.7b", 5120 * 128), ("qwen3-next-80b-a3b", 32 * 128 * 128)],
)
def test_decoding_reads_and_writes_every_state_once(name: str, states: int) -> None:
    """Channels x state rows in float32: inner width 5120 with 16 or 128 states; 32 value heads of 128 x 128."""
    decoding = graph(REGISTRY.model(name), ALL, Kernels(attention="decode"), batch=3, sequence=1, past=5000)
    found = [op for op in layer_operators(decoding) if op.name == "scan"]
    assert not any(isinstance(op, Scan) for op in found)
    assert [float(op.forward_bytes[0]) for op in found if isinstance(op, MemoryBound)] == [2 * 4 * 3 * states]


def test_tensor_parallel_ranks_share_the_mixer() -> None:
    model = REGISTRY.model("nemotron-h-8b")

    def flops(tp: int) -> float:
        operators = layer_operators(graph(model, ALL, tp=tp, expert_tp=tp))
        return sum(float((op.layers * op.forward_flops).sum()) for op in operators if isinstance(op, Matmul))

    assert 8 * flops(8) == pytest.approx(flops(1), rel=1e-12)


def test_latent_experts_work_in_their_narrow_space() -> None:
    model = REGISTRY.model("nemotron-3-super")
    assert model.experts is not None
    wide = replace(model, experts=replace(model.experts, latent=None))

    def sent(shape: object) -> float:
        operators = layer_operators(graph(shape, ALL, ep=8))
        messages = [op.forward[0][1] for op in operators if op.name == "expert dispatch"]
        return float(np.sum(messages))

    assert sent(wide) == pytest.approx(4 * sent(model), rel=1e-12)


def test_adapters_sit_on_the_mixer_too() -> None:
    assert {"in", "out"} <= set(resolve_targets(REGISTRY.model("nemotron-h-8b"), ["all-linear"]))


def test_kernels_apart_copy_their_parts() -> None:
    """Nemotron-H 8B: values and gate, inputs and outputs of the state pass eight times, and ten times back."""
    model = REGISTRY.model("nemotron-h-8b")
    assert model.state_space is not None
    fused, copied = (
        {op.name: op for op in layer_operators(graph(model, ALL, Kernels(mixer=way)))} for way in ("fused", "copied")
    )
    copies = copied["mixer copies"]
    assert isinstance(copies, MemoryBound)
    width = 512 * (model.state_space.inner + model.state_space.mixed_channels) * 2
    assert (copies.forward_bytes[0], copies.backward_bytes[0]) == (8 * width, 10 * width)
    assert "mixer copies" not in fused
    assert load_stack("megatron-bridge@26.04").kernels.mixer == "copied"
    assert load_stack("megatron-bridge").kernels.mixer == "fused"


@pytest.mark.parametrize(("name", "sizes"), [
    ("qwen3-next-80b-a3b", {"projection in": (1, 12288), "step size": (1, 64)}),
    ("qwen3.5-397b-a17b", {"projection in": (2, 10240), "step size": (2, 64)}),
])  # fmt: skip
def test_delta_nets_project_their_input_as_their_reference_does(name: str, sizes: dict[str, tuple[int, int]]) -> None:
    """Qwen3-Next: qkvz of 2 x 16 x 128 + 2 x 32 x 128 outputs, ba of 2 x 32; Qwen3.5: qkv, z, b and a apart.

    The four of Qwen3.5 have 12,288, 8,192, 64 and 64 outputs; pairs are taken as two of their mean.
    """
    model = REGISTRY.model(name)
    found = {op.name: op for op in layer_operators(graph(model, Learning(False))) if isinstance(op, Matmul)}
    for product, (copies, outputs) in sizes.items():
        assert (found[product].copies[0], found[product].n[0]) == (copies, outputs)
        assert found[product].apart == (copies > 1)


def test_norms_of_mamba_ssm_are_one_kernel_with_the_sum_before_them_whatever_the_stack_does() -> None:
    """The tensor is read and written, once more for the sum; the RMS norm of transformers moves it 18 times."""
    eager = Kernels(norm="eager")
    own, others = REGISTRY.model("blackmamba-2.8b"), replace(REGISTRY.model("blackmamba-2.8b"), fused_norms=False)
    mine, theirs = ({op.name: op for op in layer_operators(graph(each, ALL, eager))} for each in (own, others))
    assert isinstance(mine["input norm"], MemoryBound)
    assert isinstance(theirs["input norm"], MemoryBound)
    assert theirs["input norm"].forward_bytes == pytest.approx(9 * mine["input norm"].forward_bytes)
    assert mine["state space residual"].forward_bytes == pytest.approx(
        theirs["state space residual"].forward_bytes * 2 / 3
    )
    assert float(np.max(mine["state space residual"].forward_launches)) == 0
    assert float(np.max(theirs["input norm"].forward_launches)) == 8


# A layer of each kind by hand, on 2 tensor-parallel ranks: 300 tokens in two sequences of 150.

TOKENS, TP = 300, 2
MAMBA_1 = StateSpace("mamba-1", inner=96, state=16, dt_rank=12)
MAMBA_2 = StateSpace("mamba-2", inner=96, state=16, heads=12, head_dim=8, groups=4)
DELTA_NET = StateSpace("gated-delta-net", inner=96, state=10, heads=12, head_dim=8, key_heads=6, key_head_dim=10)


def layer(space: StateSpace, kernels: Kernels | None = None, **changes: object) -> dict[str, Operator]:
    model = replace(GPT, layers=1, layer_pattern="M", state_space=space, norms_per_layer=2)
    sizes = {"batch": 2, "sequence": 150, "tp": TP, **changes}
    return {op.name: op for op in layer_operators(graph(model, ALL, kernels, **sizes))}


def moved(op: Operator) -> tuple[float, ...]:
    assert isinstance(op, MemoryBound)
    sides = (op.forward_bytes, op.backward_bytes, op.forward_launches, op.backward_launches, op.saved_bytes)
    return tuple(float(np.sum(size)) for size in sides)


def sizes(op: Operator) -> tuple[float, ...]:
    assert isinstance(op, Matmul)
    return tuple(float(np.sum(size)) for size in (op.m, op.n, op.k, op.saved_bytes))


@pytest.mark.parametrize(("space", "mixed"), [(MAMBA_1, 96), (MAMBA_2, 96 + 2 * 4 * 16), (DELTA_NET, 96 + 2 * 6 * 10)])
def test_convolution_and_gate_are_a_kernel_each_way(space: StateSpace, mixed: int) -> None:
    """Read and write what is mixed, twice as much back; read values and gate and write, twice as much back.

    Fused kernels keep what the projection returned; the gate and the last product keep their inputs.
    """
    found = layer(space)
    assert space.mixed_channels == mixed
    channels, inner = TOKENS * mixed / TP * 2, TOKENS * 96 / TP * 2
    assert moved(found["convolution"]) == (2 * channels, 4 * channels, 1, 2, channels + inner)
    assert moved(found["gate"]) == (3 * inner, 6 * inner, 1, 2, inner)
    assert sizes(found["projection out"]) == (TOKENS, 1024, 96 / TP, inner)
    width = {"mamba-1": 2 * 96, "mamba-2": 96 + mixed + 12, "gated-delta-net": 96 + mixed}[space.kind]
    assert sizes(found["projection in"]) == (TOKENS, width / TP, 1024, TOKENS * 1024 * 2)


def test_mamba_1_walks_token_by_token_and_sums_the_step_sizes_of_all_channels() -> None:
    found, inner = layer(MAMBA_1), TOKENS * 96 / TP * 2
    assert moved(found["scan"]) == (8 * inner, 20 * inner, 1, 2, inner)
    assert sizes(found["state projection"]) == (TOKENS, 12 + 2 * 16, 96 / TP, inner)
    assert sizes(found["step size"]) == (TOKENS, 96 / TP, 12, TOKENS * 12 * 2)
    summed = found["state projection exchange"]
    assert isinstance(summed, Collective)
    message = [("all_reduce", [TOKENS * (12 + 2 * 16) * 2])]
    for side in (summed.forward, summed.backward):
        assert [(kind, size.tolist()) for kind, size in side] == message


@pytest.mark.parametrize(("space", "chunk"), [(MAMBA_2, 128), (DELTA_NET, 64)])
def test_chunks_pass_their_states_on(space: StateSpace, chunk: int) -> None:
    """150 tokens of 2 sequences in chunks: a state of rows x head in float32 for every head of a rank and chunk."""
    chunks = TOKENS / chunk
    one = layer(space)["scan"]
    assert isinstance(one, Scan)
    states = chunks * 12 / TP * space.state * 8 * 4
    assert one.state_bytes.tolist() == one.saved_bytes.tolist() == [states]
    half = layer(space, cp=2)["scan"]
    assert isinstance(half, Scan)
    assert half.forward_flops.tolist() == pytest.approx((one.forward_flops / 2).tolist())
    assert half.state_bytes.tolist() == [states / 2]
    short = layer(space, sequence=32)["scan"]  # one chunk a sequence
    assert isinstance(short, Scan)
    assert short.state_bytes.tolist() == [2 * 12 / TP * space.state * 8 * 4]


def test_products_of_a_delta_net_by_hand() -> None:
    """Of chunk c, keys n, values p: c c n twice, c n c, c p c twice, c p n twice, n p c; for every head."""
    c, n, p = 64, 10, 8
    one = layer(DELTA_NET)["scan"]
    assert isinstance(one, Scan)
    each = 2 * (2 * c * c * n + c * n * c + 2 * c * p * c + 2 * c * p * n + n * p * c)
    assert one.forward_flops.tolist() == pytest.approx([each * TOKENS / c * 12 / TP])


def test_groups_of_mamba_2_are_copied_where_there_are_fewer_than_ranks() -> None:
    c, n, p, chunks = 128, 16, 8, TOKENS / 128
    for tp, groups, heads in ((1, 4, 12), (2, 2, 6), (4, 1, 3), (12, 1, 1)):
        one = layer(MAMBA_2, tp=tp)["scan"]
        assert isinstance(one, Scan)
        each = 2 * (c * c * n * groups + (c * p * c + p * n * c + c * p * n) * heads)
        assert one.forward_flops.tolist() == pytest.approx([each * chunks])


@pytest.mark.parametrize(("space", "rows"), [(MAMBA_1, 16), (MAMBA_2, 16), (DELTA_NET, 10)])
def test_a_decode_reads_and_writes_the_states_of_all_sequences(space: StateSpace, rows: int) -> None:
    states = 2 * 96 / TP * rows * 4
    assert moved(layer(space, Kernels(attention="decode"))["scan"]) == (2 * states, 0, 1, 0, 0)
    narrow = replace(space, state_dtype="bfloat16")
    assert moved(layer(narrow, Kernels(attention="decode"))["scan"]) == (states, 0, 1, 0, 0)


def test_context_ranks_pass_states_at_the_borders_of_their_parts() -> None:
    """A state of 16 rows for each channel, sequence and part, in float32: gathered, and summed back."""
    found = layer(MAMBA_2, cp=3)["context exchange"]
    assert isinstance(found, Collective)
    message = 2 * 3 * 96 / TP * 16 * 4
    for side, kind in ((found.forward, "all_gather"), (found.backward, "reduce_scatter")):
        assert [(name, size.tolist()) for name, size in side] == [(kind, [message])]


def test_copies_of_kernels_apart_are_of_mamba_2_alone() -> None:
    copied = Kernels(mixer="copied")
    width, mixed = TOKENS * (96 + 96 + 2 * 4 * 16) / TP * 2, TOKENS * (96 + 2 * 4 * 16) / TP * 2
    assert moved(layer(MAMBA_2, copied)["mixer copies"]) == (8 * width, 10 * width, 10, 11, mixed)
    assert "mixer copies" not in layer(DELTA_NET, copied)


def test_a_short_convolution_has_no_state_and_keeps_seven_widths_of_a_token() -> None:
    """Lfm2ShortConv of transformers 5.24, by saved_tensors_hooks: seven widths are kept.

    They are its input, the three of the projection, what is convolved, the result, and what the last product reads.
    """
    width, tokens, kernel = 512, 256, 3
    space = StateSpace("short-convolution", width, 0, kernel)
    model = replace(GPT, hidden=width, layers=1, layer_pattern="M", state_space=space, norms_per_layer=2)
    operators = [op for op in layer_operators(graph(model, ALL, sequence=tokens)) if op.module == "state_space"]
    kept = sum(float(op.saved_bytes[0]) for op in operators)
    assert kept == 7 * tokens * width * 2
    products = sum(float(op.forward_flops[0]) for op in operators if isinstance(op, Matmul))
    assert products == 2 * tokens * width * 4 * width
    weights = sum(w.parameters for w in layer_weights(model, model.layer_sequence[0]) if w.module == "state_space")
    assert weights == 4 * width**2 + kernel * width
    held = state_bytes(model, ReplicaLayouts.of(tp=[1, 2]))
    assert list(held) == [(kernel - 1) * width * 2, (kernel - 1) * width]


BOTH = StateSpace("mamba-2", inner=512, state=16, heads=8, head_dim=64, gate_norm=False)


def test_attention_and_a_mixer_on_one_input_are_both_there_behind_one_norm() -> None:
    """Falcon-H1: the operators of a layer with attention and of one with a mixer, one norm; a cache and a state."""
    alone, mixed = replace(GPT, layer_pattern=None), replace(GPT, layer_pattern="P" * GPT.layers, state_space=BOTH)
    mixer = replace(mixed, layer_pattern="M" * GPT.layers)

    def names(model: ModelShape) -> Counter[str]:
        return Counter(op.name for op in layer_operators(graph(model, ALL)))

    once = (names(alone) & names(mixer)) - Counter(["context exchange"])  # the norm, and all of the MLP
    assert names(mixed) == names(alone) + names(mixer) - once
    assert once["input norm"] == 1
    assert {"scan", "attention residual", "state space residual"} <= set(names(mixed))
    one = ReplicaLayouts.of(tp=[1])
    attending, both, states = (
        float(sequence_bytes(model, format_of("bf16"), 1024, one, 16)[0]) for model in (alone, mixed, mixer)
    )
    assert both == attending + states
    assert states == GPT.layers * (512 * 16 * 4 + (512 + 2 * 16) * 3 * 2)


LIGHTNING = StateSpace("lightning-attention", inner=512, state=64, conv_kernel=1, heads=8, head_dim=64, input_parts=2)


def test_lightning_attention_by_hand() -> None:
    """Chunks of 64, heads of 64: queries with keys, with values, into the state and out of it, 2 x 64^3 each.

    Its state is that of 8 heads of 64 x 64 in float32, without a window of a convolution.
    """
    model = replace(GPT, layer_pattern="M" * GPT.layers, state_space=LIGHTNING)
    operators = {op.name: op for op in layer_operators(graph(model, ALL, sequence=1024))}
    found = operators["scan"]
    assert isinstance(found, Scan)
    assert float(found.forward_flops[0]) == 1024 / 64 * 8 * 4 * 2 * 64**3
    # Keys and values once, all of both once more with the output, in 16 bit; a state a chunk written and read.
    assert float(found.moved_bytes[0]) == 1024 * 8 * (6 * 64 * 2 + 2 * 64 * 64 * 2 / 64)
    assert "activation" in operators
    assert "convolution" not in operators
    assert float(state_bytes(model, ReplicaLayouts.of(tp=[2]))[0]) == GPT.layers * 8 * 64 * 64 * 4 / 2


def product_flops(model: ModelShape) -> float:
    operators = (op for op in layer_operators(graph(model, ALL)) if isinstance(op, Matmul))
    return sum(float((op.layers * op.forward_flops).sum()) for op in operators)


def test_layers_that_share_weights_hold_them_once_and_compute_and_cache_each() -> None:
    """Four layers of two sets of weights: half of the elements, all of the products, and all of the cache."""
    own = replace(GPT, layers=4)
    shared = replace(own, shared_blocks=SharedBlocks(sets=2))

    assert product_flops(shared) == product_flops(own)
    counted, whole = count_parameters(shared), count_parameters(own)
    assert whole.total - counted.total == 2 * whole.layer_dense
    one = ReplicaLayouts.of(tp=[1])
    cached = [float(sequence_bytes(model, format_of("bf16"), 1024, one, 16)[0]) for model in (shared, own)]
    assert cached[0] == cached[1]
    assert (shared.most_stages, own.most_stages) == (1, 4)


def test_layers_that_run_one_module_have_one_adapter() -> None:
    """PEFT 0.21 on transformers 5.24: ALBERT has one LoRA of rank 4 on its query, Zamba2 one for each of its layers."""
    sharing = (SharedBlocks(sets=2), SharedBlocks(sets=2, tied=True))
    each = 4 * (GPT.hidden + GPT.heads * GPT.head_dim)
    for shared, adapters in zip(sharing, (2, 4), strict=True):
        model = replace(GPT, layers=4, shared_blocks=shared)
        found = [count * one.parameters for count, one in model_adapters(model, {"q": LowRank(4)})]
        assert found == [adapters * each]


def test_what_layers_add_to_shared_weights_is_their_own() -> None:
    """Two layers of a set: two products through a width of 8 on gate and up, q, k and v, and one behind the MLP."""
    plain = replace(GPT, layers=2, shared_blocks=SharedBlocks(sets=1))
    more = replace(plain, shared_blocks=SharedBlocks(1, mlp_rank=8, attention_rank=4, projection=True))
    hidden, query, key = GPT.hidden, GPT.heads * GPT.head_dim, GPT.kv_heads * GPT.head_dim
    ups = GPT.ffn * (2 if GPT.gated else 1)
    added = 8 * (hidden + ups) + 4 * (3 * hidden + query + 2 * key) + hidden**2
    assert count_parameters(more).total - count_parameters(plain).total == 2 * added

    inputs = graph(plain, ALL)
    assert product_flops(more) - product_flops(plain) == pytest.approx(
        2 * 2 * added * float(inputs.rank.tokens[0]), rel=1e-12
    )
