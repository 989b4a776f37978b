"""Adapters whose update of a weight is a product of small matrices: LoRA and its relatives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from xe_sizer.errors import InputError, Problem, did_you_mean
from xe_sizer.graph.inputs import AdapterForm, Factors, Learning, LowRank
from xe_sizer.graph.weights import adapted_weights, layer_weights
from xe_sizer.software.adapter_targets import resolve_targets
from xe_sizer.training.adapters.adapter import EMBEDDING, HEAD, Trained, register
from xe_sizer.units import FLOAT32

if TYPE_CHECKING:
    from xe_sizer.graph.inputs import Place, Size
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.graph.operators import Operator
    from xe_sizer.training.adapters.adapter import AdapterOptions

# Adapters of one form, or of one for each weight, on the projections of a scenario.

# What may learn beside adapters as a copy (modules_to_save of peft).
ENDS = (EMBEDDING, HEAD)


def build_learning(options: AdapterOptions, **what: Any) -> Learning:
    """Build what learns beside frozen weights, kept and computed as the stack does it. what : fields of `Learning`."""
    return Learning(
        base=False,
        adapter_element_bytes=options.element_bytes,
        # Layers in few bits have no weight gradient in any stack: the input gradient alone.
        frozen_gradients=options.frozen_gradients and options.quantised is None,
        adapter_dropout=options.lora_dropout > 0,
        saved=tuple(end for end in ENDS if end in options.modules_to_save),
        **what,
    )


def on_weights(
    model: ModelShape, options: AdapterOptions, form: AdapterForm | Callable[[str], AdapterForm], *, head: bool = False,
    **added: Any,
) -> Trained:  # fmt: skip
    """Adapters on the projections that a scenario names.

    form : of all of them, or of each by its name
    head : whether the matrix of the vocabulary can have one
    added : what stands beside the layers, fields of `Trained`

    Raises
    ------
    InputError : a target that the model does not have
    """
    targets = resolve_targets(model, options.lora_targets, head=head)
    forms = {name: form(name) if callable(form) else form for name in targets}
    return Trained(build_learning(options, adapters=forms), saved_element_share=options.saved_element_share, **added)


# Lily: low-rank adapters with shared second matrices that a router mixes (Zhong et al. 2024, arXiv:2407.09946).

STRIDE, SHARED = 1, 2  # published: layers that share an A, and matrices B (peft's defaults)


class Routed(AdapterForm, eq=True):
    """x A^T M beside x W^T, M a mixture of S = `SHARED` matrices by a softmax: elements = r (k + S).

    Source: peft (tuners/lily/layer.py, Linear.forward).
    """

    rank: int

    def elements(self, n: Size, k: Size) -> Size:
        """A and the router [-]."""
        return self.rank * (k + SHARED)

    def operators(self, at: Place) -> Iterator[Operator]:
        """The two products, the router's, and the mixture of the shared matrices."""
        yield from at.chain(self.rank)
        mixture, shares = self.rank * at.n * at.size, at.tokens * SHARED * at.size
        yield at.product("router", at.tokens, SHARED, self.rank)
        moved = (SHARED + 1.0) * mixture + 3.0 * shares
        yield at.kernels("mixture", moved, 2.0 * moved, (4.0, 5.0), mixture + shares, SHARED * mixture)
        yield at.sum()


@register("lily", label="Lily", settings=("lora",), rank=32)
def lily(model: ModelShape, options: AdapterOptions) -> Trained:
    """Every layer has an A; a projection's matrices B serve all layers."""
    known = {weight.name: weight for kind, _ in model.layer_kinds for weight in layer_weights(model, kind)}
    names = resolve_targets(model, options.lora_targets)
    outputs = sum(known[part].outputs for name in names for part in adapted_weights(name))
    return on_weights(model, options, Routed(options.lora_rank), added_parameters=SHARED * options.lora_rank * outputs)


# LoRA-FA: low-rank adapters whose first matrix stays as it was drawn (Zhang et al. 2023, arXiv:2308.03303).


@register("lora-fa", label="LoRA-FA", settings=("lora",))
def lora_fa(model: ModelShape, options: AdapterOptions) -> Trained:
    """B alone learns, so that nothing as wide as the input is kept."""
    return on_weights(model, options, LowRank(options.lora_rank, options.dora, freezes_first=True))


# Few numbers between frozen low-rank matrices: TinyLoRA (arXiv:2602.04118), PSOFT (arXiv:2505.11235).

