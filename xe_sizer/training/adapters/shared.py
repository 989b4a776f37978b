"""Adapters whose matrices are shared by all layers, of which a few numbers a layer learn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.graph.inputs import AdapterForm
from xe_sizer.graph.weights import adapted_weights, layer_weights
from xe_sizer.software.adapter_targets import resolve_targets
from xe_sizer.training.adapters.adapter import register
from xe_sizer.training.adapters.low_rank import on_weights
from xe_sizer.units import FLOAT32, SIXTEEN_BIT

if TYPE_CHECKING:
    from xe_sizer.graph.inputs import Place, Size
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.graph.operators import Operator
    from xe_sizer.training.adapters.adapter import AdapterOptions, Trained

# Low-rank adapters from a bank of vectors: VB-LoRA (Li et al. 2024, arXiv:2405.15179), Uni-LoRA (arXiv:2506.00799).

# Published: vectors of the bank, their length, and how many of them each piece mixes (peft's defaults).
VECTORS, LENGTH, CHOSEN = 256, 256, 2
THETA = 256  # published: numbers of Uni-LoRA (peft's default)
INDEX_AND_SCALE = 12.0  # published: bytes of an element's place in the bank, and of its scale (peft, unilora/layer.py)


class Mixed(AdapterForm, eq=True):
    """A and B of pieces, each a mixture of the `CHOSEN` vectors with the largest logits: elements = r (k + n) N / b.

    The vectors that are mixed are kept, and the matrices that they make.
    Source: peft (tuners/vblora/layer.py, _get_lora_matrices).
    """

    rank: int
    length: int

    def elements(self, n: Size, k: Size) -> Size:
        """Logits over the vectors for each piece [-]."""
        return self.rank * (k + n) * VECTORS / self.length

    def operators(self, at: Place) -> Iterator[Operator]:
        """The choice and the mixture, and the products of a low-rank adapter."""
        factors = self.rank * (at.n + at.k) * at.size
        logits, mixed = factors * VECTORS / self.length, CHOSEN * factors
        yield at.kernels(
            "mixture", logits + 4.0 * mixed, 2.0 * logits + 6.0 * mixed, (12.0, 16.0), mixed + factors, logits
        )
        yield from at.chain(self.rank)
        yield at.sum()


class Looked(AdapterForm, eq=True):
    """A and B whose elements are looked up among `THETA` numbers and scaled: elements = 0 beside what all share.

    Source: peft (tuners/unilora/layer.py, Linear.forward).
    """

    rank: int

    tensors = 0

    def elements(self, n: Size, k: Size) -> Size:
        """None of a weight's own [-]."""
        return 0.0 * n

    def buffer_bytes(self, n: Size, k: Size) -> Size:
        """Where each element is, and its scale [bytes]."""
        return INDEX_AND_SCALE * self.rank * (n + k)

    def operators(self, at: Place) -> Iterator[Operator]:
        """The lookup and the scale of both matrices, which are kept, and their products."""
        factors = self.rank * (at.n + at.k) * at.size
        yield at.kernels("lookup", 7.0 * factors, 7.0 * factors, (4.0, 7.0), factors, factors)
        yield from at.chain(self.rank)
        yield at.sum()


@register("vblora", label="VB-LoRA", settings=("lora",), rank=4, aliases=("vb-lora",))
def vblora(model: ModelShape, options: AdapterOptions) -> Trained:
    """One bank for all layers."""
    length = options.block_size or LENGTH
    return on_weights(model, options, Mixed(options.lora_rank, length), added_parameters=VECTORS * length)


@register("unilora", label="Uni-LoRA", settings=("lora",), rank=4, aliases=("uni-lora",))
def unilora(model: ModelShape, options: AdapterOptions) -> Trained:
    """A few numbers for all layers."""
    return on_weights(model, options, Looked(options.lora_rank), added_parameters=options.frequencies or THETA)


# AdaMSS: small updates in several subspaces of a weight (Zheng et al. 2025, NeurIPS, openreview 8ZdWmpYxT0).

INDEX_BYTES = 8.0  # published: peft keeps the place of each output as int64 (scatter_index)
SUBSPACES, RANK_OF_EACH = 5, 1  # published: of peft's defaults


