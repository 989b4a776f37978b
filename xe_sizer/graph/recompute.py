"""What selective recomputation runs again of a layer, and what is kept for it: by operator, by module, or by tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from msgspec.structs import replace

from xe_sizer.graph.operators import Attention, Collective, Matmul, MemoryBound, Scan

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from xe_sizer.graph.inputs import GraphInputs
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.graph.operators import Array, Operator

RecomputeModule = Literal["core_attn", "mlp", "moe", "moe_act", "layernorm", "mla_up_proj", "shared_experts"]
RECOMPUTE_MODULES: tuple[RecomputeModule, ...] = get_args(RecomputeModule)
LayerTensor = Literal[
    "decoder_layer_input", "query_proj", "key_proj", "value_proj", "qkv_proj", "context", "out_proj", "mlpwi",
    "mlpwi_0", "mlpwi_1", "mlpwo", "moe_mlpwi_0", "moe_mlpwi_1", "moe_mlpwo",
]  # fmt: skip
LAYER_INPUT = "decoder_layer_input"
ALTERNATE = "alternate"
_CORE = ("attention", "windowed attention", "indexer", "picked mask", "repeated keys and values")
_EXCHANGES = ("context exchange", "sequence for heads", "heads for sequence")
_UP = ("q up", "kv up", "q latent norm", "kv latent norm", "rotary")
_REGION = ("experts input", "experts output")
_OUTSIDE = ("mlp norm", "mlp residual", "post-mlp norm")
_AFTER_NORMS = ("q", "q down", "router", "shared expert gate and up")


def find_modules(model: ModelShape) -> tuple[RecomputeModule, ...]:
    """Find the modules of RECOMPUTE_MODULES that a model has, so that recomputing them changes something.

        modules = those whose operators are in some layer of the model

    Parameters
    ----------
    model : its kinds of layers, and whether its attention is latent

    Returns
    -------
    tuple of names

    Source: recompute_modules of Megatron-Core (core/transformer/transformer_config.py).
    """
    experts, latent = model.experts, model.latent_attention is not None
    dense = any(kind.mlp and kind.mlp != "experts" for kind, _ in model.layer_kinds)
    has = {
        "core_attn": any(kind.attends for kind, _ in model.layer_kinds),
        "mlp": dense,
        "moe": experts is not None,
        "moe_act": experts is not None,
        "layernorm": latent or experts is not None,
        "mla_up_proj": latent,
        "shared_experts": experts is not None and experts.shared_ffn > 0,
    }
    return tuple(module for module in RECOMPUTE_MODULES if has[module])


def with_recomputation(operators: Sequence[Operator], inputs: GraphInputs) -> tuple[Operator, ...]:
    """A layer's operators, each with what selective recomputation runs again and does not keep of it.

        again = 1 for operators of the modules, dropped = their saved bytes but for the input of each module

        attention, core_attn   attention and what context ranks exchange for it run again; statistics are not kept
        alternate              every second matrix product of a layer, experts, the router, and all that only moves
                               memory; kept: the layer's input, outputs of the other products and of attention
        mlp, moe               the dense MLP with its norm, or router and experts; their input is kept
        shared_experts         these, and how tensor ranks gather tokens for them; their input is kept
        moe_act                the activation of experts, whose output is not kept
        layernorm              norms apart from products, before latent attention and experts: their output is not kept
        mla_up_proj            the way up from latents to heads; queries, keys and values are not kept
        tensors by name        all but the products and attention whose results are kept, on the card or in host memory,
                               and what stands behind the last product; the layer's input is kept

    Parameters
    ----------
    operators : of one kind of layer, in forward order; sizes broadcast to shape (rank shape,)
    inputs : of the graph; `kernels.selective` says what is selected, `kernels.kept` and `hosted` what is kept

    Returns
    -------
    tuple of Operator with `again` [-] and `dropped_bytes` [bytes] of one layer, which broadcast to shape (rank shape,)

    Source: Korthikanti et al. 2022 (arXiv:2205.05198) for the attention core; TorchTitan's selective checkpointing by
    operator (arXiv:2410.06511; distributed/activation_checkpoint.py, whose list has no grouped products, and by default
    not the router's; compiled layers do the same, as PyTorch's partitioner saves none that a policy prefers to
    recompute: _functorch/partitioners.py, must_recompute); recompute_modules of Megatron-Core
    (core/transformer/transformer_config.py), whose fused modules keep their norm inside the product behind it
    (models/gpt/gpt_layer_specs.py); the names of MaxText's remat policies (layers/decoders.py, get_remat_policy;
    checkpoint_name in layers/attentions.py, linears.py and moe.py), under which XLA computes nothing that no gradient
    needs.
    """
    selective = inputs.kernels.selective
    if inputs.kernels.stops_early:
        operators = tuple(_stopped(operators))
    if inputs.kernels.kept is not None or inputs.kernels.hosted is not None:
        return tuple(_kept_by_name(operators, inputs))
    if selective == ALTERNATE:
        return tuple(_alternate(operators, inputs))
    modules = ("core_attn",) if isinstance(selective, str) else selective
    names = frozenset(op.name for op in operators)
    again: set[str] = set()
    dropped: dict[str, Array] = {}
    for module in modules:
        runs, without = _MODULES[module](operators, names, inputs)
        again |= runs
        dropped |= {name: size + dropped.get(name, 0.0) for name, size in without.items()}
    return tuple(
        replace(op, again=float(op.name in again), dropped_bytes=np.minimum(dropped.get(op.name, 0.0), op.saved_bytes))
        if op.name in again or op.name in dropped
        else op
        for op in operators
    )


def _stopped(operators: Sequence[Operator]) -> Iterator[Operator]:
    """A layer that runs again until all is there that autograd saves of it.

    A product saves its inputs before it runs, so the last one does not, nor what comes after and saves nothing.

    Source: PyTorch utils/checkpoint.py (set_checkpoint_early_stop, _StopRecomputationError in the hook that packs the
    last tensor). Of a small Llama the FLOPs that run again are 0.78 of the layers' forward, by PyTorch's counter.
    """
    saves = [isinstance(op, Matmul | Attention | Scan) or bool(np.any(op.saved_bytes > 0)) for op in operators]
    last = max((place for place, has in enumerate(saves) if has), default=len(operators))
    for place, op in enumerate(operators):
        beyond = place > last or (place == last and isinstance(op, Matmul))
        yield replace(op, unneeded=True) if beyond else op


def _alternate(operators: Sequence[Operator], inputs: GraphInputs) -> Iterator[Operator]:
    """Outputs that are kept stand in place of what the operators behind them would keep of their inputs."""
    products, before = 0, inputs.residual_bytes
    for op in operators:
        again, kept = 0.0, inputs.zeros
        if isinstance(op, Attention):
            kept = op.statistics_bytes + op.batch * op.heads * op.query * op.v_head_dim * inputs.element_bytes
        elif isinstance(op, Matmul):
            counted = not (op.grouped or op.name == "router")
            products += counted
            again = float(not counted or products % 2 == 0)
            kept = np.asarray((1.0 - again) * op.m * op.n * op.copies * inputs.element_bytes)
        elif isinstance(op, MemoryBound | Scan):
            again = 1.0
        yield replace(op, again=again, dropped_bytes=op.saved_bytes - kept - before)
        before = inputs.zeros


# Names of the result of each product; queries and keys get theirs when they are turned.
_RESULTS: Mapping[str, tuple[str, ...]] = {
    "q": ("query_proj",),
    "k": ("key_proj",),
    "v": ("value_proj",),
    "qkv": ("qkv_proj",),
    "q up": ("query_proj",),
    "kv up": ("key_proj", "value_proj"),
    "output projection": ("out_proj",),
    "gate": ("mlpwi_0",),
    "up": ("mlpwi_1", "mlpwi"),
    "gate and up": ("mlpwi",),
    "down": ("mlpwo",),
    "expert gate": ("moe_mlpwi_0", "mlpwi_0"),
    "expert up": ("moe_mlpwi_1", "mlpwi_1"),
    "expert gate and up": ("moe_mlpwi_0", "mlpwi_0"),
    "expert down": ("moe_mlpwo", "mlpwo"),
    "shared expert gate and up": ("mlpwi_0",),
    "shared expert down": ("mlpwo",),
}
_CONTEXT, _TURNED = ("context",), ("qk norm", "rotary")
_SUMMED = ("output projection", "down")  # over tensor ranks, and then split as the hidden state is


def _kept_by_name(operators: Sequence[Operator], inputs: GraphInputs) -> Iterator[Operator]:
    """Results that are kept stand in place of what the operators behind them would keep of their inputs.

    What only hands a kept result on to other ranks does not run again. A result that no gradient needs is not kept:
    that of the last product, unless a norm or a sum over experts behind it reads it.
    """
    kept, hosted = frozenset(inputs.kernels.kept or ()), frozenset(inputs.kernels.hosted or ())
    whole = all(set(_RESULTS[name]) & (kept | hosted) for name in ("q", "k"))
    products = [place for place, op in enumerate(operators) if isinstance(op, Matmul)]
    last = max(products, default=len(operators))
    saves = [place for place, op in enumerate(operators) if np.any(op.saved_bytes > 0)]
    first, behind = True, False
    for place, op in enumerate(operators):
        size, names = _result(op, inputs)
        size = size * float(place < max(saves, default=0))
        on_card, on_host = bool(kept.intersection(names)), bool(hosted.intersection(names))
        held = on_card or on_host
        behind = held or (behind and isinstance(op, Collective))
        needed = place < last and not behind and not (whole and op.name in _TURNED)
        input_on_host = first and LAYER_INPUT in hosted
        stays = size * float(on_card) + inputs.residual_bytes * float(first and not input_on_host)
        waits = size * float(on_host) + inputs.residual_bytes * float(input_on_host)
        first = False
        yield replace(op, again=float(needed), dropped_bytes=op.saved_bytes - stays, hosted_bytes=waits)


def _result(op: Operator, inputs: GraphInputs) -> tuple[Array, tuple[str, ...]]:
    """What a product or attention returns [bytes], and the names under which it may be kept."""
    if isinstance(op, Attention):
        output = op.batch * op.heads * op.query * op.v_head_dim * inputs.element_bytes
        return np.asarray(op.statistics_bytes + output), _CONTEXT
    if op.name in _SUMMED:
        return np.asarray(inputs.residual_bytes), _RESULTS[op.name]
    if isinstance(op, Matmul) and not op.adapter:
        return np.asarray(op.m * op.n * op.copies * inputs.element_bytes), _RESULTS.get(op.name, ())
    return inputs.zeros, ()


Chosen = tuple[frozenset[str], "Mapping[str, Array]"]
"""Names of the operators that run again, and what is not kept of each [bytes]."""


def _all_of(operators: Sequence[Operator], names: frozenset[str], but: str | None = None) -> Mapping[str, Array]:
    return {op.name: op.saved_bytes for op in operators if op.name in names and op.name != but}


def _core_attention(operators: Sequence[Operator], names: frozenset[str], inputs: GraphInputs) -> Chosen:
    cores = {op.name: op.statistics_bytes for op in operators if isinstance(op, Attention)}
    return names & {*_CORE, *_EXCHANGES, *cores}, cores


def _dense(operators: Sequence[Operator], names: frozenset[str], inputs: GraphInputs) -> Chosen:
    if "mlp input" not in names:
        return frozenset(), {}
    inside = _between(operators, "mlp input", "mlp residual")
    norm = names & {"mlp norm"}
    kept = next(iter(norm), None) or next(op.name for op in operators if op.name in inside and isinstance(op, Matmul))
    return inside | norm, _all_of(operators, inside | norm, kept)


def _experts(operators: Sequence[Operator], names: frozenset[str], inputs: GraphInputs) -> Chosen:
    if "router" not in names:
        return frozenset(), {}
    inside = _between(operators, "experts input", "mlp residual")
    return inside, _all_of(operators, inside, "router")


def _between(operators: Sequence[Operator], first: str, last: str) -> frozenset[str]:
    """Names from the first one on until the last, which is not one of them, and but for norms behind."""
    order = [op.name for op in operators]
    end = order.index(last) if last in order else len(order)
    return frozenset(order[order.index(first) : end]) - {*_OUTSIDE}


def _shared_experts(operators: Sequence[Operator], names: frozenset[str], inputs: GraphInputs) -> Chosen:
    shared = frozenset(name for name in names if name.startswith("shared expert"))
    if not shared:
        return frozenset(), {}
    return shared | (names & {*_REGION}), _all_of(operators, shared, "shared expert gate and up")


def _experts_activation(operators: Sequence[Operator], names: frozenset[str], inputs: GraphInputs) -> Chosen:
    return names & {"expert activation"}, _all_of(operators, names & {"expert down"})


def _norms(operators: Sequence[Operator], names: frozenset[str], inputs: GraphInputs) -> Chosen:
    """Products with a norm of their own in front keep its output, and it is computed in the product's kernel."""
    latent, routed = "kv latent norm" in names, "router" in names
    runs = ({"input norm"} if latent else set()) | ({"mlp norm"} if routed else set())
    readers = {name for name in _AFTER_NORMS if (latent if name.startswith("q") else routed)}
    return names & runs, _all_of(operators, names & readers)