TINY = 64  # published: numbers of each weight (peft's default)
SOLVES = 5.0  # counted: r by r matrices of a rotation's equations that are kept


class Between(AdapterForm, eq=True):
    """x A^T M B^T beside x W^T: A and B are the weight's own singular directions and do not learn; M (r by r) is made.

    tiny : M is a sum of `TINY` random matrices with scales that learn: elements = 64
    else : M is a rotation between two scales: elements = r (r - 1) / 2 + 2 r
    Source: peft (tuners/tinylora/layer.py and tuners/psoft/layer.py, Linear.forward).
    """

    rank: int
    tiny: bool

    tensors = 1
    reads_input = False

    def elements(self, n: Size, k: Size) -> Size:
        """Numbers that M is made of [-]."""
        own = TINY if self.tiny else self.rank * (self.rank - 1) / 2 + 2 * self.rank
        return own + 0.0 * n

    def buffer_bytes(self, n: Size, k: Size) -> Size:
        """A, B and the random matrices in float32 [bytes]."""
        return FLOAT32 * (self.rank * (n + k) + (TINY * self.rank * self.rank if self.tiny else 0.0))

    def operators(self, at: Place) -> Iterator[Operator]:
        """Three products of the tokens, of which the middle one's matrix alone has a gradient."""
        rank, square = float(self.rank), float(self.rank * self.rank) * at.size
        solved = 0.0 if self.tiny else SOLVES
        yield at.kernels("made", 20.0 * square, 30.0 * square, (10.0, 16.0), solved * square)
        yield at.product("A", at.tokens, rank, at.k, learns=False)
        yield at.product("M", at.tokens, rank, rank, at.tokens * rank * at.size, computed_bytes=square)
        yield at.product("B", at.tokens, at.n, rank, learns=False)
        yield at.sum()


@register("tinylora", label="TinyLoRA", settings=("lora",), rank=2)
def tinylora(model: ModelShape, options: AdapterOptions) -> Trained:
    """64 numbers a weight."""
    return on_weights(model, options, Between(options.lora_rank, tiny=True))


@register("psoft", label="PSOFT", settings=("lora",), rank=32)
def psoft(model: ModelShape, options: AdapterOptions) -> Trained:
    """A rotation inside the weight's largest directions."""
    return on_weights(model, options, Between(options.lora_rank, tiny=False))


# DoRA: low-rank adapters with the norm of each output's weights apart (Liu et al. 2024, arXiv:2402.09353).


@register("dora", label="DoRA", settings=("lora",), drops=True, lighter="lora", aliases=("qdora",), place=3)
def dora(model: ModelShape, options: AdapterOptions) -> Trained:
    """Low-rank adapters as with `lora.dora`."""
    return on_weights(model, options, LowRank(options.lora_rank, magnitudes=True))


# GLoRA: a weight that is scaled and shifted by low-rank matrices (Chavan et al. 2023, arXiv:2306.07967).


class Generalised(AdapterForm, eq=True):
    """x (W + W * (B1 A1) + B2 A2)^T, less x W^T: elements = 2 r (k + n). Made in the type of the model, and kept.

    The weight's own product runs beside it, for the difference.
    Source: peft (tuners/glora/layer.py, GLoraLinear.forward; A and B low-rank, C, D and E none).
    """

    rank: int

    tensors = 4
    shares_input = True

    def elements(self, n: Size, k: Size) -> Size:
        """Two pairs of factors [-]."""
        return 2 * self.rank * (k + n)

    def operators(self, at: Place) -> Iterator[Operator]:
        """Both products of factors, what is made of them and the weight, and the tokens times that."""
        weight, wide = at.n * at.k * at.element_bytes, at.n * at.k * at.size
        yield at.product("factors", at.n, at.k, self.rank, copies=2.0)
        moved = 2.0 * (wide + weight) + 9.0 * weight
        yield at.kernels("made", moved, 3.0 * weight + 2.0 * (wide + weight), (5.0, 3.0), 0.0, 2.0 * weight + wide)
        yield at.product("output", at.tokens, at.n, at.k, computed_bytes=weight, in_base=True)
        outputs = at.tokens * at.n * at.element_bytes
        yield at.kernels("difference", 8.0 * outputs, 7.0 * outputs, (3.0, 3.0), 0.0, 2.0 * outputs)


@register("glora", label="GLoRA", settings=("lora",), rank=8)
def glora(model: ModelShape, options: AdapterOptions) -> Trained:
    """Low-rank scales and shifts of each weight."""
    return on_weights(model, options, Generalised(options.lora_rank))


