"""ms-swift: `swift sft`, `swift pt`, `swift rlhf` and `megatron sft` in scripts, and their arguments in files.

Rules: ms-swift swift/arguments, swift/trainers/arguments.py and swift/megatron/arguments (read at 4.2).
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from xe_sizer.errors import InputError, Problem
from xe_sizer.interop import huggingface
from xe_sizer.interop.draft import Table
from xe_sizer.interop.huggingface import (
    ADDED,
    BITS,
    COPY,
    FSDP_VERSION,
    GRPO,
    NO_OFFLOAD,
    OPTIMIZER,
    PARAMS,
    SAYS,
    SERVER_FILE,
    TRANSFORMERS,
    VLLM,
    as_words,
    fsdp_settings,
    served_apart,
    state_group_answers,
    state_models,
    state_scored_answers,
    state_server,
    trl_settings,
)
from xe_sizer.interop.launch import command_arguments, find_command, flag_keys, launched_hardware, state_gpus
from xe_sizer.interop.megatron import TABLE as MEGATRON
from xe_sizer.interop.megatron import Arguments, state_megatron
from xe_sizer.interop.readers.documents import flat, read_json
from xe_sizer.interop.readers.shell_script import unwrapped
from xe_sizer.interop.source import Tool
from xe_sizer.interop.values import Written, is_on, listed, number, plain, positive, text, whole
from xe_sizer.interop.write import Exporter, ToolFiles, command_text
from xe_sizer.software.stack import DEEPSPEED

if TYPE_CHECKING:
    from xe_sizer.interop.draft import Draft
    from xe_sizer.interop.readers.shell_script import Command
    from xe_sizer.interop.source import Certainty, Source
    from xe_sizer.interop.values import Keys
    from xe_sizer.interop.write import Plan

# Arguments of ms-swift. Keys and defaults: ms-swift swift/arguments and swift/trainers/arguments.py (read at 4.2).

TABLE = Table(file="ms_swift", further=(huggingface.TRAINER,))


_COMMANDS = ("sft", "pt", "rlhf")
_FILES = {"sft.py": "sft", "pt.py": "pt", "rlhf.py": "rlhf"}
_OWN = ("tuner_type", "train_type", "rlhf_type", "swift_type")
_TUNERS = ("lora", "longlora", "adalora", "lora_llm")
_JOBS = {"pt": "pretrain", "sft": "sft"}
_PREFERENCES = {"rm": "reward", "gkd": "distill", "cpo": "simpo"}
_DEEPSPEED = {
    "zero0": (0, None), "zero1": (1, None), "zero2": (2, None), "zero3": (3, None),
    "zero2_offload": (2, "optimizer"), "zero3_offload": (3, "params"),
}  # fmt: skip
_FSDP = "fsdp2"  # the name of a configuration, which recomputes all layers (swift/config/fsdp2.json)
_TRAINED_BY = "megatron-lm"  # the stack of `megatron sft`
_GROUP = "train."  # of files that ray starts, beside groups for the rollout and a teacher
_LEAST_BATCH = 16  # sequences of an optimizer step that accumulation makes up unasked
_WRITES = ("grpo", "ppo")
_RANK, _DROPOUT, _QLORA_BITS = 8, 0.05, 4
_BETA, _SHARE, _ANSWER = 0.04, 0.9, 512  # penalty, share of the card and length of an answer in reinforcement learning
_MEGATRON = (
    ("train.seq_len", "max_length", None), ("train.epochs", "num_train_epochs", None),
    ("train.micro_batch", "micro_batch_size", 1), ("train.global_batch", "global_batch_size", 16),
    ("train.checkpoint_every", "save_steps", None), ("train.evaluate_every", "eval_steps", None),
    ("layout.expert_tp", "expert_tensor_parallel_size", 1),
)  # fmt: skip
"""Arguments of `megatron sft` that Megatron calls otherwise, with the defaults of ms-swift."""


def _starts(words: tuple[str, ...]) -> bool:
    if len(words) < 2:
        return False
    name = words[0].rpartition("/")[2]
    return (name in ("swift", "megatron") and words[1] in _COMMANDS) or (name in _FILES and "swift" in words[0])


def _command(source: Source) -> Command | None:
    return find_command(source, _starts)


def _recognises(source: Source) -> Certainty:
    if source.kind == "shell":
        return 95 if _command(source) is not None else 0
    keys = _keys(source).keys()
    return 80 if keys & set(_OWN) and keys & {"model", "dataset", "model_id_or_path"} else 0


def _keys(source: Source) -> Keys:
    command = _command(source)
    if command is None:
        return {name.removeprefix(_GROUP): written for name, written in source.keys.items()}
    first = unwrapped(command).command.words[0].text.rpartition("/")[2]
    return flag_keys(command_arguments(command, 1 if first in _FILES else 2))


def _subcommand(source: Source) -> tuple[bool, str]:
    """Whether Megatron trains, and what the command does."""
    command = _command(source)
    words = [word.text for word in command.words] if command is not None else []
    kind = next((word for word in words if word in _COMMANDS), None)
    kind = kind or next((name for file, name in _FILES.items() if any(word.endswith(file) for word in words)), "sft")
    return "megatron" in words[:2] or "train.tensor_model_parallel_size" in source.keys, kind


def _read(draft: Draft, source: Source) -> None:
    megatron, kind = _subcommand(source)
    command = _command(source)
    if command is not None and source.script is not None:
        state_gpus(draft, launched_hardware(source.script, command))
    draft.state("stack", _TRAINED_BY if megatron else TOOL.name, draft.peek("model", "model_id_or_path", "model_type"))
    _job(draft, kind, megatron)
    _answers(draft, source)
    if megatron:
        _megatron(draft)
    else:
        _trainer(draft, source)


def _trainer(draft: Draft, source: Source) -> None:
    _deepspeed(draft)
    _padding(draft)
    draft.apply(Table(keys=tuple(key for key in TABLE.whole.keys if key.to == "train.weights_dtype")))
    draft.default("train.weights_dtype", "bf16", "that of the checkpoint")
    if draft.peek("attn_impl") is None:
        draft.default("attention", "sdpa", "the choice of transformers")
    huggingface.state_arguments(draft, source, precision="bf16", recompute="full")
    _accumulation(draft)


def _accumulation(draft: Draft) -> None:
    """Without a number of its own, as many as make 16 sequences of an optimizer step."""
    if draft.peek("gradient_accumulation_steps") is not None:
        return
    micro = draft.value(draft.peek("per_device_train_batch_size", "batch_size"), positive) or 1
    gpus = draft.fact("gpus")
    if isinstance(gpus, int) and isinstance(micro, int):
        steps = max(1, math.ceil(_LEAST_BATCH / micro / gpus))
        draft.default("train.grad_accum", steps, f"as many as make {_LEAST_BATCH} sequences")


def _job(draft: Draft, kind: str, megatron: bool) -> None:
    rlhf, tuner = draft.take("rlhf_type"), draft.take("tuner_type", "train_type", "sft_type")
    word = plain(tuner.value) if tuner is not None else ("full" if megatron else "lora")
    if kind == "rlhf":
        chosen = plain(rlhf.value) if rlhf is not None else "dpo"
        job = _PREFERENCES.get(chosen, chosen)
        _state(draft, "job", job, rlhf)
    adapted = word in {plain(name) for name in _TUNERS}
    bits = draft.take("quant_bits")
    quantised = adapted and bits is not None and is_on(bits.value)
    if adapted:
        four = quantised and draft.value(bits, whole) == _QLORA_BITS
        _state(draft, "job", huggingface.QLORA if four else huggingface.LORA, bits if four else tuner)
        _adapters(draft)
    elif word == "full":
        _state(draft, "job", _JOBS.get(kind, "sft"), tuner)
    elif tuner is not None:
        draft.lose("tuner_type" if "tuner_type" in draft.keys else "train_type", f"{tuner.value} is priced as LoRA")
        draft.assume("job", huggingface.LORA, f"in place of {tuner.value}", tuner.where)
        _adapters(draft)
    if quantised and bits is not None:
        method = draft.take("quant_method")
        library = huggingface.quantiser_called(method.value) if method is not None else None
        width = draft.value(bits, whole)
        huggingface.state_bits(
            draft, width if isinstance(width, int) else _QLORA_BITS, bits, library or huggingface.BITSANDBYTES
        )


def _answers(draft: Draft, source: Source) -> None:
    """How answers are written and rated; the critic begins as the reward model (swift/pipelines/train/rlhf.py)."""
    reward = ("reward_model",)
    if draft.fact("job") == "grpo":
        _whole_length(draft)
        state_group_answers(draft, beta=_BETA, share=_SHARE)
        state_server(draft, source)
        if draft.fact("rollout.engine") == "vllm" and draft.fact("rollout.colocated") is not False:
            draft.default("rollout.sleep", NO_OFFLOAD)
        moved = ((PARAMS, draft.on("offload_model")), (OPTIMIZER, draft.on("offload_optimizer")))
        for states, found in moved:
            if found is not None:
                draft.state("rollout.offload", states, found)
        draft.default("rollout.offload", NO_OFFLOAD)
        state_models(draft, {"train.reward_model": reward})
    elif draft.fact("job") == _PREFERENCES["gkd"]:
        state_models(draft, {"train.teacher_model": ("teacher_model",)})
    elif draft.fact("job") == "ppo":
        _whole_length(draft)
        state_scored_answers(draft, _ANSWER)
        state_models(draft, {"train.critic_model": reward, "train.reward_model": reward})


def _whole_length(draft: Draft) -> None:
    """A prompt and its answer; `max_length` is of the prompt alone where answers are written, and may be left out."""
    context = draft.take("vllm_max_model_len")
    prompt, answer = draft.peek("max_length"), draft.peek("max_completion_length", "response_length", "max_new_tokens")
    sizes = draft.value(prompt, positive), draft.value(answer, positive) or _ANSWER
    if isinstance(sizes[0], int) and isinstance(sizes[1], int):
        draft.state("train.seq_len", sizes[0] + sizes[1], prompt, f"{sizes[0]} of the prompt, {sizes[1]} of the answer")
    draft.state("train.seq_len", draft.value(context, positive), context, "what the engine has room for")


def _state(draft: Draft, key: str, value: object, found: Written | None) -> None:
    """A value that is stated, or else the tool's default."""
    if found is not None:
        draft.state(key, value, found)
    else:
        draft.default(key, value)


