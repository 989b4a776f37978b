"""What a training method changes: which weights learn, what is added to the model, how frozen weights are kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from xe_sizer.graph.adapters import model_adapters
from xe_sizer.graph.model import ModelShape
from xe_sizer.graph.parameters import count_parameters
from xe_sizer.graph.transformer import Learning


@dataclass(frozen=True, eq=False)
class MethodOptions:
    """What a user may choose about a method; None or empty means the stack's default or the method's own."""

    lora_rank: int = 16
    lora_targets: tuple[str, ...] = ("q", "v")
    virtual_tokens: int = 10
    encoder_hidden: int | None = None
    adapter_element_bytes: float = 4.0
    frozen_gradients: bool = False


@dataclass(frozen=True, eq=False)
class Method:
    """A method applied to a model.

    learning : what learns, as the operator graph sees it
    added_parameters : parameters beside the layers (prompt encoder) [-]
    added_tokens : tokens put before every sequence [-]
    frozen_linear_bytes : storage per element of a frozen linear weight of a layer, None for the stack's [bytes]
    quantised : frozen linear weights are expanded to the compute type before every use
    """

    name: str
    learning: Learning
    added_parameters: int = 0
    added_tokens: int = 0
    frozen_linear_bytes: float | None = None
    quantised: bool = False

    def adapter_parameters(self, model: ModelShape) -> int:
        """Parameters of the adapters in all layers [-]: r (inputs + outputs) per adapted weight."""
        return sum(layers * adapter.parameters for layers, adapter in model_adapters(model, self.learning.adapters))

    def trainable_parameters(self, model: ModelShape) -> int:
        """Everything that gets a gradient [-]."""
        base = count_parameters(model).total if self.learning.base else 0
        return base + self.adapter_parameters(model) + self.added_parameters


Builder = Callable[[ModelShape, MethodOptions], Method]
METHODS: dict[str, Builder] = {}


def register(name: str) -> Callable[[Builder], Builder]:
    """Make a method known under its job name."""

    def add(build: Builder) -> Builder:
        METHODS[name] = build
        return build

    return add