# DeLoRA: low-rank adapters of a bounded norm (Bini et al. 2025, arXiv:2503.18225).


class Bounded(Factors, eq=True):
    """(x * w) A^T D B^T beside x W^T: D divides by the norms of A's rows and B's columns: elements = r (k + n) + 1.

    w, the norms of W's columns, does not learn. The latent is kept before D and behind it.
    Source: peft (tuners/delora/layer.py, Linear.forward).
    """

    tensors = 3

    def elements(self, n: Size, k: Size) -> Size:
        """A, B and the bound [-]."""
        return super().elements(n, k) + 1

    def buffer_bytes(self, n: Size, k: Size) -> Size:
        """Norms of the weight's columns [bytes]."""
        return FLOAT32 * k

    def operators(self, at: Place) -> Iterator[Operator]:
        """The scaled input, two products, the norms of both matrices, and the sum."""
        yield from at.chain(self.rank)
        latent, factors = at.tokens * self.rank * at.size, self.rank * (at.n + at.k) * at.size
        inputs = at.tokens * at.k * at.size
        yield at.kernels(
            "bound",
            2.0 * latent + factors,
            6.0 * latent + 8.0 * factors + 2.0 * inputs,
            (9.0, 26.0),
            latent,
            2.0 * inputs,
        )
        yield at.sum()


@register("delora", label="DeLoRA", settings=("lora",), rank=8)
def delora(model: ModelShape, options: AdapterOptions) -> Trained:
    """Angles and strength of the update learn apart."""
    return on_weights(model, options, Bounded(options.lora_rank))


# GraLoRA: low-rank adapters on each of several blocks of a weight (Jung et al. 2025, arXiv:2505.20355).

BLOCKS = 2  # published: blocks along each side (peft's default)


class Granular(AdapterForm, eq=True):
    """g blocks of k / g inputs to the rank, exchanged, g blocks of the rank to n / g outputs: elements = r (k + n).

    Source: peft (tuners/gralora/layer.py, Linear.forward).
    """

    rank: int
    blocks: int

    def elements(self, n: Size, k: Size) -> Size:
        """All blocks of A and of B [-]."""
        return self.rank * (k + n)

    def operators(self, at: Place) -> Iterator[Operator]:
        """Two products for each block, and the copies that lay the blocks anew."""
        parts, latent = float(self.blocks), at.tokens * self.rank * self.blocks * at.size
        yield at.product("A", at.tokens, self.rank, at.k / parts, at.input_bytes, copies=parts)
        yield at.product("B", at.tokens, at.n / parts, self.rank, latent, copies=parts)
        outputs, inputs = at.tokens * at.n * at.size, at.tokens * at.k * at.size
        yield at.kernels("exchange", 2.0 * (latent + outputs), 2.0 * (latent + inputs), (2.0, 2.0), 0.0, outputs)
        yield at.sum()


@register("gralora", label="GraLoRA", settings=("lora",), rank=32)
def gralora(model: ModelShape, options: AdapterOptions) -> Trained:
    """Two blocks along each side, or as many as fit `block_size`."""
    return on_weights(model, options, Granular(options.lora_rank, options.block_size or BLOCKS))


# HiRA: a low-rank matrix times the weight, element by element (Huang et al. 2025, ICLR, openreview TwJrTz9cRS).


class Modulated(Factors, eq=True):
    """D = W * (B A), x D^T beside x W^T: elements = r (k + n). D's gradient is multiplied with W on its way to B A.

    Source: peft (tuners/hira/layer.py, Linear.forward).
    """

    def operators(self, at: Place) -> Iterator[Operator]:
        """B A, its product with the weight, and the tokens times that."""
        weight, base = at.n * at.k * at.size, at.n * at.k * at.element_bytes
        yield at.product("B A", at.n, at.k, self.rank)
        yield at.kernels("made", 2.0 * weight + base, 2.0 * weight + base, (1.0, 1.0), temporary_bytes=2.0 * weight)
        yield from at.delta()


@register("hira", label="HiRA", settings=("lora",), rank=32)
def hira(model: ModelShape, options: AdapterOptions) -> Trained:
    """Of high rank, as the weight is, from as much as LoRA learns."""
    return on_weights(model, options, Modulated(options.lora_rank))


# Polytropon: low-rank adapters mixed from an inventory of skills (Ponti et al. 2022, arXiv:2202.13914).

