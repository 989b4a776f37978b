"""What a kind of adapter makes of a model: what learns, what is added to it, how the frozen weights are kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypedDict, Unpack

from msgspec.structs import replace

from xe_sizer.graph.inputs import Learning, head_adapters, model_adapters
from xe_sizer.graph.weights import count_parameters, embedding_weights, head_weights
from xe_sizer.immutable import Immutable
from xe_sizer.units import FLOAT32

if TYPE_CHECKING:
    from xe_sizer.graph.inputs import Part
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.graph.weights import Weight
    from xe_sizer.software.quantiser import Quantiser, Width


EMBEDDING, HEAD = "embedding", "head"


def saved_head(model: ModelShape) -> tuple[Weight, ...]:
    """What a trained copy of the head consists of: its matrix, which is the embedding's where the two are tied."""
    if model.tied_embeddings:
        return tuple(weight for weight in embedding_weights(model) if weight.split == "vocabulary")
    return tuple(weight for weight in head_weights(model) if weight.split == "vocabulary")


class Quantised(Immutable, eq=True):
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


VIRTUAL_TOKENS = 10  # assumed: tokens of a prompt that learns, where nobody says


class AdapterOptions(Immutable):
    """What a user may choose about adapters; None or empty means the stack's default or the kind's own.

    prompt_embedding : width of a prompt encoder's virtual tokens; None: that of the model [-]
    block_size : of matrices that are cut into blocks [-]; frequencies : coefficients that learn of a transform [-]
    """

    lora_rank: int = 16
    lora_targets: tuple[str, ...] = ("q", "v")
    virtual_tokens: int = VIRTUAL_TOKENS
    encoder_hidden: int | None = None
    prompt_embedding: int | None = None
    block_size: int | None = None
    frequencies: int | None = None
    element_bytes: float = 4.0
    frozen_gradients: bool = False
    quantised: Quantised | None = None
    lora_dropout: float = 0.0
    dora: bool = False
    modules_to_save: tuple[str, ...] = ()
    saved_element_share: float = 1.0


class Trained(Immutable):
    """What learns of a model, and how the rest is kept.

    learning : what learns, as the operator graph sees it
    kind : of the adapters; None where the model's own weights learn
    added_parameters : parameters beside the layers (prompt encoder, what all layers share) [-]
    added_bytes : what stands beside the layers and does not learn (random matrices that all layers share) [bytes]
    added_tokens : tokens put before every sequence [-]
    held : how frozen linear weights of the layers are quantised; None where they are kept as the stack keeps them
    saved_element_share : size of an element of the copies that learn beside adapters, over that of an adapter's [-]
    parts : of the model beside its layers, each of which learns by itself (an encoder of images)
    """

    learning: Learning
    kind: AdapterKind | None = None
    added_parameters: int = 0
    added_bytes: float = 0.0
    added_tokens: int = 0
    held: Quantised | None = None
    saved_element_share: float = 1.0
    parts: tuple[Part, ...] = ()

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
        """Parameters of the adapters in all layers and on the head [-]: r (inputs + outputs) of each low-rank one."""
        forms = self.learning.adapters
        of_layers = sum(layers * adapter.mean_parameters for layers, adapter in model_adapters(model, forms))
        return round(of_layers + sum(adapter.mean_parameters for adapter in head_adapters(model, forms)))

    def parameters(self, model: ModelShape) -> int:
        """Everything that gets a gradient [-]."""
        base = count_parameters(model).total if self.learning.base else 0
        parts = sum(part.learning_parameters for part in self.parts)
        return base + self.adapter_parameters(model) + self.saved_parameters(model) + self.added_parameters + parts

    def saved_parameters(self, model: ModelShape) -> int:
        """Parameters of the embedding and the head where they learn beside adapters [-]."""
        ends = {EMBEDDING: embedding_weights(model), HEAD: saved_head(model)}
        return round(sum(weight.parameters for end in self.learning.saved for weight in ends[end]))


ALL_WEIGHTS = Trained(Learning(base=True))
"""The model's own weights, all of them."""

Builder = Callable[["ModelShape", AdapterOptions], Trained]


class AdapterKind(Immutable):
    """A kind of adapter whatever the model.

    name : that scenarios give to it
    label : as reports name it
    build : applies it to a model
    settings : sections of a scenario that say how it is done
    quantises : keeps frozen weights in few bits unless somebody asks for more
    usual : the kind that its sections mean where a scenario names none
    lighter : name of the kind that may do in its place with less, where there is one
    rank, targets : that it has where nobody asks for others; None: those of the stack [-]
    on_head : the matrix of the vocabulary can have one
    drops : has the dropout that a stack gives to LoRA by itself
    aliases : what else people call it
    place : in lists of choices, where what is used most comes first; 100: what few people use
    """

    name: str
    label: str
    build: Builder
    settings: tuple[str, ...] = ()
    quantises: bool = False
    usual: bool = False
    lighter: str | None = None
    rank: int | None = None
    targets: tuple[str, ...] | None = None
    on_head: bool = False
    drops: bool = False
    aliases: tuple[str, ...] = ()
    place: int = 100

    def applied_to(self, model: ModelShape, options: AdapterOptions) -> Trained:
        """Raises InputError for options that the model cannot have."""
        return replace(self.build(model, options), kind=self, held=options.quantised)


ADAPTERS: dict[str, AdapterKind] = {}


class Settings(TypedDict, total=False):
    """What a kind may be besides its names; see `AdapterKind`."""

    settings: tuple[str, ...]
    quantises: bool
    usual: bool
    lighter: str
    rank: int
    targets: tuple[str, ...]
    on_head: bool
    drops: bool
    aliases: tuple[str, ...]
    place: int


def register(name: str, *, label: str, **settings: Unpack[Settings]) -> Callable[[Builder], Builder]:
    """Decorator that makes a kind of adapter known by the function that applies it; see `AdapterKind`."""

    def add(build: Builder) -> Builder:
        ADAPTERS[name] = AdapterKind(name=name, label=label, build=build, **settings)
        return build

    return add