class Subspaces(AdapterForm, eq=True):
    """Inputs onto r directions that stay, r_i of each of K subspaces from them, and their n / K outputs.

        elements = K r_i r + r_i n

    Source: peft (tuners/adamss/layer.py, Linear.forward).
    """

    rank: int

    tensors = 2 * SUBSPACES
    reads_input = False

    def elements(self, n: Size, k: Size) -> Size:
        """Both matrices of each subspace [-]."""
        return RANK_OF_EACH * (SUBSPACES * self.rank + n)

    def buffer_bytes(self, n: Size, k: Size) -> Size:
        """The directions, in the type of the model, and where each output belongs [bytes]."""
        return SIXTEEN_BIT * self.rank * k + INDEX_BYTES * n

    def operators(self, at: Place) -> Iterator[Operator]:
        """The shared product, two for each subspace, and the outputs put in their places."""
        e, parts = at.element_bytes, float(SUBSPACES)
        latent, outputs = at.tokens * self.rank * e, at.tokens * at.n * e
        yield at.product("directions", at.tokens, self.rank, at.k, learns=False)
        yield at.product("A", at.tokens, RANK_OF_EACH, self.rank, latent, copies=parts)
        yield at.product("B", at.tokens, at.n / parts, RANK_OF_EACH, at.tokens * RANK_OF_EACH * parts * e, copies=parts)
        yield at.kernels("places", 8.0 * outputs, 5.0 * outputs, (5.0, 4.0), 0.0, 2.0 * outputs)


@register("adamss", label="AdaMSS", settings=("lora",), rank=100)
def adamss(model: ModelShape, options: AdapterOptions) -> Trained:
    """Five subspaces of rank one over the rank's directions."""
    return on_weights(model, options, Subspaces(options.lora_rank))


# FRoD: a sparse matrix between two dense ones that the weights of all layers share (doi:10.1609/aaai.v40i31.39813).

SPARSE_RATE = 0.01  # published: share of the entries that learn (peft's default)


class Rotated(AdapterForm, eq=True):
    """(x V) (S + diag(l)) U^T in place of x W^T: elements = k + share of k^2. V (k by k) is shared by layers; U is not.

    All products run in the type of the model; x V is kept, and S, dense for its product.
    Source: peft (tuners/frod/layer.py, Linear.forward).
    """

    reads_input = False
    replaces = True

    def elements(self, n: Size, k: Size) -> Size:
        """The diagonal, and the entries of S [-]."""
        return k + np.floor(k * k * SPARSE_RATE)

    def buffer_bytes(self, n: Size, k: Size) -> Size:
        """U in 16 bit, and two indices of 8 bytes of each entry [bytes]."""
        return SIXTEEN_BIT * n * k + 2.0 * INDEX_BYTES * np.floor(k * k * SPARSE_RATE)

    def operators(self, at: Place) -> Iterator[Operator]:
        """The product with V, that with S, the scale and the sum, and the product with U."""
        square, passed = at.k * at.k * at.element_bytes, at.tokens * at.k * at.element_bytes
        yield at.product("V", at.tokens, at.k, at.k, learns=False, in_base=True)
        yield at.product("S", at.tokens, at.k, at.k, passed, computed_bytes=square, in_base=True)
        yield at.kernels("scale", 5.0 * passed + 2.0 * square, 9.0 * passed + square, (8.0, 8.0), 0.0, 2.0 * passed)
        yield at.product("U", at.tokens, at.n, at.k, learns=False, in_base=True)


@register("frod", label="FRoD", settings=("lora",))
def frod(model: ModelShape, options: AdapterOptions) -> Trained:
    """One V for each projection that has adapters, whatever the layer."""
    known = {weight.name: weight for kind, _ in model.layer_kinds for weight in layer_weights(model, kind)}
    inputs = [known[adapted_weights(name)[0]].inputs for name in resolve_targets(model, options.lora_targets)]
    return on_weights(model, options, Rotated(), added_bytes=SIXTEEN_BIT * sum(side * side for side in inputs))


# RandLoRA: a full-rank sum of random low-rank matrices with learnt scales (Albert et al. 2025, arXiv:2502.00987).


