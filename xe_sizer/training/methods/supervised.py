"""Supervised methods: all weights, adapters, and embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from xe_sizer.errors import InputError, Problem
from xe_sizer.graph.inputs import GENERATOR, Learning, Part
from xe_sizer.graph.model import NO_HEAD, VOCABULARY
from xe_sizer.graph.weights import generator_weights
from xe_sizer.software.stack import Objective
from xe_sizer.training.methods.method import TASK, Frozen, Method, register

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.training.methods.method import MethodKind, MethodOptions

# Pre-training and supervised fine-tuning: of every weight, unless adapters are asked for.


@register(
    "pretrain", label="Pre-training", evidence="pretrain", fine_tunes=False, lighter="sft", place=4,
    heads=(VOCABULARY, VOCABULARY), aliases=("pretraining", "pt", "continued-pretraining", "cpt"),
)  # fmt: skip
def pretrain(kind: MethodKind, model: ModelShape, options: MethodOptions) -> Method:
    """Pre-training from scratch or continued; with the generator of a model that tells replaced tokens (ELECTRA).

    Source: arXiv:2003.10555, section 3: the generator learns to fill in masked tokens at the same time.
    """
    generator, trained = model.generator_model, options.trained
    if generator is None:
        return Method(kind, trained)
    if not trained.learning.base:
        message = f"{model.name} is pre-trained beside a generator, which has no equation with adapters yet"
        raise InputError(Problem(message, hint="leave the adapters out, or fine-tune it"))
    part = Part(GENERATOR, generator_weights(generator), Learning(base=True), split=True)
    return Method(kind, replace(trained, parts=(part,)))


@register(
    "sft", label="SFT", words="full fine-tuning", evidence="sft", lighter="lora", default=True, reads=(TASK,), place=1,
    aliases=("full", "full-finetune", "full-finetuning", "fft", "supervised-finetuning"),
)  # fmt: skip
def sft(kind: MethodKind, model: ModelShape, options: MethodOptions) -> Method:
    """Supervised fine-tuning."""
    return Method(kind, options.trained)


# Supervised fine-tuning under the names of what learns: LoRA, QLoRA, P-tuning.

register("lora", label="LoRA", evidence="sft", adapter="lora", lighter="qlora", reads=(TASK,), place=2)(sft)
register("qlora", label="QLoRA", evidence="sft", adapter="qlora", reads=(TASK,), place=3)(sft)
register("p-tuning", label="P-tuning", evidence="sft", adapter="p-tuning", reads=(TASK,))(sft)


# Embedding models: a query against its own passage and all others of the batch (arXiv:1705.00652, 1807.03748).


@register(
    "embedding", label="Embedding model", words="contrastive fine-tuning", evidence="sft", implies_adapter=True,
    place=10, heads=(NO_HEAD, NO_HEAD), reads=("embedding.hard_negatives", "embedding.across_gpus", "embedding.cached"),
    aliases=("contrastive", "infonce", "retriever", "bi-encoder", "embedding-model"),
)  # fmt: skip
def embedding(kind: MethodKind, model: ModelShape, options: MethodOptions) -> Method:
    """Query, positive and hard negatives pass through one model; their states are compared with each other.

    With cached gradients all sequences pass once more, forward alone, before those of a micro-batch are compared with
    those of the whole step (GradCache, arXiv:2101.06983).

    Source: MultipleNegativesRankingLoss and CachedMultipleNegativesRankingLoss of sentence-transformers; FlagEmbedding
    abc/finetune/embedder/AbsModeling.py.
    """
    if model.encoder_layers:
        raise InputError(Problem(f"{model.name} has a decoder: embeddings are of encoders, or of decoders alone"))
    compared = options.compared
    again = Frozen("states for cached gradients", copies=0, adapted=True, reads=Objective.NEXT_TOKEN)
    return Method(
        kind, options.trained, sequences_per_sample=2 + compared.hard_negatives,
        frozen=(again,) if compared.cached else (), compared=compared,
    )  # fmt: skip
