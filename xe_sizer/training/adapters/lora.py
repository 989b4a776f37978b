"""LoRA and QLoRA: low-rank adapters beside frozen weights.

LoRA: Hu et al. 2021, arXiv:2106.09685. QLoRA: Dettmers et al. 2023, arXiv:2305.14314.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from xe_sizer.errors import InputError, Problem, did_you_mean
from xe_sizer.graph.low_rank import LowRank
from xe_sizer.graph.parameters import adapted_weights
from xe_sizer.software.adapter_targets import resolve_targets
from xe_sizer.training.adapters.adapter import EMBEDDING, HEAD, register
from xe_sizer.training.adapters.on_weights import on_weights

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.training.adapters.adapter import AdapterOptions, Trained

# Names that frameworks give to what may learn beside adapters (modules_to_save of peft).
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
    return {weight for name in resolve_targets(model, targets, head=True) for weight in adapted_weights(name)}


def resolve_end(name: str) -> str:
    """Embedding or head by the name that a framework gives to it. Raises InputError for other modules."""
    found = ENDS_IN_WORDS.get(name.lower().rpartition(".")[2])
    if found is None:
        hint = did_you_mean(name, ENDS_IN_WORDS) or f"one of {', '.join(ENDS_IN_WORDS)}"
        raise InputError(Problem(f"'{name}' is neither the embedding nor the output head", hint=hint))
    return found


# Other first values of A and B, other scales and other learning rates cost the same.
ALIASES = (
    "peft", "adapters", "rslora", "rs-lora", "lora+", "lora-plus", "pissa", "olora", "eva", "corda", "loftq", "lora-ga",
)  # fmt: skip


@register("lora", label="LoRA", settings=("lora",), usual=True, on_head=True, lighter="qlora", aliases=ALIASES)
def lora(model: ModelShape, options: AdapterOptions) -> Trained:
    """Adapters on frozen weights kept in the stack's frozen type, or quantised where somebody asks for it."""
    return on_weights(model, options, LowRank(options.lora_rank, options.dora), head=True)


@register("qlora", label="QLoRA", settings=("lora",), on_head=True, quantises=True)
def qlora(model: ModelShape, options: AdapterOptions) -> Trained:
    """Adapters on frozen weights in few bits; embedding, norms and head stay as they are."""
    return lora(model, options)
