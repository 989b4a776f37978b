"""Where low-rank adapters sit: the projections of a model by the names that frameworks give to them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from xe_sizer.errors import InputError, Problem, did_you_mean
from xe_sizer.graph.model import VOCABULARY
from xe_sizer.graph.weights import FUSED, HEAD, adapted_weights, layer_weights

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.graph.weights import Weight

ALL_LINEAR = "all-linear"
# Names that frameworks give to the same projections.
SYNONYMS = {
    "q_proj": "q", "k_proj": "k", "v_proj": "v", "o_proj": "o", "out_proj": "o", "dense": "o", "attention_dense": "o",
    "query": "q", "key": "k", "value": "v", "linear_qkv": "qkv", "attention_qkv": "qkv", "query_key_value": "qkv",
    "qkv_proj": "qkv", "c_attn": "qkv", "wqkv": "qkv", "linear_proj": "o", "gate_proj": "gate", "up_proj": "up",
    "gate_up_proj": "gate_up", "linear_fc1": "gate_up",
    "down_proj": "down", "fc1": "up", "fc2": "down", "linear_fc2": "down", "dense_h_to_4h": "up",
    "dense_4h_to_h": "down", "wi": "gate_up", "wi_0": "gate", "wi_1": "up", "wo": "down", "q_lin": "q", "k_lin": "k",
    "v_lin": "v", "out_lin": "o", "lin1": "up", "lin2": "down", "intermediate.dense": "up",
    "lm_head": "head", "embed_out": "head", "output_layer": "head",
    "attention.output.dense": "o", "attn.c_proj": "o", "mlp.c_proj": "down", "w1": "gate", "w2": "down", "w3": "up",
}  # fmt: skip
# What they are in mixtures, as in Mixtral's checkpoints, and in the first Qwen, which activates its w2.
OF_EXPERTS = {"w1": "expert_gate", "w2": "expert_down", "w3": "expert_up", "gate": "router"}
OF_FAMILIES = {"qwen": {"w1": "up", "w2": "gate"}}
GROUPS = {
    "attention": ("q", "k", "v", "o", "q_down", "q_up", "kv_down", "kv_up"),
    "mlp": ("gate", "up", "down"),
    "experts": ("expert_gate", "expert_up", "expert_down"),
}
CROSS = "cross_"  # before the names of projections of the attention to an encoder, which classes call as its own


def _linear(model: ModelShape) -> tuple[Weight, ...]:
    """Linear weights of the layers that adapters can sit on, those of routers and experts too, each once."""
    weights = {
        weight.name: weight
        for kind, _ in model.layer_kinds
        for weight in layer_weights(model, kind)
        if weight.kind == "linear"
    }
    return tuple(weights.values())


def _as_stored(model: ModelShape, names: Iterable[str]) -> list[str]:
    """The names, with one adapter for the projections that the model stores as one matrix (peft wraps modules)."""
    stored = list(names)
    for whole in model.fused:
        first, *others = FUSED[whole]
        if {first, *others} <= set(stored):
            stored = [whole if name == first else name for name in stored if name not in others]
    return stored


def resolve_targets(model: ModelShape, targets: Iterable[str], *, head: bool = False) -> tuple[str, ...]:
    """Canonical names of the projections that get an adapter, in the order of the layer.

    Accepts the frameworks' names (q_proj, c_attn, ...), the groups `attention`, `mlp`, `experts` and `all-linear`,
    which leaves experts out as frameworks do, and the fused `qkv` and `gate_up`. A group takes what the model stores as
    one matrix as one. A projection of attention is also that of the attention to an encoder, where there is one.

    head : whether the matrix of the vocabulary may have an adapter, where it is named

    Raises
    ------
    InputError : a target that the model does not have
    """
    linear = _linear(model)
    named = tuple(weight.name for weight in linear)
    known = tuple(weight.name for weight in linear if weight.split != "expert" and weight.module != "router")
    of_experts = OF_EXPERTS if "expert_gate" in named and "gate" not in named else {}
    synonyms = SYNONYMS | of_experts | OF_FAMILIES.get(model.family.partition("-")[0], {})
    if head and model.head == VOCABULARY:
        named = (*named, HEAD)
    chosen: list[str] = []
    problems = []
    for target in targets:
        name = synonyms.get(target.lower(), target.lower())
        if name == "gate_up" and not model.gated:
            name = "up"
        if name == ALL_LINEAR:
            chosen += _as_stored(model, known)
        elif members := [member for member in GROUPS.get(name, ()) if member in named]:
            chosen += _as_stored(model, members)
        elif set(adapted_weights(name)) <= set(named):
            chosen.append(name)
        else:
            hint = did_you_mean(name, (*known, *GROUPS, *SYNONYMS, *FUSED, ALL_LINEAR))
            problems.append(
                Problem(
                    f"'{target}' is not a projection of {model.name}",
                    hint=hint or f"it has {', '.join(named)}",
                )
            )
    if problems:
        raise InputError(problems)
    chosen += [CROSS + name for name in chosen if CROSS + name in known]
    return tuple(sorted(dict.fromkeys(chosen), key=lambda name: named.index(adapted_weights(name)[0])))
