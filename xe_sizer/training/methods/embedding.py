"""Embedding models: a query against its own passage and all others of the batch (arXiv:1705.00652, 1807.03748)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.errors import InputError, Problem
from xe_sizer.graph.model import NO_HEAD
from xe_sizer.software.objective import Objective
from xe_sizer.training.methods.method import Frozen, Method, register

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.training.methods.method import MethodKind, MethodOptions


@register(
    "embedding", label="Embedding model", words="contrastive fine-tuning", evidence="sft", implies_adapter=True,
    heads=(NO_HEAD, NO_HEAD), reads=("embedding.hard_negatives", "embedding.across_gpus", "embedding.cached"),
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
