"""LoRA and QLoRA: low-rank adapters beside frozen weights.

LoRA: Hu et al. 2021, arXiv:2106.09685. QLoRA: Dettmers et al. 2023, arXiv:2305.14314.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from xe_sizer.errors import InputError, Problem, did_you_mean
from xe_sizer.graph.inputs import Learning
from xe_sizer.graph.parameters import adapted_weights
from xe_sizer.software.adapter_targets import resolve_targets
from xe_sizer.training.methods.method import EMBEDDING, HEAD, Method, register

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.training.methods.method import MethodKind, MethodOptions

# Names that frameworks give to what may learn beside adapters (modules_to_save of peft).
ENDS = (EMBEDDING, HEAD)
ENDS_IN_WORDS = {
    **dict.fromkeys(("embed_tokens", "embedding", "wte", "word_embeddings", "embed_in", "tok_embeddings"), EMBEDDING),
    **dict.fromkeys(("lm_head", "head", "embed_out", "output", "output_layer"), HEAD),
}
# What LoRA's authors and users fall back to: attention alone, and in it queries and values.
NARROWER = (("attention", ("attention",)), ("q and v", ("q", "v")))


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