def _latent_up(operators: Sequence[Operator], names: frozenset[str], inputs: GraphInputs) -> Chosen:
    if "kv latent norm" not in names:
        return frozenset(), {}
    e, model = inputs.element_bytes, inputs.model
    dropped = dict(_all_of(operators, names & {"q up", "kv up"}))
    for op in operators:
        if isinstance(op, Attention) and op.v_head_dim:
            output = op.batch * op.heads * op.query * model.v_head_dim * e
            dropped[op.name] = np.maximum(op.saved_bytes - op.statistics_bytes - output, 0.0)
    return names & {*_UP}, dropped


_MODULES = {
    "core_attn": _core_attention,
    "mlp": _dense,
    "moe": _experts,
    "moe_act": _experts_activation,
    "layernorm": _norms,
    "mla_up_proj": _latent_up,
    "shared_experts": _shared_experts,
}


def recomputed_exchanges(operators: Sequence[Operator]) -> tuple[Collective, ...]:
    """Find the exchanges that selective recomputation runs again.

        exchanges = those of the operators that are collectives, again > 0

    Parameters
    ----------
    operators : of the layers, as `with_recomputation` leaves them

    Returns
    -------
    tuple of Collective; messages of shape (rank shape,) [bytes]

    Source: checkpointed modules of Megatron-Core exchange tokens and sequences once more in their forward.
    """
    return tuple(op for op in operators if isinstance(op, Collective) and op.again)
