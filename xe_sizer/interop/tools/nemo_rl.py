"""NeMo RL: YAML recipes of GRPO, PPO, DPO, distillation, reward models and SFT, and the commands that start them.

Rules: nemo_rl/algorithms, nemo_rl/models and examples/configs of NVIDIA-NeMo/RL (read at 0.6).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from xe_sizer.errors import InputError, Problem
from xe_sizer.interop import huggingface
from xe_sizer.interop.draft import Table
from xe_sizer.interop.huggingface import (
    COPY,
    NO_OFFLOAD,
    NONE,
    OPTIMIZER,
    PARAMS,
    adapted_modules,
    assume_micro_batch,
    named_adapter,
    shard_sizes,
    state_model_pool,
    state_models,
    state_optimizer,
    state_oversampling,
    state_pools,
    state_rollout,
)
from xe_sizer.interop.launch import command_arguments, find_command, flag_keys
from xe_sizer.interop.megatron import TABLE as MEGATRON_ARGUMENTS
from xe_sizer.interop.megatron import Arguments, state_megatron
from xe_sizer.interop.readers.documents import overridden, resolved
from xe_sizer.interop.source import Tool
from xe_sizer.interop.values import (
    Written,
    above_zero,
    above_zero_or_off,
    interval,
    inverse,
    is_on,
    listed,
    number,
    plain,
    positive,
    positive_or_open,
    switch,
    word_of,
)
from xe_sizer.interop.write import LEARNING_RATE, NULL, Added, Exporter, ToolFiles, yaml_text
from xe_sizer.profiles.catalogue import Registry

if TYPE_CHECKING:
    from xe_sizer.interop.draft import Draft
    from xe_sizer.interop.huggingface import Stated
    from xe_sizer.interop.readers.shell_script import Arguments as Flags
    from xe_sizer.interop.readers.shell_script import Command
    from xe_sizer.interop.source import Certainty, Source
    from xe_sizer.interop.values import Keys
    from xe_sizer.interop.write import Plan

# Recipes of NeMo RL: a file that starts from others, each of which may start from others again.
#
# Rules: nemo_rl/utils/config.py, load_config_with_inheritance and merge_with_override.

_STARTS_FROM, _INSTEAD = "defaults", "_override_"
_LEVELS = 20  # recipes that start from one another
_PROGRAMS = ("run_grpo", "run_ppo", "run_dpo", "run_sft", "run_rm", "run_distillation", "run_vlm_grpo", "run_vlm_sft",
             "run_xtoken_off_policy_distillation", "run_grpo_sliding_puzzle", "run_grpo_single_controller",
             "run_grpo_nemo_gym", "run_distillation_nemo_gym")  # fmt: skip
_SECTIONS = {
    "grpo": "grpo", "ppo": "ppo", "dpo": "dpo", "distillation": "distill", "rm": "reward", "sft": huggingface.SFT,
}  # fmt: skip
"""Jobs by the section that a recipe has for each."""
_SHARED = (_STARTS_FROM, "policy", "cluster")
"""Sections of other things, by which a recipe is known that is a part of others."""


def _inherited(source: Source, level: int = 0) -> Keys:
    """The keys of a recipe over those of the recipes that it starts from, the last of which counts most."""
    own = dict(source.keys)
    named = own.get(_STARTS_FROM)
    found: Keys = {}
    missing = False
    for name in listed(named.value) or () if named is not None else ():
        base = source.companion(name) if level < _LEVELS else None
        if base is None or not _tops(base.keys) & {*_SECTIONS, *_SHARED}:
            missing = True
        else:
            found = _merged(found, _inherited(base, level + 1))
    if not missing:
        own.pop(_STARTS_FROM, None)
    return _merged(found, own)


def _merged(base: Keys, own: Keys) -> Keys:
    """The keys of both: a value takes the place of a group, a list that of another, and so do groups that say so."""
    marked = {name.removesuffix(f".{_INSTEAD}") for name, each in own.items() if name.endswith(f".{_INSTEAD}")}
    replaced = {*marked, *own}
    for name in own:
        parts = name.split(".")
        replaced |= {".".join(parts[:place]) for place, part in enumerate(parts) if part.isdigit()}
    emptied = {group for name in own for group in _groups(name)}
    kept = {
        name: each for name, each in base.items() if name not in emptied and replaced.isdisjoint([*_groups(name), name])
    }
    return {**kept, **{name: each for name, each in own.items() if not name.endswith(f".{_INSTEAD}")}}


def _groups(name: str) -> list[str]:
    """The groups in which a key stands, the outermost first."""
    parts = name.split(".")
    return [".".join(parts[:length]) for length in range(1, len(parts))]


def _starts(words: tuple[str, ...]) -> bool:
    stem = words[0].rpartition("/")[2] if words else ""
    return stem.endswith(".py") and stem.removesuffix(".py") in _PROGRAMS


def _launch(source: Source) -> tuple[Command, Flags] | None:
    command = find_command(source, _starts)
    return None if command is None else (command, command_arguments(command))


def _keys(source: Source) -> Keys:
    """The keys of a recipe, or of the one that a command names, with the command's own on top."""
    if source.kind == "yaml":
        return resolved(_inherited(source), source.given)
    launch = _launch(source)
    if launch is None:
        return {}
    said = flag_keys(launch[1])
    named = said.get("config")
    file = source.companion(named.value) if named is not None else None
    overrides = [
        Written(f"{flag.sign}{name}={flag.values[0].text}", flag.where)
        for name, flag in launch[1].flags.items()
        if flag.override and flag.values and not flag.values[0].unknown
    ]
    return resolved(overridden(_inherited(file) if file is not None else {}, overrides), source.given)


def _recognises(source: Source) -> Certainty:
    if source.kind == "shell":
        return 95 if _launch(source) is not None else 0
    if source.kind != "yaml":
        return 0
    if _is_policy(source.keys):
        return 97
    return 96 if _STARTS_FROM in source.keys and _is_policy(_inherited(source)) else 0


def _is_policy(keys: Keys) -> bool:
    """Whether a policy is trained as NeMo RL has it: by a section of a job, or over another recipe."""
    return "policy" in _tops(keys) and bool(_tops(keys) & {*_SECTIONS, _STARTS_FROM, "cluster"})


