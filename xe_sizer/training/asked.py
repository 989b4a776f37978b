"""What a scenario asks of layers and layouts, in the words of the equations."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from xe_sizer.errors import InputError, Problem
from xe_sizer.training.batch_ramp import BatchRamp
from xe_sizer.training.gathering import OWN
from xe_sizer.training.layout import SELECTIVE, WORDS

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.scenario.read import Given
    from xe_sizer.scenario.schema import LayoutSection, ScenarioFile
    from xe_sizer.training.gathering import Gathering
    from xe_sizer.training.methods import Method

PLAIN_FIELDS = ("tp", "pp", "vpp", "cp", "ep", "dp", "zero", "zero_group", "expert_tp")


def fixed_layout(values: ScenarioFile) -> dict[str, int]:
    """What was chosen of the layout; an accumulation that makes the global batch says nothing else about it."""
    layout: Any = values.layout
    train = values.train
    fixed = {name: getattr(layout, name) for name in PLAIN_FIELDS if getattr(layout, name) is not None}
    if train.micro_batch is not None:
        fixed["micro_batch"] = train.micro_batch
    if train.grad_accum is not None and (train.global_batch is not None or train.micro_batch is None):
        fixed["grad_accum"] = train.grad_accum
    for name, words in WORDS.items():
        if getattr(layout, name) is not None:
            fixed[name] = words.index(getattr(layout, name))
    if layout.stages is not None:
        fixed["pp"] = len(layout.stages)
    if layout.recompute_modules is not None:
        fixed["recompute"] = SELECTIVE
    if layout.sequence_parallel is not None:
        fixed["sequence_parallel"] = int(layout.sequence_parallel)
    return fixed


def layers_asked(values: ScenarioFile) -> dict[str, Any]:
    """Which layers stand where, run again, wait in host memory or learn, and how the batch grows: fields of a job."""
    layout, train = values.layout, values.train
    return {
        "recompute_layers": layout.recompute_layers,
        "offload_layers": layout.offload_layers,
        "offload_fraction": layout.offload_fraction or 1.0,
        "trainable_layers": train.trainable_layers,
        "empty_cache_steps": train.empty_cache_steps,
        "batch_ramp": None if train.batch_ramp_up is None else BatchRamp(*train.batch_ramp_up),
        "first_stage_layers": layout.first_stage_layers,
        "last_stage_layers": layout.last_stage_layers,
        "stage_layers": layout.stages or (),
        "account_for_embedding": bool(layout.account_for_embedding),
        "account_for_loss": bool(layout.account_for_loss),
        "gathering": _gathering(layout),
    }


def _gathering(layout: LayoutSection) -> Gathering:
    """What ZeRO-3 gathers and keeps, as the user says it or as DeepSpeed does by itself."""
    told = {
        "ahead": layout.prefetch_elements,
        "live": layout.live_elements,
        "reuse": layout.reuse_elements,
        "whole": layout.persistent_elements,
    }
    return replace(OWN, **{name: float(value) for name, value in told.items() if value is not None})


def refuse_layers(given: Given, model: ModelShape, method: Method) -> None:
    """Raises InputError where layers shall learn that are frozen, or that the model does not have."""
    layers, where = given.values.train.trainable_layers, given.locate(("train", "trainable_layers"))
    if layers is not None and not method.learning.base:
        told = "the layers are frozen, and what learns beside them learns in all"
        raise InputError(Problem(told, where, "leave it out"))
    if layers is not None and layers > model.layers:
        told = f"{model.name} has {model.layers} layers, not {layers:,} that could learn"
        raise InputError(Problem(told, where, "left out, all of the model learns"))


def routed_as_asked(given: Given, model: ModelShape) -> ModelShape:
    """The model with as many experts a token as are asked for. Raises InputError where it has none, or fewer."""
    asked = given.values.train.experts_per_token
    if asked is None:
        return model
    where = given.locate(("train", "experts_per_token"))
    if model.experts is None:
        raise InputError(Problem(f"{model.name} has no experts", where, "leave experts_per_token out"))
    if asked > model.experts.count:
        told = f"{model.name} has {model.experts.count} experts, not {asked:,} for a token"
        raise InputError(Problem(told, where, f"left out, a token goes through {model.experts.per_token}"))
    return replace(model, experts=replace(model.experts, per_token=asked))


def lengths_assumed(values: ScenarioFile, seq_len_from: str) -> bool:
    """Whether nothing says how long sequences are, neither the job nor its data."""
    data = values.data
    stated = (data.mean_tokens, data.chosen_tokens, data.rejected_tokens, data.max_tokens)
    told = (data.profile, data.file, data.histogram, *stated)
    return seq_len_from == "default" and all(one is None for one in told)
