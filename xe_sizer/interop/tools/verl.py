"""verl: commands of its PPO and SFT trainers with Hydra overrides, and their configurations.

Rules: verl/trainer/config, verl/workers/fsdp_workers.py and megatron_workers.py (read at 0.8).
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.interop import huggingface
from xe_sizer.interop.draft import Key, Table, globs
from xe_sizer.interop.huggingface import (
    ACTIVATIONS,
    LIGER_KERNELS,
    LINEAR_LOG_PROBABILITIES,
    OPTIMIZER,
    PARAMS,
    adapted_modules,
    assume_micro_batch,
    named_adapter,
    pair_single_answers,
    state_model_pool,
    state_models,
    state_optimizer,
    state_oversampling,
    state_pools,
    state_reference,
    state_rollout,
)
from xe_sizer.interop.launch import command_arguments, find_command, flag_keys, launched_hardware, state_gpus
from xe_sizer.interop.megatron import TABLE as MEGATRON_ARGUMENTS
from xe_sizer.interop.megatron import Arguments, state_megatron
from xe_sizer.interop.readers.documents import resolved
from xe_sizer.interop.source import Tool
from xe_sizer.interop.values import (
    Unread,
    Written,
    above_zero,
    above_zero_or_off,
    interval,
    inverse,
    is_on,
    plain,
    positive,
    positive_or_open,
    word_of,
)
from xe_sizer.interop.write import LEARNING_RATE, Added, Exporter, ToolFiles, override_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xe_sizer.interop.draft import Draft
    from xe_sizer.interop.huggingface import Stated
    from xe_sizer.interop.readers.shell_script import Command
    from xe_sizer.interop.source import Certainty, Source
    from xe_sizer.interop.values import Keys
    from xe_sizer.interop.write import Plan

# verl commands for reinforcement learning: Hydra overrides of its PPO trainers, with FSDP or Megatron under them.
#
# Keys: verl/trainer/config and verl/experimental/{fully_async_policy,one_step_off_policy}/config (read at 0.9).

_ROOT = "actor_rollout_ref."
_ACTOR, _MODEL, _ROLLOUT = f"{_ROOT}actor.", f"{_ROOT}model.", f"{_ROOT}rollout."
_ESTIMATORS = {"ppo": "gae", "grpo": "grpo", "distill-on-policy": "grpo"}
_ENGINES = {"vllm": "vllm", "sglang": "sglang", "hf": "hf-transformers", "trtllm": "tensorrt-llm"}
_MEGATRON_SIZES = {
    "tp": "tensor_model_parallel_size", "pp": "pipeline_model_parallel_size", "cp": "context_parallel_size",
    "ep": "expert_model_parallel_size",
}  # fmt: skip
_SPLIT = ("tp", "pp", "ep")  # what FSDP has no word for
_ALL, _DISTRIBUTED_OPTIMIZER = 3, 1
SAYS = (
    "model", "job", "train.seq_len", "train.micro_batch", "train.global_batch", "train.steps", "train.epochs",
    "train.checkpoint_every", "train.evaluate_every", "lora.alpha",
    "layout.tp", "layout.pp", "layout.cp", "layout.ep", "layout.zero", "layout.recompute",
    "layout.offload", "lora.rank", "rollout.prompts", "rollout.group", "rollout.updates", "rollout.max_output_tokens",
    "rollout.engine", "rollout.tp", "rollout.gpu_memory_utilization", "rollout.max_sequences", "rollout.offload",
    "rollout.log_prob_micro_batch",
    "rollout.sleep", "rollout.gpus", "rollout.asynchronous", "rollout.max_staleness", "rollout.partial",
    "environment.turns", "environment.turn_tokens", "reward.gpus", "reward.engine", "reward.tp",
    "train.teacher_model", "train.teacher_top_k", "teacher.gpus", "teacher.engine", "teacher.tp",
    "train.fused_kernels", "train.reference", "gpus",
)  # fmt: skip
_TOGETHER = "verl.trainer.main_ppo"
_ONE_AHEAD = "verl.experimental.one_step_off_policy.main_ppo"
_QUEUE = "verl.experimental.fully_async_policy.fully_async_main"
"""Trainers: engine and trainer on the same GPUs; the engine one iteration ahead on its own; answers from a queue."""
_CONFIGURATIONS = {_TOGETHER: "ppo", _ONE_AHEAD: "one_step_off_ppo", _QUEUE: "fully_async_ppo"}


def _write(plan: Plan) -> ToolFiles:
    job = plan.peek("job")
    if job not in _ESTIMATORS:
        hint = f"jobs that verl's trainer has are {', '.join(_ESTIMATORS)}"
        raise InputError(Problem(f"verl's PPO trainer does not do {job}", Location("--to"), hint))
    plan.said("job", "optimizer", "precision", "attention", "train.padding", "train.grad_accum")
    megatron = any(plan.peek(f"layout.{ranks}", 1) > 1 for ranks in _SPLIT)
    section = "megatron" if megatron else "fsdp_config"
    program = _chosen_program(plan)
    words = ["python3", "-m", program]
    if megatron:
        words += ["--config-path=config", f"--config-name={_CONFIGURATIONS[program]}_megatron_trainer.yaml"]
    values = {
        "algorithm.adv_estimator": _ESTIMATORS[job],
        f"{_MODEL}path": plan.take("model"),
        "data.train_files": "DATASET",
        "data.val_files": "VALIDATION_DATASET",
        f"{_ACTOR}optim.lr": LEARNING_RATE,
        **_write_batches(plan, program),
        **_answers(plan),
        **_write_turns(plan),
        **(_under_megatron(plan) if megatron else _under_fsdp(plan)),
        **_write_waiting(plan, section),
        **_write_passes(plan, section),
        **_beside(plan),
        **_write_teacher(plan),
        **_adapters(plan),
        **_run(plan, program),
    }
    return ToolFiles(override_text(words, values))


def _chosen_program(plan: Plan) -> str:
    """The trainer, by where answers are written and how far ahead.

    One iteration ahead answers are ended before the weights change. What is further ahead, goes on with new weights, or
    takes turns with the training on other GPUs has the trainer that takes answers from a queue.
    """
    if plan.peek("rollout.gpus") is None:
        return _TOGETHER
    ahead, carried = plan.peek("rollout.asynchronous", False), plan.peek("rollout.partial", False)
    return _ONE_AHEAD if ahead and not carried and plan.peek("rollout.max_staleness", 1) == 1 else _QUEUE


def _write_batches(plan: Plan, program: str) -> dict[str, Any]:
    """Prompts of an iteration and of an optimizer step, and the lengths of prompts and answers.

    Of a queue the trainer takes mini-batches, as many as an iteration has between two transfers of weights.
    """
    group, length = plan.take("rollout.group", 1), plan.take("train.seq_len")
    answer = int(plan.take("rollout.max_output_tokens", length // 2))
    batch, prompts = plan.take("train.global_batch"), round(plan.take("rollout.prompts"))
    queued, mini = program == _QUEUE, max(batch // group, 1) if batch else prompts
    ahead, steps = plan.take("rollout.asynchronous", False), plan.peek("train.steps")
    carried, stale = queued and plan.take("rollout.partial", False), plan.take("rollout.max_staleness", 1)
    answer += _added_tokens(plan)
    return {
        "data.train_batch_size": 0 if queued else prompts,
        "data.gen_batch_size": 1 if queued else None,
        "async_training.staleness_threshold": (stale if ahead else 0) if queued else None,
        "async_training.require_batches": 1 if queued else None,
        "async_training.trigger_parameter_sync_step": max(prompts // mini, 1) if queued else None,
        "async_training.partial_rollout": carried if queued else None,
        "rollout.total_rollout_steps": (prompts * steps if steps else "null") if queued else None,
        "data.max_prompt_length": max(length - answer, 1),
        "data.max_response_length": answer,
        f"{_ROLLOUT}n": group,
        f"{_ACTOR}ppo_mini_batch_size": mini if batch or queued else None,
        f"{_ACTOR}ppo_micro_batch_size_per_gpu": plan.take("train.micro_batch"),
        f"{_ACTOR}ppo_epochs": plan.take("rollout.updates", 1),
    }


def _write_passes(plan: Plan, section: str) -> dict[str, Any]:
    """Answers of passes without a backward, without which verl does not start (verl/utils/config.py)."""
    passed = plan.take("rollout.log_prob_micro_batch") or plan.peek("train.micro_batch")
    reference = plan.peek("train.reference") == "copy"
    return {
        f"{_ROLLOUT}log_prob_micro_batch_size_per_gpu": passed,
        f"{_ROOT}ref.log_prob_micro_batch_size_per_gpu": passed if reference else None,
        f"{_ROOT}ref.{section}.param_offload": True if reference else None,
        "critic.ppo_micro_batch_size_per_gpu": plan.peek("train.micro_batch") if plan.peek("job") == _PPO else None,
    }


def _added_tokens(plan: Plan) -> int:
    """Tokens that calls of tools add to an answer, which counts them among its own."""
    turns, each = plan.peek("environment.turns", 1), plan.peek("environment.turn_tokens", _TURN_TOKENS)
    return int(math.ceil(turns - 1) * math.ceil(each))


_TURN_TOKENS = 256  # that a call adds, unasked


def _write_turns(plan: Plan) -> dict[str, Any]:
    """Calls of tools between the turns of an answer, of which a file of the user's says what they are."""
    turns, each = plan.take("environment.turns", 1), plan.take("environment.turn_tokens", _TURN_TOKENS)
    if turns <= 1:
        return {}
    group = f"{_ROLLOUT}multi_turn."
    return {
        f"{group}enable": True,
        f"{group}max_assistant_turns": math.ceil(turns),
        f"{group}max_tool_response_length": math.ceil(each) * _CHARACTERS_OF_TOKEN,
        f"{group}tool_config_path": "TOOL_CONFIG",
        f"{_ROLLOUT}agent.default_agent_loop": "tool_agent",
    }


