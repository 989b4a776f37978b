"""Adapters that rotate a weight: products with orthogonal matrices of blocks, reflections or planes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from xe_sizer.graph.inputs import AdapterForm
from xe_sizer.training.adapters.adapter import register
from xe_sizer.training.adapters.low_rank import on_weights
from xe_sizer.units import FLOAT32

if TYPE_CHECKING:
    from xe_sizer.graph.inputs import Place, Size
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.graph.operators import Operator
    from xe_sizer.training.adapters.adapter import AdapterOptions, Trained

# RoAd: pairs of outputs turned and scaled (Liao and Monz 2024, arXiv:2409.00119).


class Turned(AdapterForm, eq=True):
    """y_i a cos(t) - y_j a sin(t) of each pair of outputs: elements = n. Two float32 copies of the output are kept.

    Source: peft (tuners/road/layer.py, Linear.forward and _apply_road).
    """

    reads_input = False

    def elements(self, n: Size, k: Size) -> Size:
        """An angle and a scale for each pair [-]."""
        return n

    def operators(self, at: Place) -> Iterator[Operator]:
        """Cast, the turned pairs, two products and a sum, cast; backward, both products' gradients and their sum."""
        outputs, cast = at.tokens * at.n * at.size, at.tokens * at.n * (at.size + at.element_bytes)
        yield at.kernels(
            "turned",
            2.0 * cast + 11.0 * outputs,
            2.0 * cast + 24.0 * outputs,
            (12.0, 26.0),
            2.0 * outputs,
            4.0 * outputs,
        )


@register("road", label="RoAd", settings=("lora",))
def road(model: ModelShape, options: AdapterOptions) -> Trained:
    """One angle and one scale for each pair of outputs (road_1)."""
    return on_weights(model, options, Turned())


# OFT: inputs turned by orthogonal blocks (Qiu et al. 2023, arXiv:2306.07280; v2: arXiv:2506.19847).

OFT_BLOCK = 32  # published: inputs of a block (peft's default)
NEUMANN = 5  # published: terms of the series in place of an inverse (peft's default)


class Rotation(AdapterForm, eq=True):
    """(x R) W^T: R has k / b blocks of b by b, each from b (b - 1) / 2 angles: elements = k (b - 1) / 2.

    The blocks come from a series of `NEUMANN` terms, b by b each. The turned input is laid out anew and cast back;
    autograd keeps the float32 copy of the input.
    Source: peft (tuners/oft/layer.py, OFTRotationModule.forward).
    """

    block: int

    tensors = 1

    def elements(self, n: Size, k: Size) -> Size:
        """Angles [-]."""
        return k * (self.block - 1) / 2

    def operators(self, at: Place) -> Iterator[Operator]:
        """Blocks, cast of the input, the products of tokens with blocks, and the turned input's copy and cast."""
        blocks, angles = at.k / self.block, at.k * self.block * at.size
        yield at.product("blocks", self.block, self.block, self.block, 4.0 * angles, copies=(NEUMANN - 2) * blocks)
        wide, read = at.tokens * at.k * at.size, at.tokens * at.k * (at.element_bytes + at.size)
        yield at.product("R", at.tokens, self.block, self.block, wide, copies=blocks)
        yield at.kernels("turned", 2.0 * read + 2.0 * wide, 2.0 * read + 2.0 * wide, (12.0, 15.0), 0.0, 2.0 * wide)


@register("oft", label="OFT", settings=("lora",), aliases=("oftv2", "qoft"), place=8)
def oft(model: ModelShape, options: AdapterOptions) -> Trained:
    """Rotations of each projection's inputs, in blocks."""
    return on_weights(model, options, Rotation(options.block_size or OFT_BLOCK))


# HRA: weights behind a chain of Householder reflections (Yuan et al. 2024, arXiv:2405.17484).


class Reflections(AdapterForm, eq=True):
    """x (W H_1 ... H_r)^T, H_i = I - 2 u_i u_i^T: elements = r k.

    Every reflection is a product of the k by k matrix with a vector, an outer product and a sum, 6 passes over k^2
    elements, and keeps the matrix, as does the identity that the chain starts from; then W is turned, and both forms
    of it are kept in float32. The weight's own product is left out.
    Source: peft (tuners/hra/layer.py, get_delta_weight and Linear.forward).
    """

    rank: int

    tensors = 1
    replaces = True

    def elements(self, n: Size, k: Size) -> Size:
        """Vectors [-]."""
        return self.rank * k

    def operators(self, at: Place) -> Iterator[Operator]:
        """The chain, the turned weight, and the tokens times it in float32."""
        square, weight = at.k * at.k * at.size, at.n * at.k * at.size
        launches = (4.0 * self.rank, 8.0 * self.rank)
        kept = (self.rank + 1.0) * square + weight
        yield at.kernels(
            "reflections", 6.0 * self.rank * square, 14.0 * self.rank * square, launches, kept, 3.0 * square
        )
        yield at.product("turned", at.n, at.k, at.k, computed_bytes=0.0)
        read = at.tokens * (at.n + at.k) * (at.size + at.element_bytes)
        yield at.kernels("casts", read + weight, read, (3.0, 2.0), temporary_bytes=at.tokens * at.n * at.size)
        yield at.product("output", at.tokens, at.n, at.k, at.input_bytes, computed_bytes=weight)


@register("hra", label="HRA", settings=("lora",), rank=8)
def hra(model: ModelShape, options: AdapterOptions) -> Trained:
    """A chain of as many reflections as the rank."""
    return on_weights(model, options, Reflections(options.lora_rank))


# BOFT: weights turned by a product of sparse orthogonal matrices, a butterfly (Liu et al. 2023, arXiv:2311.06243).

BOFT_BLOCK = 4  # published: inputs of a block (peft's default)


class Butterfly(AdapterForm, eq=True):
    """s * (x R) W^T: R = P^T blocks P, laid out as k by k: elements = k b + n.

    R's blocks come from one solution of b by b equations each; three products of k by k matrices make R, of which three
    of 16 bit are kept, and the permutation P stands beside every weight in float32.
    Source: peft (tuners/boft/layer.py, BOFTLayer and Linear.forward).
    """

    block: int

    shares_input = True

    def elements(self, n: Size, k: Size) -> Size:
        """Blocks, and a scale of each output [-]."""
        return k * self.block + n

    def buffer_bytes(self, n: Size, k: Size) -> Size:
        """The permutation [bytes]."""
        return FLOAT32 * k * k

    def operators(self, at: Place) -> Iterator[Operator]:
        """R, the tokens times it, and the scale of the output."""
        square, e = at.k * at.k, at.element_bytes
        yield at.kernels(
            "blocks", square * (2.0 * at.size + 2.0 * e), square * 2.0 * at.size, (12.0, 12.0), 2.0 * square * e,
            square * (at.size + e),
        )  # fmt: skip
        yield at.product("butterfly", at.k, at.k, at.k, copies=3.0, computed_bytes=0.0, in_base=True)
        yield at.product("R", at.tokens, at.k, at.k, computed_bytes=square * e, in_base=True)
        outputs = at.tokens * at.n
        read = outputs * (at.size + e)
        yield at.kernels("scale", 2.0 * read, 2.0 * read + 4.0 * outputs * at.size, (2.0, 5.0), outputs * e, read * 2.0)


@register("boft", label="BOFT", settings=("lora",))
def boft(model: ModelShape, options: AdapterOptions) -> Trained:
    """Rotations of each projection's inputs, dense once they are laid out."""
    return on_weights(model, options, Butterfly(options.block_size or BOFT_BLOCK))
