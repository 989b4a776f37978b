"""What shapes a rank's operators: the model, what the rank sees of it, kernels, casts, adapters, what learns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec
import numpy as np
from msgspec import field
from msgspec.structs import replace

from xe_sizer.graph.model import MASKED
from xe_sizer.graph.operators import Matmul, MemoryBound, as_array
from xe_sizer.graph.weights import adapted_weights, head_matrix, layer_weights
from xe_sizer.immutable import Immutable, cached_unless_self

if TYPE_CHECKING:
    from xe_sizer.graph.model import LayerKind, ModelShape
    from xe_sizer.graph.operators import Array, Kernels, Operator, RankShape
    from xe_sizer.graph.weights import Weight, WeightGroups

# Parts of a model beside its layers, such as an encoder of images, and which of them learn.

GENERATOR = "generator"
"""Name of the part that replaces tokens for the model."""


class Part(Immutable):
    """A part of a model on the first stage of a pipeline.

    name : as scenarios freeze it; groups : its weights; learning : what of it learns
    split : tensor-parallel ranks share its weights as they share those of the layers; else each has all of them
    """

    name: str
    groups: WeightGroups
    learning: Learning
    split: bool = False

    @property
    def parameters(self) -> int:
        """Parameters without adapters [-]."""
        return round(sum(count * weight.parameters for count, weights in self.groups for weight in weights))

    @property
    def learns(self) -> bool:
        """Whether anything of it gets a gradient."""
        return self.learning.base or self.adapter_parameters > 0

    @property
    def adapter_parameters(self) -> int:
        """Parameters of its adapters [-]."""
        learning = self.learning
        found = (
            (count, adapter) for count, weights in self.groups for adapter in adapters_on(weights, learning.adapters)
        )
        return int(sum(count * adapter.parameters for count, adapter in found))

    @property
    def learning_parameters(self) -> int:
        """Parameters that get a gradient [-]."""
        return (self.parameters if self.learning.base else 0) + self.adapter_parameters

    def matrices_on_rank(self, tp: Array) -> Array:
        """Elements of matrices on a tensor-parallel rank, shape (layout,) [-]."""
        return self._on_rank(tp, ("linear",))

    def others_on_rank(self, tp: Array) -> Array:
        """Elements of norms, tables and other vectors on a tensor-parallel rank, shape (layout,) [-]."""
        return self._on_rank(tp, ("vector", "embedding"))

    def adapters_on_rank(self, tp: Array) -> Array:
        """Elements of adapters on a tensor-parallel rank, shape (layout,) [-]."""
        ranks, learning = self._ranks(tp), self.learning
        held = [
            count * adapter.on_rank(ranks)
            for count, weights in self.groups
            for adapter in adapters_on(weights, learning.adapters)
        ]
        return np.asarray(np.sum([np.zeros_like(ranks), *held], axis=0))

    def _ranks(self, tp: Array) -> Array:
        return np.asarray(tp, dtype=float) if self.split else np.ones(np.shape(tp))

    def _on_rank(self, tp: Array, kinds: Iterable[str]) -> Array:
        ranks = self._ranks(tp)
        held = [
            count * weight.on_rank(weight.matrix_elements, weight.bias_elements, ranks, np.ones_like(ranks))
            for count, weights in self.groups
            for weight in weights
            if weight.kind in kinds
        ]
        return np.asarray(np.sum([np.zeros_like(ranks), *held], axis=0))


# Inputs of the operators.

JOINED = (("q", "k", "v"), ("o",), ("gate", "up", "down"))
"""Projections whose adapters in-place kernels take together: all of a group or none (Unsloth kernels/fast_lora.py)."""
MASKED_SHARE = 0.15  # published: of the tokens, in the pre-training of BERT (arXiv:1810.04805, section 3.1)


class Learning(Immutable):
    """What learns: all base weights (`base`), or adapters of a form on named weights.

    An adapter name is a weight's (`q`, `down`, ...) or `qkv`, one adapter on the fused projection.
    `frozen_gradients`: the stack computes gradients of frozen weights too and throws them away.
    `adapter_dropout`: adapters drop elements of their input. `saved`: the embedding and the head, where they learn
    beside adapters as copies of frozen ones. `before`: a part of the model learns whose results are the first layer's
    input, so that the backward goes through all layers. `norms`: those of the hidden state learn. `prefix`: keys and
    values of so many positions learn in every layer, before those of the sequence.
    """

    base: bool
    adapters: Mapping[str, AdapterForm] = field(default_factory=dict)
    adapter_element_bytes: float = 4.0
    frozen_gradients: bool = False
    adapter_dropout: bool = False
    saved: tuple[str, ...] = ()
    before: bool = False
    norms: bool = False
    prefix: int = 0

    def trains(self, end: str) -> bool:
        """Whether the embedding or the head learns."""
        return self.base or end in self.saved

    @property
    def weight_gradients(self) -> bool:
        """Whether base weights get a gradient computed, needed or not."""
        return self.base or self.frozen_gradients

    def reads_input(self, *names: str, copied: bool = False) -> bool:
        """Whether any of the named weights has an adapter that reads its input. copied : as it is, not in a copy."""
        return any(
            (form.shares_input if copied else form.reads_input) and name in adapted_weights(target)
            for target, form in self.adapters.items()
            for name in names
        )


class Expansion(Immutable):
    """What it takes beside the products to use frozen weights that are held in few bits.

    launches : kernels that expand a weight, forward and backward
    input_bytes, output_bytes : moved for an element of the forward product's input and output [bytes]
    keeps_input : autograd keeps the product's input
    cast_bytes : moved for an element of input and output of the product, which casts them, forward and backward [bytes]
    """

    launches: tuple[float, float] = (1.0, 1.0)
    input_bytes: float = 0.0
    output_bytes: float = 0.0
    keeps_input: bool = False
    cast_bytes: float = 0.0


PLAIN = Expansion()
"""Of weights that are used as they are, or cast in one kernel."""


class GraphInputs(Immutable):
    """All that shapes a rank's operators.

    element_bytes : size of an activation element [bytes]
    weight_forward_bytes, weight_backward_bytes : memory traffic per element of a linear weight beside the product
    itself: casts of float32 weights, expansion of quantised ones, accumulation of gradients [bytes]
    accumulated_bytes : what products of weight gradients move of an element of the gradient that they add to [bytes]
    residual_element_bytes : size of an element of the hidden state between blocks; under autocast with float32
    weights the embedding returns float32, and every linear layer casts its own input; FSDP hands 16-bit weights to the
    embedding, and the hidden state stays 16 bit [bytes]
    returned_element_bytes : size of an element of what linear layers return; None: that of activations. Layers in few
    bits return the type that they are given, which is float32 where what is not quantised became that [bytes]
    autocast : products run in the compute type whatever their weights are kept in
    expansion : what frozen weights cost that are held in few bits
    casts : what it takes to narrow the operands of products; None: they stay as they are
    cached_element_bytes : size of an element of cached keys and values; None: that of activations [bytes]
    padded : share of the micro-batches in which PyTorch's attention is given a mask that hides padding [-]
    compared : sequences of a micro-batch whose states are queries, and those that each is compared with, of shape (rank
    shape,) [-]; None: states are not compared
    target_share : tokens of the decoder's sequence over those of the encoder's, where the model has both [-]
    """

    model: ModelShape
    rank: RankShape
    kernels: Kernels
    learning: Learning
    element_bytes: float = 2.0
    weight_forward_bytes: Array = field(default_factory=lambda: np.zeros(1))
    weight_backward_bytes: Array = field(default_factory=lambda: np.zeros(1))
    accumulated_bytes: float = 0.0
    residual_element_bytes: float | Array = 2.0
    returned_element_bytes: float | Array | None = None
    autocast: bool = False
    expansion: Expansion = PLAIN
    casts: Casts | None = None
    cached_element_bytes: float | None = None
    padded: Array = field(default_factory=lambda: np.zeros(1))
    target_share: float = 1.0
    compared: tuple[Array, Array] | None = None

    @property
    def columns(self) -> tuple[Array, ...]:
        """All that the inputs hold by rank shape, of shape (rank shape,): the graph is the same where all are equal.

        An array of one number is the same for all of them, and the model holds none.
        """
        held = tuple(getattr(self, name) for name in self.__struct_fields__ if name != "model")
        columns = [column for column in _arrays_in(held) if column.size > 1 or self.rank.tp.size == 1]
        assert all(column.size == self.rank.tp.size for column in columns), "an array that is not by rank shape"
        return tuple(columns)

    @cached_property
    def hidden_bytes(self) -> Array:
        """The rank's hidden state in the compute type, as linear layers keep it [bytes]."""
        tokens = self.rank.tokens if self.kernels.gathered_inputs else self.rank.resident_tokens
        return tokens * self.model.hidden * self.element_bytes

    @cached_property
    def residual_bytes(self) -> Array:
        """The hidden state, or the several of hyper-connections, that the rank holds between the blocks [bytes]."""
        width = self.model.hidden * self.model.residual_streams
        return self.rank.resident_tokens * width * self.residual_element_bytes

    @property
    def returned_bytes(self) -> float | Array:
        """Size of an element of what linear layers return [bytes]."""
        return self.element_bytes if self.returned_element_bytes is None else self.returned_element_bytes

    @cached_property
    def moves_weights(self) -> tuple[bool, bool]:
        """Whether there is any traffic of weights beside the products, forward and backward."""
        return bool(np.any(self.weight_forward_bytes > 0)), bool(np.any(self.weight_backward_bytes > 0))

    @property
    def casts_inputs(self) -> Array:
        """1 where linear layers that read the hidden state keep a cast of it each, else 0 [-]"""
        return np.where(np.asarray(self.residual_element_bytes) > self.element_bytes, 1.0, 0.0)

    def seen_by(self, kind: LayerKind) -> GraphInputs:
        """The inputs with the model, and the sequences, as one kind of layer sees them."""
        model = self.model.seen_by(kind)
        inputs = self if model is self.model else replace(self, model=model)
        if model.disentangled_positions and self.kernels.attention != "eager":  # no fused kernel adds its terms
            inputs = replace(inputs, kernels=replace(self.kernels, attention="eager"))
        return inputs if kind.source else inputs.decoding

    @cached_unless_self
    def decoding(self) -> GraphInputs:
        """The inputs with the sequences that the last layer sees, which are the decoder's."""
        if not self.model.encoder_layers or self.target_share == 1.0:
            return self
        return replace(self, rank=replace(self.rank, sequence=self.rank.sequence * self.target_share), target_share=1.0)

    @cached_unless_self
    def predicting(self) -> GraphInputs:
        """The inputs with the tokens that the head works on: the decoder's, or the masked ones of an encoder."""
        if not self.model.bidirectional or self.kernels.predicted == "all":
            return self.decoding
        kernels = replace(self.kernels, predicted="all")
        return replace(self, rank=replace(self.rank, sequence=self.rank.sequence * MASKED_SHARE), kernels=kernels)

    @cached_unless_self
    def scored(self) -> GraphInputs:
        """The inputs with the tokens whose logits the loss works on: a generator's are the masked ones in any case."""
        if self.model.head != MASKED:
            return self.predicting
        kernels = replace(self.kernels, predicted="masked")
        return replace(self, kernels=kernels).predicting

    def drops(self, where: str) -> float:
        """1 where the stack draws dropout masks for this place of the model, else 0."""
        return float(self.kernels.dropout and where in self.model.dropout)

    @property
    def fused_qkv(self) -> bool:
        return self.kernels.fused_qkv or "qkv" in self.model.fused

    @property
    def fused_gate_up(self) -> bool:
        return self.kernels.fused_gate_up or "gate_up" in self.model.fused

    @property
    def wide_adapters(self) -> bool:
        """Whether adapters compute in a wider type than the model, so that each casts its own input (peft)."""
        return self.learning.adapter_element_bytes > self.element_bytes

    def keeps_input(self, *names: str) -> bool:
        """Whether the named weights' input is kept as it is: for their own gradient or a narrow adapter's.

        Adapters that drop elements keep what they left instead, each its own.
        """
        copied = (self.wide_adapters and not self.joins(*names)) or self.learning.adapter_dropout
        adapted = self.learning.reads_input(*names, copied=copied)
        return self.learning.base or self.expansion.keeps_input or adapted

    def stays_float32(self, *names: str) -> bool:
        """Whether any of the named weights is kept in float32 by its class, where the others are held in few bits."""
        return self.expansion is not PLAIN and bool(set(names) & set(self.model.float32_weights))

    def joins(self, *names: str) -> bool:
        """Whether adapters of the named weights run in one function with them, in the model's type and in place.

        So they do in Unsloth (models/llama.py, patch_peft_model): all adapters of a group, without bias, dropout or
        magnitudes.
        """
        if self.kernels.adapters != "in-place" or self.learning.adapter_dropout:
            return False
        forms = {part: form for target, form in self.learning.adapters.items() for part in adapted_weights(target)}
        biases = (self.model.qkv_bias, self.model.output_bias, self.model.mlp_bias)
        groups = [(group, biased) for group, biased in zip(JOINED, biases, strict=True) if set(group) & set(names)]
        return bool(groups) and all(
            not biased and all(part in forms and forms[part].joins for part in group) for group, biased in groups
        )

    @cached_property
    def zeros(self) -> Array:
        return np.zeros_like(self.rank.tokens)