def _adapters(draft: Draft) -> None:
    rank, dropout = draft.take("lora_rank"), draft.take("lora_dropout", "lora_dropout_p")
    for key, found, value in (("lora.rank", rank, _RANK), ("lora.dropout", dropout, _DROPOUT)):
        if found is not None:
            draft.state(key, draft.value(found, number), found)
        draft.default(key, value)
    huggingface.state_targets(draft, draft.take("target_modules", "lora_target_modules"), (huggingface.ALL_LINEAR,))
    saved = draft.take("modules_to_save")
    if saved is not None:
        draft.state("lora.modules_to_save", draft.value(saved, listed), saved)
    dora = draft.on("use_dora")
    if dora is not None:
        draft.state("lora.dora", True, dora)
    if draft.peek("target_regex") is not None:
        draft.lose("target_regex", "puts adapters on the modules whose names match")


def _deepspeed(draft: Draft) -> None:
    """The names that ms-swift has for configurations of its own, of DeepSpeed and of FSDP."""
    sharded = draft.peek("fsdp")
    if sharded is not None and plain(sharded.value) == _FSDP:
        draft.state("layout.recompute", "full", sharded)
    elif sharded is not None and str(sharded.value).startswith("{"):
        given = flat(read_json(Path(sharded.where.name), str(sharded.value)))
        draft.take("fsdp")
        draft.keys.update({name: Written(value, sharded.where) for name, (value, _) in given.items()})
    named = draft.peek("deepspeed")
    word = text(named.value) if named is not None else None
    if named is not None and word in _DEEPSPEED:
        stage, offload = _DEEPSPEED[word]
        draft.take("deepspeed")
        draft.keys.pop("deepspeed")
        draft.state("train.backend", DEEPSPEED, named)
        draft.state("layout.zero", stage, named)
        if offload is not None:
            draft.state("layout.offload", offload, named)


