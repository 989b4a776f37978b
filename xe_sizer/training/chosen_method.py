"""The training method as the scenario asks for it, with the stack's defaults where it leaves something open."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from xe_sizer.errors import InputError, Problem
from xe_sizer.laws.precision import FP32
from xe_sizer.scenario.provenance import relative
from xe_sizer.software.adapter_targets import resolve_targets
from xe_sizer.software.quantiser import load_quantiser
from xe_sizer.training.methods import METHODS, MethodOptions
from xe_sizer.training.methods.lora import resolve_end
from xe_sizer.training.methods.method import Quantised
from xe_sizer.units import FLOAT32, SIXTEEN_BIT

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.scenario.provenance import Provenance
    from xe_sizer.scenario.read import Given
    from xe_sizer.software.stack import Stack
    from xe_sizer.training.methods import Method, MethodKind


def method_of(provenance: Provenance, model: ModelShape, stack: Stack, kind: MethodKind) -> Method:
    """The method applied to the model. Raises InputError for what the model or the quantiser does not have."""
    uses_adapters = "lora" in kind.settings
    given = provenance.given
    prompt = given.values.p_tuning
    if not kind.quantises:
        _refuse_quantiser(given, kind)
    quantised = _quantised(provenance, stack) if kind.quantises else None
    options = MethodOptions(
        lora_rank=provenance.settle("lora.rank", stack.defaults.lora_rank, "stack") if uses_adapters else 0,
        lora_targets=provenance.settle("lora.targets", _default_targets(model, stack), "stack")
        if uses_adapters
        else (),
        virtual_tokens=prompt.virtual_tokens or MethodOptions.virtual_tokens,
        encoder_hidden=prompt.encoder_hidden,
        adapter_element_bytes=stack.states.adapter_weight_bytes,
        frozen_gradients=stack.states.frozen_gradients,
        lora_dropout=given.values.lora.dropout or 0.0,
        dora=bool(given.values.lora.dora),
        modules_to_save=_saved_ends(given) if uses_adapters else (),
        saved_element_share=_saved_element_share(stack, quantised),
        quantised=quantised,
    )
    try:
        return kind.applied_to(model, options)
    except InputError as error:
        where = given.locate(("lora", "targets"))
        raise InputError(replace(problem, location=where) for problem in error.problems) from None


def _saved_ends(given: Given) -> tuple[str, ...]:
    """Modules that learn beside the adapters. Raises InputError for such as are neither embedding nor head."""
    names = given.values.lora.modules_to_save or ()
    try:
        return tuple(resolve_end(name) for name in names)
    except InputError as error:
        where = given.locate(("lora", "modules_to_save"))
        raise InputError(replace(problem, location=where) for problem in error.problems) from None


def _saved_element_share(stack: Stack, quantised: Quantised | None) -> float:
    """Size of an element of a copied module, which has the frozen one's type (ModulesToSaveWrapper of peft) [-]."""
    states = stack.states
    upcast = quantised is not None and quantised.quantiser.upcasts and states.quantised_upcast
    kept = FLOAT32 if upcast else states.frozen_bytes
    return kept / states.adapter_weight_bytes


def _default_targets(model: ModelShape, stack: Stack) -> tuple[str, ...]:
    """The stack's targets; all of attention for a model whose projections have other names (latent attention)."""
    try:
        resolve_targets(model, stack.defaults.lora_targets)
    except InputError:
        return ("attention",)
    return stack.defaults.lora_targets


def _quantised(provenance: Provenance, stack: Stack) -> Quantised:
    """How frozen weights are held. Raises InputError for bits that the quantiser does not have.

    Weights are quantised from 16 bit unless somebody loads them in float32: transformers 4 sets float16 where none is
    asked for (quantizer_bnb_4bit.py, update_dtype), transformers 5 and other libraries take the checkpoint's type.
    """
    given = provenance.given
    name = str(provenance.settle("train.quantiser", stack.defaults.quantiser, "stack"))
    path = relative(given, "train.quantiser", name)
    quantiser = load_quantiser(path, partial(given.locate, ("train", "quantiser")), provenance.finder)
    bits = int(provenance.settle("train.bits", quantiser.bits[0]))
    if bits not in quantiser.bits:
        where = given.locate(("train", "bits"))
        hint = f"it has {', '.join(map(str, quantiser.bits))}"
        raise InputError(Problem(f"the quantiser {quantiser.name} has no weights of {bits} bits", where, hint))
    wide = (given.values.train.weights_dtype or stack.defaults.quantised_weights_dtype) == FP32
    return Quantised(quantiser, quantiser.width(bits), FLOAT32 if wide else SIXTEEN_BIT)


def _refuse_quantiser(given: Given, kind: MethodKind) -> None:
    """Raises InputError where weights shall be quantised that learn, or that the job keeps as they are."""
    keys = [key for key in ("train.quantiser", "train.bits") if key in given.origin]
    if not keys:
        return
    names = [one.name for one in METHODS.values() if one.quantises]
    hint = f"{given.caller.setting('job', names[0])} does" if names else None
    raise InputError(
        Problem(f"the job {kind.name} does not quantise frozen weights", given.locate(tuple(key.split("."))), hint)
        for key in keys
    )