def _tops(keys: Keys) -> set[str]:
    """The outermost groups of keys."""
    return {name.partition(".")[0] for name in keys}


# What a recipe says of the policy: DTensor's FSDP2 or Megatron, batches and lengths.

_POLICY = "policy."
_DTENSOR, _MEGATRON = f"{_POLICY}dtensor_cfg.", f"{_POLICY}megatron_cfg."
_FP8 = f"{_MEGATRON}fp8_cfg."
_MEGATRON_GROUPS = (
    _MEGATRON,
    *(f"{_MEGATRON}{group}." for group in ("optimizer", "distributed_data_parallel_config", "checkpoint", "fp8_cfg")),
    f"{_MEGATRON}model_overrides.",
)
"""Groups that have Megatron's own arguments."""
_ADAPTERS = {_DTENSOR: "lora_cfg.", _MEGATRON: "peft."}
_RANK = 8
TABLE = Table(file="nemo_rl", beside=(replace(MEGATRON_ARGUMENTS, prefixes=_MEGATRON_GROUPS),))


def _read(draft: Draft, source: Source) -> None:
    section = next((name for name in _SECTIONS if any(key.startswith(f"{name}.") for key in draft.keys)), "grpo")
    megatron = draft.on(f"{_MEGATRON}enabled")
    where = megatron or draft.peek(f"{_DTENSOR}enabled", f"{_POLICY}model_name") or Written(section, source.start)
    draft.state("stack", "nemo-rl-megatron" if megatron is not None else "nemo-rl", where)
    draft.take(f"{_DTENSOR}enabled")
    backend, other = (_MEGATRON, _DTENSOR) if megatron is not None else (_DTENSOR, _MEGATRON)
    _leave_out(draft, other)
    named = draft.peek(f"{_POLICY}model_name")
    if named is not None and " " in str(named.value).strip():  # recipes of models that are converted by hand first
        draft.lose(f"{_POLICY}model_name", "names no model; pass --model", "none")
    for group in _BESIDE:
        _spread_alike(draft, group, backend, other)
    _job(draft, section, backend)
    _hardware(draft)
    _pools(draft, section)
    _saving(draft, section)
    _lengths(draft)
    draft.apply(TABLE)
    if megatron is not None:
        _megatron(draft)
    else:
        _dtensor(draft)
    if draft.fact("job") in _WRITES:
        _answers(draft, section)
    else:
        _leave_out(draft, f"{_POLICY}generation.")
    _duration(draft, section)


def _leave_out(draft: Draft, group: str) -> None:
    """Take out the keys of a group that is switched off."""
    for name in [name for name in draft.keys if name.startswith(group)]:
        del draft.keys[name]


_BESIDE = ("value.", "teacher.")
"""Models beside the policy, in groups that have the same keys."""
_AS_USUAL = ("empty_unused_memory_level", "optimizer.use_precision_aware_optimizer")
"""What NeMo RL sets in all of its recipes and what keeps float32 states unless a number format is named."""


def _spread_alike(draft: Draft, group: str, backend: str, other: str) -> None:
    """Count the keys of a model beside the policy as read where they are the policy's, or of what is switched off."""
    used, unused = (each.replace(_POLICY, group, 1) for each in (backend, other))
    if f"{used}enabled" in draft.keys and not is_on(draft.keys[f"{used}enabled"].value):
        return
    _leave_out(draft, unused)
    for name, written in draft.keys.items():
        as_policy = draft.keys.get(name.replace(group, _POLICY, 1)) if name.startswith(group) else None
        if as_policy is not None and as_policy.value == written.value:
            draft.count(name)


def _job(draft: Draft, section: str, backend: str) -> None:
    """The job by the section that the recipe has for it, and the adapters."""
    named = next((each for name, each in draft.keys.items() if name.startswith(f"{section}.")), None)
    adapters = draft.on(f"{backend}{_ADAPTERS[backend]}enabled")
    writes = any(name.startswith(f"{_POLICY}generation.") for name in draft.keys)
    taught = draft.on(f"{_TEACHERS}enabled")
    on_policy = writes and (section == "distillation" or taught is not None)
    job = "distill-on-policy" if on_policy else _SECTIONS[section]
    if adapters is not None and job == huggingface.SFT:
        draft.state("job", huggingface.LORA, adapters)
    draft.state("job", job, taught or named)
    if adapters is not None:
        _state_adapters(draft, f"{backend}{_ADAPTERS[backend]}")


def _state_adapters(draft: Draft, group: str) -> None:
    rank, scale, dropout = (draft.take(f"{group}{name}") for name in ("dim", "alpha", "dropout"))
    draft.state("lora.rank", draft.value(rank, positive), rank)
    draft.default("lora.rank", _RANK)
    draft.state("lora.alpha", draft.value(scale, above_zero), scale)
    draft.state("lora.dropout", draft.value(dropout, number), dropout)
    draft.default("lora.dropout", 0)
    every, targets = draft.on(f"{group}match_all_linear"), draft.take(f"{group}target_modules")
    words = [name.strip("*") for name in listed(targets.value) or ()] if targets is not None and every is None else []
    if every is None and words:
        draft.state("lora.targets", tuple(words), targets)
    draft.default("lora.targets", (huggingface.ALL_LINEAR,))


def _hardware(draft: Draft) -> None:
    """All GPUs of the cluster."""
    nodes, each = draft.take("cluster.num_nodes"), draft.take("cluster.gpus_per_node")
    if {"cluster.num_nodes", "cluster.gpus_per_node"} & draft.unread.keys() or each is None:
        return
    counts = draft.value(nodes, positive) or 1, draft.value(each, positive)
    if isinstance(counts[0], int) and isinstance(counts[1], int):
        note = f"{counts[0]} nodes of {counts[1]} GPUs" if counts[0] > 1 else ""
        draft.state("gpus", counts[0] * counts[1], each, note)
        if counts[0] > 1:
            draft.state("nodes", counts[0], nodes)