def _padding(draft: Draft) -> None:
    packed, free = draft.on("packing"), draft.on("padding_free")
    if packed is not None:
        draft.state("train.padding", "packed", packed)
    elif free is not None:
        draft.state("train.padding", "none", free)
    huggingface.state_grouping(draft)
    if draft.fact("job") not in _WRITES:  # generated answers are padded as the stack has it
        draft.default("train.padding", "longest-in-micro-batch")


def _megatron(draft: Draft) -> None:
    """`megatron sft`: Megatron's arguments in snake case, with defaults of ms-swift's own."""
    packed, free = draft.on("packing"), draft.take("padding_free")
    if packed is not None:
        draft.state("train.padding", "packed", packed)
    elif free is not None and not is_on(free.value):
        draft.state("train.padding", "longest-in-micro-batch", free)
    draft.default("train.padding", "none")
    for key, name, value in _MEGATRON:
        found = draft.take(name)
        _state(draft, key, draft.value(found, whole) if found is not None else value, found)
    draft.close("train.grad_accum")
    if draft.peek("recompute_granularity") is None:
        draft.default("layout.recompute", "selective")
    if draft.peek("use_distributed_optimizer") is None:
        draft.default("layout.zero", 1, "the distributed optimizer")
    draft.default("train.dropout", 0)
    draft.default("precision", "bf16")
    draft.default("attention", "flash")
    state_megatron(Arguments(draft))


