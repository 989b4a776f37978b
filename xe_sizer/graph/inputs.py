"""What shapes a rank's operators: the model, what the rank sees of it, the stack's kernels, what learns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, fields, is_dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.frozen import frozen
from xe_sizer.graph.model import MASKED
from xe_sizer.graph.parameters import adapted_weights

if TYPE_CHECKING:
    from xe_sizer.graph.adapters import AdapterForm
    from xe_sizer.graph.casts import Casts
    from xe_sizer.graph.model import LayerKind, ModelShape
    from xe_sizer.graph.operators import Array, Kernels, RankShape
    from xe_sizer.graph.weight import Weight

JOINED = (("q", "k", "v"), ("o",), ("gate", "up", "down"))
"""Projections whose adapters in-place kernels take together: all of a group or none (Unsloth kernels/fast_lora.py)."""
MASKED_SHARE = 0.15  # published: of the tokens, in the pre-training of BERT (arXiv:1810.04805, section 3.1)


@frozen
class Learning:
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


@frozen
class Expansion:
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


@frozen
class GraphInputs:
    """All that shapes a rank's operators.

    element_bytes : size of an activation element [bytes]
    weight_forward_bytes, weight_backward_bytes : memory traffic per element of a linear weight beside the product
    itself: casts of float32 weights, expansion of quantised ones, accumulation of gradients [bytes]
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
        """All that the inputs hold by rank shape, of shape (rank shape,): the graph is the same where all are equal."""
        return tuple(np.broadcast_to(column, np.shape(self.rank.tp)) for column in _arrays_in(self))

    @cached_property
    def hidden_bytes(self) -> Array:
        """The rank's hidden state in the compute type, as linear layers keep it [bytes]."""
        tokens = self.rank.tokens if self.kernels.gathered_inputs else self.rank.resident_tokens
        return tokens * self.model.hidden * self.element_bytes

    @cached_property
    def residual_bytes(self) -> Array:
        """The hidden state that the rank holds between the blocks [bytes]."""
        return self.rank.resident_tokens * self.model.hidden * self.residual_element_bytes

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

    @cached_property
    def decoding(self) -> GraphInputs:
        """The inputs with the sequences that the last layer sees, which are the decoder's."""
        if not self.model.encoder_layers or self.target_share == 1.0:
            return self
        return replace(self, rank=replace(self.rank, sequence=self.rank.sequence * self.target_share), target_share=1.0)

    @cached_property
    def predicting(self) -> GraphInputs:
        """The inputs with the tokens that the head works on: the decoder's, or the masked ones of an encoder."""
        if not self.model.bidirectional or self.kernels.predicted == "all":
            return self.decoding
        kernels = replace(self.kernels, predicted="all")
        return replace(self, rank=replace(self.rank, sequence=self.rank.sequence * MASKED_SHARE), kernels=kernels)

    @cached_property
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


def _arrays_in(value: object) -> Iterator[Array]:
    """Every array of a record, of the records that it holds, and of tuples of either."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _arrays_in(item)
    elif is_dataclass(value):
        for each in fields(value):
            yield from _arrays_in(getattr(value, each.name))


@frozen
class Block:
    """One kind of layer: how many layers of the model are of it, and which weights it has."""

    inputs: GraphInputs
    weights: Mapping[str, Weight]
    layers: float
