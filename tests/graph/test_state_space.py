"""State-space mixers: which layers a pattern makes, what a scan costs, and what a hybrid saves over attention."""

from __future__ import annotations

import numpy as np
import pytest
from cases import REGISTRY, graph
from msgspec.structs import replace

from xe_sizer.graph.inputs import Learning
from xe_sizer.graph.model import LayerKind
from xe_sizer.graph.operators import Attention, Kernels, Matmul, MemoryBound, Scan
from xe_sizer.graph.transformer import layer_operators
from xe_sizer.profiles.catalogue import load_stack
from xe_sizer.software.adapter_targets import resolve_targets

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
    assert float(np.max(theirs["input norm"].forward_launches)) == 7