# A plan as a command of ms-swift, whose trainers are those of transformers and TRL under other names.

_TITLE = "ms-swift"
_KINDS = {"pretrain": "pt", "sft": "sft", "lora": "sft", "qlora": "sft"}
_RLHF = {"dpo": "dpo", "kto": "kto", "reward": "rm", "simpo": "simpo", "orpo": "orpo", "ppo": "ppo", "grpo": "grpo"}
_RENAMED = {
    "model_name_or_path": "model", "dtype": "torch_dtype", "attn_implementation": "attn_impl", "lora_r": "lora_rank",
    "lora_target_modules": "target_modules", "lora_modules_to_save": "modules_to_save", "dataset_name": "dataset",
    "vllm_max_model_length": "vllm_max_model_len", "reward_model_name_or_path": "reward_model",
}  # fmt: skip
_LEFT_OUT = (
    "use_peft", "loss_type", "desirable_weight", "center_rewards_coefficient", "load_in_4bit", "load_in_8bit",
    "vllm_enable_sleep_mode", "activation_offloading",
)  # fmt: skip
"""Arguments of TRL that ms-swift has no use for, or other words."""
_SLEEP_LEVELS = {"none": 0, "weights-to-host": 1, "weights-dropped": 2}


def _write(plan: Plan) -> ToolFiles:
    job = plan.peek("job")
    if job not in {**_KINDS, **_RLHF}:
        hint = f"jobs that it has are {', '.join((*_KINDS, *_RLHF))}"
        raise InputError(Problem(f"{_TITLE} does not do {job}", plan.where("job"), hint))
    _refuse(plan)
    plan.said("job")
    asleep, moved = plan.peek("rollout.sleep"), plan.peek("rollout.offload")
    values = trl_settings(plan, splits_answers=True)
    adapted, bits = bool(values.get("use_peft")), next((bits for bits, name in BITS.items() if values.get(name)), None)
    grouped = values.pop("train_sampling_strategy", None)
    values = {_RENAMED.get(name, name): each for name, each in values.items() if name not in _LEFT_OUT}
    values |= {
        "tuner_type": "lora" if adapted else "full",
        "quant_bits": bits,
        "quant_method": "bnb" if bits else None,
        "group_by_length": True if grouped else None,
        "sequence_parallel_size": plan.take("layout.cp", 1),
        **_write_sharding(plan),
    }
    if job == GRPO:
        values |= _write_group(plan, asleep, moved)
    elif job == "ppo":
        values |= _write_scored(plan)
    command = ["swift", *(["rlhf", "--rlhf_type", _RLHF[job]] if job in _RLHF else [_KINDS[job]])]
    nodes, gpus = plan.take("nodes", 1), plan.take("gpus")
    devices: list[str] = []
    beside: dict[str, str] = {}
    told: tuple[str, ...] = ()
    if values.get("vllm_mode") == "server":
        hosts = max(plan.peek("rollout.gpus") // (gpus // nodes), 1) if nodes > 1 else 1
        served = served_apart(plan, _TITLE, ["swift", "rollout"], "vllm_", "_")
        nodes, gpus, devices, beside = served.nodes, served.gpus, [served.devices], {SERVER_FILE: served.script}
        values["vllm_server_host"] = _hosts(values["vllm_server_host"], hosts)
        told = (f"{SERVER_FILE} starts the engine, before the trainer{' on each node of its own' * (hosts > 1)}",)
    machines = [f"NNODES={nodes}"] if nodes > 1 else []
    words = [*filter(None, devices), *machines, f"NPROC_PER_NODE={gpus // nodes}", *command]
    yours = ("NODE_RANK and MASTER_ADDR on each node",) if nodes > 1 else ()
    return ToolFiles(command_text(words, as_words(values)), beside, yours=yours, told=told)


def _hosts(host: str, number: int) -> list[str]:
    """Names that stand for the nodes of the engine."""
    return [host] if number == 1 else [f"{host}_{place}" for place in range(1, number + 1)]


def _refuse(plan: Plan) -> None:
    """Raises InputError: what TRL has and ms-swift hands on to none of its trainers."""
    for key, values in (("layout.offload", ("activations",)), ("train.reference", ("precomputed",))):
        if plan.peek(key) in values:
            what = f"{_TITLE} has no setting for {key}: {plan.peek(key)}"
            raise InputError(Problem(what, plan.where(key), "fix the key to another value"))


def _write_sharding(plan: Plan) -> dict[str, Any]:
    """FSDP where it has the stage, and DeepSpeed by the name of its configuration for the others.

    FSDP recomputes by itself: the Trainer's recomputation is off with it (swift/arguments/sft_args.py).
    """
    zero, offload = plan.peek("layout.zero", 0), plan.peek("layout.offload", "none")
    again = plan.peek("layout.recompute") == "full"
    fsdp = fsdp_settings(plan)
    if fsdp is not None:
        moved = fsdp.pop("offload_params")
        words = f"{'full_shard' if fsdp['reshard_after_forward'] else 'shard_grad_op'} auto_wrap{' offload' * moved}"
        settings = {"fsdp_version": FSDP_VERSION, **fsdp, "activation_checkpointing": again}
        own = again and not moved and fsdp["reshard_after_forward"]
        text = _FSDP if own else json.dumps({"fsdp": words, "fsdp_config": settings})
        return {"fsdp": text, "gradient_checkpointing": False}
    plan.said("layout.zero")
    if zero == 0 and plan.peek("train.backend") != DEEPSPEED:
        return {}
    wanted = zero, None if offload == "none" else offload
    word = next((word for word, means in _DEEPSPEED.items() if means == wanted), None)
    if word is not None:
        plan.said("layout.offload")
    plan.said("train.backend")
    return {"deepspeed": word or f"zero{zero}"}


def _write_group(plan: Plan, asleep: Any, moved: Any) -> dict[str, Any]:
    """What GRPO of ms-swift has beside TRL's settings; its `max_length` is of the prompt alone."""
    length, answer = plan.take("train.seq_len"), int(plan.peek("rollout.max_output_tokens") or 0)
    if asleep in _SLEEP_LEVELS:
        plan.said("rollout.sleep")
    if moved in (NO_OFFLOAD, OPTIMIZER, PARAMS):
        plan.said("rollout.offload")
    vllm = plan.peek("rollout.engine") == VLLM and plan.peek("rollout.gpus") is None  # a server has its own flags
    return {
        "max_length": max(length - answer, 1),
        "vllm_pipeline_parallel_size": plan.take("rollout.pp") if vllm else None,
        "vllm_max_num_seqs": plan.take("rollout.max_sequences") if vllm else None,
        "sleep_level": _SLEEP_LEVELS.get(asleep) if vllm else None,
        "offload_model": True if moved == PARAMS else None,
        "offload_optimizer": True if moved in (PARAMS, OPTIMIZER) else None,
    }


def _write_scored(plan: Plan) -> dict[str, Any]:
    """PPO: one answer to each prompt, of as many as an optimizer step has, rated by a model.

    Raises
    ------
    InputError : an engine of its own writes answers
    """
    if plan.peek("rollout.engine", TRANSFORMERS) != TRANSFORMERS:
        hint = f"--rollout-engine {TRANSFORMERS}"
        what = f"PPO of {_TITLE} writes answers with the model that it trains, not with {plan.peek('rollout.engine')}"
        raise InputError(Problem(what, plan.where("rollout.engine"), hint))
    if plan.peek("rollout.group", 1) == 1 and plan.peek("rollout.prompts") == plan.peek("train.global_batch"):
        plan.said("rollout.prompts", "rollout.group")
    plan.said("rollout.engine", "rollout.tp", "rollout.gpu_memory_utilization", "rollout.sleep")
    if plan.peek("train.reference") in (None, COPY, "adapters-off"):
        plan.said("train.reference")
    rated = plan.take("train.reward_model")
    length, answer = plan.take("train.seq_len"), plan.take("rollout.max_output_tokens")
    return {
        "max_length": max(length - int(answer or 0), 1),
        "max_completion_length": answer,
        "num_ppo_epochs": plan.take("rollout.updates", 1),
        "reward_model": "REWARD_MODEL" if rated in (None, "none") else rated,
    }


EXPORTERS = (
    Exporter(
        name="ms-swift",
        aliases=("swift",),
        title=_TITLE,
        ending=".sh",
        write=_write,
        says=(
            *SAYS,
            "layout.zero",
            "layout.cp",
            "rollout.pp",
            "rollout.max_sequences",
            "rollout.offload",
            "rollout.gpus",
            "gpus",
        ),
        added=ADDED,
    ),
)


TOOL = Tool(
    name="ms-swift",
    aliases=("swift",),
    title=_TITLE,
    reads="scripts with `swift sft`, `pt` or `rlhf` and `megatron sft`, and YAML or JSON files of their arguments",
    recognises=_recognises,
    read=_read,
    keys=_keys,
    table=replace(TABLE, beside=(MEGATRON,)),
)
