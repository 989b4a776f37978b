"""Adapters beside the weights of a layer: the form that they have, where they sit, and what they compute.

A form learns something beside a frozen weight W of n outputs and k inputs and changes what the weight returns. What it
holds and computes follows from (n, k) and the tokens that pass; every kind of adapter says so in a form of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.frozen import frozen
from xe_sizer.graph.operators import Matmul, MemoryBound, as_array
from xe_sizer.graph.parameters import adapted_weights, head_matrix, layer_weights

if TYPE_CHECKING:
    from xe_sizer.graph.inputs import Block
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.graph.operators import Array, Operator
    from xe_sizer.graph.weight import Weight

    Size = Array | float

MASK = 1.0  # bytes of a dropout mask's element
# Bytes that the kernels around an adapter move, per element of its input and of its output, forward and backward.
# `base`: adapters in the type of the base model; forward, their output is scaled and added to the frozen layer's;
# backward, their gradient of the input is added to the layer's. `wide`: float32 adapters in a 16-bit model (peft); the
# input is cast to float32, the output is scaled and added, the sum is cast down; backward, the gradient of the input
# is cast down. `autocast`: the products run in 16 bits, so the float32 copy of the input is cast down again.
ADAPTER_BYTES = {
    "base": ((0.0, 6.0), (6.0, 2.0)),
    "wide": ((6.0, 24.0), (12.0, 14.0)),
    "autocast": ((12.0, 6.0), (18.0, 2.0)),
}
ADAPTER_LAUNCHES = {"base": (2.0, 2.0), "wide": (5.0, 6.0), "autocast": (4.0, 5.0)}


@frozen(eq=True)
class AdapterForm:
    """What learns beside a weight of n outputs and k inputs.

    tensors : that learn beside a weight [-]
    reads_input : needs the weight's input for its own gradient, so that autograd keeps it
    shares_input : that input as it is, whatever the type of what learns
    replaces : computes the output itself, from a changed weight
    joins : kernels for low-rank adapters can compute it together with the weight's product
    """

    tensors = 2
    reads_input = True
    shares_input = False
    replaces = False

    @property
    def joins(self) -> bool:
        return False

    def elements(self, n: Size, k: Size) -> Size:
        """Parameters that learn beside a weight of n outputs and k inputs, or beside its shard [-]."""
        raise NotImplementedError

    def buffer_bytes(self, n: Size, k: Size) -> Size:
        """What stands beside a weight in every layer and does not learn [bytes]."""
        return 0.0

    def matrices(self, n: int, k: int) -> tuple[tuple[int, int], ...]:
        """Rows and columns of the matrices that learn beside a weight, where they are matrices [-]."""
        return ()

    def operators(self, at: Place) -> Iterator[Operator]:
        """What runs beside the product of the weight, in order."""
        raise NotImplementedError


@frozen
class Adapter:
    """An adapter of a form on `members`, weights that share their input."""

    form: AdapterForm
    members: tuple[Weight, ...]

    @property
    def parameters(self) -> int:
        """Elements that learn [-]."""
        return round(self.mean_parameters)

    @property
    def mean_parameters(self) -> float:
        """Elements that learn in an average layer, where not all have the adapter; of experts, each has its own [-]."""
        return self.members[0].copies * float(as_array(self.form.elements(self._outputs, self.members[0].inputs)))

    @property
    def matrices(self) -> tuple[tuple[int, int], ...]:
        """Rows and columns of the matrices that learn [-]."""
        return self.form.matrices(self._outputs, self.members[0].inputs)

    @property
    def _outputs(self) -> int:
        return sum(weight.outputs for weight in self.members)

    def shard(self, tp: Array) -> tuple[Array, Array]:
        """Outputs and inputs of the adapted weight on a tensor-parallel rank.

            n = outputs / s, k = inputs        column-parallel, s <= tp
            n = outputs, k = inputs / tp       row-parallel

        Parameters
        ----------
        tp : tensor-parallel ranks, shape (layout,) [-]

        Returns
        -------
        (n, k), ndarrays of float, shape (layout,) [-]

        Source: ParallelLinearAdapter of NeMo: what meets a split side of the weight is split as the weight is.
        """
        split, inputs = self.members[0].split, self.members[0].inputs
        columns = split in ("column", "vocabulary")
        shards = [weight.output_shards(tp) if columns else 1.0 for weight in self.members]
        held_outputs = sum(weight.outputs / part for weight, part in zip(self.members, shards, strict=True))
        return held_outputs * np.ones_like(tp), inputs / tp if split == "row" else inputs * np.ones_like(tp)

    def on_rank(self, tp: Array, expert_ranks: Size = 1.0) -> Array:
        """Elements that learn on a rank, where so many share the experts, shape of `tp` [-]."""
        return as_array(self.form.elements(*self.shard(tp))) * self._copies(expert_ranks)

    def buffer_bytes(self, tp: Array, expert_ranks: Size = 1.0) -> Array:
        """What stands beside the weight on a rank and does not learn, shape of `tp` [bytes]."""
        return as_array(self.form.buffer_bytes(*self.shard(tp))) * self._copies(expert_ranks)

    def _copies(self, expert_ranks: Size) -> Size:
        """Experts of a rank, each of which has its own; 1 of other weights [-]."""
        first = self.members[0]
        return first.copies / expert_ranks if first.split == "expert" else 1.0


def adapters_on(weights: Iterable[Weight], forms: Mapping[str, AdapterForm]) -> Iterator[Adapter]:
    """The adapters on these weights. forms : by the name of a weight, or of several kept as one matrix."""
    known = {weight.name: weight for weight in weights}
    for name, form in forms.items():
        members = tuple(known[part] for part in adapted_weights(name) if part in known)
        if members:
            yield Adapter(form, members)


def head_adapters(model: ModelShape, forms: Mapping[str, AdapterForm]) -> Iterator[Adapter]:
    """The adapter on the matrix of the vocabulary, where it has one."""
    matrix = head_matrix(model)
    yield from adapters_on([matrix] if matrix else [], forms)


def model_adapters(model: ModelShape, forms: Mapping[str, AdapterForm]) -> Iterator[tuple[int, Adapter]]:
    """The adapters of each kind of layer, with the number of layers of the kind."""
    for kind, layers in model.layer_kinds:
        for adapter in adapters_on(layer_weights(model, kind), forms):
            yield layers, adapter


@frozen
class Place:
    """Where an adapter works: a weight's shard of n outputs and k inputs, and the tokens that pass it.

    name, module : of the weight; tokens, n, k : shape (rank shape,) [-]
    experts : that have such a weight each and get so many tokens each, in one grouped product; None: one weight [-]
    """

    block: Block
    name: str
    module: str
    tokens: Array
    n: Array
    k: Array
    experts: Array | None = None

    @property
    def weights(self) -> Size:
        """Weights that are adapted together [-]."""
        return 1.0 if self.experts is None else self.experts

    @property
    def size(self) -> float:
        """Of an element of the adapter [bytes]."""
        return self.block.inputs.learning.adapter_element_bytes

    @property
    def element_bytes(self) -> float:
        """Of an activation of the model [bytes]."""
        return self.block.inputs.element_bytes

    @property
    def read_bytes(self) -> float:
        """Of an element that the adapter's products read [bytes]."""
        return self.element_bytes if self.block.inputs.autocast else self.size

    @property
    def copies_input(self) -> float:
        """1 where the adapter reads a cast copy of the input, or what dropout left of it, else 0."""
        return max(float(self.wide), self.drops)

    @property
    def joined(self) -> bool:
        """Whether it runs in one function with its weight's product."""
        return self.block.inputs.joins(*self.name.split("+"))

    @property
    def wide(self) -> bool:
        """Whether it computes in a wider type than the model."""
        return self.block.inputs.wide_adapters and not self.joined

    @property
    def drops(self) -> float:
        """1 where the adapter drops elements of its input, else 0."""
        return float(self.block.inputs.learning.adapter_dropout)

    @property
    def casting(self) -> str:
        """How the adapter's types differ from the model's, as in ADAPTER_BYTES."""
        if not self.wide:
            return "base"
        return "autocast" if self.block.inputs.autocast else "wide"

    @property
    def input_bytes(self) -> Array:
        """The input as an adapter keeps it for its own gradient: a copy and a mask, where it makes them [bytes]."""
        return self.tokens * self.k * (self.read_bytes * self.copies_input + MASK * self.drops)

    @property
    def waiting_bytes(self) -> Array:
        """What lives while the adapter computes and goes with its module: see docs/memory.md [bytes].

            bytes = tokens (e n + e k + 4 k under autocast or with dropout)

        The frozen weight's result; the input where the adapter reads a copy of it; and under autocast the float32 copy,
        of which the product reads one in 16 bit, or dropout what is left of it. An input that is float32 already needs
        no such copy.
        Source: peft (tuners/lora/layer.py, Linear.forward: `x = self._cast_input_dtype(x, ...)`); traced.
        """
        inputs = self.block.inputs
        wide_input = np.asarray(inputs.returned_bytes, dtype=float) >= self.size
        own = self.element_bytes * self.copies_input * (1.0 - wide_input)
        copied = self.size * float(self.casting == "autocast" or (self.wide and self.drops > 0))
        return as_array(self.tokens * (self.n * inputs.returned_bytes + self.k * (own + copied)))

    def product(
        self, label: str, m: Size, n: Size, k: Size, saved_bytes: Size = 0.0, copies: Size = 1.0, learns: bool = True,
        computed_bytes: Size | None = None, in_base: bool = False, waits: bool = False,
    ) -> Matmul:  # fmt: skip
        """A product of the adapter, m x k by k x n.

        learns : the n x k operand gets a gradient
        waits : the module's own input and the frozen weight's result live beside it
        computed_bytes : kept of this operand where it is made from what learns, so that its gradient goes on; else None
        in_base : runs in the precision of the base model's products
        """
        one = self.block.inputs.rank.ones
        return Matmul(
            name=f"{self.name} adapter {label}",
            module=self.module,
            layers=self.block.layers,
            saved_bytes=(saved_bytes + (0.0 if computed_bytes is None else computed_bytes)) * self.weights * one,
            m=m * one,
            n=n * one,
            k=k * one,
            copies=copies * self.weights * one,
            input_gradient=True,
            grouped=self.experts is not None,
            weight_gradient=learns,
            learns=learns,
            adapter=not in_base,
            computed=computed_bytes is not None,
            operand_bytes=None if computed_bytes is None else computed_bytes * self.weights * one,
            forward_temporary_bytes=self.waiting_bytes * self.weights * one * float(waits),
        )

    def kernels(
        self, label: str, forward_bytes: Size, backward_bytes: Size, launches: tuple[float, float],
        saved_bytes: Size = 0.0, temporary_bytes: Size = 0.0, forward_temporary_bytes: Size = 0.0,
    ) -> MemoryBound:  # fmt: skip
        """Kernels of the adapter that only move memory, forward and backward."""
        one = self.weights * self.block.inputs.rank.ones
        return MemoryBound(
            name=f"{self.name} adapter {label}",
            module=self.module,
            layers=self.block.layers,
            saved_bytes=saved_bytes * one,
            forward_bytes=forward_bytes * one,
            backward_bytes=backward_bytes * one,
            forward_launches=launches[0],
            backward_launches=launches[1],
            temporary_bytes=temporary_bytes * one,
            forward_temporary_bytes=forward_temporary_bytes * one,
            adapter=True,
        )

    def chain(self, *columns: Size, learns: tuple[bool, ...] | None = None) -> Iterator[Matmul]:
        """Products of the tokens, one after the other: from k inputs over `columns` to n outputs.

        learns : which of the matrices do; None: all. Autograd keeps what each of them reads.
        """
        widths = (self.k, *columns, self.n)
        labels = ("A", "B") if len(columns) == 1 else tuple(str(place + 1) for place in range(len(widths) - 1))
        saved = (self.input_bytes, *(self.tokens * width * self.size for width in columns))
        learning = learns or (True,) * len(labels)
        for label, n, k, kept, each in zip(labels, widths[1:], widths[:-1], saved, learning, strict=True):
            yield self.product(label, self.tokens, n, k, kept * float(each), learns=each, waits=True)

    def sum(self) -> MemoryBound:
        """Casts the input, scales the adapter's output and adds it to the frozen layer's; ADAPTER_BYTES.

        Wide adapters compute their output, its scaled copy and the sum before the cast in float32. What dropout reads
        stays until the module returns; it reads and writes the input and a mask of one byte.
        """
        e, drops, tokens = self.element_bytes, self.drops, self.tokens
        dropped = drops * (2.0 * self.read_bytes + MASK)
        forward, backward = (tokens * ((x + dropped) * self.k + y * self.n) for x, y in ADAPTER_BYTES[self.casting])
        launches = ADAPTER_LAUNCHES[self.casting]
        temporaries = 5.0 if self.casting == "wide" else 2.0
        temporary = tokens * (temporaries * self.n * e + drops * self.k * self.size)
        outputs = 2.0 * tokens * self.n * (self.size if self.casting == "wide" else e)  # the adapter's, and scaled
        outputs = outputs * float(not self.joined)  # added where the product's result lies
        return self.kernels(
            "add", forward, backward, (launches[0] + drops, launches[1] + drops), temporary_bytes=temporary,
            forward_temporary_bytes=self.waiting_bytes + outputs,
        )  # fmt: skip

    def delta(self) -> Iterator[Operator]:
        """x D^T beside x W^T, of a D as large as W that is computed from what learns in every forward.

        Autograd keeps D and the cast input; D's gradient goes on to what made it.
        """
        kept = self.n * self.k * self.size
        yield self.product("delta", self.tokens, self.n, self.k, self.input_bytes, computed_bytes=kept, waits=True)
        yield self.sum()