TASKS, SKILLS = 1, 4  # published: peft's defaults


class Skilled(AdapterForm, eq=True):
    """x A^T B^T, A and B mixtures of `SKILLS` for each sequence: elements = skills r (k + n) + tasks skills.

    Source: peft (tuners/poly/layer.py, Linear.forward).
    """

    rank: int

    tensors = 3

    def elements(self, n: Size, k: Size) -> Size:
        """Every skill's A and B, and the tasks' logits over them [-]."""
        return SKILLS * self.rank * (k + n) + TASKS * SKILLS

    def operators(self, at: Place) -> Iterator[Operator]:
        """The mixtures, which are kept for every sequence, and the products with them."""
        batch = at.block.inputs.rank.batch
        mixed = batch * self.rank * (at.n + at.k) * at.size
        yield at.kernels("mixture", 2.0 * SKILLS * mixed, 3.0 * SKILLS * mixed, (6.0, 12.0), mixed, mixed)
        yield from at.chain(self.rank)
        yield at.sum()


@register("poly", label="Polytropon", settings=("lora",), rank=8, aliases=("polytropon",))
def poly(model: ModelShape, options: AdapterOptions) -> Trained:
    """Four skills, one task."""
    return on_weights(model, options, Skilled(options.lora_rank))


# LoHa: the element-wise product of two low-rank matrices (Hyeon-Woo et al. 2021, arXiv:2108.06098; LyCORIS).


class Hadamard(AdapterForm, eq=True):
    """D = (B1 A1) * (B2 A2), x D^T beside x W^T: elements = 2 r (k + n).

    D is made in every forward from two products of 2 n k r FLOPs; the backward makes both again and multiplies each
    with D's gradient, of which two and a factor stand beside each other.
    Source: peft (tuners/loha/layer.py, HadaWeight).
    """

    rank: int

    tensors = 4

    def elements(self, n: Size, k: Size) -> Size:
        """Two pairs of factors [-]."""
        return 2 * self.rank * (k + n)

    def operators(self, at: Place) -> Iterator[Operator]:
        """Both factors' products, their element-wise one, and the tokens times it."""
        one, weight = at.block.inputs.rank.ones, at.n * at.k * at.size
        yield at.product("factors", at.n, at.k, self.rank * one, copies=2.0)
        yield at.kernels("made", 5.0 * weight, 10.0 * weight, (2.0, 3.0), temporary_bytes=4.0 * weight)
        yield from at.delta()


@register("loha", label="LoHa", settings=("lora",))
def loha(model: ModelShape, options: AdapterOptions) -> Trained:
    """A matrix as large as the weight, of rank up to the square of what learns."""
    return on_weights(model, options, Hadamard(options.lora_rank))


# LoKr: a Kronecker product of a small matrix and a low-rank one (Edalati et al. 2022, arXiv:2212.10650; LyCORIS).


def factors(size: int) -> tuple[int, int]:
    """The divisors of a size that multiply to it and differ least, the smaller first; 1 and itself of a prime [-]."""
    small = next(each for each in range(int(size**0.5), 0, -1) if size % each == 0)
    return small, size // small


class Kronecker(AdapterForm, eq=True):
    """D = C (x) (B A), x D^T beside x W^T. n = n1 n2, k = k1 k2, as even as they divide; C is n1 by k1.

        elements = n1 k1 + r (n2 + k2)      n1 k1 + n2 k2 where r >= max(n2, k2) / 2

    Source: peft (tuners/lokr/layer.py, LoKrLayer.update_layer and get_delta_weight; lycoris_utils.py, factorization).
    """

    rank: int

    tensors = 3

    def elements(self, n: Size, k: Size) -> Size:
        """C, and the low-rank factors of the other matrix or itself [-]."""
        return np.vectorize(self._elements, otypes=[float])(n, k)  # type: ignore[no-any-return]

    def _elements(self, n: float, k: float) -> float:
        (n1, n2), (k1, k2) = factors(round(n)), factors(round(k))
        return n1 * k1 + (self.rank * (n2 + k2) if self.rank < max(n2, k2) / 2 else n2 * k2)

    def operators(self, at: Place) -> Iterator[Operator]:
        """The outer product and its scale; backward, two products with D's gradient and their sums."""
        weight = at.n * at.k * at.size
        yield at.kernels("made", 3.0 * weight, 10.0 * weight, (3.0, 7.0), temporary_bytes=3.0 * weight)
        yield from at.delta()


