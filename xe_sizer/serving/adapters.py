"""LoRA adapters in one service: what those that are held take, and their products beside those of the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from xe_sizer.frozen import frozen
from xe_sizer.graph.inputs import LowRank, adapters_on, model_adapters
from xe_sizer.graph.operators import MemoryBound, as_array, layers_per_stage
from xe_sizer.graph.weights import layer_weights
from xe_sizer.units import FLOAT32

if TYPE_CHECKING:
    from xe_sizer.graph.inputs import Adapter
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.graph.operators import Array
    from xe_sizer.serving.layout import ReplicaLayouts

MODULE = "adapters"
# Projections that share an input and whose adapters one pair of kernels computes (vLLM's packed modules).
TOGETHER = (("q", "k", "v"), ("gate", "up"), ("shared_expert_gate", "shared_expert_up"))
SHRINK_AND_EXPAND = 2.0  # kernels: to the rank, and from it to the outputs


@frozen
class ServedAdapters:
    """The adapters of a service.

    count : that requests ask for, each as often; held : of them on the GPU at once, which is the most in a step
    ranks : of a held adapter by projection, as the engine allocates it [-]; forms : low-rank adapters of these
    element_bytes : of A and B [bytes]
    kernel_launches : time of a kernel that finds the rows of an adapter, in launches of the smallest kernel [-]
    """

    count: int
    held: int
    ranks: Mapping[str, int]
    element_bytes: float
    kernel_launches: float = 1.0

    @cached_property
    def forms(self) -> dict[str, LowRank]:
        return {name: LowRank(rank) for name, rank in self.ranks.items()}


def adapter_bytes(model: ModelShape, adapters: ServedAdapters, placements: ReplicaLayouts) -> Array:
    """What the held adapters take of one GPU.

        bytes = held x element x sum over the projections of a stage's layers of r (inputs + outputs) on the rank

    Parameters
    ----------
    model : its projections [-]
    adapters : how many are held, and their ranks
    placements : tp and pp of shape (placements,) [-]

    Returns
    -------
    ndarray of float, shape (placements,) [bytes]

    Source: vLLM's lora_a_stacked and lora_b_stacked (lora/layers/base_linear.py), SGLang's LoRAMemoryPool
    (lora/mem_pool.py); A of column-parallel and B of row-parallel projections are whole on every rank.
    """
    tp = as_array(placements.tp)
    elements = np.zeros(len(placements))
    for layers, adapter in model_adapters(model, adapters.forms):
        elements = elements + layers * adapter.on_rank(tp)
    share = layers_per_stage(model.layers, placements.pp) / model.layers
    return np.asarray(adapters.held * adapters.element_bytes * share * elements)


def distinct(adapters: ServedAdapters, sequences: ArrayLike) -> Array:
    """Different adapters among the sequences of a step, in the mean.

        n = min(N (1 - (1 - 1 / N)^s), held)

    Parameters
    ----------
    adapters : N that requests ask for, each as often
    sequences : s [-]

    Returns
    -------
    ndarray of float, shape of the sequences [-]

    Source: own derivation: an adapter is missing if none of the sequences asks for it.
    """
    count = float(adapters.count)
    some = count * (1.0 - (1.0 - 1.0 / count) ** as_array(sequences))
    return np.asarray(np.minimum(some, adapters.held))


def adapter_operators(
    model: ModelShape, adapters: ServedAdapters, tp: Array, tokens: Array, sequences: Array, element_bytes: float
) -> Iterator[MemoryBound]:
    """The grouped products of a step beside those of the model: x A^T, and of it B^T added to the output.

        shrink bytes = inputs tokens element + n r inputs element + 4 r tokens
        expand bytes = 4 r tokens + n r outputs element + 2 outputs tokens element

    n different adapters in the step. Two kernels for projections that share an input; the rank's few columns leave
    them bound by memory.

    Parameters
    ----------
    model : its projections [-]
    adapters : how many there are, and their ranks
    tp : tensor-parallel ranks, shape (points,) [-]
    tokens, sequences : of the step on a rank, shape (points,) [-]
    element_bytes : of activations [bytes]

    Returns
    -------
    iterator of MemoryBound, bytes of shape (points,) [bytes]

    Source: vLLM lora_shrink and lora_expand (lora/ops/triton_ops), with a float32 buffer between them; Punica
    (arXiv:2310.18547) and S-LoRA (arXiv:2311.03285) for the grouping.
    """
    different = distinct(adapters, sequences)
    for kind, layers in model.layer_kinds:
        here = adapters_on(layer_weights(model, kind), adapters.forms)
        known = {adapter.members[0].name: adapter for adapter in here}
        for group in _groups(known):
            inputs, outputs, columns = _sizes(group, tp)
            weights = different * adapters.element_bytes * (columns * inputs + _expanding(group, tp))
            moved = tokens * (element_bytes * (inputs + 2.0 * outputs) + 2.0 * FLOAT32 * columns) + weights
            yield MemoryBound(
                name="+".join(adapter.members[0].name for adapter in group) + " adapter",
                module=MODULE,
                layers=float(layers),
                saved_bytes=np.zeros_like(moved),
                forward_bytes=moved,
                backward_bytes=np.zeros_like(moved),
                forward_launches=SHRINK_AND_EXPAND * adapters.kernel_launches,
                backward_launches=0.0,
                temporary_bytes=np.zeros_like(moved),
            )


def _groups(known: Mapping[str, Adapter]) -> Iterator[tuple[Adapter, ...]]:
    """Adapters that one pair of kernels computes."""
    grouped = {name for names in TOGETHER for name in names}
    for names in TOGETHER:
        if group := tuple(known[name] for name in names if name in known):
            yield group
    yield from ((adapter,) for name, adapter in known.items() if name not in grouped)


def _sizes(group: tuple[Adapter, ...], tp: Array) -> tuple[Array, Array, float]:
    """Inputs and outputs of the rank's shards of a group, and columns of all its A [-]."""
    first = group[0].members[0]
    inputs = first.inputs / tp if first.split == "row" else first.inputs * np.ones_like(tp)
    outputs = sum((_outputs(adapter, tp) for adapter in group), np.zeros_like(tp))
    return inputs, outputs, float(sum(_rank(adapter) for adapter in group))


def _rank(adapter: Adapter) -> int:
    """Columns of A [-]."""
    return adapter.matrices[0][0]


def _outputs(adapter: Adapter, tp: Array) -> Array:
    shards = (weight.output_shards(tp) if weight.split == "column" else 1.0 for weight in adapter.members)
    parts = zip(adapter.members, shards, strict=True)
    return np.asarray(sum((weight.outputs / part for weight, part in parts), np.zeros_like(tp)))


def _expanding(group: tuple[Adapter, ...], tp: Array) -> Array:
    """Elements of all B of a group on a rank [-]."""
    return np.asarray(sum((_rank(adapter) * _outputs(adapter, tp) for adapter in group), np.zeros_like(tp)))
