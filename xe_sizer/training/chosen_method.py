"""The training method as the scenario asks for it, with the stack's defaults where it leaves something open."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from xe_sizer.errors import InputError, Problem
from xe_sizer.laws.device import FP32
from xe_sizer.scenario.provenance import relative
from xe_sizer.software.adapter_targets import ALL_LINEAR, resolve_targets
from xe_sizer.software.quantiser import load_quantiser
from xe_sizer.training.adapters import ADAPTERS, ALL_WEIGHTS, AdapterOptions, Quantised
from xe_sizer.training.adapters.low_rank import resolve_end
from xe_sizer.training.methods import DEFAULT_METHOD, METHODS, MethodOptions
from xe_sizer.training.methods.method import Compared
from xe_sizer.units import FLOAT32, SIXTEEN_BIT

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.profiles.registry import Registry
    from xe_sizer.scenario.provenance import Provenance
    from xe_sizer.scenario.read import Given
    from xe_sizer.software.stack import Stack
    from xe_sizer.training.adapters import AdapterKind, Trained
    from xe_sizer.training.methods import Method, MethodKind


Value = TypeVar("Value")
QUANTISING = ("train.quantiser", "train.bits")
"""Keys that ask for frozen weights in few bits."""
REFERENCE, TEACHER = "train.reference", "train.teacher_model"


def method_of(provenance: Provenance, model: ModelShape, stack: Stack, kind: MethodKind, registry: Registry) -> Method:
    """The method applied to the model. Raises InputError for what the model or the quantiser does not have."""
    options = MethodOptions(
        trained=_trained(provenance, model, stack, kind),
        reference=_reference(provenance, kind),
        teacher=_other_model(provenance, kind, TEACHER, registry),
        compared=_compared(provenance.given),
    )
    try:
        return kind.applied_to(model, options)
    except InputError as error:
        raise InputError(_placed(problem, provenance.given, kind) for problem in error.problems) from None


def _reference(provenance: Provenance, kind: MethodKind) -> str | None:
    """Where a reference comes from, as somebody says who names a job that has one."""
    if REFERENCE not in kind.reads:
        return None
    chosen = provenance.given.values.train.reference
    return None if chosen is None else str(provenance.settle(REFERENCE, None))


def _compared(given: Given) -> Compared:
    """What is compared, as somebody says; else the passages of a micro-batch."""
    asked = given.values.embedding
    return Compared(asked.hard_negatives or 0, bool(asked.across_gpus), bool(asked.cached))


def _other_model(provenance: Provenance, kind: MethodKind, key: str, registry: Registry) -> ModelShape | None:
    """Another model that the job needs. Raises InputError for one that nobody knows."""
    given, name = provenance.given, getattr(provenance.given.values.train, key.rpartition(".")[2])
    if key not in kind.reads or name is None:
        return None
    provenance.settle(key, None)
    return registry.model(relative(given, key, name), partial(given.locate, tuple(key.split("."))))


def _placed(problem: Problem, given: Given, kind: MethodKind) -> Problem:
    """A problem of a job with what it was told, at the key that says it, or at the job's."""
    told = [key for key in kind.reads if key in given.origin]
    return replace(problem, location=problem.location or given.locate(tuple(told[0].split(".") if told else ("job",))))


def adapter_of(given: Given, kind: MethodKind) -> AdapterKind | None:
    """What learns beside frozen weights: as asked for, as the job means it, or as settings of adapters imply it."""
    if asked := given.values.adapter:
        return ADAPTERS.get(asked)
    return kind.usual_adapter or (_implied(given) if kind.implies_adapter else None)


def _implied(given: Given) -> AdapterKind | None:
    """The adapters whose settings a scenario has."""
    sections = {key.partition(".")[0] for key in given.origin}
    return next((one for one in ADAPTERS.values() if one.usual and sections & set(one.settings)), None)


def quantises(given: Given, kind: MethodKind) -> bool:
    """Whether frozen weights are held in few bits."""
    adapter = adapter_of(given, kind)
    asked = any(key in given.origin for key in QUANTISING)
    return adapter is not None and (kind.quantises or adapter.quantises or (asked and not kind.adapter))


def _trained(provenance: Provenance, model: ModelShape, stack: Stack, kind: MethodKind) -> Trained:
    """What learns of the model, with the stack's defaults where the scenario leaves something open."""
    given = provenance.given
    adapter, held = adapter_of(given, kind), quantises(given, kind)
    if not held:
        _refuse_quantiser(given, kind)
    if adapter is None and kind.adapter:
        hint = f"{given.caller.setting('job', DEFAULT_METHOD.name)} trains all weights"
        raise InputError(Problem(f"the job {kind.name} trains adapters", given.locate(("adapter",)), hint))
    if "adapter" in given.origin or adapter is not kind.usual_adapter:
        provenance.settle("adapter", adapter.name if adapter else None)
    if adapter is None:
        return ALL_WEIGHTS
    try:
        return adapter.applied_to(model, _options(provenance, model, stack, adapter, held))
    except InputError as error:
        asked = next((key for key in ("lora.targets", "adapter", "job") if key in given.origin), "lora.targets")
        where = given.locate(tuple(asked.split(".")))
        raise InputError(replace(problem, location=problem.location or where) for problem in error.problems) from None


def _options(
    provenance: Provenance, model: ModelShape, stack: Stack, adapter: AdapterKind, held: bool
) -> AdapterOptions:
    given, projections = provenance.given, "lora" in adapter.settings
    prompt, quantised = given.values.p_tuning, _quantised(provenance, stack) if held else None
    return AdapterOptions(
        lora_rank=provenance.settle("lora.rank", *_default(adapter.rank, stack.defaults.lora_rank))
        if projections
        else 0,
        lora_targets=provenance.settle("lora.targets", *_default(adapter.targets, _default_targets(model, stack)))
        if projections
        else (),
        virtual_tokens=prompt.virtual_tokens or AdapterOptions.virtual_tokens,
        encoder_hidden=prompt.encoder_hidden,
        prompt_embedding=stack.defaults.prompt_embedding,
        block_size=given.values.lora.block_size,
        frequencies=given.values.lora.frequencies,
        element_bytes=stack.states.adapter_weight_bytes,
        frozen_gradients=stack.states.frozen_gradients,
        lora_dropout=given.values.lora.dropout or 0.0,
        dora=bool(given.values.lora.dora),
        modules_to_save=_saved_ends(given) if projections else (),
        saved_element_share=_saved_element_share(stack, quantised),
        quantised=quantised,
    )


def _default(own: Value | None, stack: Value) -> tuple[Value, str]:
    """What a kind of adapters has by itself, else what the stack has, and whose it is."""
    return (stack, "stack") if own is None else (own, "default")


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
    """The stack's targets; all of attention where its projections have other names; all where there is no attention."""
    for targets in (stack.defaults.lora_targets, ("attention",)):
        try:
            resolve_targets(model, targets)
        except InputError:
            continue
        return targets
    return (ALL_LINEAR,)


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
    keys = [key for key in QUANTISING if key in given.origin]
    if not keys:
        return
    names = [one.name for one in METHODS.values() if one.quantises]
    hint = f"{given.caller.setting('job', names[0])} does" if names else None
    raise InputError(
        Problem(f"the job {kind.name} does not quantise frozen weights", given.locate(tuple(key.split("."))), hint)
        for key in keys
    )
