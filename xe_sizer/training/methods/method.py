"""What a training method changes: which weights learn, what is added to the model, how frozen weights are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from xe_sizer.frozen import frozen
from xe_sizer.graph.adapters import model_adapters
from xe_sizer.graph.model import ModelShape
from xe_sizer.graph.parameters import count_parameters, embedding_weights, head_weights
from xe_sizer.units import FLOAT32

if TYPE_CHECKING:
    from xe_sizer.graph.inputs import Learning
    from xe_sizer.graph.parameters import Weight
    from xe_sizer.graph.parts import Part
    from xe_sizer.software.quantiser import Quantiser, Width


EMBEDDING, HEAD = "embedding", "head"


def saved_head(model: ModelShape) -> tuple[Weight, ...]:
    """What a trained copy of the head consists of: its matrix, which is the embedding's where the two are tied."""
    if model.tied_embeddings:
        return tuple(weight for weight in embedding_weights(model) if weight.split == "vocabulary")
    return tuple(weight for weight in head_weights(model) if weight.split == "vocabulary")


@frozen
class MethodOptions:
    """What a user may choose about a method; None or empty means the stack's default or the method's own."""

    lora_rank: int = 16
    lora_targets: tuple[str, ...] = ("q", "v")
    virtual_tokens: int = 10
    encoder_hidden: int | None = None
    adapter_element_bytes: float = 4.0
    frozen_gradients: bool = False
    quantised: Quantised | None = None
    lora_dropout: float = 0.0
    dora: bool = False
    modules_to_save: tuple[str, ...] = ()
    saved_element_share: float = 1.0


@frozen
class Quantised:
    """How frozen linear weights are held in few bits: the library, its row for the bits, and what they come from.

    quantised_from_bytes : size of an element of what the weights were quantised from [bytes]
    """

    quantiser: Quantiser
    width: Width
    quantised_from_bytes: float

    @property
    def cast_bytes(self) -> float:
        """Moved for a weight where it is expanded to a wider type than the product's, and cast [bytes]."""
        return self.quantiser.cast_bytes(self.quantised_from_bytes)

    @property
    def buffer_bytes(self) -> float:
        """Size of an element of an expanded weight while it is used [bytes]; 0 where it never is as a whole."""
        return self.quantiser.buffer_bytes(self.quantised_from_bytes) if self.width.expands else 0.0


@frozen
class Method:
    """A method applied to a model.

    kind : the method, whatever the model
    learning : what learns, as the operator graph sees it
    added_parameters : parameters beside the layers (prompt encoder) [-]
    added_tokens : tokens put before every sequence [-]
    held : how frozen linear weights of the layers are quantised; None where they are kept as the stack keeps them
    saved_element_share : size of an element of the copies that learn beside adapters, over that of an adapter's [-]
    sequences_per_sample : sequences that a sample of the data is made of, each through the model (a chosen and a
    rejected answer are two) [-]
    frozen_copies : copies of the model that learn nothing and stand beside it (a reference model) [-]
    frozen_forwards : passes of every sequence through frozen weights, forward alone [-]
    parts : of the model beside its layers, each of which learns by itself (an encoder of images)
    """

    kind: MethodKind
    learning: Learning
    added_parameters: int = 0
    added_tokens: int = 0
    held: Quantised | None = None
    saved_element_share: float = 1.0
    sequences_per_sample: int = 1
    frozen_copies: int = 0
    frozen_forwards: int = 0
    parts: tuple[Part, ...] = ()

    @property
    def name(self) -> str:
        return self.kind.name

    @property
    def quantised(self) -> bool:
        """Whether frozen linear weights are held in few bits."""
        return self.held is not None

    def wide_activations(self, autocast: bool) -> bool:
        """Whether activations are float32, as what is not quantised was loaded, and nothing casts them."""
        return self.held is not None and self.held.quantised_from_bytes == FLOAT32 and not autocast

    @property
    def frozen_linear_bytes(self) -> float | None:
        """Storage per element of a frozen linear weight of a layer that is quantised, else None [bytes]."""
        return self.held.width.stored_bytes if self.held else None

    def adapter_parameters(self, model: ModelShape) -> int:
        """Parameters of the adapters in all layers [-]: r (inputs + outputs) per adapted weight."""
        found = model_adapters(model, self.learning.adapters, self.learning.magnitudes)
        return sum(layers * adapter.parameters for layers, adapter in found)

    def trainable_parameters(self, model: ModelShape) -> int:
        """Everything that gets a gradient [-]."""
        base = count_parameters(model).total if self.learning.base else 0
        parts = sum(part.learning_parameters for part in self.parts)
        return base + self.adapter_parameters(model) + self.saved_parameters(model) + self.added_parameters + parts

    def saved_parameters(self, model: ModelShape) -> int:
        """Parameters of the embedding and the head where they learn beside adapters [-]."""
        ends = {EMBEDDING: embedding_weights(model), HEAD: saved_head(model)}
        return sum(weight.parameters for end in self.learning.saved for weight in ends[end])


Builder = Callable[["MethodKind", ModelShape, MethodOptions], Method]


@frozen
class MethodKind:
    """A method whatever the model: its names, and what it is like beside other methods.

    name : that of the job in scenarios
    label : as reports name the job
    words : as advice names it
    evidence : published runs that are like it, the kind of job in the tables of residuals
    build : applies it to a model
    settings : sections of a scenario that say how it is done
    fine_tunes : starts from a trained model; else it makes one, from texts of full length
    quantises : keeps frozen weights in 4 bit
    lighter : name of the method that may do in its place with less, where there is one
    default : what a scenario without a job means
    aliases : what else people call it
    """

    name: str
    label: str
    words: str
    evidence: str
    build: Builder
    settings: tuple[str, ...] = ()
    fine_tunes: bool = True
    quantises: bool = False
    lighter: str | None = None
    default: bool = False
    aliases: tuple[str, ...] = ()

    def applied_to(self, model: ModelShape, options: MethodOptions) -> Method:
        """Raises InputError for options that the model cannot have."""
        return self.build(self, model, options)

    def lighter_ones(self) -> Iterator[MethodKind]:
        """The methods that may do in its place, the one that changes least first."""
        kind = METHODS.get(self.lighter or "")
        if kind is not None:
            yield kind
            yield from kind.lighter_ones()


METHODS: dict[str, MethodKind] = {}


def register(
    name: str, *, label: str, words: str | None = None, evidence: str, settings: tuple[str, ...] = (),
    fine_tunes: bool = True, quantises: bool = False, lighter: str | None = None, default: bool = False,
    aliases: tuple[str, ...] = (),
) -> Callable[[Builder], Builder]:  # fmt: skip
    """Decorator that makes a method known by the function that applies it to a model; see `MethodKind`."""

    def add(build: Builder) -> Builder:
        METHODS[name] = MethodKind(
            name=name,
            label=label,
            words=words or label,
            evidence=evidence,
            build=build,
            settings=settings,
            fine_tunes=fine_tunes,
            quantises=quantises,
            lighter=lighter,
            default=default,
            aliases=aliases,
        )
        return build

    return add