def _pools(draft: Draft, section: str) -> None:
    """GPUs that only write answers, out of those of the cluster, and how far these may be ahead."""
    shared = draft.take(f"{_COLOCATED}enabled")
    nodes, each = (draft.take(f"{_COLOCATED}resources.{name}") for name in ("num_nodes", "gpus_per_node"))
    draft.count(f"{_COLOCATED}*")
    if section not in _ITERATES or shared is None:
        return
    if is_on(shared.value):
        draft.state("rollout.colocated", True, shared)
        return
    draft.state("rollout.colocated", False, shared)
    writing = (draft.value(nodes, positive) or 1), draft.value(each or draft.peek("cluster.gpus_per_node"), positive)
    gpus = draft.fact("gpus")
    if isinstance(writing[0], int) and isinstance(writing[1], int) and isinstance(gpus, int):
        total, found = gpus, writing[0] * writing[1]
        draft.drop("gpus")
        draft.state("gpus", max(total - found, 1), shared)
        state_pools(draft, found, each or nodes or shared)
    ahead = draft.on(*(f"{each}.async_{each}.enabled" for each in _ITERATES), "async_rl.sampler.name")
    if ahead is not None:
        draft.state("rollout.asynchronous", True, ahead)
        own = tuple(f"{each}.async_{each}." for each in _ITERATES)
        of_samplers = ("async_rl.sampler.max_staleness_versions", "async_rl.sampler.max_lookahead_versions")
        age = draft.take(*(f"{group}max_trajectory_age_steps" for group in own), *of_samplers)
        draft.state("rollout.max_staleness", draft.value(age, positive_or_open), age)
        flight = draft.take(*(f"{group}in_flight_weight_updates" for group in own))
        if flight is not None:
            draft.state("rollout.partial", is_on(flight.value), flight)


def _lengths(draft: Draft) -> None:
    """Micro-batches, and how samples are padded: not at all where they are packed."""
    packed = draft.on(f"{_POLICY}sequence_packing.enabled")
    filled = draft.on(f"{_POLICY}dynamic_batching.enabled")
    group = "sequence_packing" if packed is not None else "dynamic_batching"
    tokens = draft.take(f"{_POLICY}{group}.train_mb_tokens") if packed is not None or filled is not None else None
    micro, length = draft.take(f"{_POLICY}train_micro_batch_size"), draft.peek(f"{_POLICY}max_total_sequence_length")
    size, longest, room = (draft.value(each, positive) for each in (micro, length, tokens))
    if packed is not None:
        draft.state("train.padding", "none", packed, "samples are packed into micro-batches")
    elif filled is not None:
        draft.state("train.padding", "grouped-by-length", filled, "samples of like length share a micro-batch")
    said = tokens or micro
    if (packed is not None or filled is not None) and isinstance(longest, int):
        sequences = size if isinstance(size, int) else _MICRO
        room = room if isinstance(room, int) else sequences * longest
        assume_micro_batch(draft, room, said.where if said is not None else None)
    elif micro is not None:
        draft.state("train.micro_batch", size, micro)
    elif f"{_POLICY}train_micro_batch_size" not in draft.unread:
        draft.default("train.micro_batch", _MICRO)
    off = draft.peek(f"{_POLICY}sequence_packing.enabled")
    if off is not None:
        draft.default("train.padding", "longest-in-global-batch", "a batch is padded to its longest sample")
    else:
        draft.default("train.padding", "none", "samples are packed into micro-batches")


_MICRO = 4
_COLOCATED = f"{_POLICY}generation.colocated."


def _dtensor(draft: Draft) -> None:
    """FSDP2 over all data-parallel ranks, with tensor, context and expert parallelism."""
    for key, name in (("tp", "tensor"), ("cp", "context"), ("ep", "expert")):
        found = draft.take(f"{_DTENSOR}{name}_parallel_size")
        draft.state(f"layout.{key}", draft.value(found, positive), found)
        draft.default(f"layout.{key}", 1)
    split = draft.take(f"{_DTENSOR}sequence_parallel")
    draft.state("layout.sequence_parallel", draft.value(split, switch), split)
    again = draft.take(f"{_DTENSOR}activation_checkpointing", f"{_POLICY}activation_checkpointing_enabled")
    if again is not None:
        draft.state("layout.recompute", "full" if is_on(again.value) else "none", again)
    draft.default("layout.recompute", "none")
    moved = draft.on(f"{_DTENSOR}cpu_offload")
    draft.state("layout.offload", PARAMS if moved is not None else None, moved)
    draft.default("layout.zero", 3, "FSDP2")
    _replicas(draft)
    attention = draft.take(f"{_DTENSOR}automodel_kwargs.attn_implementation",
                           f"{_DTENSOR}automodel_kwargs.backend.attn")  # fmt: skip
    if attention is not None:
        from xe_sizer.interop.tools.nemo_automodel import ATTENTION

        draft.state("attention", draft.value(attention, word_of(ATTENTION)), attention)
    draft.default("attention", "flash")
    named = draft.peek(f"{_POLICY}optimizer.name")
    if named is not None:
        last = str(named.value).rpartition(".")[2]
        state_optimizer(draft, f"{_POLICY}optimizer.name", Written(_FUSED.get(last, last), named.where))
    draft.default("optimizer", "adamw")


_FUSED = {"FusedAdam": "adamw"}


