"""One weight tensor: its size, its module, and how tensor parallelism shards it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.frozen import frozen

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.graph.operators import Array

NORMS_WITH_BIAS = frozenset({"layernorm", "layernorm1p"})
NORMS_WITHOUT_WEIGHTS = frozenset({"layernorm-nonparam"})


@frozen
class Weight:
    """One weight tensor of one layer, or of the whole model.

    name     canonical: q, k, v, o, the same with cross_ before them, q_down, q_up, kv_down, kv_up, indexer_q,
             indexer_k, indexer_head_weights,
             sinks, in, x, dt, out and the vectors of state-space mixers, gate, up, down, router, latent_down,
             latent_up, expert_gate, expert_up, expert_down, shared_gate,
             shared_expert_gate, shared_expert_up, shared_expert_down, embedding, position, token_type,
             relative_positions, embedding_in, embedding_out, head_transform, head, head_bias, pooler, classifier, and
             the norms (`*_norm`)
    module   embedding | norm | qkv | attention | output_projection | state_space | mlp | experts | router | head
    kind     linear | vector | embedding
    inputs   rows of the matrix [-]; 1 for a vector
    outputs  columns of the matrix, or elements of the vector [-]
    bias     elements of the bias [-]
    copies   experts [-]
    split    how tensor parallelism shards it: column | row | vocabulary | expert | replicated
    shards   most shards it can be split into [-]; further ranks hold copies (heads of keys and values); None: any
    """

    name: str
    module: str
    kind: str
    inputs: int
    outputs: int
    bias: int = 0
    copies: int = 1
    split: str = "replicated"
    shards: int | None = None

    @property
    def parameters(self) -> int:
        """Elements of all copies [-]."""
        return self.copies * (self.inputs * self.outputs + self.bias)

    @property
    def matrix_elements(self) -> float:
        """Elements of all copies without their biases [-]."""
        return float(self.copies * self.inputs * self.outputs)

    @property
    def bias_elements(self) -> float:
        """Elements of the biases of all copies [-]."""
        return float(self.copies * self.bias)

    def output_shards(self, tp: Array) -> Array:
        """Ranks that share the outputs of a column-parallel weight; further ranks hold copies [-]."""
        return tp if self.shards is None else np.minimum(tp, self.shards)

    def on_rank(self, matrix: float, bias: float, tp: Array, expert_ranks: Array) -> Array:
        """What one rank holds of a weight: of its elements, or of their bytes.

            held = (matrix + bias) / min(tp, shards)      column-parallel, or over the vocabulary
            held = matrix / tp + bias                     row-parallel: biases are added after the reduction
            held = (matrix + bias) / expert_ranks         experts
            held = matrix + bias                          replicated

        Parameters
        ----------
        matrix, bias : of all copies together [-] or [bytes]
        tp, expert_ranks : tensor-parallel ranks, and ranks among which the experts are divided, shape (layout,) [-]

        Returns
        -------
        ndarray of float, shape (layout,) [-] or [bytes]

        Source: Megatron-LM's column- and row-parallel layers (arXiv:1909.08053).
        """
        if self.split in ("column", "vocabulary"):
            return (matrix + bias) / self.output_shards(tp)
        if self.split == "row":
            return matrix / tp + bias
        if self.split == "expert":
            return (matrix + bias) / expert_ranks
        return (matrix + bias) * np.ones_like(tp)


def norm_weight(model: ModelShape, name: str, size: int) -> Weight:
    """A norm over `size` elements, with a bias or without any elements when the model's norms are so."""
    if model.norm in NORMS_WITHOUT_WEIGHTS:
        return Weight(name, "norm", "vector", 1, 0)
    return Weight(name, "norm", "vector", 1, size, bias=size if model.norm in NORMS_WITH_BIAS else 0)


def linear_weight(
    name: str, module: str, inputs: int, outputs: int, biased: bool, split: str, copies: int = 1
) -> Weight:
    """A matrix, with a bias as long as its outputs where it is biased."""
    return Weight(name, module, "linear", inputs, outputs, outputs if biased else 0, copies, split)
