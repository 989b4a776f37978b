"""Experts that are computed one after the other, as the eager classes of Hugging Face transformers do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.graph.building_blocks import weight_traffic
from xe_sizer.graph.operators import MemoryBound

if TYPE_CHECKING:
    from xe_sizer.graph.inputs import Block
    from xe_sizer.graph.model import Experts
    from xe_sizer.graph.operators import Array, Kernels, Operator

MODULES, SLICED, SPLIT = "modules", "sliced", "split"
# Kernels for each expert, forward and backward (own count). Before its products: which tokens picked it (where, of one
# count, one selection and three around them), the pick and the gather; backward, zeros like the hidden state, the
# sort and sum of an indexed addition, and the sum of both. After them: its share of the weights, the multiplication and
# the indexed addition; backward, the gather, two multiplications, a sum, and the same indexed addition for the shares.
# With products and activation the forward has 14, a quarter of a millisecond at 18 us each: 960 experts took 0.21 s
# longer in a loop than in grouped products (transformers pull request 42697, A100, 16 tokens).
BEFORE_LAUNCHES = (7.0, 8.0)
AFTER_LAUNCHES = (3.0, 12.0)
# A slice of one tensor of all experts has a gradient like the whole: zeros, the copy, and the sum with that so far.
SLICE_LAUNCHES = 3.0
# Elements that a kernel reads or writes, of the token copies unless it says otherwise.
GATHER, SCALE, ADD, SUM = 2.0, 2.0, 3.0, 4.0
SPLIT_LAUNCHES = (8.0, 6.0)
# Biases: gathered rows are written (1) and added (3), or a row is added to all (2); backward rows of the gradient are
# read and added to their expert's (2), or read and summed (1).
BIAS_PASSES = {"sorted": (4.0, 2.0), "loop": (2.0, 1.0)}
# Bytes an element of bias x weight in float32: written 4, added 10, joined 8, cast 6; backward cast 6, cast back and
# joined 10, times weight and bias 16, sums of both 8.
WEIGHTED_BIAS = (28.0, 40.0)


def loop_of(kernels: Kernels, experts: Experts) -> str | None:
    """How experts are computed one after the other: modules, sliced or split; None where they are computed together.

        loop = that of the model's reference implementation      where the stack loops
        loop = split                                              unsplit, where that splits sorted tokens; else none

    Parameters
    ----------
    kernels : of the stack
    experts : of the model, with the loop of its reference implementation

    Returns
    -------
    str, or None

    Source: transformers 4 modeling_mixtral.py, modeling_gpt_oss.py, modeling_granitemoe.py; transformers 5
    integrations/moe.py, whose grouped products modeling_granitemoe.py and modeling_jetmoe.py do not take.
    """
    if kernels.experts in ("loop", "loop-all") or (kernels.experts == "unsplit" and experts.loop == SPLIT):
        return experts.loop
    return None


def turns(kernels: Kernels, held: Array, touched: Array) -> Array:
    """Experts of a rank that a loop comes to.

        turns = E / ep      where it goes over all of them; else those that any token picked

    Parameters
    ----------
    kernels : of the stack or engine
    held, touched : E / ep, experts of the rank, and those that any token picked, shape (rank shape,) [-]

    Returns
    -------
    ndarray of float, shape (rank shape,) [-]

    Source: transformers 4.51 modeling_mixtral.py (range(self.num_experts)); 4.57 modeling_qwen3_moe.py (expert_hit).
    """
    return np.asarray(held if kernels.experts == "loop-all" else touched)


def replicated(operator: MemoryBound, local: Array) -> MemoryBound:
    """The operator where each expert launches its kernels: as many bytes, `local` times the launches.

        launches = local x launches

    Parameters
    ----------
    operator : for all experts together
    local : experts that the loop comes to, or weights of theirs, shape (rank shape,) [-]

    Returns
    -------
    MemoryBound; launches of shape (rank shape,) [-]

    Source: the loops of transformers, which call an activation or a cast for every expert.
    """
    forward, backward = operator.forward_launches * local, operator.backward_launches * local
    return replace(operator, forward_launches=forward, backward_launches=backward)


def before_experts(block: Block, loop: str, copies: Array, width: float, local: Array, kept: Array) -> MemoryBound:
    """Finding and gathering the tokens of each expert.

        forward bytes  = 2 x token copies x width x hidden state's element      gathered; cast where the state is wider
        backward bytes = 3 x token copies + 4 x experts x tokens, each x width x hidden state's element

    The gradient of what an expert gathers is as large as all tokens: zeros, an indexed addition, and the sum with that
    of the experts before. Tokens that are sorted once and split are gathered once, and have one gradient.

    Parameters
    ----------
    block : a kind of layer, with the inputs of the graph
    loop : modules, sliced or split
    copies : tokens times experts of each, shape (rank shape,) [-]
    width : elements of a token [-]
    local : experts that the loop comes to, shape (rank shape,) [-]
    kept : what the products keep of it, shape (rank shape,) [bytes]

    Returns
    -------
    MemoryBound; bytes of shape (rank shape,) [bytes]

    Source: transformers 4.57 modeling_qwen3_moe.py and modeling_gpt_oss.py, 4.46 modeling_granitemoe.py; PyTorch
    index_put_ with accumulation.
    """
    inputs = block.inputs
    wide, cast = np.asarray(inputs.residual_element_bytes), inputs.element_bytes
    readers = 2.0 if loop == MODULES and not inputs.fused_gate_up else 1.0
    casts = inputs.casts_inputs * readers * (wide + cast) * copies * width
    together = loop == SPLIT
    gathered = (ADD + (2.0 * GATHER if together else 0.0)) * copies * width
    gradients = SUM * inputs.rank.tokens / inputs.rank.tp * width * (1.0 if together else local)
    return MemoryBound(
        name="dispatch",
        module="experts",
        layers=block.layers,
        saved_bytes=kept,
        forward_bytes=GATHER * copies * width * wide + casts,
        backward_bytes=(gathered + gradients) * wide + casts,
        forward_launches=SPLIT_LAUNCHES[0] if together else BEFORE_LAUNCHES[0] * local,
        backward_launches=SPLIT_LAUNCHES[1] if together else BEFORE_LAUNCHES[1] * local,
        temporary_bytes=2.0 * copies * width * wide,
    )


def after_experts(block: Block, loop: str, copies: Array, width: float, local: Array, kept: Array) -> MemoryBound:
    """Weighting what each expert gives and adding it to its tokens.

        forward bytes  = (2 element + 3 hidden state's element) x token copies x width
        backward bytes = (6 element + 2 hidden state's element) x token copies x width

    Outputs of experts that are cut from one tensor are put together again before (2 more each way).

    Parameters
    ----------
    block : a kind of layer, with the inputs of the graph
    loop : modules, sliced or split
    copies : tokens times experts of each, shape (rank shape,) [-]
    width : elements of a token [-]
    local : experts that the loop comes to, shape (rank shape,) [-]
    kept : what autograd keeps of it, shape (rank shape,) [bytes]

    Returns
    -------
    MemoryBound; bytes of shape (rank shape,) [bytes]

    Source: transformers 4.57 modeling_qwen3_moe.py (index_add_), 4.46 modeling_granitemoe.py.
    """
    inputs, together = block.inputs, loop == SPLIT
    wide, size = np.asarray(inputs.residual_element_bytes), inputs.element_bytes
    joined = GATHER * size if together else 0.0
    return MemoryBound(
        name="combine",
        module="experts",
        layers=block.layers,
        saved_bytes=kept,
        forward_bytes=(SCALE * size + ADD * wide + joined) * copies * width,
        backward_bytes=((SCALE + SUM) * size + GATHER * wide + joined) * copies * width,
        forward_launches=SPLIT_LAUNCHES[0] if together else AFTER_LAUNCHES[0] * local,
        backward_launches=SPLIT_LAUNCHES[1] if together else AFTER_LAUNCHES[1] * local,
        temporary_bytes=2.0 * copies * width * size,
    )


def expert_bias(block: Block, loop: str | None, inner: Array, outer: Array) -> MemoryBound:
    """Adding each expert's biases to what its two products give.

        bytes = passes x (inner + outer) x element         rows of biases are gathered and added; loops: added
        bytes = 28 forward, 40 backward x outer            side by side: in float32, weighted, expert by expert

    Products side by side add the first bias themselves. Backward the rows that an expert got are summed.

    Parameters
    ----------
    block : a kind of layer, with the inputs of the graph
    loop : how experts are computed one after the other; None: they are not
    inner, outer : elements that the first and the second product give, shape (rank shape,) [-]

    Returns
    -------
    MemoryBound; bytes of shape (rank shape,) [bytes]

    Source: Megatron-Core transformer/moe/experts.py TEGroupedMLP._apply_bias; torchtitan models/gpt_oss/moe.py
    (repeat_interleave); transformers 5 integrations/moe.py (gate_up_proj_bias[expert_ids]).
    """
    inputs = block.inputs
    if loop is None and inputs.kernels.experts == "products":
        forward, backward = WEIGHTED_BIAS[0] * outer, WEIGHTED_BIAS[1] * outer
    else:
        forward, backward = (
            passes * (inner + outer) * inputs.element_bytes
            for passes in BIAS_PASSES["sorted" if loop is None else "loop"]
        )
    return MemoryBound(
        name="expert bias",
        module="experts",
        layers=block.layers,
        saved_bytes=inputs.zeros,
        forward_bytes=forward,
        backward_bytes=backward * float(inputs.learning.base),
        forward_launches=2.0,
        backward_launches=2.0 * float(inputs.learning.base),
        temporary_bytes=inputs.zeros,
    )


def slice_gradients(block: Block, loop: str, elements: Array, tensors: float, local: Array) -> Iterator[Operator]:
    """Gradients of weights that are slices of one tensor: each expert makes one like the tensor of all.

        bytes = 4 x experts x elements of all experts x weight's element      zeros, and the sum of two into one

    Weights are float32 under autocast, unless FSDP gathers them in 16 bit.

    Parameters
    ----------
    block : a kind of layer, with the inputs of the graph
    loop : modules, sliced or split
    elements : weights of all experts of the rank, shape (rank shape,) [-]
    tensors : that hold them [-]
    local : experts that any token picked, shape (rank shape,) [-]

    Returns
    -------
    iterator of one MemoryBound, none where weights are frozen or modules of their own; bytes of shape (rank shape,)
    [bytes]

    Source: PyTorch select_backward and the sum of gradients (InputBuffer::add) of self.weight[i] and
    self.gate_up_proj[expert_idx] in transformers.
    """
    inputs = block.inputs
    if loop == MODULES or not inputs.learning.base:
        return
    whole = elements * np.asarray(inputs.residual_element_bytes)
    yield MemoryBound(
        name="expert slices",
        module="experts",
        layers=block.layers,
        saved_bytes=inputs.zeros,
        forward_bytes=inputs.zeros,
        backward_bytes=SUM * local * whole,
        forward_launches=0.0,
        backward_launches=SLICE_LAUNCHES * tensors * local,
        temporary_bytes=2.0 * whole,
    )


def expert_weights(
    block: Block, loop: str | None, elements: Array, matrices: Array, local: Array
) -> Iterator[Operator]:
    """Traffic of the matrices of `local` experts, which loops have one by one, and gradients of their slices.

        bytes = weight_traffic of the elements

    Parameters
    ----------
    block : a kind of layer
    loop : how the experts run one by one; None: together
    elements : of the matrices on the rank, shape (rank shape,) [-]
    matrices, local : matrices, and experts of the rank, shape (rank shape,) [-]

    Returns
    -------
    iterator of Operator; bytes of shape (rank shape,) [bytes]

    Source: `weight_traffic` and `slice_gradients`.
    """
    for traffic in weight_traffic(block, "experts", "experts", elements):
        yield replicated(traffic, matrices) if loop else traffic
    if loop:
        yield from slice_gradients(block, loop, elements, 2.0, local)