def _replicas(draft: Draft) -> None:
    """Copies of the sharded states: a group has the data-parallel ranks over their number."""
    copies = draft.take(f"{_DTENSOR}dp_replicate_size")
    count, gpus = draft.value(copies, positive_or_open), draft.trainers
    tp = draft.fact("layout.tp")
    if not isinstance(count, int) or count == 1 or not isinstance(gpus, int) or not isinstance(tp, int):
        return
    if gpus % (tp * count) == 0:
        draft.state("layout.zero_group", gpus // tp // count, copies, f"{count} copies of the states")


def _megatron(draft: Draft) -> None:
    """Megatron's arguments, with a switch of NeMo RL's own before those of recomputation."""
    arguments = Arguments(draft, _MEGATRON_GROUPS)
    eight = draft.on(f"{_FP8}enabled")
    if eight is None:
        _leave_out(draft, _FP8)
    else:
        draft.replace("precision", replace(draft.facts["precision"], value="fp8", origin="read", where=eight.where))
        draft.count(f"{_FP8}fp8")
    again = draft.take(f"{_MEGATRON}activation_checkpointing")
    if again is None or not is_on(again.value):
        draft.state("layout.recompute", "none" if again is not None else None, again)
        _leave_out(draft, f"{_MEGATRON}recompute_")
    elif draft.peek(f"{_MEGATRON}recompute_granularity") is None:
        draft.state("layout.recompute", "full", again)
    moved = draft.peek(f"{_MEGATRON}fine_grained_activation_offloading")
    if moved is None or not is_on(moved.value):
        _leave_out(draft, f"{_MEGATRON}offload_modules")
    if arguments.peek("use_distributed_optimizer") is None:
        draft.default("layout.zero", 1, "the distributed optimizer")
    draft.count(*(f"{_MEGATRON}{name}" for name in _AS_USUAL), *([] if _has_experts(draft) else [f"{_MEGATRON}moe_*"]))
    draft.default("train.dropout", 0)
    draft.default("train.weights_dtype", "bf16", "weights have the type of the run")
    state_megatron(arguments)


def _has_experts(draft: Draft) -> bool:
    """Whether the model has experts, as far as it is known."""
    try:
        return Registry().model(str(draft.fact("model"))).experts is not None
    except InputError:
        return True


def _saving(draft: Draft, section: str) -> None:
    """Steps between checkpoints, where they are written, and between evaluations."""
    on, every = draft.take("checkpointing.enabled"), draft.take("checkpointing.save_period")
    if on is None or is_on(on.value):
        draft.state("train.checkpoint_every", draft.value(every, interval), every)
    tested = draft.take(f"{section}.val_period")
    draft.state("train.evaluate_every", draft.value(tested, interval), tested)


# What a recipe says of an iteration: prompts, answers, the engine, and models beside the policy.

_ITERATES = ("grpo", "ppo", "distillation")
_FILTERS = ("grpo", "ppo")  # leave prompts without a lesson out
_WRITES = ("grpo", "ppo", "distill-on-policy")
_GENERATION = f"{_POLICY}generation."
_REWARD, _TEACHERS = "env.reward_model.", "on_policy_distillation."
_TOP_K = 64  # words of a token that a teacher sends, in examples/configs/distillation_math.yaml
_ENGINES = {"vllm": "vllm", "sglang": "sglang", "trtllm": "tensorrt-llm", "megatron": "vllm", "dynamo": "vllm"}
_OWN_ENGINE = "megatron"
_GROUPS_OF_ENGINE = {
    "vllm": ("vllm_kwargs.", "vllm_cfg."), "sglang": ("sglang_cfg.",), "trtllm": ("trtllm_cfg.",),
    "megatron": ("mcore_generation_config.",), "dynamo": ("vllm_kwargs.", "vllm_cfg."),
}  # fmt: skip
_NO_LIMIT = 100_000  # steps that stand for as many as the passes have
_FORMATS = {"fp8": "fp8", "bfloat16": None, "bf16": None, "auto": None, "float16": None, "fp8_e4m3": "fp8"}


_ENGINE: Mapping[str, Stated] = {
    "tp": (("tensor_parallel_size", "tp_size", "tensor_model_parallel_size"), positive, 1),
    "pp": (("pipeline_parallel_size", "pp_size", "pipeline_model_parallel_size"), positive, None),
    "ep": (("expert_parallel_size", "ep_size", "expert_model_parallel_size"), positive, None),
    "gpu_memory_utilization": (("gpu_memory_utilization", "mem_fraction_static"), above_zero, 0.6),
    "max_sequences": (("max_num_seqs", "max_running_requests", "max_batch_size"), positive_or_open, None),
    "weights": (("precision",), word_of(_FORMATS), None),
    "kv_cache": (("kv_cache_dtype",), word_of(_FORMATS), None),
}  # fmt: skip
"""Settings of the engine, by the names that each of them has in its own groups."""


def _iteration(section: str) -> Mapping[str, Stated]:
    """Settings of an iteration in the section of its job."""
    return {
        "prompts": ((f"{section}.num_prompts_per_step",), positive, 32),
        "group": ((f"{section}.num_generations_per_prompt",), positive, 16),
        "max_output_tokens": ((f"{_GENERATION}max_new_tokens",), positive_or_open, None),
        "updates": ((f"{section}.ppo_epochs",), positive, 1),
    }


def _answers(draft: Draft, section: str) -> None:
    """How answers are written and rated."""
    engine = draft.take(f"{_GENERATION}backend")
    word = plain(engine.value) if engine is not None else ""
    if engine is not None and word == _OWN_ENGINE:
        draft.lose(f"{_GENERATION}backend", "writes answers with Megatron's own engine; vLLM is taken in its place")
        draft.assume("rollout.engine", _ENGINES[word], "in place of Megatron's engine", engine.where)
    elif engine is not None:
        draft.state("rollout.engine", draft.value(engine, word_of(_ENGINES)), engine)
    draft.default("rollout.engine", _ENGINES["vllm"])
    groups = _GROUPS_OF_ENGINE.get(word, _GROUPS_OF_ENGINE["vllm"])
    for other in {group for each in _GROUPS_OF_ENGINE.values() for group in each} - {*groups}:
        _leave_out(draft, f"{_GENERATION}{other}")
    of_engine = {
        key: (tuple(f"{_GENERATION}{group}{name}" for name in names for group in groups), read, usual)
        for key, (names, read, usual) in _ENGINE.items()
    }
    state_rollout(draft, {**_iteration(section), **of_engine})
    most, longest = draft.fact("rollout.max_output_tokens"), draft.fact("train.seq_len")
    if isinstance(most, int) and isinstance(longest, int) and most >= longest:
        draft.set_aside("rollout.max_output_tokens", "a prompt and its answer share train.seq_len")
    _passes(draft)
    _extra_prompts(draft, section)
    if draft.fact("job") == "distill-on-policy":
        draft.default("train.reference", "none")
        _taught(draft, section)
    else:
        _reference(draft)
        _rated(draft, section)


def _reference(draft: Draft) -> None:
    """A reference is a copy of the weights, beside adapters too, where straying from it costs something."""
    penalty = draft.take("loss_fn.reference_policy_kl_penalty")
    if penalty is not None:
        draft.state("train.reference", COPY if draft.value(penalty, above_zero_or_off) else NONE, penalty)
    draft.default("train.reference", COPY)


def _passes(draft: Draft) -> None:
    """Answers of a pass that computes log-probabilities, where it has not those of the training."""
    written = draft.take(f"{_POLICY}logprob_batch_size")
    size = draft.value(written, positive_or_open)
    trained = draft.value(draft.peek(f"{_POLICY}train_micro_batch_size"), positive)
    if isinstance(size, int) and size != trained:
        draft.state("rollout.log_prob_micro_batch", size, written)


def _extra_prompts(draft: Draft, section: str) -> None:
    """Prompts that are answered for each that is trained on, where those without a lesson are left out."""
    on, times = draft.on(f"{section}.use_dynamic_sampling"), draft.take(f"{section}.batch_multiplier")
    prompts, more = draft.fact("rollout.prompts"), draft.value(times, above_zero)
    if on is not None and isinstance(prompts, int) and isinstance(more, int | float):
        state_oversampling(draft, times, round(prompts * more), prompts)


def _rated(draft: Draft, section: str) -> None:
    """The critic, which NeMo RL calls the value model, and the reward model, where one rates."""
    state_models(draft, {"train.critic_model": ("value.model_name",)}, beside=section == "ppo")
    rates = draft.peek(f"{_REWARD}model_name") if _is_rated(draft) else None
    state_models(draft, {"train.reward_model": (f"{_REWARD}model_name",)}, beside=rates is not None)
    if rates is None:
        draft.default("train.reward_model", "none", "a function rates answers")
    else:
        _own_gpus(draft, "reward", f"{_REWARD}resources.")
        split = draft.take(f"{_REWARD}dtensor_cfg.tensor_parallel_size")
        draft.state("reward.tp", draft.value(split, positive), split)


def _own_gpus(draft: Draft, pool: str, group: str) -> None:
    """GPUs of a model beside the policy out of those of the cluster: whole nodes, or a part of the only one."""
    nodes, each = (draft.take(f"{group}{name}") for name in ("num_nodes", "gpus_per_node"))
    sizes = draft.value(nodes, positive) or 1, draft.value(each, positive)
    cluster, whole = draft.facts.get("gpus"), draft.value(draft.peek("cluster.gpus_per_node"), positive)
    several = draft.value(draft.peek("cluster.num_nodes"), positive) != 1
    if cluster is None or not all(isinstance(one, int) for one in (*sizes, cluster.value, whole)):
        return
    number, own, total, node = (int(str(one)) for one in (*sizes, cluster.value, whole))
    draft.replace("gpus", replace(cluster, value=max(total - number * (node if several else own), 1)))
    state_model_pool(draft, pool, number * own, each or nodes)


def _taught(draft: Draft, section: str) -> None:
    """The teacher: spread as the policy is, on the same GPUs or on others, and what it says of a token.

    A teacher on other GPUs says of the answer's own words how likely they are (nemo_rl/algorithms/opd.py).
    """
    apart = draft.on(f"{_TEACHERS}non_colocated_teachers.enabled")
    names = [name for name in draft.keys if name.startswith(f"{_TEACHERS}teacher_model_by_agent_name.")]
    for other in names[1:]:
        draft.lose(other, "teaches a part of the prompts; the first teacher is taken for all")
    state_models(draft, {"train.teacher_model": tuple(names[:1])})
    if section == "distillation":
        words = draft.take("distillation.topk_logits_k")
        draft.state("train.teacher_top_k", draft.value(words, positive), words)
        draft.default("train.teacher_top_k", _TOP_K)
    else:
        draft.default("train.teacher_top_k", 1, "log-probabilities of the answer's own words")
    if apart is not None:
        group = f"{_TEACHERS}non_colocated_teachers.default_teacher_cfg."
        _own_gpus(draft, "teacher", group)
        for key, name in (("tp", "tensor"), ("pp", "pipeline")):
            size = draft.take(f"{group}{name}_model_parallel_size")
            draft.state(f"teacher.{key}", draft.value(size, positive), size)


def _is_rated(draft: Draft) -> bool:
    """Whether data go to the environment that a reward model is."""
    return any(
        name.startswith("data.") and name.endswith("env_name") and plain(each.value) == "rewardmodel"
        for name, each in draft.keys.items()
    )


def _duration(draft: Draft, section: str) -> None:
    """Steps, or passes over the data where so many steps are allowed that these end first."""
    steps, epochs = draft.take(f"{section}.max_num_steps"), draft.take(f"{section}.max_num_epochs")
    count, passes = draft.value(steps, positive_or_open), draft.value(epochs, positive_or_open)
    if isinstance(count, int) and (count < _NO_LIMIT or not isinstance(passes, int) or passes >= _NO_LIMIT):
        draft.state("train.steps", count, steps)
    elif isinstance(passes, int):
        draft.state("train.epochs", passes, epochs)
    draft.default("train.epochs", 1)


_ALL_SHARDED = 3  # by FSDP2
_COLUMNS = {"vllm": 0, "sglang": 1, "trtllm": 0}  # of the names of a setting
# A plan as a recipe that starts from one of NeMo RL's own, as its recipes do.
#
# Keys: examples/configs/{grpo_math_1B,ppo_math_1B,dpo,rm,sft,distillation_math}.yaml (0.6).

_JOBS: Mapping[str, tuple[str, str, str]] = {
    "grpo": ("grpo", "grpo_math_1B", "run_grpo"), "ppo": ("ppo", "ppo_math_1B", "run_ppo"),
    "dpo": ("dpo", "dpo", "run_dpo"), "reward": ("rm", "rm", "run_rm"), "sft": ("sft", "sft", "run_sft"),
    "lora": ("sft", "sft", "run_sft"), "distill-on-policy": ("distillation", "distillation_math", "run_distillation"),
}  # fmt: skip
"""The section of a job, the recipe that it starts from, and the program that reads both."""
_TITLE = "NeMo RL"
_PREFERENCES = ("dpo", "reward")
_PENALTY = 0.01  # for straying from the reference, that of NeMo RL's recipes
_FOR_EVER = 1_000_000  # steps, or passes over the data, that never end a run
_PACKED = "none"  # padding, where samples are packed


def _write(plan: Plan) -> ToolFiles:
    job = plan.take("job")
    if job not in _JOBS:
        hint = f"jobs that it has are {', '.join(_JOBS)}"
        raise InputError(Problem(f"{_TITLE} does not do {job}", plan.where("job"), hint))
    apart = plan.peek("teacher.gpus") is not None
    section, base, program = _JOBS["grpo" if apart else job]
    megatron = _wants_megatron(plan)
    backend = _write_megatron(plan) if megatron else _write_dtensor(plan)
    values: dict[str, Any] = {
        _STARTS_FROM: f"{base}.yaml",
        section: _write_section(plan, section),
        "loss_fn": _write_reference(plan, section),
        "checkpointing": _write_saving(plan),
        "policy": {**_write_policy(plan), **backend, **_write_optimizer(plan, megatron=megatron)},
        **_write_models(plan, section, backend),
        **(_write_apart(plan) if apart else {}),
        "data": _write_data(plan),
        "cluster": {"gpus_per_node": _per_node(plan), "num_nodes": plan.take("nodes", 1)},
    }
    if section in _ITERATES:
        values["policy"]["generation"] = _write_engine(plan)
    told = f"it starts from {base}.yaml: it belongs beside that one, into examples/configs of {_TITLE}"
    return ToolFiles(yaml_text(values), run=f"uv run examples/{program}.py --config FILE", told=(told,))


def _per_node(plan: Plan) -> int:
    return int(plan.take("gpus", 1)) // int(plan.peek("nodes", 1))


def _wants_megatron(plan: Plan) -> bool:
    """Whether Megatron trains: by the stack, and where FSDP2 has no word for the layout."""
    stages, zero = plan.peek("layout.pp", 1), plan.peek("layout.zero", _ALL_SHARDED)
    return bool(
        plan.peek("stack") == "nemo-rl-megatron" or stages > 1 or zero in (0, 1) or plan.peek("precision") == "fp8"
    )


def _write_section(plan: Plan, section: str) -> dict[str, Any]:
    """How long the run is, when it is evaluated, and the prompts and answers of an iteration."""
    steps, tested = plan.take("train.steps"), plan.take("train.evaluate_every")
    values: dict[str, Any] = {
        "max_num_steps": steps or _FOR_EVER,
        "max_num_epochs": _FOR_EVER if steps else math.ceil(plan.take("train.epochs", 1)),
        "val_period": tested or 0,
        "val_at_start": None if tested else False,
    }
    if section not in _ITERATES:
        return values
    over = plan.take("rollout.oversampling", 1) if section in _FILTERS else 1
    values |= {
        "num_prompts_per_step": round(plan.take("rollout.prompts")),
        "num_generations_per_prompt": plan.take("rollout.group", 1),
        "ppo_epochs": plan.take("rollout.updates") if section == "ppo" else None,
        "use_dynamic_sampling": True if over > 1 else None,
        "batch_multiplier": over if over > 1 else None,
    }
    ahead = plan.take("rollout.asynchronous", False)
    if section == "distillation":
        return values | {"topk_logits_k": plan.take("train.teacher_top_k")}
    if plan.peek("teacher.gpus") is not None:
        values["adv_estimator"] = {"name": "opd"}
    return values | {
        f"async_{section}": {
            "enabled": ahead,
            "max_trajectory_age_steps": plan.take("rollout.max_staleness", 1) if ahead else None,
            "in_flight_weight_updates": plan.take("rollout.partial", False) if ahead else None,
        }
    }


def _write_reference(plan: Plan, section: str) -> dict[str, Any] | None:
    """A reference is kept where straying from it costs something; that of DPO always is."""
    kept = plan.peek("train.reference")
    if kept == "copy" or (kept in (None, NONE) and section != "dpo"):
        plan.said("train.reference")
    if section not in ("grpo", "ppo"):
        return None
    ahead = plan.peek("rollout.asynchronous", False)
    return {
        "reference_policy_kl_penalty": _PENALTY if kept == "copy" else 0.0,
        "use_importance_sampling_correction": True if ahead else None,  # without which it refuses to be ahead
    }


def _write_saving(plan: Plan) -> dict[str, Any]:
    every = plan.take("train.checkpoint_every")
    return {"enabled": every is not None, "save_period": every}


def _write_policy(plan: Plan) -> dict[str, Any]:
    """The model, batches, lengths and padding."""
    word, padding = plan.peek("precision"), plan.peek("train.padding")
    if word in ("bf16", "fp8"):
        plan.said("precision")
    if padding in (_PACKED, "grouped-by-length", "longest-in-global-batch"):
        plan.said("train.padding")
    plan.said("train.grad_accum", "attention")
    tp, cp = plan.peek("layout.tp", 1), plan.peek("layout.cp", 1)
    return {
        "model_name": plan.take("model"),
        "train_global_batch_size": plan.take("train.global_batch"),
        "train_micro_batch_size": plan.take("train.micro_batch"),
        "logprob_batch_size": plan.take("rollout.log_prob_micro_batch") or plan.peek("train.micro_batch"),
        "max_total_sequence_length": plan.take("train.seq_len"),
        "precision": "bfloat16",
        "sequence_packing": {"enabled": padding in (_PACKED, "packed")},
        "dynamic_batching": {"enabled": padding == "grouped-by-length"},
        "make_sequence_length_divisible_by": tp * (2 * cp if cp > 1 else 1),
    }


def _write_dtensor(plan: Plan) -> dict[str, Any]:
    """FSDP2, which shards all states over all data-parallel ranks or those of a group."""
    if plan.peek("layout.zero", _ALL_SHARDED) == _ALL_SHARDED:
        plan.said("layout.zero")
    if plan.peek("layout.recompute") in ("none", "full"):
        plan.said("layout.recompute")
    if plan.peek("layout.offload") == PARAMS:
        plan.said("layout.offload")
    if plan.peek("train.weights_dtype") == "fp32":
        plan.said("train.weights_dtype")
    copies = shard_sizes(plan)
    sizes = {"tp": "tensor", "cp": "context", "ep": "expert"}
    own = {
        "enabled": True,
        **{f"{word}_parallel_size": plan.take(f"layout.{key}", 1) for key, word in sizes.items()},
        "sequence_parallel": plan.take("layout.sequence_parallel", False),
        "activation_checkpointing": plan.peek("layout.recompute") == "full",
        "cpu_offload": plan.peek("layout.offload") == PARAMS,
        "dp_replicate_size": copies[0] if copies is not None else None,
        "lora_cfg": _write_adapters(plan),
    }
    return {"dtensor_cfg": own, "megatron_cfg": {"enabled": False}}


def _write_megatron(plan: Plan) -> dict[str, Any]:
    """Megatron's arguments, with the distributed optimizer unless states are not shared out."""
    zero, recompute = plan.peek("layout.zero", 1), plan.peek("layout.recompute", "none")
    if zero in (0, 1):
        plan.said("layout.zero")
    if plan.peek("train.weights_dtype") == "bf16":
        plan.said("train.weights_dtype")
    plan.said("layout.recompute")
    moved, chosen = plan.peek("layout.offload") == OPTIMIZER, plan.take("layout.recompute_modules")
    if moved:
        plan.said("layout.offload")
    eight = plan.peek("precision") == "fp8"
    sizes = {"tp": "tensor_model", "pp": "pipeline_model", "cp": "context", "ep": "expert_model"}
    own = {
        "enabled": True,
        **{f"{word}_parallel_size": plan.take(f"layout.{key}", 1) for key, word in sizes.items()},
        "expert_tensor_parallel_size": plan.take("layout.expert_tp") or 1,
        "num_layers_in_first_pipeline_stage": plan.take("layout.first_stage_layers"),
        "num_layers_in_last_pipeline_stage": plan.take("layout.last_stage_layers"),
        "sequence_parallel": plan.take("layout.sequence_parallel", False),
        "activation_checkpointing": recompute != "none",
        "recompute_granularity": recompute if recompute != "none" else None,
        "recompute_modules": list(chosen) if chosen and recompute == "selective" else None,
        "optimizer": {
            "lr": LEARNING_RATE,
            "use_distributed_optimizer": zero != 0,
            "optimizer_cpu_offload": moved,
            "optimizer_offload_fraction": 1.0 if moved else 0.0,
        },
        "fp8_cfg": {"enabled": eight, "fp8_recipe": plan.take("train.fp8_recipe") if eight else None},
        "peft": _write_adapters(plan),
    }
    return {"dtensor_cfg": {"enabled": False}, "megatron_cfg": own}


def _write_adapters(plan: Plan) -> dict[str, Any]:
    """Low-rank adapters; in Megatron's layers, which are fused, those of all of them."""
    if not named_adapter(plan) and not plan.peek("lora.rank"):
        return {"enabled": False}
    values = {
        "enabled": True,
        "dim": plan.take("lora.rank"),
        "alpha": plan.take("lora.alpha"),
        "dropout": plan.take("lora.dropout", 0),
    }
    every = list(plan.peek("lora.targets") or ()) in ([], [huggingface.ALL_LINEAR])
    if _wants_megatron(plan):
        plan.said(*(["lora.targets"] if every else []))
        return values
    names = adapted_modules(plan)
    return {**values, "match_all_linear": every, "target_modules": None if every else [f"*{name}" for name in names]}


def _write_optimizer(plan: Plan, *, megatron: bool) -> dict[str, Any]:
    if plan.peek("optimizer", "adamw") == "adamw":
        plan.said("optimizer")
    return {} if megatron else {"optimizer": {"kwargs": {"lr": LEARNING_RATE}}}


def _write_engine(plan: Plan) -> dict[str, Any]:
    """The engine, on the GPUs that train or on others of the cluster."""
    engine = plan.peek("rollout.engine", _ENGINES["vllm"])
    word = inverse(_ENGINES).get(engine)
    if word is not None:
        plan.said("rollout.engine")
    word = word or "vllm"
    names = {key: names[min(_COLUMNS[word], len(names) - 1)] for key, (names, *_) in _ENGINE.items()}
    said = ("tp", "pp", "ep", "gpu_memory_utilization", "max_sequences")
    settings: dict[str, Any] = {names[key]: plan.take(f"rollout.{key}") for key in said}
    for key in ("weights", "kv_cache"):
        if plan.peek(f"rollout.{key}") == "fp8" and word == "vllm":
            plan.said(f"rollout.{key}")
            settings[names[key]] = "fp8"
    sequences = settings.pop(names["max_sequences"]) if word == "vllm" else None
    most = plan.take("rollout.max_output_tokens", plan.peek("train.seq_len"))
    return {
        "backend": word,
        "max_new_tokens": int(min(most, plan.peek("train.seq_len", most))),
        f"{word}_cfg": {**settings, "async_engine": True if plan.peek("rollout.asynchronous") else None},
        "vllm_kwargs": {"max_num_seqs": sequences} if sequences else None,
        "colocated": _write_pools(plan),
    }


def _write_pools(plan: Plan) -> dict[str, Any]:
    """GPUs that only write answers: whole nodes, or a part of the only one. Raises InputError: neither."""
    writing, nodes, each = plan.take("rollout.gpus"), plan.peek("nodes", 1), _per_node(plan)
    if plan.peek("rollout.sleep") == ("none" if writing else "weights-to-host"):
        plan.said("rollout.sleep")
    if plan.peek("rollout.offload") == (NO_OFFLOAD if writing else PARAMS):
        plan.said("rollout.offload")
    if not writing:
        return {"enabled": True}
    if nodes > 1 and writing % each:
        hint = f"give a multiple of the {each} GPUs of a node"
        raise InputError(
            Problem(f"{_TITLE} writes answers on whole nodes, not on {writing} GPUs", plan.where("rollout.gpus"), hint)
        )
    resources = (
        {"gpus_per_node": each, "num_nodes": writing // each}
        if nodes > 1
        else {"gpus_per_node": writing, "num_nodes": 1}
    )
    return {"enabled": False, "resources": resources}


def _is_rating(plan: Plan) -> bool:
    """Whether a reward model rates: with a critic one does unless it is ruled out."""
    model = plan.peek("train.reward_model")
    return plan.peek("job") in _RATED and model != NONE and (model is not None or plan.peek("job") == "ppo")


_RATED = ("grpo", "ppo")


def _write_own_gpus(plan: Plan, pool: str) -> dict[str, int]:
    """GPUs of a model beside the policy: whole nodes, or a part of the only one. Raises InputError: neither."""
    own, nodes, each = plan.take(f"{pool}.gpus"), plan.peek("nodes", 1), _per_node(plan)
    if nodes > 1 and own % each:
        hint = f"give a multiple of the {each} GPUs of a node"
        what = f"{_TITLE} has whole nodes for a model beside the policy, not {own} GPUs"
        raise InputError(Problem(what, plan.where(f"{pool}.gpus"), hint))
    return {"gpus_per_node": min(own, each), "num_nodes": max(own // each, 1)}


def _write_reward(plan: Plan) -> dict[str, Any]:
    """The environment that a reward model is, on GPUs of its own. Raises InputError: it has none."""
    if plan.peek("reward.gpus") is None:
        hint = "give it some: --reward-gpus; or leave the rating to a function: --reward-model none"
        where = plan.where("train.reward_model")
        raise InputError(Problem(f"{_TITLE} has a reward model only on GPUs of its own", where, hint))
    return {
        "model_name": plan.take("train.reward_model") or "REWARD_MODEL",
        "tokenizer": {"name": "${env.reward_model.model_name}"},
        "precision": "bfloat16",
        "batch_size": "${policy.train_micro_batch_size}",
        "checkpoint_path": NULL,
        "max_model_len": plan.peek("train.seq_len"),
        "offload_optimizer_for_logprob": False,
        "resources": _write_own_gpus(plan, "reward"),
        "dtensor_cfg": {
            "_v2": True,
            "enabled": True,
            "sequence_parallel": False,
            "tensor_parallel_size": plan.take("reward.tp", 1),
            "context_parallel_size": 1,
            "custom_parallel_plan": NULL,
            "cpu_offload": False,
            "activation_checkpointing": False,
        },
        "reward_model_cfg": {"enabled": True, "reward_model_type": "bradley_terry"},
        "dynamic_batching": {"enabled": False},
        "sequence_packing": {"enabled": False},
        "max_grad_norm": NULL,
    }


def _write_apart(plan: Plan) -> dict[str, Any]:
    """A teacher on GPUs of its own, which asynchronous GRPO alone has. Raises InputError: the pools take turns."""
    if not (plan.peek("rollout.asynchronous") and plan.peek("rollout.gpus")):
        hint = "write answers ahead on GPUs of their own: --asynchronous, --rollout-gpus; or leave teacher.gpus out"
        what = f"{_TITLE} has a teacher on GPUs of its own only where answers are written ahead"
        raise InputError(Problem(what, plan.where("teacher.gpus"), hint))
    if plan.peek("train.teacher_top_k") == 1:
        plan.said("train.teacher_top_k")
    sizes = {"tensor_model_parallel_size": "tp", "pipeline_model_parallel_size": "pp"}
    own = {name: plan.take(f"teacher.{key}", 1) for name, key in sizes.items()}
    return {
        "on_policy_distillation": {
            "enabled": True,
            "teacher_model_by_agent_name": {"default_teacher": plan.take("train.teacher_model")},
            "default_teacher_alias": "default_teacher",
            "strict_agent_name_match": False,
            "non_colocated_teachers": {
                "enabled": True,
                "default_teacher_cfg": {**own, **_write_own_gpus(plan, "teacher")},
            },
        }
    }


def _write_models(plan: Plan, section: str, backend: dict[str, Any]) -> dict[str, Any]:
    """Critic and teacher, spread as the policy is, and the reward model. Raises InputError: it shares their GPUs."""
    rated = {"env": {"reward_model": _write_reward(plan)}} if _is_rating(plan) else {}
    alike = {name: {key: value for key, value in each.items() if key not in ("lora_cfg", "peft")}
             for name, each in backend.items()}  # fmt: skip
    if section == "ppo":
        return {"value": {"model_name": plan.take("train.critic_model"), **alike}, **rated}
    if section == "distillation":
        length = plan.peek("train.seq_len")
        return {
            "teacher": {"model_name": plan.take("train.teacher_model"), "max_total_sequence_length": length, **alike}
        }
    return rated


def _write_data(plan: Plan) -> dict[str, Any]:
    """A data set of one's own in place of the recipe's."""
    kind = "PreferenceDataset" if plan.peek("job") in _PREFERENCES else "ResponseDataset"
    tested = plan.peek("train.evaluate_every")
    return {
        "train": {_INSTEAD: True, "data_path": "DATASET"},
        "validation": {_INSTEAD: True, "data_path": "VALIDATION_DATASET"} if tested else None,
        "default": {"dataset_name": kind, "env_name": "reward_model" if _is_rating(plan) else None},
    }


SAYS = (
    "model", "job", "precision", "train.seq_len", "train.micro_batch", "train.global_batch", "train.steps",
    "train.epochs", "train.padding", "train.checkpoint_every", "train.evaluate_every", "train.reference",
    "train.teacher_model", "layout.tp", "layout.pp", "layout.cp", "layout.ep", "layout.zero", "layout.recompute",
    "layout.offload", "layout.sequence_parallel", "layout.first_stage_layers", "layout.last_stage_layers",
    "layout.recompute_modules", "lora.rank", "lora.targets", "lora.alpha", "lora.dropout", "rollout.prompts",
    "rollout.group", "rollout.updates", "rollout.max_output_tokens", "rollout.engine", "rollout.tp", "rollout.pp",
    "rollout.ep", "rollout.gpus", "rollout.gpu_memory_utilization", "rollout.max_sequences",
    "rollout.log_prob_micro_batch", "rollout.asynchronous", "rollout.max_staleness", "rollout.partial",
    "rollout.oversampling", "reward.gpus", "reward.tp", "teacher.gpus", "teacher.tp", "teacher.pp",
    "train.teacher_top_k", "gpus",
)  # fmt: skip
EXPORTERS = (
    Exporter(
        name="nemo-rl",
        aliases=("nemo-rl-megatron",),
        title=_TITLE,
        ending=".yaml",
        write=_write,
        says=SAYS,
        added=Added(
            "policy.optimizer.kwargs.lr or policy.megatron_cfg.optimizer.lr, scheduler",
            "max_num_steps or max_num_epochs of the job's section",
            "alpha of lora_cfg or peft",
        ),
    ),
)


TOOL = Tool(
    name="nemo-rl",
    aliases=("nemorl", "nemo-reinforcer"),
    title="NeMo RL",
    reads="YAML recipes of GRPO, PPO, DPO, distillation, reward models and SFT, with those that they start from, and "
    "commands that start `run_grpo.py` and the like",
    recognises=_recognises,
    read=_read,
    table=TABLE,
    keys=_keys,
)