@register("lokr", label="LoKr", settings=("lora",))
def lokr(model: ModelShape, options: AdapterOptions) -> Trained:
    """A matrix as large as the weight from very few parameters."""
    return on_weights(model, options, Kronecker(options.lora_rank))


# MiSS: a matrix that is repeated over the inputs, also known as Bone (Kang and Yin 2024, arXiv:2409.15371).


class Shards(AdapterForm, eq=True):
    """The inputs' k / r shards are summed and multiplied with one matrix: elements = r n. The sum is kept.

    Source: peft (tuners/miss/layer.py, MissLinear.forward).
    """

    rank: int

    tensors = 1
    reads_input = False

    def elements(self, n: Size, k: Size) -> Size:
        """One matrix [-]."""
        return self.rank * n

    def matrices(self, n: int, k: int) -> tuple[tuple[int, int], ...]:
        """That matrix [-]."""
        return ((n, self.rank),)

    def operators(self, at: Place) -> Iterator[Operator]:
        """The sum of the shards, the product, and the addition; the gradient is copied to every shard."""
        inputs, latent = at.tokens * at.k * at.size, at.tokens * self.rank * at.size
        yield at.kernels("shards", inputs + latent, 2.0 * inputs, (1.0, 1.0), 0.0, inputs)
        yield at.product("B", at.tokens, at.n, self.rank, latent)
        yield at.sum()


@register("miss", label="MiSS", settings=("lora",), rank=64, aliases=("bone",))
def miss(model: ModelShape, options: AdapterOptions) -> Trained:
    """One matrix of the rank for each weight."""
    return on_weights(model, options, Shards(options.lora_rank))


# OSF: the smaller singular directions of each weight learn, the larger stay (Nayak et al. 2025, arXiv:2504.07097).

PRESERVED = 0.5  # published: share of the directions that stay (peft's default)


class Subspace(AdapterForm, eq=True):
    """x (V)^T (U S)^T with all of V and U: of m = min(n, k) directions half learn: elements = h (n + k + 1), h = m / 2.

    Both halves of U S and of V are laid side by side in every forward, and kept in float32; the weight's own product
    runs too. Buffers: what the learning half was at the start, and the half that stays.
    Source: peft (tuners/osf/layer.py, Linear.forward).
    """

    tensors = 3

    def elements(self, n: Size, k: Size) -> Size:
        """Directions that learn: two vectors and a value each [-]."""
        return np.ceil(np.minimum(n, k) * PRESERVED) * (n + k + 1)

    def buffer_bytes(self, n: Size, k: Size) -> Size:
        """The start of what learns, and the longer vectors of the rest where sides differ, in float32 [bytes]."""
        half = np.minimum(n, k) * PRESERVED
        return FLOAT32 * half * (n + k + 1.0 + np.where(n == k, 0.0, np.maximum(n, k)))

    def operators(self, at: Place) -> Iterator[Operator]:
        """Both factors laid out, two products of the tokens, and the sum."""
        smaller = np.minimum(at.n, at.k)
        left, right = at.n * smaller * at.size, smaller * at.k * at.size
        yield at.kernels("laid out", 4.0 * left + 2.0 * right, 4.0 * left + right, (5.0, 4.0), 0.0, left + right)
        yield at.product("V", at.tokens, smaller, at.k, at.input_bytes, computed_bytes=right)
        yield at.product("U S", at.tokens, at.n, smaller, at.tokens * smaller * at.size + left, computed_bytes=0.0)
        yield at.sum()


@register("osf", label="OSF", settings=("lora",))
def osf(model: ModelShape, options: AdapterOptions) -> Trained:
    """Half of each weight's directions."""
    return on_weights(model, options, Subspace())


# LoRA and QLoRA: low-rank adapters beside frozen weights.
#
# LoRA: Hu et al. 2021, arXiv:2106.09685. QLoRA: Dettmers et al. 2023, arXiv:2305.14314.

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


@register(
    "lora",
    label="LoRA",
    settings=("lora",),
    usual=True,
    on_head=True,
    drops=True,
    lighter="qlora",
    aliases=ALIASES,
    place=1,
)
def lora(model: ModelShape, options: AdapterOptions) -> Trained:
    """Adapters on frozen weights kept in the stack's frozen type, or quantised where somebody asks for it."""
    return on_weights(model, options, LowRank(options.lora_rank, options.dora), head=True)