class RandomBases(AdapterForm, eq=True):
    """x (M B)^T beside x W^T. m = min(n, k): B (m by max) is random and shared, M (m by m) made of m / r scaled bases.

        elements = ceil(m / r) (r + m)

    Source: peft (tuners/randlora/layer.py, get_scaled_bases and Linear.forward).
    """

    rank: int

    def elements(self, n: Size, k: Size) -> Size:
        """Scales of each base: one a rank, and one a column [-]."""
        smaller = np.minimum(n, k)
        return np.ceil(smaller / self.rank) * (self.rank + smaller)  # type: ignore[no-any-return]

    def operators(self, at: Place) -> Iterator[Operator]:
        """The bases scaled twice, a product with what is drawn and one with what is made of what learns."""
        smaller, larger = np.minimum(at.n, at.k), np.maximum(at.n, at.k)
        made, kept = smaller**2 * at.size, at.tokens * smaller * at.size
        yield at.kernels("bases", 4.0 * made, 10.0 * made, (2.0, 6.0), temporary_bytes=3.0 * made)
        yield at.product("drawn", at.tokens, smaller, larger, learns=False)
        yield at.product("made", at.tokens, smaller, smaller, kept, computed_bytes=made)
        yield at.sum()


@register("randlora", label="RandLoRA", settings=("lora",), rank=32)
def randlora(model: ModelShape, options: AdapterOptions) -> Trained:
    """The random bases are as large as the largest weight, once in float32."""
    known = {weight.name: weight for kind, _ in model.layer_kinds for weight in layer_weights(model, kind)}
    names = [part for name in resolve_targets(model, options.lora_targets) for part in adapted_weights(name)]
    larger = max(max(known[name].inputs, known[name].outputs) for name in names)
    smaller = max(min(known[name].inputs, known[name].outputs) for name in names)
    shared = FLOAT32 * smaller * (larger + options.lora_rank)
    return on_weights(model, options, RandomBases(options.lora_rank), added_bytes=shared)


# VeRA: vectors around random matrices that all layers share (Kopiczko et al. 2023, arXiv:2310.11454), and PVeRA.

PROBABILISTIC = 2.0  # counted: means and variances of each rank


class Shared(AdapterForm, eq=True):
    """b * (d * (x A^T)) B^T beside x W^T: elements = n + r. A and B do not learn and belong to no layer.

    drawn : d has a mean and a variance for each rank, and the latent is drawn from them (PVeRA, arXiv:2512.07703):
    elements = n + 2 r
    Source: peft (tuners/vera/layer.py and tuners/pvera/layer.py, Linear.forward).
    """

    rank: int
    drawn: bool = False

    reads_input = False

    def elements(self, n: Size, k: Size) -> Size:
        """Scales of the ranks and of the outputs [-]."""
        return n + self.rank * (PROBABILISTIC if self.drawn else 1.0)

    def operators(self, at: Place) -> Iterator[Operator]:
        """Two products whose matrices have no gradient, and two scales, each of which keeps what it scales."""
        columns = self.rank * (PROBABILISTIC if self.drawn else 1.0)
        yield at.product("A", at.tokens, columns, at.k, learns=False)
        yield at.product("B", at.tokens, at.n, self.rank, learns=False)
        # Drawn: beside the scaled latent its deviation and what was drawn are kept.
        latent = columns + (2.0 * self.rank if self.drawn else 0.0)
        scaled = at.tokens * (at.n + latent) * at.size
        yield at.kernels("scales", 2.0 * scaled, 6.0 * scaled, (2.0, 6.0), scaled, at.tokens * at.n * 2.0 * at.size)
        yield at.sum()


def _shared_bytes(model: ModelShape, options: AdapterOptions, columns: float) -> float:
    """A and B as wide and as high as the largest weight needs, once in float32 [bytes]."""
    known = {weight.name: weight for kind, _ in model.layer_kinds for weight in layer_weights(model, kind)}
    names = [part for name in resolve_targets(model, options.lora_targets) for part in adapted_weights(name)]
    inputs, outputs = (max(getattr(known[name], side) for name in names) for side in ("inputs", "outputs"))
    return float(FLOAT32 * (columns * inputs + options.lora_rank * outputs))


@register("vera", label="VeRA", settings=("lora",), rank=256)
def vera(model: ModelShape, options: AdapterOptions) -> Trained:
    """Two vectors a weight."""
    form = Shared(options.lora_rank)
    return on_weights(model, options, form, added_bytes=_shared_bytes(model, options, options.lora_rank))


@register("pvera", label="PVeRA", settings=("lora",), rank=256)
def pvera(model: ModelShape, options: AdapterOptions) -> Trained:
    """VeRA with a latent that is drawn."""
    form = Shared(options.lora_rank, drawn=True)
    return on_weights(
        model, options, form, added_bytes=_shared_bytes(model, options, PROBABILISTIC * options.lora_rank)
    )
