"""Adapters of one form, or of one for each weight, on the projections of a scenario."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from xe_sizer.graph.inputs import Learning
from xe_sizer.software.adapter_targets import resolve_targets
from xe_sizer.training.adapters.adapter import EMBEDDING, HEAD, Trained

if TYPE_CHECKING:
    from xe_sizer.graph.adapters import AdapterForm
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.training.adapters.adapter import AdapterOptions

# What may learn beside adapters as a copy (modules_to_save of peft).
ENDS = (EMBEDDING, HEAD)


def learning_of(options: AdapterOptions, **what: Any) -> Learning:
    """What learns beside frozen weights, kept and computed as the stack does it. what : fields of `Learning`."""
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
    return Trained(learning_of(options, adapters=forms), saved_element_share=options.saved_element_share, **added)
