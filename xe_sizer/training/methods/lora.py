"""LoRA and QLoRA: low-rank adapters beside frozen weights.

LoRA: Hu et al. 2021, arXiv:2106.09685. QLoRA: Dettmers et al. 2023, arXiv:2305.14314.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from xe_sizer.errors import InputError, Problem, did_you_mean
from xe_sizer.graph.inputs import Learning
from xe_sizer.graph.parameters import FUSED, adapted_weights, layer_weights
from xe_sizer.training.methods.method import EMBEDDING, HEAD, Method, register

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.training.methods.method import MethodKind, MethodOptions

# Names that frameworks give to the same projections.
SYNONYMS = {
    "q_proj": "q", "k_proj": "k", "v_proj": "v", "o_proj": "o", "out_proj": "o", "dense": "o", "attention_dense": "o",
    "query": "q", "key": "k", "value": "v", "linear_qkv": "qkv", "attention_qkv": "qkv", "query_key_value": "qkv",
    "qkv_proj": "qkv", "c_attn": "qkv", "wqkv": "qkv", "linear_proj": "o", "gate_proj": "gate", "up_proj": "up",
    "gate_up_proj": "gate_up", "linear_fc1": "gate_up",
    "down_proj": "down", "fc1": "up", "fc2": "down", "linear_fc2": "down", "dense_h_to_4h": "up",
    "dense_4h_to_h": "down",
}  # fmt: skip
GROUPS = {
    "attention": ("q", "k", "v", "o", "q_down", "q_up", "kv_down", "kv_up"),
    "mlp": ("gate", "up", "down"),
}
# Names that frameworks give to what may learn beside adapters (modules_to_save of peft).
ENDS = (EMBEDDING, HEAD)
ENDS_IN_WORDS = {
    **dict.fromkeys(("embed_tokens", "embedding", "wte", "word_embeddings", "embed_in", "tok_embeddings"), EMBEDDING),
    **dict.fromkeys(("lm_head", "head", "embed_out", "output", "output_layer"), HEAD),
}
# What LoRA's authors and users fall back to: attention alone, and in it queries and values.
NARROWER = (("attention", ("attention",)), ("q and v", ("q", "v")))


def _linear_names(model: ModelShape) -> tuple[str, ...]:
    """Linear weights of the layers that adapters can sit on: all but routers and the experts themselves."""
    names = [
        weight.name
        for kind, _ in model.layer_kinds
        for weight in layer_weights(model, kind)
        if weight.kind == "linear" and weight.split != "expert" and weight.module != "router"
    ]
    return tuple(dict.fromkeys(names))


def _as_stored(model: ModelShape, names: Iterable[str]) -> list[str]:
    """The names, with one adapter for the projections that the model stores as one matrix (peft wraps modules)."""
    stored = list(names)
    for whole in model.fused:
        first, *others = FUSED[whole]
        if {first, *others} <= set(stored):
            stored = [whole if name == first else name for name in stored if name not in others]
    return stored


def resolve_targets(model: ModelShape, targets: Iterable[str]) -> tuple[str, ...]:
    """Canonical names of the projections that get an adapter, in the order of the layer.

    Accepts the frameworks' names (q_proj, c_attn, ...), the groups `attention`, `mlp` and `all-linear`, and the
    fused `qkv` and `gate_up`. A group takes what the model stores as one matrix as one.

    Raises
    ------
    InputError : a target that the model does not have
    """
    known = _linear_names(model)
    chosen: list[str] = []
    problems = []
    for target in targets:
        name = SYNONYMS.get(target.lower(), target.lower())
        if name == "gate_up" and not model.gated:
            name = "up"
        if name == "all-linear":
            chosen += _as_stored(model, known)
        elif name in GROUPS:
            chosen += _as_stored(model, (member for member in GROUPS[name] if member in known))
        elif set(adapted_weights(name)) <= set(known):
            chosen.append(name)
        else:
            hint = did_you_mean(name, (*known, *GROUPS, *SYNONYMS, *FUSED, "all-linear"))
            problems.append(
                Problem(
                    f"'{target}' is not a projection of {model.name}",
                    hint=hint or f"it has {', '.join(known)}",
                )
            )
    if problems:
        raise InputError(problems)
    return tuple(sorted(dict.fromkeys(chosen), key=lambda name: known.index(adapted_weights(name)[0])))


def narrower_targets(model: ModelShape, targets: Iterable[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Smaller sets of projections inside those that have adapters, the larger first, each with its words."""
    covered = _covered(model, targets)
    for words, fewer in NARROWER:
        try:
            inside = _covered(model, fewer) < covered
        except InputError:  # the model has no such projections
            continue
        if inside:
            yield words, fewer


def _covered(model: ModelShape, targets: Iterable[str]) -> set[str]:
    """Weights under the adapters of some targets. Raises InputError."""
    return {weight for name in resolve_targets(model, targets) for weight in adapted_weights(name)}


def _learning(model: ModelShape, options: MethodOptions) -> Learning:
    targets = resolve_targets(model, options.lora_targets)
    adapters = dict.fromkeys(targets, options.lora_rank)
    saved = tuple(end for end in ENDS if end in options.modules_to_save)
    return Learning(
        base=False,
        adapters=adapters,
        adapter_element_bytes=options.adapter_element_bytes,
        frozen_gradients=options.frozen_gradients,
        adapter_dropout=options.lora_dropout > 0,
        magnitudes=options.dora,
        saved=saved,
    )


def resolve_end(name: str) -> str:
    """Embedding or head by the name that a framework gives to it. Raises InputError for other modules."""
    found = ENDS_IN_WORDS.get(name.lower().rpartition(".")[2])
    if found is None:
        hint = did_you_mean(name, ENDS_IN_WORDS) or f"one of {', '.join(ENDS_IN_WORDS)}"
        raise InputError(Problem(f"'{name}' is neither the embedding nor the output head", hint=hint))
    return found


@register("lora", label="LoRA", evidence="adapters", settings=("lora",), lighter="qlora")
def lora(kind: MethodKind, model: ModelShape, options: MethodOptions) -> Method:
    """Adapters on frozen weights kept in the stack's frozen type."""
    return Method(kind, _learning(model, options), saved_element_share=options.saved_element_share)


@register("qlora", label="QLoRA", evidence="adapters", settings=("lora",), quantises=True)
def qlora(kind: MethodKind, model: ModelShape, options: MethodOptions) -> Method:
    """Adapters on frozen weights in few bits; embedding, norms and head stay as they are."""
    # Quantised layers have no weight gradient in any stack: libraries compute the input gradient alone.
    learning = replace(_learning(model, options), frozen_gradients=False)
    return Method(kind, learning, held=options.quantised, saved_element_share=options.saved_element_share)