def _answers(plan: Plan) -> dict[str, Any]:
    """How the engine writes answers."""
    engine, apart, sleep = (plan.peek(f"rollout.{key}") for key in ("engine", "gpus", "sleep"))
    if engine in _ENGINES.values():
        plan.said("rollout.engine")
    if sleep in (("none",) if apart else ("none", "weights-dropped")):
        plan.said("rollout.sleep")
    return {
        f"{_ROLLOUT}name": inverse(_ENGINES).get(engine),
        f"{_ROLLOUT}tensor_model_parallel_size": plan.take("rollout.tp", 1),
        f"{_ROLLOUT}pipeline_model_parallel_size": plan.take("rollout.pp"),
        f"{_ROLLOUT}gpu_memory_utilization": plan.take("rollout.gpu_memory_utilization"),
        f"{_ROLLOUT}max_num_seqs": plan.take("rollout.max_sequences"),
        f"{_ROLLOUT}free_cache_engine": None if sleep is None or apart else sleep != "none",
    }


def _under_fsdp(plan: Plan) -> dict[str, Any]:
    """States that all ranks share, or those of a group; Ulysses in place of other context parallelism."""
    values: dict[str, Any] = {f"{_ACTOR}ulysses_sequence_parallel_size": plan.take("layout.cp", 1)}
    zero, group = plan.peek("layout.zero", _ALL), plan.take("layout.zero_group")
    if zero in (0, 2, _ALL):
        plan.said("layout.zero")
        values[f"{_ACTOR}fsdp_config.fsdp_size"] = 1 if zero == 0 else group or None
        values[f"{_ACTOR}fsdp_config.reshard_after_forward"] = False if zero == 2 else None
    offload = plan.peek("layout.offload")
    if offload in ("params", "activations"):
        plan.said("layout.offload")
    moved = {"params": f"{_ACTOR}fsdp_config.offload_policy", "activations": f"{_MODEL}enable_activation_offload"}
    values |= {key: True if word == offload else None for word, key in moved.items()}
    if plan.peek("train.weights_dtype") in ("fp32", "bf16"):
        values[f"{_ACTOR}fsdp_config.model_dtype"] = plan.take("train.weights_dtype")
    recompute, fused = plan.peek("layout.recompute"), set(plan.peek("train.fused_kernels") or ())
    if recompute in ("full", "none"):
        plan.said("layout.recompute")
    if fused - {LINEAR_LOG_PROBABILITIES} in (set(), set(LIGER_KERNELS)):
        plan.said("train.fused_kernels")
    return values | {
        f"{_MODEL}use_liger": True if fused >= set(LIGER_KERNELS) else None,
        f"{_MODEL}use_fused_kernels": True if LINEAR_LOG_PROBABILITIES in fused else None,
        f"{_MODEL}use_remove_padding": True,
        f"{_MODEL}enable_gradient_checkpointing": recompute == "full",
    }


def _under_megatron(plan: Plan) -> dict[str, Any]:
    """Ranks of Megatron, whose distributed optimizer is on unless it is told otherwise."""
    zero = plan.peek("layout.zero")
    if zero in (0, _DISTRIBUTED_OPTIMIZER):
        plan.said("layout.zero")
    plan.said("train.weights_dtype", "layout.sequence_parallel")
    recompute = plan.peek("layout.recompute")
    if recompute in ("full", "selective"):
        plan.said("layout.recompute")
    again = f"+{_ACTOR}megatron.override_transformer_config.recompute_"
    values = {f"{_ACTOR}megatron.{word}": plan.take(f"layout.{key}", 1) for key, word in _MEGATRON_SIZES.items()}
    return values | {
        f"{_ACTOR}megatron.use_distributed_optimizer": False if zero == 0 else None,
        f"{again}granularity": recompute if recompute in ("full", "selective") else None,
        f"{again}method": "uniform" if recompute == "full" else None,
        f"{again}num_layers": 1 if recompute == "full" else None,
    }


