"""What a record of reinforcement learning says of its answers, as keys of a scenario: their lengths and their pools."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from xe_sizer.errors import InputError
from xe_sizer.evidence.job_of import kind_of
from xe_sizer.evidence.model_of import model_of
from xe_sizer.evidence.names import look_up, names, release_in
from xe_sizer.evidence.record_parts import Shape
from xe_sizer.profiles.inherited import of_release
from xe_sizer.software.engine import load_engine
from xe_sizer.software.stack import load_stack

if TYPE_CHECKING:
    from xe_sizer.evidence.flags import Flags, RecordRegistry
    from xe_sizer.evidence.records import Record

PROMPT_TOKENS = 110.0  # of mathematical problems in a chat template, where a source counts them with the answers


def reinforces(record: Record) -> bool:
    """Whether a record is of a job that learns from answers which it wrote itself."""
    kind = kind_of(record)
    return kind is not None and kind.rollout is not None and record.reinforces


def trainer_of(record: Record) -> Record:
    """The record of those that train: their GPUs, and the batch of an optimizer step.

    An optimizer step takes all answers of an iteration where nothing else is stated.
    """
    batch, gpus = record.batch, record.gpus
    answers = (batch.prompts or 0) * (batch.group or 1)
    total = batch.total or answers or None
    if total and answers:
        total = min(total, answers)
    if gpus is not None and record.trainer_gpus is not None:
        gpus = record.trainer_gpus
    return msgspec.structs.replace(record, gpus=gpus, batch=msgspec.structs.replace(batch, total=total))


def rollout_of(record: Record, registry: RecordRegistry, flags: Flags) -> None:
    """The section `rollout`, and the models that stand beside the actor."""
    flags.put("rollout.prompts", record.batch.prompts)
    flags.put("rollout.group", record.batch.group)
    _lengths(record, flags)
    _pools(record, flags)
    rollout = record.rollout
    _engine(record, registry, flags)
    flags.put("rollout.tp", rollout.tp)
    for name in ("pp", "ep"):  # engines have neither unless they are told
        flags.put(f"rollout.{name}", getattr(rollout, name) or 1)
    flags.put("rollout.gpu_memory_utilization", rollout.gpu_memory_utilization)
    flags.put("rollout.weights", rollout.weights)
    flags.put("rollout.offload", rollout.offload)
    flags.put("rollout.max_sequences", rollout.max_sequences)
    for key in ("critic_model", "reward_model"):
        _companion(record, key, registry, flags)


def _engine(record: Record, registry: RecordRegistry, flags: Flags) -> None:
    """What writes the answers, in the release that the framework names, else in the one that came with the stack's."""
    table, stated = names().rollout_engines, record.rollout.engine
    usual = load_stack(str(flags.values["stack"]), finder=registry).rollout.engine
    bare = of_release(usual)[0] if stated is None else look_up(table, stated.lower())
    release = release_in((record.framework or "").lower(), (bare,)) if bare else None
    if bare and release and load_engine(bare).releases:
        flags.put("rollout.engine", f"{bare}@{release}")
    elif stated is not None and bare == of_release(usual)[0]:
        flags.put("rollout.engine", usual)
    else:
        flags.word("rollout.engine", table, stated)


def usual_prompts(record: Record, flags: Flags) -> None:
    """Where the prompts of an iteration are not stated, they make one optimizer step."""
    if record.batch.prompts is None:
        group, batch = record.batch.group or 1, flags.values.get("train.global_batch", 1)
        flags.put("rollout.prompts", -(-batch // group), "an iteration of one optimizer step: prompts not stated")


def gpus_of(record: Record, flags: Flags) -> int | None:
    """GPUs of the scenario: all, but those of a critic that has some for itself beside an actor that writes too."""
    gpus, actor = record.gpus, record.trainer_gpus
    if not record.colocated or gpus is None or actor is None or actor >= gpus:
        return gpus
    flags.assumed.append(f"{gpus - actor} GPUs of the critic alone left out: predicted on the actor's {actor}")
    return actor


def _lengths(record: Record, flags: Flags) -> None:
    """Tokens of prompts and answers; where a source counts both together, prompts are as long as problems are."""
    inputs, outputs = record.input_len, record.output_len
    if outputs is None and record.mean_tokens is not None:
        if inputs is None:
            inputs = min(PROMPT_TOKENS, record.mean_tokens / 2.0)
            flags.assumed.append(f"prompts of {inputs:g} tokens: counted with their answers")
        outputs = record.mean_tokens - inputs
    if outputs is None:
        flags.assumed.append("answers as long as is usual: lengths not stated")
    elif inputs is None:
        flags.assumed.append("prompts as long as is usual: not stated")
    flags.put("rollout.input_tokens", inputs)
    flags.put("rollout.output_tokens", outputs)
    flags.put("rollout.max_output_tokens", record.max_output_len)


def _pools(record: Record, flags: Flags) -> None:
    """Which GPUs write answers, and whether they do so while others train."""
    gpus, rollout = record.gpus, record.rollout
    if record.colocated is not False:
        flags.put("rollout.colocated", record.colocated)
        return
    apart = rollout.gpus
    if gpus is not None and record.trainer_gpus is not None:
        apart = gpus - record.trainer_gpus
    flags.put("rollout.colocated", value=False)
    flags.put("rollout.gpus", apart)
    flags.put("rollout.asynchronous", record.asynchronous)
    if record.asynchronous:
        flags.put("rollout.max_staleness", rollout.staleness)
        flags.put("rollout.partial", rollout.partial)
    if rollout.gpu and rollout.gpu != record.gpu:
        flags.assumed.append(f"answers are written on {rollout.gpu}: predicted on the trainer's {record.gpu}")


def _companion(record: Record, key: str, registry: RecordRegistry, flags: Flags) -> None:
    """A critic or a reward model, where it is another model than the actor."""
    stated = getattr(record, key)
    if stated is None or stated == record.model:
        return
    try:
        found = model_of(msgspec.structs.replace(record, model=stated, shape=Shape()), registry)
    except InputError:
        flags.assumed.append(f"{key} '{stated}' is unknown here: as is usual")
        return
    registry.built_models[found.name] = found.shape
    flags.put(f"train.{key}", found.name)
