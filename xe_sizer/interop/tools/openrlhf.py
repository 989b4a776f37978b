"""OpenRLHF: commands of its trainers, from `train_sft` to `train_ppo_ray`, with their flags of all releases since 0.5.

Rules: openrlhf/cli, openrlhf/utils/deepspeed, openrlhf/models/actor.py (read at 0.10).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from xe_sizer.errors import InputError, Problem
from xe_sizer.interop import huggingface
from xe_sizer.interop.draft import Table
from xe_sizer.interop.huggingface import (
    COPY,
    LIGER_KERNELS,
    NO_OFFLOAD,
    NONE,
    OPTIMIZER,
    adapted_modules,
    assume_micro_batch,
    named_adapter,
    pair_single_answers,
    state_model_pool,
    state_models,
    state_optimizer,
    state_pools,
    state_rollout,
)
from xe_sizer.interop.launch import command_arguments, find_command, flag_keys, launched_hardware, state_gpus
from xe_sizer.interop.readers.shell_script import unwrapped
from xe_sizer.interop.source import Tool
from xe_sizer.interop.values import (
    above_zero,
    above_zero_or_off,
    inverse,
    is_on,
    plain,
    positive,
    positive_or_open,
    whole,
    word_of,
)
from xe_sizer.interop.write import LEARNING_RATE, Added, Exporter, ToolFiles, command_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xe_sizer.interop.draft import Draft
    from xe_sizer.interop.huggingface import Stated
    from xe_sizer.interop.readers.shell_script import Command
    from xe_sizer.interop.source import Certainty, Source
    from xe_sizer.interop.values import Converter, Keys
    from xe_sizer.interop.write import Plan

# Flags of OpenRLHF: their earlier names, what is lost and what changes nothing. Rules: openrlhf/cli of 0.5 to 0.10.

EARLIER: Mapping[str, tuple[str, ...]] = {
    "ds.zero_stage": ("zero_stage",),
    "ds.param_dtype": ("param_dtype",),
    "ds.adam_offload": ("adam_offload",),
    "ds.overlap_comm": ("overlap_comm",),
    "ds.attn_implementation": ("attn_implementation",),
    "ds.use_liger_kernel": ("use_liger_kernel",),
    "ds.tensor_parallel_size": ("ds_tensor_parallel_size",),
    "ds.ring_attn_size": ("ring_attn_size",),
    "ds.load_in_4bit": ("load_in_4bit",),
    "ds.lora.rank": ("lora_rank",),
    "ds.lora.dropout": ("lora_dropout",),
    "ds.lora.target_modules": ("target_modules",),
    "ds.packing_samples": ("packing_samples",),
    "train.micro_batch_size": ("micro_train_batch_size",),
    "train.batch_size": ("train_batch_size",),
    "train.max_epochs": ("max_epochs",),
    "train.num_episodes": ("num_episodes",),
    "train.dynamic_batch_enable": ("use_dynamic_batch",),
    "train.max_tokens_per_gpu": ("train_max_tokens_per_gpu",),
    "data.max_len": ("max_len",),
    "data.max_samples": ("max_samples",),
    "rollout.batch_size": ("rollout_batch_size",),
    "rollout.n_samples_per_prompt": ("n_samples_per_prompt",),
    "rollout.max_new_tokens": ("max_new_tokens", "generate_max_len"),
    "vllm.num_engines": ("vllm_num_engines",),
    "vllm.tensor_parallel_size": ("vllm_tensor_parallel_size",),
    "vllm.gpu_memory_utilization": ("vllm_gpu_memory_utilization",),
    "train.colocate_all": ("colocate_all_models",),
    "train.async_enable": ("async_train",),
    "train.async_queue_size": ("async_queue_size",),
    "vllm.enable_sleep": ("vllm_enable_sleep",),
    "ds.enable_sleep": ("deepspeed_enable_sleep",),
    "algo.kl.use_loss": ("use_kl_loss",),
    "critic.model_name_or_path": ("critic_pretrain",),
    "reward.model_name_or_path": ("reward_pretrain",),
    "train.partial_rollout_enable": ("partial_rollout",),
    "algo.kl.init_coef": ("init_kl_coef",),
    "reward.remote_url": ("remote_rm_url",),
    "train.colocate_actor_ref": ("colocate_actor_ref",),
    "train.colocate_critic_reward": ("colocate_critic_reward",),
    **{
        f"{model}.{name}": (f"{model}_{name}",)
        for model in ("ref", "critic", "reward")
        for name in ("num_nodes", "num_gpus_per_node")
    },
    "actor.num_nodes": ("actor_num_nodes",),
    "actor.num_gpus_per_node": ("actor_num_gpus_per_node",),
    "algo.advantage.estimator": ("advantage_estimator",),
    "model.pretrain_mode_enable": ("pretrain_mode",),
    "model.gradient_checkpointing_enable": ("actor.gradient_checkpointing_enable", "gradient_checkpointing"),
}
"""Flags as they are since 0.10, with what they were called before."""


def called(name: str) -> tuple[str, ...]:
    """All names of a flag, the newest first."""
    return (name, *EARLIER.get(name, ()))


TABLE = Table(file="openrlhf")


# How OpenRLHF writes and rates the answers of an iteration. Rules: openrlhf/cli/train_ppo_ray.py (read at 0.10).

_ANSWERS: Mapping[str, Stated] = {
    "prompts": (called("rollout.batch_size"), positive, 1024),
    "group": (called("rollout.n_samples_per_prompt"), positive, 1),
    "max_output_tokens": (called("rollout.max_new_tokens"), positive, None),
    "tp": (called("vllm.tensor_parallel_size"), positive, 1),
    "gpu_memory_utilization": (called("vllm.gpu_memory_utilization"), above_zero, 0.95),
}
_ANSWER_BEFORE = 1024  # tokens at which an answer was cut unasked, before flags had dots


def state_answers(draft: Draft, *, scored: bool) -> None:
    """How answers are written: in turn with the training where all models share the GPUs, else on GPUs of their own.

    Of models that share the GPUs, the engine has others where it writes while they train. scored : there is a critic
    """
    state_rollout(draft, _ANSWERS)
    if not any("." in name for name in draft.keys):  # since flags have dots: what the prompt leaves of data.max_len
        draft.default("rollout.max_output_tokens", _ANSWER_BEFORE)
    shared, asynchronous = draft.on(*called("train.colocate_all")), draft.on(*called("train.async_enable"))
    if shared is not None and asynchronous is None:
        draft.state("rollout.colocated", True, shared)
        draft.take(*called("vllm.num_engines"))
        _asleep(draft)
    else:
        _replicas(draft)
    if asynchronous is not None:
        draft.state("rollout.asynchronous", True, asynchronous)
        ahead = draft.take(*called("train.async_queue_size"))
        draft.state("rollout.max_staleness", draft.value(ahead, positive_or_open), ahead)
    if (partial := draft.on(*called("train.partial_rollout_enable"))) is not None:
        draft.state("rollout.partial", True, partial)
    if not scored:
        draft.following.append(pair_single_answers)
    _reference(draft)
    _rated(draft, scored=scored)
    _models_apart(draft, scored=scored)


def _replicas(draft: Draft) -> None:
    """GPUs that only write answers beside those of the actor: engines times the GPUs of each."""
    found, size = draft.take(*called("vllm.num_engines")), draft.fact("rollout.tp")
    engines = draft.value(found, positive_or_open)
    if isinstance(engines, int):
        state_pools(draft, engines * (size if isinstance(size, int) else 1), found)


def _asleep(draft: Draft) -> None:
    """What engine and trainer give back of the cards that they share; neither does unless told to."""
    engine, trainer = draft.on(*called("vllm.enable_sleep")), draft.on(*called("ds.enable_sleep"))
    if engine is not None:
        draft.state("rollout.sleep", "weights-to-host", engine)
    if trainer is not None:
        draft.state("rollout.offload", OPTIMIZER, trainer, "DeepSpeed keeps the weights on the card")
    draft.default("rollout.sleep", NO_OFFLOAD)
    draft.default("rollout.offload", NO_OFFLOAD)


def _reference(draft: Draft) -> None:
    """A reference, unless straying from it costs nothing."""
    kept = draft.take(*called("algo.kl.init_coef"))
    draft.count(*called("algo.kl.use_loss"))
    none = kept is not None and not draft.value(kept, above_zero_or_off)
    draft.state("train.reference", "none" if none else None, kept)
    draft.default("train.reference", "adapters-off" if draft.fact("lora.rank") is not None else "copy")


def _rated(draft: Draft, *, scored: bool) -> None:
    """Critic and reward model by name; the critic begins as the reward model where nobody says."""
    reward = called("reward.model_name_or_path")
    critic = {"train.critic_model": (*called("critic.model_name_or_path"), *reward)}
    state_models(draft, critic, beside=scored)
    remote = draft.take(*called("reward.remote_url"))
    if remote is not None:
        draft.state("train.reward_model", "none", remote, "a function rates answers")
    state_models(draft, {"train.reward_model": reward})


def _models_apart(draft: Draft, *, scored: bool) -> None:
    """GPUs of critic, reward model and reference: a node of 8 each unless told, where no switch puts them together."""
    names = ("train.colocate_all", "train.colocate_actor_ref", "train.colocate_critic_reward")
    shared, with_actor, with_critic = (draft.on(*called(name)) for name in names)
    if shared is None:
        if draft.fact("train.reference") == "copy" and with_actor is None:
            _own_gpus(draft, "reference", "ref")
        if scored:
            _own_gpus(draft, "critic", "critic")
        rated = draft.fact("train.reward_model") not in (None, "none")
        if rated and scored and with_critic is not None:
            draft.state("reward.with_critic", True, with_critic)
        elif rated:
            _own_gpus(draft, "reward", "reward")
    together = {"ref": shared or with_actor, "critic": shared, "reward": shared or with_critic}
    for prefix in (name for name, switch in together.items() if switch is not None):  # which have those of the others
        draft.count(*called(f"{prefix}.num_nodes"), *called(f"{prefix}.num_gpus_per_node"))


def _own_gpus(draft: Draft, section: str, prefix: str) -> None:
    nodes, gpus = (draft.take(*called(f"{prefix}.{name}")) for name in ("num_nodes", "num_gpus_per_node"))
    counts = draft.value(nodes, positive) or 1, draft.value(gpus, positive) or _PER_NODE
    if isinstance(counts[0], int) and isinstance(counts[1], int):
        state_model_pool(draft, section, counts[0] * counts[1], gpus or nodes)


_JOBS = {
    "sft": "sft", "dpo": "dpo", "kto": "kto", "rm": "reward", "prm": "reward", "kd": "distill", "ppo": "ppo",
    "ppo_ray": "ppo",
}  # fmt: skip
"""Trainers by the ends of their names."""
_MICRO = {"sft": 8, "dpo": 8, "kto": 8, "kd": 8}
_EPOCHS = {"sft": 2}
_LENGTHS = {"dpo": 512, "rm": 512}
_BATCH, _LENGTH, _STAGE = 128, 2048, 2
_RAY = "ppo_ray"
_RAY_MICRO, _RAY_MICRO_BEFORE = 1, 4  # the flags of today, and those before 0.10
_REWARDED = ("ppo", _RAY)
_PER_NODE = 8
_TOKENS = 16_192  # of a dynamic micro-batch, unasked
_ATTENTION = {
    "flash_attention_2": "flash", "flash_attention_3": "flash", "kernels-community/flash-attn": "flash",
    "kernels-community/vllm-flash-attn3": "flash", "flash2": "flash", "sdpa": "sdpa", "eager": "eager",
}  # fmt: skip
_DTYPES = {"bf16": "bf16", "fp16": "fp16"}


def _trainer(word: str) -> str | None:
    """The trainer that a module or file is: `sft` of openrlhf.cli.train_sft; None where it is none."""
    name = word.replace("/", ".").removesuffix(".py")
    last = name.rpartition(".")[2]
    return last.removeprefix("train_") if "openrlhf" in name and last.removeprefix("train_") in _JOBS else None


def _starts(words: tuple[str, ...]) -> bool:
    return _trainer(words[0]) is not None


def _command(source: Source) -> Command | None:
    return find_command(source, _starts)


def _recognises(source: Source) -> Certainty:
    return 95 if source.kind == "shell" and _command(source) is not None else 0


def _keys(source: Source) -> Keys:
    command = _command(source)
    return flag_keys(command_arguments(command)) if command is not None else source.keys


def _read(draft: Draft, source: Source) -> None:
    command = _command(source)
    word = unwrapped(command).command.words[0].text if command is not None else ""
    trainer = _trainer(word) or ("ppo_ray" if draft.peek("actor.model_name_or_path") is not None else "sft")
    draft.state("stack", "openrlhf", next(iter(draft.keys.values()), None))
    _hardware(draft, source, command, trainer)
    _job(draft, trainer)
    _states(draft)
    _kernels(draft)
    _batches(draft, trainer)
    if trainer in _REWARDED:
        state_answers(draft, scored=draft.fact("job") == _JOBS[_RAY])
    _duration(draft, trainer)


def _hardware(draft: Draft, source: Source, command: Command | None, trainer: str) -> None:
    """GPUs that train: of the launcher, or of the actor where Ray places the models."""
    if trainer != _RAY:
        if command is not None and source.script is not None:
            state_gpus(draft, launched_hardware(source.script, command))
        return
    names = called("actor.num_nodes"), called("actor.num_gpus_per_node")
    if draft.unread.keys() & {*names[0], *names[1]}:
        return
    nodes, gpus = draft.take(*names[0]), draft.take(*names[1])
    counts = draft.value(nodes, positive) or 1, draft.value(gpus, positive) or _PER_NODE
    if isinstance(counts[0], int) and isinstance(counts[1], int):
        note = "those of the actor" if counts[0] == 1 else f"those of the actor, {counts[0]} nodes of {counts[1]}"
        if nodes is not None or gpus is not None:
            draft.state("gpus", counts[0] * counts[1], gpus or nodes, note)
        draft.default("gpus", counts[0] * counts[1], note)


def _job(draft: Draft, trainer: str) -> None:
    job = _JOBS[trainer]
    estimator = draft.take(*called("algo.advantage.estimator"))
    pretrained = draft.on(*called("model.pretrain_mode_enable"))
    rank, bits = draft.on(*called("ds.lora.rank")), draft.on(*called("ds.load_in_4bit"))
    if rank is not None and job == huggingface.SFT:
        draft.state("job", huggingface.QLORA if bits is not None else huggingface.LORA, bits or rank)
    if pretrained is not None:
        draft.state("job", "pretrain", pretrained)
    if estimator is not None and plain(estimator.value) != "gae":
        draft.state("job", "grpo", estimator)
    draft.state("job", job, estimator or next(iter(draft.keys.values()), None))
    if rank is not None:
        draft.state("lora.rank", draft.value(rank, positive_or_open), rank)
        huggingface.state_targets(draft, draft.take(*called("ds.lora.target_modules")), (huggingface.ALL_LINEAR,))
        draft.apply(TABLE)
        draft.default("lora.dropout", 0)
    else:
        draft.count(*called("ds.lora.dropout"), *called("ds.lora.target_modules"))
    if bits is not None:
        huggingface.state_bits(draft, 4, bits)


def _states(draft: Draft) -> None:
    """What DeepSpeed keeps where, and in which number format."""
    _whole(draft, "layout.zero", "ds.zero_stage", _STAGE, whole)
    _whole(draft, "layout.tp", "ds.tensor_parallel_size", 1)
    _whole(draft, "layout.cp", "ds.ring_attn_size", 1)
    overlap = draft.on(*called("ds.overlap_comm"))
    if overlap is not None:
        draft.state("train.overlap", ("sharding" if draft.fact("layout.zero") == 3 else "data-parallel",), overlap)
    offload = draft.on(*called("ds.adam_offload"))
    if offload is not None:
        draft.state("layout.offload", "optimizer", offload)
    draft.default("layout.offload", "none")
    dtype, old = draft.take(*called("ds.param_dtype")), draft.on("bf16")
    if dtype is not None:
        draft.state("precision", draft.value(dtype, word_of(_DTYPES)), dtype)
    if old is not None:
        draft.state("precision", "bf16", old)
    draft.default("precision", "bf16")
    draft.default("train.weights_dtype", draft.fact("precision"), "that of the run")
    state_optimizer(draft, "optim", draft.peek("optim"))
    draft.default("optimizer", "adamw")


def _whole(draft: Draft, key: str, name: str, usual: int, read: Converter = positive) -> None:
    """A number of a flag, or its default."""
    found = draft.take(*called(name))
    if found is not None:
        draft.state(key, draft.value(found, read), found)
    if draft.unread.keys().isdisjoint(called(name)):
        draft.default(key, usual)


def _kernels(draft: Draft) -> None:
    attention, old = draft.take(*called("ds.attn_implementation")), draft.on("flash_attn")
    packed = draft.on(*called("ds.packing_samples"))
    recompute = draft.take(*called("model.gradient_checkpointing_enable"))
    if attention is not None and packed is not None and plain(attention.value) in ("sdpa", "eager"):
        draft.state("attention", "flash", packed, "packed samples need it")
    elif attention is not None:
        draft.state("attention", draft.value(attention, word_of(_ATTENTION)), attention)
    if old is not None:
        draft.state("attention", "flash", old)
    draft.default("attention", "flash")
    if recompute is not None:
        draft.state("layout.recompute", "full" if is_on(recompute.value) else "none", recompute)
    draft.default("layout.recompute", "none")
    liger = draft.on(*called("ds.use_liger_kernel"))
    if liger is not None:
        draft.state("train.fused_kernels", LIGER_KERNELS, liger)
    dynamic, ring = draft.peek(*called("train.dynamic_batch_enable")), draft.peek(*called("ds.ring_attn_size"))
    rings = draft.value(ring, positive)
    filled = packed or (dynamic if dynamic is not None and is_on(dynamic.value) else None)
    if filled is None and isinstance(rings, int) and rings > 1:
        filled = ring
    if filled is not None:
        draft.state("train.padding", "none", filled, "samples of a micro-batch are put behind one another")
    draft.default("train.padding", "longest-in-micro-batch")


def _batches(draft: Draft, trainer: str) -> None:
    _whole(draft, "train.global_batch", "train.batch_size", _BATCH)
    _length(draft, trainer)
    dynamic = draft.on(*called("train.dynamic_batch_enable"))
    tokens = draft.take(*called("train.max_tokens_per_gpu"))
    if dynamic is not None:
        room = draft.value(tokens, positive_or_open) or _TOKENS
        name = next(name for name in called("train.dynamic_batch_enable") if name in draft.keys)
        draft.lose(name, "fills micro-batches up to a number of tokens")
        draft.count(*called("train.micro_batch_size"))
        if isinstance(room, int):
            assume_micro_batch(draft, room, dynamic.where)
        return
    today = any("." in name for name in draft.keys)
    usual = (_RAY_MICRO if today else _RAY_MICRO_BEFORE) if trainer == _RAY else _MICRO.get(trainer, 1)
    _whole(draft, "train.micro_batch", "train.micro_batch_size", usual)


def _length(draft: Draft, trainer: str) -> None:
    """A prompt and its answer together; releases before 0.10 say both lengths."""
    prompt, answer = draft.take("prompt_max_len"), draft.peek("generate_max_len")
    sizes = [draft.value(each, positive) for each in (prompt, answer)]
    if trainer == _RAY and (prompt is not None or answer is not None):
        both = [size if isinstance(size, int) else _LENGTH // 2 for size in sizes]
        note = f"{both[0]} of the prompt, {both[1]} of the answer"
        draft.state("train.seq_len", sum(both), answer or prompt, note)
        draft.take("generate_max_len")
    _whole(draft, "train.seq_len", "data.max_len", _LENGTHS.get(trainer, _LENGTH))


def _duration(draft: Draft, trainer: str) -> None:
    """Passes over the data; of reinforcement learning episodes, each with passes over the answers of every iteration.

    Without a number of passes the most samples say how many steps one takes, if the data have as many.
    """
    epochs, episodes = draft.take(*called("train.max_epochs")), draft.take(*called("train.num_episodes"))
    if trainer in _REWARDED:
        draft.state("rollout.updates", draft.value(epochs, positive), epochs)
        draft.default("rollout.updates", 1)
    passes = episodes if trainer in _REWARDED else epochs
    draft.state("train.epochs", draft.value(passes, positive), passes)
    most = draft.take(*called("data.max_samples"))
    samples = draft.value(most, positive)
    each = draft.fact("rollout.prompts" if trainer in _REWARDED else "train.global_batch")
    if passes is None and most is not None and isinstance(samples, int) and isinstance(each, int):
        note = f"{samples:,} samples in steps of {each:,}, if the data have as many"
        draft.assume("train.steps", max(samples // each, 1), note, most.where)
    draft.default("train.epochs", _EPOCHS.get(trainer, 1))


# A plan as a command of one of OpenRLHF's trainers. Flags: openrlhf/cli of 0.10.

_TRAINERS = {
    "sft": "sft", "lora": "sft", "qlora": "sft", "pretrain": "sft", "dpo": "dpo", "reward": "rm", "ppo": "ppo_ray",
    "grpo": "ppo_ray",
}  # fmt: skip
_TITLE = "OpenRLHF"
_PENALTY = 0.01  # for straying from the reference, unasked
_ESTIMATORS, _OF_ONE = {"ppo": "gae", "grpo": "group_norm"}, {"ppo": "gae", "grpo": "reinforce"}
"""How advantages come about, of groups of answers and of single ones, which have no group to be compared with."""


def _write(plan: Plan) -> ToolFiles:
    job = plan.take("job")
    if job not in _TRAINERS:
        hint = f"jobs that it has are {', '.join(_TRAINERS)}"
        raise InputError(Problem(f"{_TITLE} does not do {job}", plan.where("job"), hint))
    trainer = _TRAINERS[job]
    answers = trainer == _RAY
    group = "actor" if answers else "model"
    flags = {
        f"{group}.model_name_or_path": plan.take("model"),
        "model.pretrain_mode_enable": job == "pretrain",
        **(_write_answers(plan) if answers else {"data.dataset": "DATASET"}),
        **_write_batches(plan, answers=answers),
        **_write_states(plan),
        f"{group}.gradient_checkpointing_enable": plan.peek("layout.recompute") == "full",
        **_write_adapters(plan),
        f"{'actor.' if answers else ''}adam.lr": LEARNING_RATE,
        "critic.adam.lr": LEARNING_RATE if job == _JOBS[_RAY] else None,
        "ckpt.save_steps": plan.take("train.checkpoint_every"),
        **({} if answers else _write_evaluation(plan)),
        "ckpt.output_dir": "output",
    }
    if job == "dpo" and plan.peek("train.reference") == COPY:
        plan.said("train.reference")
    nodes, gpus = plan.take("nodes", 1), plan.take("gpus")
    if answers and flags["reward.model_name_or_path"] is None:
        flags |= _write_evaluation(plan)
    if answers:
        return ToolFiles(command_text(["python3", "-m", f"openrlhf.cli.train_{trainer}"], flags))
    machines = ["--num_nodes", str(nodes)] if nodes > 1 else []
    words = ["deepspeed", *machines, "--num_gpus", str(gpus // nodes), "--module", f"openrlhf.cli.train_{trainer}"]
    return ToolFiles(command_text(words, flags))


def _write_evaluation(plan: Plan) -> dict[str, Any]:
    """When it evaluates; answers only where a function rates them (openrlhf/cli/train_ppo_ray.py)."""
    every = plan.take("train.evaluate_every")
    return {"eval.steps": every, "eval.dataset": "VALIDATION_DATASET" if every else None}


def _write_batches(plan: Plan, *, answers: bool) -> dict[str, Any]:
    """Batches, lengths, padding and how long the run is: steps as the samples that they take."""
    plan.said("train.grad_accum")
    padding, steps, epochs = plan.peek("train.padding"), plan.take("train.steps"), plan.peek("train.epochs")
    packed = padding == "none"
    if padding in ("none", "longest-in-micro-batch"):
        plan.said("train.padding")
    each = round(plan.peek("rollout.prompts", 1)) if answers else plan.peek("train.global_batch")
    whole = epochs is not None and float(epochs).is_integer()
    if whole and steps is None:
        plan.said("train.epochs")
    passes = int(epochs) if whole and steps is None else None
    return {
        "data.max_len": plan.take("train.seq_len"),
        "data.max_samples": steps * each if steps and each else None,
        "train.batch_size": plan.take("train.global_batch"),
        "train.micro_batch_size": plan.take("train.micro_batch"),
        "train.max_epochs": plan.take("rollout.updates", 1) if answers else passes,
        "train.num_episodes": passes if answers else None,
        "ds.packing_samples": packed,
    }


def _write_states(plan: Plan) -> dict[str, Any]:
    """What DeepSpeed keeps where, and the kernels."""
    word = plan.peek("precision")
    if word in _DTYPES:
        plan.said("precision")
    if plan.peek("train.weights_dtype") == word:
        plan.said("train.weights_dtype")
    if plan.peek("optimizer", "adamw") == "adamw":
        plan.said("optimizer")
    if plan.peek("layout.recompute") in ("none", "full"):
        plan.said("layout.recompute")
    moved, sharded = plan.peek("layout.offload") == OPTIMIZER, plan.take("layout.zero", _STAGE)
    if moved and sharded:
        plan.said("layout.offload")
    packed = plan.peek("train.padding") == "none"  # which needs flash attention: openrlhf/cli sets it
    word_of_kernel = inverse(_ATTENTION)["flash"] if packed else plan.word("attention", inverse(_ATTENTION))
    if packed and plan.peek("attention") != "eager":
        plan.said("attention")
    liger = set(plan.peek("train.fused_kernels") or ()) == set(LIGER_KERNELS)
    if liger:
        plan.said("train.fused_kernels")
    return {
        "ds.zero_stage": sharded,
        "ds.param_dtype": word if word in _DTYPES else None,
        "ds.tensor_parallel_size": plan.take("layout.tp", 1),
        "ds.ring_attn_size": plan.take("layout.cp", 1),
        "ds.adam_offload": moved and sharded > 0,
        "ds.grad_accum_dtype": "fp32" if plan.take("train.gradient_dtype") == "fp32" else None,
        "ds.attn_implementation": word_of_kernel,
        "ds.use_liger_kernel": liger,
    }


def _write_adapters(plan: Plan) -> dict[str, Any]:
    if not named_adapter(plan) and not plan.peek("lora.rank"):
        return {}
    bits = plan.peek("train.bits") == huggingface.QLORA_BITS or plan.peek("job") == huggingface.QLORA
    if bits:
        plan.said("train.bits")
    return {
        "ds.load_in_4bit": bits,
        "ds.lora.rank": plan.take("lora.rank"),
        "ds.lora.alpha": plan.take("lora.alpha"),
        "ds.lora.dropout": plan.take("lora.dropout", 0),
        "ds.lora.target_modules": adapted_modules(plan) or None,
    }


def _write_answers(plan: Plan) -> dict[str, Any]:
    """Prompts and answers, the engine, and the models beside the actor. Raises InputError: GPUs shared otherwise."""
    job, writing, tp = plan.peek("job"), plan.take("rollout.gpus"), plan.take("rollout.tp", 1)
    ahead = plan.take("rollout.asynchronous", False)
    carried = ahead and plan.take("rollout.partial", False)  # which goes on only where answers are written ahead
    if plan.peek("rollout.engine", "vllm") == "vllm":
        plan.said("rollout.engine")
    kept = plan.peek("train.reference")
    if kept in (NONE, "adapters-off" if named_adapter(plan) else COPY):
        plan.said("train.reference")
    asleep, moved = plan.peek("rollout.sleep"), plan.peek("rollout.offload")
    if asleep in (("none", "weights-to-host") if not writing else ("none",)):
        plan.said("rollout.sleep")
    if moved in ((NO_OFFLOAD, OPTIMIZER) if not writing else (NO_OFFLOAD,)):
        plan.said("rollout.offload")
    roles = {"ref": kept not in (NONE, None), "critic": job == _JOBS[_RAY], "reward": _is_rated(plan)}
    pools, training = _write_pools(plan, [role for role, there in roles.items() if there], writing)
    rated = plan.take("train.reward_model")
    return {
        **pools,
        "vllm.num_engines": max((writing or training) // (tp * plan.take("rollout.pp", 1)), 1),
        "vllm.tensor_parallel_size": tp,
        "vllm.gpu_memory_utilization": plan.take("rollout.gpu_memory_utilization"),
        "vllm.enable_sleep": asleep == "weights-to-host" and not writing,
        "ds.enable_sleep": moved != NO_OFFLOAD and not writing,
        "train.async_enable": ahead,
        "train.async_queue_size": plan.take("rollout.max_staleness") if ahead else None,
        "train.partial_rollout_enable": carried,
        "rollout.batch_size": round(plan.take("rollout.prompts")),
        "rollout.n_samples_per_prompt": plan.take("rollout.group", 1),
        "rollout.max_new_tokens": plan.take("rollout.max_output_tokens"),
        "algo.advantage.estimator": _ESTIMATORS[job] if plan.peek("rollout.group", 1) > 1 else _OF_ONE[job],
        "algo.kl.init_coef": _PENALTY if roles["ref"] else 0,
        "critic.model_name_or_path": plan.take("train.critic_model"),
        "reward.model_name_or_path": (rated or "REWARD_MODEL") if roles["reward"] else None,
        "reward.remote_url": None if roles["reward"] else "REWARD_FUNCTION",
        "data.prompt_dataset": "DATASET",
    }


_SECTIONS = {"ref": "reference", "critic": "critic", "reward": "reward"}
"""Models beside the actor by what OpenRLHF calls them, with their sections."""


def _write_pools(plan: Plan, roles: Sequence[str], writing: int | None) -> tuple[dict[str, Any], int]:
    """GPUs of the actor and of the models beside it, and how many train the actor.

    All share the actor's where the engine does, or where it writes ahead and none has its own. Else the reference may
    share the actor's GPUs, the reward model the critic's, and the others have their own.

    roles : models beside the actor; writing : GPUs that only write answers. Raises InputError: GPUs shared otherwise
    """
    own = {role: plan.take(f"{section}.gpus") for role, section in _SECTIONS.items() if role in roles}
    apart = {role: gpus for role, gpus in own.items() if gpus}
    training = plan.peek("gpus") - (writing or 0) - sum(apart.values())
    together = not writing or (plan.peek("rollout.asynchronous", False) and not apart)
    shared = bool(plan.take("reward.with_critic")) and "reward" in roles
    if apart and not writing:
        hint = "give the engine some too: --rollout-gpus"
        what = f"{_TITLE} has GPUs for models beside the actor only where the engine has its own"
        raise InputError(Problem(what, plan.where(f"{_SECTIONS[next(iter(apart))]}.gpus"), hint))
    missing = [role for role in roles if role not in ("ref", *apart) and not (role == "reward" and shared)]
    if missing and not together:
        sizes = ", ".join(f"--{_SECTIONS[role]}-gpus" for role in missing)
        hint = f"say how many: {sizes}; or let all models share the GPUs, or write answers ahead: --asynchronous"
        model = {"reward": "reward model"}.get(missing[0], missing[0])
        what = f"{_TITLE} has the {model} on GPUs of its own beside an engine that has some too"
        raise InputError(Problem(what, plan.where("rollout.gpus"), hint))
    for section in (_SECTIONS[role] for role in apart):
        if plan.peek(f"{section}.tp", 1) == plan.peek("layout.tp", 1):  # one number is that of all models
            plan.said(f"{section}.tp")
    counts = {"actor": training, **{role: apart.get(role, training) for role in roles}}
    if shared and "critic" in apart:
        counts["reward"] = apart["critic"]
    values: dict[str, Any] = {}
    each = plan.peek("gpus") // plan.peek("nodes", 1)
    for role, gpus in counts.items():
        machines = math.ceil(gpus / each)
        if gpus % machines:
            what = f"{_TITLE} gives a model the same number of GPUs on every node, which {gpus} GPUs do not make"
            where = plan.where(f"{_SECTIONS.get(role, 'rollout')}.gpus")
            raise InputError(Problem(what, where, f"give a multiple of the {each} GPUs of a node"))
        values |= {f"{role}.num_nodes": machines, f"{role}.num_gpus_per_node": gpus // machines}
    return values | {
        "train.colocate_all": together,
        "train.colocate_actor_ref": not together and "ref" in roles and "ref" not in apart,
        "train.colocate_critic_reward": not together and shared,
    }, training


def _is_rated(plan: Plan) -> bool:
    """Whether a reward model rates answers: with a critic one does unless it is ruled out."""
    model = plan.peek("train.reward_model")
    return model not in (NONE, None) or (model is None and plan.peek("job") == _JOBS[_RAY])


SAYS = (
    "model", "job", "precision", "optimizer", "attention", "train.seq_len", "train.padding", "train.micro_batch",
    "train.global_batch", "train.epochs", "train.checkpoint_every", "train.evaluate_every", "train.bits",
    "train.fused_kernels", "layout.tp", "layout.cp", "layout.zero", "layout.recompute", "layout.offload", "lora.rank",
    "lora.targets", "lora.alpha", "lora.dropout", "rollout.prompts", "rollout.group", "rollout.updates",
    "rollout.max_output_tokens", "rollout.tp", "rollout.gpus", "rollout.gpu_memory_utilization", "rollout.sleep",
    "rollout.offload", "rollout.asynchronous", "rollout.max_staleness", "rollout.partial", "train.reference",
    "critic.gpus", "reward.gpus", "reference.gpus", "reward.with_critic", "gpus", "train.gradient_dtype",
)  # fmt: skip
EXPORTERS = (
    Exporter(
        name="openrlhf",
        title=_TITLE,
        ending=".sh",
        write=_write,
        says=SAYS,
        added=Added("adam.lr, lr_scheduler, lr_warmup_ratio", "data.max_samples or max_epochs", "ds.lora.alpha"),
    ),
)


TOOL = Tool(
    name="openrlhf",
    title=_TITLE,
    reads="scripts that start `openrlhf.cli.train_sft`, `train_dpo`, `train_rm`, `train_ppo_ray` and others",
    recognises=_recognises,
    read=_read,
    table=TABLE,
    keys=_keys,
)