def _write_waiting(plan: Plan, section: str) -> dict[str, Any]:
    """What waits in host memory while answers are written."""
    moved = plan.take("rollout.offload", "none")
    return {
        f"{_ACTOR}{section}.param_offload": moved == "params",
        f"{_ACTOR}{section}.optimizer_offload": moved in ("params", "optimizer"),
    }


def _beside(plan: Plan) -> dict[str, Any]:
    """The models beside the actor: reference, critic and reward model."""
    reward, own = plan.take("train.reward_model"), plan.take("reward.gpus")
    rated = reward not in (None, "none")
    values = {
        f"{_ACTOR}use_kl_loss": plan.take("train.reference") in ("copy", "adapters-off"),
        "critic.model.path": plan.take("train.critic_model"),
    }
    if not rated:
        return values
    group = "reward.reward_model."
    return values | {
        f"{group}enable": True,
        f"{group}model_path": reward,
        f"{group}rollout.name": _write_engine(plan, "reward.engine"),
        f"{group}rollout.tensor_model_parallel_size": plan.take("reward.tp", 1),
        f"{group}enable_resource_pool": True if own else None,
        **(_write_pool(plan, group, "reward.gpus") if own else {}),
    }


def _write_engine(plan: Plan, key: str) -> str:
    """verl's word for the engine that serves another model; that of the answers where nobody says."""
    return plan.word(key, inverse(_ENGINES)) or inverse(_ENGINES).get(plan.peek("rollout.engine")) or "vllm"


