"""What a file says and a scenario would refuse: such values are told, and the scenario is written without them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from xe_sizer.errors import InputError
from xe_sizer.graph.recompute import modules_of
from xe_sizer.importers.draft import ASSUMED, TOOL_DEFAULT
from xe_sizer.laws.device import BF16, FP16, supported_precisions
from xe_sizer.profiles.registry import Registry
from xe_sizer.software.adapter_targets import resolve_targets
from xe_sizer.software.stack import load_stack

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.importers.draft import Draft
    from xe_sizer.laws.hardware import Accelerator

TARGETS = "lora.targets"
_WEIGHTS = "train.weights_dtype"
_BACKEND = "train.backend"
_PARALLEL = "layout.sequence_parallel"
_EXPERT_TP = "layout.expert_tp"
_MODULES = "layout.recompute_modules"
_STAGES = "layout.stages"
_BESIDE = ("train.critic_model", "train.reward_model")


def settle(draft: Draft) -> None:
    """Set aside what goes with nothing else that the files say, so that the scenario runs."""
    _precision(draft)
    _weights(draft)
    _targets(draft)
    if draft.fact(_PARALLEL) and draft.fact("layout.tp") in (None, 1):
        draft.set_aside(_PARALLEL, "without tensor parallelism there is nothing to split")
    _split_experts(draft)
    _modules(draft)
    _stages(draft)
    _models_beside(draft)


def _precision(draft: Draft) -> None:
    """Float16 where a tool chooses by the card and the card has no bfloat16, for weights that it loads so too."""
    accelerator = _accelerator(draft)
    known = supported_precisions(accelerator) if accelerator is not None else ()
    if accelerator is None or BF16 in known or FP16 not in known:
        return
    for key in ("precision", _WEIGHTS):
        fact = draft.facts.get(key)
        if fact is not None and fact.value == BF16 and fact.origin in (TOOL_DEFAULT, ASSUMED):
            draft.replace(key, replace(fact, value=FP16, note=f"{accelerator.name} has no {BF16}"))


def _accelerator(draft: Draft) -> Accelerator | None:
    registry, gpu, server = Registry(), draft.fact("gpu"), draft.fact("server")
    try:
        if gpu is not None:
            return registry.accelerator(str(gpu))
        return registry.server(str(server)).accelerator if server is not None else None
    except InputError:
        return None


def _weights(draft: Draft) -> None:
    """What shares states out, where the stack has it; the type of the weights, where it is no choice."""
    dtype, backend = draft.fact(_WEIGHTS), draft.fact(_BACKEND)
    try:
        stack = load_stack(str(draft.fact("stack"))) if "stack" in draft.facts else None
    except InputError:
        return
    if stack is None:
        return
    if backend is not None and backend not in stack.runs_on:
        draft.set_aside(_BACKEND, f"{stack.name} does not run on {backend}")
    elif backend is not None:
        stack = stack.on_backend(str(backend))
    if dtype is not None and (dtype not in stack.weights_dtypes or stack.loads_alike):
        draft.set_aside(_WEIGHTS, f"what {stack.backend or stack.name} keeps weights in is part of the stack")


def _split_experts(draft: Draft) -> None:
    """Ranks that split an expert, unless it is the tool's default, or there are no experts, or tp has no such part."""
    ranks, tp = draft.fact(_EXPERT_TP), draft.fact("layout.tp") or 1
    if not isinstance(ranks, int) or not isinstance(tp, int):
        return
    model = _model(draft)
    if draft.facts[_EXPERT_TP].origin == TOOL_DEFAULT:
        draft.set_aside(_EXPERT_TP, "experts are split as the layout allows")
    elif model is not None and model.experts is None:
        draft.set_aside(_EXPERT_TP, "the model has no experts")
    elif tp % ranks:
        draft.set_aside(_EXPERT_TP, f"{ranks} ranks do not divide tp {tp}")


def _modules(draft: Draft) -> None:
    """Modules to recompute that the model has; the tool runs nothing again for the others."""
    wanted = draft.fact(_MODULES)
    model = _model(draft) if wanted is not None else None
    if model is None or not isinstance(wanted, tuple):
        return
    has = modules_of(model)
    found = tuple(module for module in wanted if module in has)
    missing = ", ".join(module for module in wanted if module not in has)
    if found and missing:
        draft.narrow(_MODULES, found, f"the model has no {missing}")
    elif missing:
        draft.set_aside(_MODULES, f"the model has no {missing}")


def _stages(draft: Draft) -> None:
    """Stages that hold other layers than the model's, as those of a model that has been cut."""
    stages = draft.fact(_STAGES)
    model = _model(draft) if stages is not None else None
    if model is not None and isinstance(stages, tuple) and sum(stages) != model.layers:
        draft.set_aside(_STAGES, f"the stages hold {sum(stages)} layers, and the model has {model.layers}")


def _models_beside(draft: Draft) -> None:
    """Models that rate answers, unless nothing is known of them: they are taken to have the policy's shape then."""
    for key in _BESIDE:
        name = draft.fact(key)
        if name not in (None, "none") and _profile(str(name)) is None:
            draft.set_aside(key, "its sizes are not known; taken to be those of the model that learns")


def _targets(draft: Draft) -> None:
    """Modules with adapters that the model has; peft gives none to names that it does not find."""
    wanted = draft.fact(TARGETS)
    model = _model(draft) if isinstance(wanted, list | tuple) else None
    if model is None or not isinstance(wanted, list | tuple):
        return
    found = [name for name in wanted if _has(model, str(name))]
    if len(found) == len(wanted):
        return
    missing = ", ".join(str(name) for name in wanted if name not in found)
    if found:
        draft.narrow(TARGETS, tuple(found), f"the model has no {missing}")
    else:
        draft.set_aside(TARGETS, f"the model has no {missing}")


def _model(draft: Draft) -> ModelShape | None:
    name = draft.fact("model")
    return _profile(str(name)) if name is not None else None


def _profile(name: str) -> ModelShape | None:
    try:
        return Registry().model(name)
    except InputError:
        return None


def _has(model: ModelShape, name: str) -> bool:
    try:
        return bool(resolve_targets(model, [name], head=True))
    except InputError:
        return False
