"""What it takes to narrow the operands of products to 8 or 4 bit, by scaling recipe and by who casts.

Adding a recipe is one row of each table whose library has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple

from xe_sizer.graph.operators import MemoryBound

if TYPE_CHECKING:
    from xe_sizer.graph.inputs import Block
    from xe_sizer.graph.operators import Array

Fp8Recipe = Literal["tensorwise", "rowwise", "blockwise", "mxfp8", "delayed"]
"""What has a scale of its own: a tensor, a row, a block of 128 or of 32; delayed: a tensor, from its history."""
CastKernels = Literal["transformer-engine", "torchao"]

FOUR_BIT = "block-of-16"  # the one recipe of products in 4 bit
BLOCK_SCALED = frozenset({"mxfp8", FOUR_BIT})
"""Recipes whose scales the matrix units apply themselves; accelerators that have this multiply 4 bit too."""
KEPT_WIDE = frozenset({"head", "router"})
"""Modules whose products stay 16 bit: neither Megatron-Core's output layer nor its router is one of Transformer
Engine's, and TorchTitan's filter_fqns name the output (torchtitan, components/quantization/float8.py)."""


class Casts(NamedTuple):
    """Memory traffic of the casts of one linear layer, each per element [bytes].

    operand : of the input in the forward, and of the output's gradient in the backward
    again : of both once more, for the product of the weight's gradient, which sums over the tokens
    weight_forward, weight_backward : of the weight, in every micro-batch
    kept_input : of the copy of the input that waits for the weight's gradient; 0: the 16-bit input itself does
    kept_weight : of the weight's copies, which last as long as the weight
    launches : kernels forward and backward [-]
    rate : share of the rate that plain 8-bit products reach, which those of this recipe do [-]
    """

    operand: float
    again: float
    weight_forward: float = 0.0
    weight_backward: float = 0.0
    kept_input: float = 0.0
    kept_weight: float = 0.0
    launches: tuple[float, float] = (1.0, 1.0)
    rate: float = 1.0


# A kernel reads 16 bit once and writes rows and columns; scales of the present tensor (tensorwise) need a pass for the
# maximum in front. Weights are narrowed once a step, with the optimizer's update or in the first micro-batch. Scales: 4
# bytes for 128 elements, 1 for 32, 1 for 16. In 4 bit (NVFP4) a kernel of its own transforms columns (Hadamard).
_TRANSFORMER_ENGINE = {
    "delayed": Casts(3.0, 1.0, kept_input=1.0, kept_weight=2.0),
    "tensorwise": Casts(5.0, 1.0, kept_input=1.0, kept_weight=2.0, launches=(3.0, 3.0)),
    "blockwise": Casts(3.0 + 4 / 128, 1.0 + 4 / 128, kept_input=1.0 + 4 / 128, kept_weight=2.0),
    "mxfp8": Casts(3.0 + 1 / 32, 1.0 + 1 / 32, kept_input=1.0 + 1 / 32, kept_weight=2.0 + 2 / 32),
    FOUR_BIT: Casts(4.5 + 1 / 16, 2.5 + 1 / 16, kept_input=0.5 + 1 / 16, kept_weight=1.0 + 2 / 16, launches=(4.0, 4.0)),
}
# Kernels that torch.compile makes, not fused into the operators around them. FSDP gathers weights in 16 bit, and each
# micro-batch casts them forward and backward. Rows are cast from the tensor, columns from a transposed copy of it.
_TORCHAO = {
    "tensorwise": Casts(5.0, 1.0, 5.0, 3.0, launches=(6.0, 4.0)),
    "rowwise": Casts(3.0, 5.0, 3.0, 7.0, launches=(2.0, 6.0), rate=0.75),
    "mxfp8": Casts(3.0, 3.0, 3.0, 3.0, launches=(2.0, 4.0)),
    FOUR_BIT: Casts(4.5, 2.5, 4.5, 2.5, launches=(4.0, 6.0)),
}
CASTS: Mapping[str, Mapping[str, Casts]] = MappingProxyType(
    {"transformer-engine": _TRANSFORMER_ENGINE, "torchao": _TORCHAO}
)


def waiting_input_bytes(block: Block, input_bytes: Array) -> Array:
    """What autograd keeps of a linear layer's input, where products are narrow.

        bytes = input bytes x kept_input / element      where the recipe keeps its columns, else the input as it is

    Parameters
    ----------
    block : a kind of layer; the inputs of the graph have the recipe's casts, or none where products are wide
    input_bytes : of the input in the compute type, shape (rank shape,) [bytes]

    Returns
    -------
    ndarray of float, shape (rank shape,) [bytes]

    Source: Transformer Engine pytorch/module/linear.py (prepare_for_saving; rows are given back, columns stay); torchao
    float8/float8_linear.py saves the 16-bit input.
    """
    casts = block.inputs.casts
    if casts is None or not casts.kept_input:
        return input_bytes
    return input_bytes * casts.kept_input / block.inputs.element_bytes


def narrowing(
    block: Block, name: str, module: str, read: Array, elements: Array, written: Array
) -> Iterator[MemoryBound]:
    """The casts of a linear layer, or of a group of experts.

        forward = (operand + again w) x read + weight_forward x elements
        backward = (operand + again w) x written + weight_backward x elements          w: 1 where the weight learns

    Parameters
    ----------
    block : a kind of layer; the inputs of the graph have the recipe's casts, or none where products are wide
    name, module : of the product
    read, written : elements of the product's input and output, shape (rank shape,) [-]
    elements : of the rank's shard of the weight, shape (rank shape,) [-]

    Returns
    -------
    iterator of MemoryBound, none where nothing is narrowed; bytes of shape (rank shape,) [bytes]

    Source: Transformer Engine pytorch/module/linear.py, which quantises input and gradient once, by rows and columns;
    torchao testing/training/roofline_utils.py (get_tensor_memory_traffic_ovhd_s), which counts its kernels.
    """
    casts = block.inputs.casts
    if casts is None or module in KEPT_WIDE:
        return
    each = casts.operand + casts.again * float(block.inputs.learning.weight_gradients)
    yield MemoryBound(
        name=f"{name} cast",
        module=module,
        layers=block.layers,
        saved_bytes=block.inputs.zeros,
        forward_bytes=each * read + casts.weight_forward * elements,
        backward_bytes=each * written + casts.weight_backward * elements,
        forward_launches=casts.launches[0],
        backward_launches=casts.launches[1],
        temporary_bytes=block.inputs.zeros,
    )