def _write_pool(plan: Plan, group: str, key: str, gpus: int | None = None) -> dict[str, int]:
    """GPUs of a pool, as many on each of its nodes. Raises InputError: they cannot be spread so.

    key : of the number of GPUs; gpus : their number, if it is not that of the key
    """
    count = gpus or int(plan.take(key))
    each = plan.peek("gpus") // plan.peek("nodes", 1)
    machines = math.ceil(count / each)
    if count % machines:
        what = f"verl gives a pool the same number of GPUs on every node, which {count} GPUs do not make"
        raise InputError(Problem(what, plan.where(key), f"give a multiple of the {each} GPUs of a node"))
    return {f"{group}nnodes": machines, f"{group}n_gpus_per_node": count // machines}


def _write_teacher(plan: Plan) -> dict[str, Any]:
    """A teacher of the answers, on GPUs of its own. Raises InputError: it has none."""
    if plan.peek("job") != _DISTILL:
        return {}
    words, problems = plan.take("train.teacher_top_k"), []
    if plan.peek("teacher.gpus") is None:
        problems.append(("verl has a teacher only on GPUs of its own", "say how many: --teacher-gpus"))
    if words is None:
        what = "verl's teacher sends the likeliest words of each token, not all of them"
        problems.append((what, "say how many: --teacher-top-k"))
    if problems:
        raise InputError([Problem(what, plan.where("job"), hint) for what, hint in problems])
    group, several = "distillation.", words > 1
    own = f"{group}teacher_models.teacher_model."
    return {
        f"{group}enabled": True,
        **_write_pool(plan, group, "teacher.gpus"),
        f"{own}model_path": plan.take("train.teacher_model"),
        f"{own}num_replicas": max(plan.peek("teacher.gpus") // plan.peek("teacher.tp", 1), 1),
        f"{own}inference.name": _write_engine(plan, "teacher.engine"),
        f"{own}inference.tensor_model_parallel_size": plan.take("teacher.tp", 1),
        f"{group}distillation_loss.loss_mode": "forward_kl_topk" if several else "k3",
        f"{group}distillation_loss.topk": words if several else None,
        f"{group}distillation_loss.use_task_rewards": False,
    }


def _adapters(plan: Plan) -> dict[str, Any]:
    if not named_adapter(plan):
        return {}
    targets = adapted_modules(plan)
    return {
        f"{_MODEL}lora_rank": plan.take("lora.rank"),
        f"{_MODEL}lora_alpha": plan.take("lora.alpha"),
        f"{_MODEL}target_modules": "all-linear" if targets == ["all-linear"] else f"[{','.join(targets)}]",
    }


def _run(plan: Plan, program: str) -> dict[str, Any]:
    """GPUs, and how long the run is: steps are iterations, of a queue its prompts."""
    writing, others = plan.take("rollout.gpus"), (plan.peek("reward.gpus") or 0) + (plan.peek("teacher.gpus") or 0)
    steps = plan.take("train.steps")
    return {
        **_write_pool(plan, "trainer.", "gpus", plan.peek("gpus") - (writing or 0) - others),
        **(_write_pool(plan, "rollout.", "rollout.gpus") if writing else {}),
        f"{_ROOT}hybrid_engine": False if writing else None,
        "trainer.total_training_steps": None if program == _QUEUE else steps,
        "trainer.total_epochs": None if plan.peek("train.steps") else plan.take("train.epochs"),
        "trainer.save_freq": plan.take("train.checkpoint_every"),
        "trainer.test_freq": plan.take("train.evaluate_every"),
    }


EXPORTERS = (
    Exporter(
        name="verl",
        title="verl",
        ending=".sh",
        write=_write,
        says=SAYS,
        added=Added(
            f"{_ACTOR}optim.lr, lr_scheduler_type, lr_warmup_steps",
            "trainer.total_training_steps or total_epochs",
            f"{_MODEL}lora_alpha",
        ),
    ),
)


# Keys of verl: what is lost and what changes nothing. Rules: verl/trainer/config of verl 0.5 to 0.8.

ROOT = "actor_rollout_ref."
ACTOR, MODEL, ROLLOUT = f"{ROOT}actor.", f"{ROOT}model.", f"{ROOT}rollout."
MEGATRON_GROUPS = (
    *(
        f"{group}{part}"
        for group in (f"{ACTOR}megatron.", "engine.")
        for part in ("", "override_transformer_config.", "override_ddp_config.", "override_mcore_model_config.")
    ),
    f"{ACTOR}optim.override_optimizer_config.",
    "optim.override_optimizer_config.",
)
"""Groups that have Megatron's own arguments."""
_ROLES = "critic. reward_model. reward. actor_rollout_ref.ref."
_EVERY_ROLE = tuple(
    f"{role}*{name}"
    for role in _ROLES.split()
    for name in globs("""
        path trust_remote_code external_lib tokenizer_path input_tokenizer use_shm optim.* checkpoint* profiler.*
        _target_ kl_ctrl* *clip* cliprange* loss_agg_mode *seed shuffle grad_clip launch_reward_fn_async
        sandbox_fusion* reward_manager* reward_kwargs* custom_* reward_loop_* num_workers nccl_timeout rollout_n
        use_mbridge vanilla_mbridge use_dist_checkpointing dist_checkpointing_* warmup* wrap_policy* use_orig_params
        skip_tokenizer_init disable_log_stats micro_batch_size input_model_config* use_reward_loop load_weight
        router_replay* chat_template* .name .strategy strategy
        """)
)


def _every(value: object) -> int | None:
    """A number of steps; once after each pass over the data, or never, is no number of steps."""
    return None if plain(value) in ("aftereachepoch", "false") else interval(value)


TABLE = Table(
    keys=(
        Key((f"{MODEL}path", "model.path", "model.partial_pretrain"), "model"),
        Key(("trainer.save_freq",), "train.checkpoint_every", _every),
        Key(("trainer.test_freq",), "train.evaluate_every", _every),
    ),
    silent=_EVERY_ROLE,
    file="verl",
    beside=(replace(MEGATRON_ARGUMENTS, prefixes=MEGATRON_GROUPS),),
)  # fmt: skip


# Commands and configurations of verl: which files are its own, and what they say under its dotted keys.

SFT = "sft_trainer"
"""What the names of trainers for supervised training end in."""
_TRAINERS = ("main_ppo", "main_dapo", "main_grpo", "main_sppo", "main_prime", "main_spin", SFT)
_PACKAGES = ("verl", "recipe")
_MODELS = (f"{MODEL}path", "model.path", "model.partial_pretrain")
_CUT_OFF = re.compile(r"\+*[a-z_]+(?:\.\w+)+=")


def command(source: Source) -> Command | None:
    """The command of a script that starts one of verl's trainers."""
    return find_command(source, _starts)


def _starts(words: tuple[str, ...]) -> bool:
    ours = words[0].startswith(_PACKAGES)
    trains = ours and (any(part in words[0] for part in _TRAINERS) or words[0].endswith("_main"))
    overrides = any(word.lstrip("+").startswith(f"{ROOT}actor.") for word in words[1:])
    return trains or (overrides and "=" not in words[0])


def recognises(source: Source) -> Certainty:
    """How surely a file is verl's: a command that starts it, or keys that only it has."""
    if source.kind == "shell":
        return 95 if command(source) is not None else 0
    return 90 if any(name.startswith(ROOT) for name in source.keys) or _is_of_tuning(source.keys) else 0


def _is_of_tuning(keys: Keys) -> bool:
    return {"data.train_batch_size", "trainer.project_name"} <= keys.keys() and (
        "model.partial_pretrain" in keys or "data.pad_mode" in keys
    )


def keys_said(source: Source) -> Keys:
    """Overrides of the command, over the configuration that it names where that is found."""
    started = command(source)
    if started is None:
        return resolved(source.keys, source.given)
    said = {**flag_keys(command_arguments(started)), **_behind_comments(source, started)}
    found = {name: _plain(name, each) for name, each in said.items()}
    named = found.get("config_name")
    file = source.companion(f"{str(named.value).removesuffix('.yaml')}.yaml") if named is not None else None
    return resolved({**(file.keys if file is not None else {}), **found}, source.given)


def _behind_comments(source: Source, started: Command) -> Keys:
    """Overrides that a comment between the lines of a command cuts off; they are read as they are meant."""
    commands = source.script.commands if source.script is not None else ()
    keys: dict[str, Written] = {}
    for each in commands[commands.index(started) + 1 :]:
        if each.words and _CUT_OFF.match(each.words[0].text):
            keys |= flag_keys(command_arguments(each, 0))
    return keys


def _plain(name: str, written: Written) -> Written:
    """`null` as nothing; a path whose folder alone is not known says by its last part what it is of."""
    if written.value in ("null", "None", "~"):
        return Written(None, written.where)
    if not isinstance(written.value, Unread) or name not in _MODELS:
        return written
    last = written.value.text.rstrip("/").rpartition("/")[2]
    return Written(last, written.where) if last and "$" not in last and "/" in written.value.text else written


def program(source: Source) -> str:
    """The trainer that the command starts; empty where the file is a configuration."""
    started = command(source)
    words = (word.text for word in started.words) if started is not None else ()
    return next((word for word in words if word.startswith(_PACKAGES) or SFT in word), "")


# How verl writes and rates the answers of an iteration, in turn with the training or on GPUs of their own.
#
# Rules: verl/trainer/config/rollout/rollout.yaml and data/legacy_data.yaml, and the configurations of
# verl/experimental/fully_async_policy and one_step_off_policy (read at 0.8).

_WEIGHTS = {"fp8": "fp8", "null": None, "none": None}
_ANSWERS: Mapping[str, Stated] = {
    "prompts": (("data.train_batch_size",), positive_or_open, 1024),
    "group": ((f"{ROLLOUT}n",), positive, 1),
    "max_output_tokens": (("data.max_response_length",), positive, 512),
    "updates": ((f"{ACTOR}ppo_epochs",), positive, 1),
    "engine": ((f"{ROLLOUT}name",), word_of(_ENGINES), None),
    "tp": ((f"{ROLLOUT}tensor_model_parallel_size", f"{ROLLOUT}tensor_parallel_size"), positive, 2),
    "pp": ((f"{ROLLOUT}pipeline_model_parallel_size",), positive, None),
    "ep": ((f"{ROLLOUT}expert_parallel_size",), positive, None),
    "gpu_memory_utilization": (
        (f"{ROLLOUT}standalone_gpu_memory_utilization", f"{ROLLOUT}gpu_memory_utilization"),
        above_zero,
        0.5,
    ),
    "max_sequences": ((f"{ROLLOUT}max_num_seqs",), positive_or_open, None),
    "weights": ((f"{ROLLOUT}quantization",), word_of(_WEIGHTS), None),
}
_POOLS = (("rollout.nnodes", "rollout.n_gpus_per_node"), (f"{ROLLOUT}nnodes", f"{ROLLOUT}n_gpus_per_node"))
_PER_NODE = 8
_STREAMS, _ONE_STEP = "fully_async", "one_step_off"  # in the names of trainers that have GPUs for the engine alone
_TOOL_LOOP, _TOOL_CHARACTERS = "toolagent", 256  # the loop that calls tools; characters of what one answers, unasked
_CHARACTERS_OF_TOKEN = 4  # assumed: of English text and code in vocabularies of 100,000 words and more
_SYNCHRONISED = 4  # steps of the trainer between two transfers of weights, unasked


def state_other_pool(draft: Draft, *, ahead: bool, streams: bool) -> None:
    """State the GPUs that only write answers while others train, where the files have a section of them.

    ahead : whether the trainer has such GPUs unasked; streams : whether it takes answers as they end
    """
    for nodes, each in _POOLS:
        number_of, gpus = draft.take(nodes), draft.take(each)
        found = gpus or number_of
        count = draft.value(number_of, positive_or_open) if number_of is not None else 1
        if found is None or not isinstance(count, int):
            continue
        size = draft.value(gpus, positive_or_open) or _PER_NODE
        if isinstance(size, int):
            state_pools(draft, count * size, found)
            _stale(draft, found, streams=streams)
        return
    names = {name for pair in _POOLS for name in pair}
    if ahead and names.isdisjoint(draft.unread):
        state_pools(draft, _PER_NODE, None)
        _stale(draft, None, streams=streams)


def _stale(draft: Draft, found: Written | None, *, streams: bool) -> None:
    """How much older than the weights answers may be: a share of those of an iteration, so the next whole number.

    Where no answer may be older, the trainer and the engine take turns, and no answer is carried over.

    found : where the GPUs that write answers are named; streams : whether the trainer takes answers as they end
    """
    share, goes_on = (draft.take(f"async_training.{name}") for name in ("staleness_threshold", "partial_rollout"))
    most = draft.value(share, above_zero_or_off)
    if share is not None and not most:
        draft.state("rollout.asynchronous", False, share, "no answer is older than the weights")
        return
    if found is not None:
        draft.state("rollout.asynchronous", True, found)
    draft.default("rollout.asynchronous", True)
    if share is not None:
        draft.state("rollout.max_staleness", max(math.ceil(float(str(most))), 1), share)
    draft.default("rollout.max_staleness", 1)
    if goes_on is not None:
        draft.state("rollout.partial", is_on(goes_on.value), goes_on)
    elif streams and "async_training.partial_rollout" not in draft.unread:
        draft.default("rollout.partial", True, "answers are interrupted and go on with new weights")


def state_answers(draft: Draft, *, streams: bool) -> None:
    """How answers are written, and what waits in host memory meanwhile; streams : as of `state_other_pool`."""
    if streams and draft.fact("rollout.gpus") is not None:
        _between_transfers(draft)
    group = draft.take("rollout.n") if draft.peek(f"{ROLLOUT}n") is None else None
    if group is not None:
        draft.state("rollout.group", draft.value(group, positive), group)
    state_rollout(draft, _ANSWERS)
    _turns(draft)
    _log_probabilities(draft)
    generated, filters = draft.take("data.gen_batch_size"), draft.on("algorithm.filter_groups.enable")
    if filters is not None and draft.fact("rollout.gpus") is None:
        state_oversampling(draft, generated, draft.value(generated, positive_or_open), draft.fact("rollout.prompts"))
    kept = draft.take(f"{ROLLOUT}free_cache_engine")
    if kept is not None and draft.fact("rollout.gpus") is None:
        draft.state("rollout.sleep", "weights-dropped" if is_on(kept.value) else "none", kept)
    _waiting(draft)


def _turns(draft: Draft) -> None:
    """Turns of an answer with calls of tools between them: as many as are allowed, as the file has no mean.

    What tools answer counts among the tokens of an answer (experimental/agent_loop/tool_agent_loop.py), which are to
    be at least half the policy's own here.
    """
    group = f"{ROLLOUT}multi_turn."
    loop = draft.peek(f"{ROLLOUT}agent.default_agent_loop")
    called = draft.on(f"{group}enable") or (loop if loop is not None and plain(loop.value) == _TOOL_LOOP else None)
    if called is None:
        return
    written = draft.take(f"{group}max_assistant_turns", f"{group}max_turns"), draft.take(f"{group}max_user_turns")
    own, others = (draft.value(each, positive_or_open) for each in written)
    limits = [own, others + 1 if isinstance(others, int) else None]
    turns = min((each for each in limits if isinstance(each, int)), default=None)
    where = next((each.where for each in written if each is not None), called.where)
    characters, at_once = (draft.take(f"{group}{name}") for name in ("max_tool_response_length", "max_parallel_calls"))
    sizes = draft.value(characters, positive) or _TOOL_CHARACTERS, draft.value(at_once, positive) or 1
    added = math.ceil(math.prod(int(str(size)) for size in sizes) / _CHARACTERS_OF_TOKEN)
    cut = draft.fact("rollout.max_output_tokens")
    name = next(name for name, each in draft.keys.items() if each is called)
    if turns is None or not isinstance(cut, int):
        draft.lose(name, "calls tools in as many turns as an answer needs; pass --environment-turns")
        return
    calls = min(turns - 1, max(cut // 2 // added, 1))
    note = "as many as an answer may have" if calls == turns - 1 else "as many as leave half of an answer to the policy"
    draft.assume("environment.turns", calls + 1, f"{note}; --environment-turns for their mean", where)
    draft.assume("environment.turn_tokens", added, f"{sizes[0]} characters at most, {_CHARACTERS_OF_TOKEN} of a token")
    own_tokens = replace(
        draft.facts["rollout.max_output_tokens"], value=cut - calls * added, note=f"{cut} with what {calls} calls add"
    )
    draft.replace("rollout.max_output_tokens", own_tokens)
    tools = next((each for each in ("tool_config_path", "function_tool_path") if f"{group}{each}" in draft.keys), None)
    draft.lose(f"{group}{tools}" if tools else name, "calls tools whose seconds it does not say: --environment-seconds")


def _log_probabilities(draft: Draft) -> None:
    """Answers of a pass that computes log-probabilities; the reference model's own number is lost where it is another.

    Passes that are filled up to a number of tokens, as those of the actor are unless told so, have no such number.
    """
    names = tuple(f"{group}log_prob_micro_batch_size_per_gpu" for group in (ROLLOUT, f"{ROOT}ref."))
    dynamic = draft.peek(f"{ROLLOUT}log_prob_use_dynamic_bsz") or draft.peek(f"{ACTOR}use_dynamic_bsz")
    if dynamic is not None and is_on(dynamic.value):
        return
    answers, of_reference = (draft.value(draft.peek(name), positive_or_open) for name in names)
    if isinstance(answers, int):
        written = draft.take(names[0])
        if answers != draft.fact("train.micro_batch"):  # which these passes take unless told so
            draft.state("rollout.log_prob_micro_batch", answers, written)
        if answers == of_reference:
            draft.take(names[1])


def _between_transfers(draft: Draft) -> None:
    """Prompts between two transfers of weights, where the trainer takes mini-batches from a queue."""
    names = ("async_training.trigger_parameter_sync_step", "async_training.require_batches")
    steps, batches = (draft.take(name) for name in names)
    mini = draft.value(draft.peek(f"{ACTOR}ppo_mini_batch_size"), positive) or _MINI_BATCH
    sizes = mini, draft.value(batches, positive_or_open) or 1, draft.value(steps, positive_or_open) or _SYNCHRONISED
    if all(isinstance(size, int) for size in sizes):
        prompts = math.prod(int(str(size)) for size in sizes)
        note = f"{sizes[2]} steps of {sizes[1]} x {mini} between transfers of weights"
        if steps or batches:
            draft.state("rollout.prompts", prompts, steps or batches, note)
        elif draft.unread.keys().isdisjoint(names):
            draft.default("rollout.prompts", prompts, note)
        whole = draft.take("rollout.total_rollout_steps")
        total = draft.value(whole, positive_or_open)
        if isinstance(total, int):
            draft.state("train.steps", max(total // prompts, 1), whole, f"{total:,} prompts in iterations of {prompts}")


def _waiting(draft: Draft) -> None:
    """What waits in host memory while answers are written."""
    groups = (f"{ACTOR}fsdp_config.", f"{ACTOR}megatron.", f"{ACTOR}veomni.")
    weights = draft.on(*(f"{group}param_offload" for group in groups))
    states = draft.on(*(f"{group}optimizer_offload" for group in groups))
    for moved, found in ((PARAMS, weights), (OPTIMIZER, states)):
        if found is not None:
            draft.state("rollout.offload", moved, found)
    draft.default("rollout.offload", "none")


def state_other_models(draft: Draft, *, scored: bool) -> None:
    """Critic and reward model by name; a function rates answers unless there is a reward model.

    scored : whether a critic rates every token
    """
    rated: Written | None = draft.on("reward_model.enable", "reward.reward_model.enable")
    state_models(draft, {"train.critic_model": ("critic.model.path",)}, beside=scored)
    paths = ("reward_model.model.path", "reward.reward_model.model_path")
    state_models(draft, {"train.reward_model": paths}, beside=rated is not None)
    if rated is None:
        draft.default("train.reward_model", "none", "a function rates answers")
    else:
        _reward_pool(draft)


def _taught(draft: Draft) -> Written | None:
    """Switch of a teacher of the answers; with it the teacher, its GPUs and the words that it sends of a token.

    Of several teachers the first is taken for all. Estimates of the divergence ask for the answer's own words alone
    (trainer/config/distillation, workers/config/distillation.py).
    """
    group, teachers = "distillation.", "distillation.teacher_models."
    on = draft.on(f"{group}enabled")
    if on is None:
        return None
    named = [name for name, each in draft.keys.items() if name.startswith(teachers) and name.endswith(".model_path")]
    for other in named[1:]:
        draft.lose(other, "teaches a part of the prompts; the first teacher is taken for all")
    own = named[0].removesuffix("model_path") if named else teachers
    state_models(draft, {"train.teacher_model": (f"{own}model_path",)})
    mode, words = (draft.take(f"{group}distillation_loss.{name}") for name in ("loss_mode", "topk"))
    whole = mode is not None and "topk" in str(mode.value)
    draft.state("train.teacher_top_k", (draft.value(words, positive) or _TOP_K) if whole else 1, mode or on)
    nodes, gpus = (draft.take(f"{group}{name}") for name in ("nnodes", "n_gpus_per_node"))
    counts = draft.value(nodes, positive_or_open), draft.value(gpus, positive_or_open) or _PER_NODE
    if isinstance(counts[0], int) and isinstance(counts[1], int):
        state_model_pool(draft, "teacher", counts[0] * counts[1], gpus or nodes)
        engine, size = (draft.take(f"{own}inference.{name}") for name in ("name", "tensor_model_parallel_size"))
        draft.state(
            "teacher.engine", draft.value(engine or draft.peek(f"{ROLLOUT}name"), word_of(_ENGINES)), engine or on
        )
        draft.state("teacher.tp", draft.value(size, positive) or _TEACHER_TP, size or on)
    return on


_TOP_K, _TEACHER_TP = 128, 2  # words of a token, and tensor-parallel GPUs of a teacher, unasked


def _reward_pool(draft: Draft) -> None:
    """GPUs of a reward model that has a pool of its own, and the engine that serves it there."""
    groups = ("reward_model.", "reward.reward_model.")
    own = draft.on(*(f"{group}enable_resource_pool" for group in groups))
    if own is None:
        return
    nodes, gpus = (draft.take(*(f"{group}{name}" for group in groups)) for name in ("nnodes", "n_gpus_per_node"))
    counts = draft.value(nodes, positive_or_open), draft.value(gpus, positive_or_open)
    if isinstance(counts[0], int) and isinstance(counts[1], int):
        state_model_pool(draft, "reward", counts[0] * counts[1], gpus)
    engine = draft.take(*(f"{group}rollout.name" for group in groups))
    if engine is not None:
        draft.state("reward.engine", draft.value(engine, word_of(_ENGINES)), engine)
        size = draft.take(*(f"{group}rollout.tensor_model_parallel_size" for group in groups))
        draft.state("reward.tp", draft.value(size, positive), size)


_OLD_SFT = "fsdp_sft_trainer"
_PPO, _GRPO, _DISTILL = "ppo", "grpo", "distill-on-policy"
_LENGTHS = (("data.max_prompt_length", 512), ("data.max_response_length", 512))
_TOKENS = 16_384  # of a dynamic micro-batch of the actor, unasked
_SFT_TOKENS = 8_192
_MINI_BATCH, _SFT_BATCH, _SFT_MICRO, _SFT_LENGTH = 256, 256, 4, 1024
_EPOCHS, _SFT_EPOCHS = 30, 4
_RANKS = ("lora_rank", "lora.rank")
_DTYPES = {
    "fp32": "fp32", "float32": "fp32", "float": "fp32", "bf16": "bf16", "bfloat16": "bf16", "fp16": "fp16",
    "float16": "fp16", "half": "fp16",
}  # fmt: skip
_ATTENTION = {
    "flash_attention_2": "flash", "flash_attention_3": "flash", "sdpa": "sdpa", "eager": "eager",
}  # fmt: skip


def _read(draft: Draft, source: Source) -> None:
    started = program(source)
    tuned = SFT in started or (not started and not any(name.startswith(ROOT) for name in draft.keys))
    _hardware(draft, source, tuned)
    streams = _STREAMS in started or any(name.startswith("async_training.") for name in draft.keys)
    if not tuned:
        state_other_pool(draft, ahead=streams or _ONE_STEP in started, streams=streams)
    if _is_megatron(draft):
        _megatron(draft, tuned)
    else:
        _fsdp(draft, tuned)
    _lora(draft, tuned)
    if tuned:
        _tuning(draft, old=_OLD_SFT in started or draft.peek("model.partial_pretrain") is not None)
    else:
        _reinforcement(draft, streams=streams)
    draft.default("layout.offload", "none")


def _hardware(draft: Draft, source: Source, tuned: bool) -> None:
    """GPUs: those of the trainer's section, or of torchrun, which starts supervised training."""
    started = command(source)
    nodes, per_node = draft.take("trainer.nnodes"), draft.take("trainer.n_gpus_per_node")
    if not tuned and not {"trainer.nnodes", "trainer.n_gpus_per_node"} & draft.unread.keys():
        counts = [draft.value(each, positive_or_open) for each in (nodes, per_node)]
        number, gpus = (counts[0] or 1), (counts[1] or _PER_NODE)
        if isinstance(number, int) and isinstance(gpus, int):
            note = f"{number} nodes of {gpus} GPUs" if number > 1 else ""
            if nodes is not None or per_node is not None:
                draft.state("gpus", number * gpus, per_node or nodes, note)
            draft.default("gpus", number * gpus, "one node of 8")
            if number > 1:
                draft.state("nodes", number, nodes)
    elif started is not None and source.script is not None:
        state_gpus(draft, launched_hardware(source.script, started))


def _is_megatron(draft: Draft) -> bool:
    """Whether Megatron trains the actor: by its strategy, by the configuration, or by a key of its section."""
    strategy = draft.take(f"{ACTOR}strategy", "engine.strategy")
    if strategy is not None:
        return plain(strategy.value) == "megatron"
    chosen = draft.take("config_name", "model_engine", f"actor@{ACTOR[:-1]}", "engine")
    if chosen is not None and "megatron" in str(chosen.value):
        return True
    return any(
        name.startswith(f"{ACTOR}megatron.") or name == "engine.tensor_model_parallel_size" for name in draft.keys
    )


def _where(draft: Draft) -> Written | None:
    return next(iter(draft.keys.values()), None)


def _megatron(draft: Draft, tuned: bool) -> None:
    arguments = Arguments(draft, MEGATRON_GROUPS)
    draft.state("stack", "verl-megatron", _where(draft))
    for name, key in (("pipeline", "pp"), ("tensor", "tp")):
        size = draft.peek(*arguments.named(f"{name}_model_parallel_size"))
        if size is not None:
            draft.state(f"layout.{key}", draft.value(size, positive), size)
    _batches(draft, tuned)
    parallel = arguments.take("sequence_parallel")
    if parallel is not None:
        draft.state("layout.sequence_parallel", is_on(parallel.value), parallel)
    tensor = draft.fact("layout.tp")
    draft.default("layout.sequence_parallel", isinstance(tensor, int) and tensor > 1)
    if arguments.peek("use_distributed_optimizer") is None:
        draft.default("layout.zero", 1, "the distributed optimizer")
    dtype = arguments.take("dtype")
    if dtype is not None:
        draft.state("precision", draft.value(dtype, word_of(_DTYPES)), dtype)
    draft.default("precision", "bf16")
    draft.default("train.weights_dtype", "bf16", "weights have the type of the run")
    draft.default("train.dropout", 0)
    state_megatron(arguments)
    _padding(draft, tuned)


def _fsdp(draft: Draft, tuned: bool) -> None:
    section = "model.fsdp_config." if tuned else f"{ACTOR}fsdp_config."
    liger = draft.on(f"{MODEL}use_liger", "model.use_liger")
    draft.state("stack", "verl", _where(draft))
    chunked = draft.on(f"{MODEL}use_fused_kernels", f"{ACTOR}use_fused_kernels") if not tuned else None
    kernels = (*(LIGER_KERNELS if liger else ()), *((LINEAR_LOG_PROBABILITIES,) if chunked else ()))
    draft.state("train.fused_kernels", kernels or None, liger or chunked)
    _sharding(draft, section)
    spread = draft.take(
        f"{ACTOR}ulysses_sequence_parallel_size", f"{section}ulysses_sequence_parallel_size",
        "engine.ulysses_sequence_parallel_size", "ulysses_sequence_parallel_size",
        f"{ACTOR}veomni.ulysses_parallel_size",
    )  # fmt: skip
    if spread is not None:
        draft.state("layout.cp", draft.value(spread, positive), spread, "Ulysses")
    draft.default("layout.cp", 1)
    _batches(draft, tuned)
    _formats(draft, section)
    recompute = draft.take(f"{MODEL}enable_gradient_checkpointing", "model.enable_gradient_checkpointing")
    if recompute is not None:
        draft.state("layout.recompute", "full" if is_on(recompute.value) else "none", recompute)
    draft.default("layout.recompute", "full")
    state_optimizer(draft, *_optimizer(draft))
    draft.default("optimizer", "adamw")
    _padding(draft, tuned)


def _formats(draft: Draft, section: str) -> None:
    """Number formats, and the kernel of attention."""
    dtype = draft.take(f"{section}model_dtype", "engine.model_dtype")
    if dtype is not None:
        draft.state("train.weights_dtype", draft.value(dtype, word_of(_DTYPES)), dtype)
    draft.default("train.weights_dtype", "fp32")
    run = draft.take(f"{section}dtype", "engine.dtype", f"{section}mixed_precision.param_dtype")
    if run is not None:
        draft.state("precision", draft.value(run, word_of(_DTYPES)), run)
    draft.default("precision", "bf16")
    kind = draft.take(f"{MODEL}override_config.attn_implementation", "model.override_config.attn_implementation")
    if kind is not None:
        draft.state("attention", draft.value(kind, word_of(_ATTENTION)), kind)
    draft.default("attention", "flash")


def _optimizer(draft: Draft) -> tuple[str, Written | None]:
    names = (f"{ACTOR}optim.optimizer", "optim.optimizer")
    name = next((each for each in names if draft.peek(each) is not None), names[0])
    return name, draft.peek(name)


def _sharding(draft: Draft, section: str) -> None:
    group = draft.take(f"{section}fsdp_size", "engine.fsdp_size", f"{ACTOR}veomni.fsdp_size")
    size = draft.value(group, positive_or_open)
    gpus = draft.trainers
    if group is not None and size == 1:
        draft.state("layout.zero", 0, group, "groups of one GPU shard nothing")
    elif group is not None and isinstance(size, int) and size > 1 and not (isinstance(gpus, int) and size >= gpus):
        draft.state("layout.zero_group", size, group)
    kept = draft.take(f"{section}reshard_after_forward", "engine.reshard_after_forward")
    if kept is not None and not is_on(kept.value):
        draft.state("layout.zero", 2, kept, "weights stay gathered after the forward pass")
    draft.default("layout.zero", 3, "FSDP shards all states")
    for name in ("offload_policy", "cpu_offload"):
        offload = draft.on(f"{section}{name}", f"engine.{name}")
        if offload is not None:
            draft.state("layout.offload", PARAMS, offload)
    activations = draft.on(f"{MODEL}enable_activation_offload", "model.enable_activation_offload")
    if activations is not None:
        draft.state("layout.offload", ACTIVATIONS, activations)
    draft.take("model.fsdp_config.offload_params")


def _padding(draft: Draft, tuned: bool) -> None:
    free = draft.take(f"{MODEL}use_remove_padding", "model.use_remove_padding", "use_remove_padding")
    mode = draft.take("data.pad_mode")
    if mode is not None:
        draft.state("train.padding", "none" if plain(mode.value) == "nopadding" else "to-seq-len", mode)
    if free is not None:
        draft.state("train.padding", "none" if is_on(free.value) else "to-seq-len", free)
    if not tuned:
        draft.default("train.padding", "none")


def _lora(draft: Draft, tuned: bool) -> None:
    groups = ("model.",) if tuned else (MODEL,)
    rank = draft.on(*(f"{group}{name}" for group in groups for name in _RANKS))
    if rank is None:
        if tuned:
            draft.default("job", huggingface.SFT)
        return
    if tuned:
        draft.state("job", huggingface.LORA, rank)
    draft.state("lora.rank", draft.value(rank, positive_or_open), rank)
    targets = draft.take(*(f"{group}{name}" for group in groups for name in ("target_modules", "lora.target_modules")))
    huggingface.state_targets(draft, targets, (huggingface.ALL_LINEAR,))
    draft.default("lora.dropout", 0)


def _batches(draft: Draft, tuned: bool) -> None:
    """Sequences of an optimizer step and of a pass of one GPU; verl counts prompts, each with several answers."""
    if tuned:
        _tuning_batches(draft)
        return
    batch, answers = draft.take(f"{ACTOR}ppo_mini_batch_size"), draft.peek(f"{ROLLOUT}n")
    prompts, each = draft.value(batch, positive) or _MINI_BATCH, draft.value(answers, positive) or 1
    if isinstance(prompts, int) and isinstance(each, int) and f"{ROLLOUT}n" not in draft.unread:
        note = f"{prompts} prompts x {each} answers" if each > 1 else ""
        if batch is not None:
            draft.state("train.global_batch", prompts * each, batch, note)
        elif f"{ACTOR}ppo_mini_batch_size" not in draft.unread:
            draft.default("train.global_batch", prompts * each, note)
    _length(draft)
    _micro_batch(draft)


def _length(draft: Draft) -> None:
    found = [draft.take(name) for name, _ in _LENGTHS]
    sizes = [draft.value(each, positive) or usual for each, (_, usual) in zip(found, _LENGTHS, strict=True)]
    whole_length = sum(size for size in sizes if isinstance(size, int))
    said = next((each for each in found if each is not None), None)
    note = f"{sizes[0]} of the prompt, {sizes[1]} of the answer"
    if {name for name, _ in _LENGTHS} & draft.unread.keys():
        return
    if said is not None:
        draft.state("train.seq_len", whole_length, said, note)
    draft.default("train.seq_len", whole_length, note)


def _micro_batch(draft: Draft) -> None:
    dynamic = draft.on(f"{ACTOR}use_dynamic_bsz")
    micro = draft.take(f"{ACTOR}ppo_micro_batch_size_per_gpu")
    shared = draft.take(f"{ACTOR}ppo_micro_batch_size")
    if dynamic is not None:
        _dynamic(draft, dynamic, draft.take(f"{ACTOR}ppo_max_token_len_per_gpu"), _TOKENS)
    elif micro is not None:
        draft.state("train.micro_batch", draft.value(micro, positive), micro)
    elif shared is not None:
        gpus, split = draft.trainers, draft.fact("layout.cp") or 1
        size = draft.value(shared, positive)
        if isinstance(gpus, int) and isinstance(size, int) and isinstance(split, int) and size * split >= gpus:
            draft.state("train.micro_batch", size * split // gpus, shared, f"{size} over all GPUs")
        else:
            draft.lose(f"{ACTOR}ppo_micro_batch_size", "is of all GPUs together, whose number is not known")


def _dynamic(draft: Draft, dynamic: Written, tokens: Written | None, usual: int) -> None:
    """Micro-batches filled up to a number of tokens: as many sequences of full length as go in."""
    room, split = draft.value(tokens, positive_or_open) or usual, draft.fact("layout.cp") or 1
    name = next((name for name, each in draft.keys.items() if each is dynamic), "")
    draft.lose(name, "fills micro-batches up to a number of tokens")
    if isinstance(room, int) and isinstance(split, int):
        assume_micro_batch(draft, room * split, dynamic.where)


def _tuning_batches(draft: Draft) -> None:
    for key, name, usual in (
        ("train.global_batch", "data.train_batch_size", _SFT_BATCH), ("train.seq_len", "data.max_length", _SFT_LENGTH),
    ):  # fmt: skip
        found = draft.take(name)
        if found is not None:
            draft.state(key, draft.value(found, positive), found)
        elif name not in draft.unread:
            draft.default(key, usual)


def _tuning(draft: Draft, *, old: bool) -> None:
    """Supervised training; the newer trainer fills micro-batches by tokens and pads nothing."""
    dynamic = draft.peek("data.use_dynamic_bsz")
    micro = draft.take("data.micro_batch_size_per_gpu")
    tokens = draft.take("data.max_token_len_per_gpu")
    if dynamic is not None and is_on(dynamic.value):
        _dynamic(draft, dynamic, tokens, _SFT_TOKENS)
    elif dynamic is None and not old:
        room = draft.value(tokens, positive_or_open) or _SFT_TOKENS
        assume_micro_batch(draft, int(str(room)), None)
    elif micro is not None:
        draft.state("train.micro_batch", draft.value(micro, positive), micro)
    if dynamic is not None:
        draft.take("data.use_dynamic_bsz")
    if old or (dynamic is not None and not is_on(dynamic.value)):
        draft.default("train.micro_batch", _SFT_MICRO)
    if draft.peek("data.micro_batch_size") is not None:
        draft.lose("data.micro_batch_size", "an old name that sets nothing", "none")
    draft.default("train.padding", "to-seq-len" if old else "none")
    _duration(draft, _SFT_EPOCHS)


def _reinforcement(draft: Draft, *, streams: bool) -> None:
    estimator, taught = draft.take("algorithm.adv_estimator"), _taught(draft)
    if taught is not None:
        draft.state("job", _DISTILL, taught)
    elif estimator is not None:
        draft.state("job", _PPO if plain(estimator.value) == "gae" else _GRPO, estimator)
    draft.default("job", _PPO, "advantages of a critic")
    state_answers(draft, streams=streams)
    scored = draft.fact("job") == _PPO
    if draft.fact("job") == _GRPO:
        draft.following.append(pair_single_answers)
    state_reference(draft, (f"{ACTOR}use_kl_loss", "algorithm.use_kl_in_reward"), usual=False)
    state_other_models(draft, scored=scored)
    _duration(draft, _EPOCHS)


def _duration(draft: Draft, usual: int) -> None:
    """Steps or passes over the data; a step of reinforcement learning is an iteration."""
    steps, epochs = draft.take("trainer.total_training_steps"), draft.take("trainer.total_epochs")
    count = draft.value(steps, positive_or_open)
    if isinstance(count, int):
        draft.state("train.steps", count, steps)
    if epochs is not None:
        draft.state("train.epochs", draft.value(epochs, positive), epochs)
    draft.default("train.epochs", usual)


TOOL = Tool(
    name="verl",
    title="verl",
    reads="scripts that start `verl.trainer.main_ppo`, recipes and SFT trainers, and their configurations",
    recognises=recognises,
    read=_read,
    table=TABLE,
    keys=keys_said,
)