@register("qlora", label="QLoRA", settings=("lora",), on_head=True, drops=True, quantises=True, place=2)
def qlora(model: ModelShape, options: AdapterOptions) -> Trained:
    """Adapters on frozen weights in few bits; embedding, norms and head stay as they are."""
    return lora(model, options)


# AdaLoRA: low-rank adapters whose ranks are given out anew in training (Zhang et al. 2023, arXiv:2303.10512).

START = 1.5  # published: the ranks that training starts with, over those that it ends with


class Singular(Factors, eq=True):
    """x (E A)^T B^T beside x W^T, E a diagonal: elements = r (k + n + 1).

    E times A is a product of r k elements; the output is divided by the number of ranks, whose division is kept.
    Source: peft (tuners/adalora/layer.py, SVDLinear.forward).
    """

    tensors = 3

    def elements(self, n: Size, k: Size) -> Size:
        """A, B and E, a vector [-]."""
        return super().elements(n, k) + self.rank

    def operators(self, at: Place) -> Iterator[Operator]:
        """Those of a low-rank adapter, and the division: 12 passes over the outputs in its backward."""
        yield from at.chain(self.rank)
        outputs, factor = at.tokens * at.n * at.size, self.rank * at.k * at.size
        forward, backward = 2.0 * outputs + 2.0 * factor, 12.0 * outputs + 5.0 * factor
        yield at.kernels("division", forward, backward, (3.0, 9.0), outputs + factor, 2.0 * outputs)
        yield at.sum()


@register("adalora", label="AdaLoRA", settings=("lora",), rank=8, place=7)
def adalora(model: ModelShape, options: AdapterOptions) -> Trained:
    """The rank is that of the end; training starts, and is largest, at 1.5 times it."""
    return on_weights(model, options, Singular(round(START * options.lora_rank)))


# PEANuT: updates that a small network computes from the weights (Zhong et al. 2024, arXiv:2410.01870).


class FromWeight(AdapterForm, eq=True):
    """D^T = relu(W^T A) B, x D^T beside x W^T: A n by r, B r by n: elements = 2 r n. A copy of W is kept.

    Source: peft (tuners/peanut/layer.py, Linear.forward).
    """

    rank: int

    def elements(self, n: Size, k: Size) -> Size:
        """A and B [-]."""
        return 2 * self.rank * n

    def matrices(self, n: int, k: int) -> tuple[tuple[int, int], ...]:
        """A and B [-]."""
        return ((self.rank, n), (n, self.rank))

    def operators(self, at: Place) -> Iterator[Operator]:
        """The weight's copy, two products that make D, and the tokens times it."""
        wide, latent = at.n * at.k * at.size, at.k * self.rank * at.size
        read = wide + at.n * at.k * at.element_bytes
        yield at.kernels("copy", read, 0.0, (1.0, 0.0), wide)
        yield at.product("A", at.k, self.rank, at.n, latent)
        yield at.product("B", at.k, at.n, self.rank)
        yield at.kernels("made", 2.0 * wide + 2.0 * latent, 2.0 * wide + 3.0 * latent, (2.0, 2.0), 0.0, 2.0 * wide)
        yield from at.delta()


@register("peanut", label="PEANuT", settings=("lora",), rank=32)
def peanut(model: ModelShape, options: AdapterOptions) -> Trained:
    """A network of one hidden layer over each weight."""
    return on_weights(model, options, FromWeight(options.lora_rank))


# DEFT: takes a low-rank part out of the output and puts another in its place (DEFT of peft 0.21).


class Replaced(Factors, eq=True):
    """y - y P P^T + x R^T P^T: P is n by r, R r by k: elements = r (k + n). The output and both latents are kept.

    Source: peft (tuners/deft/layer.py, Linear.forward).
    """

    def operators(self, at: Place) -> Iterator[Operator]:
        """The output onto P and back, the input onto R and over P, a difference and a sum."""
        latent, outputs = at.tokens * self.rank * at.size, at.tokens * at.n * at.size
        yield at.product("onto P", at.tokens, self.rank, at.n, outputs)
        yield at.product("from P", at.tokens, at.n, self.rank, latent)
        yield from at.chain(self.rank)
        yield at.kernels("difference", 4.0 * outputs, 4.0 * outputs, (2.0, 3.0), 0.0, 3.0 * outputs)
        yield at.sum()


@register("deft", label="DEFT", settings=("lora",), rank=8)
def deft(model: ModelShape, options: AdapterOptions) -> Trained:
    """A direction in, a direction out."""
    return on_weights(model, options, Replaced(options.lora_rank))