PLAIN_TYPES = frozenset({str, float, int, bool, type(None)})


def _arrays_in(value: object) -> Iterator[Array]:
    """Every array of a record, of the records that it holds, and of tuples of either."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _arrays_in(item)
    elif isinstance(value, msgspec.Struct):
        for each in value.__struct_fields__:
            item = getattr(value, each)
            if type(item) not in PLAIN_TYPES:
                yield from _arrays_in(item)


class Block(Immutable):
    """One kind of layer: how many layers of the model are of it, and which weights it has."""

    inputs: GraphInputs
    weights: Mapping[str, Weight]
    layers: float


# Casts: what narrowing operands to 8 or 4 bit takes, by scaling recipe and library.
#
# A recipe is one row of each table whose library has it.

Fp8Recipe = Literal["tensorwise", "rowwise", "blockwise", "mxfp8", "delayed"]
"""What has a scale of its own: a tensor, a row, a block of 128 or of 32; delayed: a tensor, from its history."""
CastKernels = Literal["transformer-engine", "torchao", "xla"]
FOUR_BIT = "block-of-16"  # the one recipe of products in 4 bit
INTEGERS = "channelwise"  # the one recipe of products in 8-bit integers
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
# Measured: products with a scale for each 128 elements of both operands (weight gradients) reach 0.74 of the rate of
# tensorwise ones, with 128 x 128 of the weight 0.93 (cuBLAS 13 on an H100; benchmarks/measured/nvidia-h100).
_TRANSFORMER_ENGINE = {
    "delayed": Casts(3.0, 1.0, kept_input=1.0, kept_weight=2.0),
    "tensorwise": Casts(5.0, 1.0, kept_input=1.0, kept_weight=2.0, launches=(3.0, 3.0)),
    "blockwise": Casts(3.0 + 4 / 128, 1.0 + 4 / 128, kept_input=1.0 + 4 / 128, kept_weight=2.0, rate=0.85),
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
# XLA casts as torch.compile does. AQT's integers have a scale for each channel along which a product sums, of rows and
# of columns anew: a pass for the maximum and one that casts, of inputs, gradients and weights. All three products are
# in 8 bit, as the ranges of weight gradients are taken by slice (MaxText layers/quantizations.py,
# _get_int8_quant_config; quantization_local_shard_count of configs/base.yml).
_XLA = {**_TORCHAO, INTEGERS: Casts(5.0, 5.0, 5.0, 5.0, launches=(2.0, 4.0))}
CASTS: Mapping[str, Mapping[str, Casts]] = MappingProxyType(
    {"transformer-engine": _TRANSFORMER_ENGINE, "torchao": _TORCHAO, "xla": _XLA}
)


def waiting_input_bytes(block: Block, input_bytes: Array) -> Array:
    """Bytes that autograd keeps of a linear layer's input, where products are narrow.

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
    """Build the casts of a linear layer, or of a group of experts.

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


# Adapters beside a weight: what learns, and what their kernels move.

if TYPE_CHECKING:
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


class AdapterForm(Immutable, eq=True):
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


class Adapter(Immutable):
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
    """Build the adapters on these weights. forms : by the name of a weight, or of several kept as one matrix."""
    known = {weight.name: weight for weight in weights}
    for name, form in forms.items():
        members = tuple(known[part] for part in adapted_weights(name) if part in known)
        if members:
            yield Adapter(form, members)


def head_adapters(model: ModelShape, forms: Mapping[str, AdapterForm]) -> Iterator[Adapter]:
    """Yield the adapter on the matrix of the vocabulary, where it has one."""
    matrix = head_matrix(model)
    yield from adapters_on([matrix] if matrix else [], forms)


def model_adapters(model: ModelShape, forms: Mapping[str, AdapterForm]) -> Iterator[tuple[float, Adapter]]:
    """Yield the adapters of each kind of layer, with how many the layers of the kind have.

    PEFT puts one adapter on a module, however many layers run it (BaseTuner.inject_adapter).
    """
    for kind, layers in model.layer_kinds:
        for adapter in adapters_on(layer_weights(model, kind), forms):
            yield layers / adapter.members[0].adapter_sharing, adapter


class Place(Immutable):
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


# Low-rank adapters: LoRA (Hu et al. 2021, arXiv:2106.09685), with magnitudes (DoRA) or a frozen A.

MAGNITUDE_LAUNCHES = (12.0, 6.0)  # counted: kernels of the forward and of the backward (peft, tuners/lora/dora.py)


class Factors(AdapterForm, eq=True):
    """Two factors of a low rank, A of r rows and k columns, B of n rows and r columns, whatever is made of them."""

    rank: int

    def elements(self, n: Size, k: Size) -> Size:
        """Elements of A and B [-]: r (k + n)."""
        return self.rank * (k + n)

    def matrices(self, n: int, k: int) -> tuple[tuple[int, int], ...]:
        """A and B [-]."""
        return ((self.rank, k), (n, self.rank))


class LowRank(Factors, eq=True):
    """x A^T B^T beside x W^T: A has `rank` rows, B as many columns.

    magnitudes : the norm of each row of W + B A is an own parameter (DoRA, Liu et al. 2024, arXiv:2402.09353)
    freezes_first : A does not learn, so that its input need not be kept (LoRA-FA, Zhang et al. 2023, arXiv:2308.03303)

    elements = r (inputs + outputs), and as many magnitudes as outputs
    Source: peft (tuners/lora/layer.py, Linear.forward).
    """

    magnitudes: bool = False
    freezes_first: bool = False

    @property
    def joins(self) -> bool:
        return not (self.magnitudes or self.freezes_first)

    def elements(self, n: Size, k: Size) -> Size:
        """Elements of A and B [-]: r (k + n), and n magnitudes."""
        return self.rank * (k * float(not self.freezes_first) + n) + n * float(self.magnitudes)

    def buffer_bytes(self, n: Size, k: Size) -> Size:
        """A where it does not learn, in float32 as peft keeps it [bytes]."""
        return 4.0 * self.rank * k * float(self.freezes_first)

    def matrices(self, n: int, k: int) -> tuple[tuple[int, int], ...]:
        """A and B [-]."""
        both = super().matrices(n, k)
        return both[1:] if self.freezes_first else both

    def operators(self, at: Place) -> Iterator[Operator]:
        """The two products, and the kernels around them.

        A column-split weight keeps A whole and splits B, a row-split one splits A, as Megatron's parallel adapters do.
        """
        yield from at.chain(self.rank, learns=(not self.freezes_first, True))
        yield at.sum()
        if self.magnitudes:
            yield _magnitudes(at)


def _magnitudes(at: Place) -> MemoryBound:
    """DoRA's norm of W + s B A in every forward, and its magnitudes times the outputs.

    Of a weight's element: B A (1 written), a copy of W (2 bytes read, 1 written), s B A (2), the sum (3), its norm (1);
    the identity that B A is computed from (2 of inputs squared). Of an output: magnitudes times that of the frozen
    weight (2) and of the adapter (2), the scale (2), the sum (3). The norm has no gradient. Both outputs are kept; the
    identity and four matrices like the weight stand beside each other for a while.
    Source: peft (tuners/lora/dora.py, DoraLinearLayer.forward and get_weight_norm).
    """
    size, n, k = at.size, at.n, at.k
    of_weights = n * k * (8.0 * size + at.element_bytes) + 2.0 * k * k * size
    of_outputs = 9.0 * at.tokens * n * size
    return at.kernels(
        "magnitudes",
        of_weights + of_outputs,
        of_outputs,
        MAGNITUDE_LAUNCHES,
        saved_bytes=at.tokens * n * (at.element_bytes + size),
        temporary_bytes=(4.0 * n + k) * k * size,
    )
