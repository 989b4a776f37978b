"""What tools on transformers share: Trainer arguments, accelerate, DeepSpeed, FSDP, peft and TRL, both ways."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.immutable import Immutable
from xe_sizer.interop.draft import Draft, Key, Table, globs
from xe_sizer.interop.launch import command_arguments, find_command, flag_keys, launched_hardware, state_gpus
from xe_sizer.interop.readers.python_values import Name, call_keys
from xe_sizer.interop.readers.shell_script import parse_flags, unwrapped
from xe_sizer.interop.source import PYTHON
from xe_sizer.interop.values import (
    Expression,
    Unread,
    UnreadableError,
    Written,
    above_zero,
    above_zero_or_off,
    interval_or_share,
    inverse,
    is_on,
    listed,
    number,
    plain,
    positive,
    positive_or_open,
    switch,
    text,
    whole,
    word_of,
)
from xe_sizer.interop.write import LEARNING_RATE, Added, command_text
from xe_sizer.profiles.catalogue import Registry
from xe_sizer.profiles.convert import show
from xe_sizer.profiles.finder import BUILT_IN
from xe_sizer.software.stack import DEEPSPEED
from xe_sizer.units import FLOAT32, GIB, SIXTEEN_BIT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from xe_sizer.interop.draft import Effect
    from xe_sizer.interop.readers.python_values import Call
    from xe_sizer.interop.readers.shell_script import Command, Flag, Word
    from xe_sizer.interop.source import Source
    from xe_sizer.interop.values import Converter, Keys
    from xe_sizer.interop.write import Plan

# Sharding of tools that shard weights, gradients and optimizer states alike, or nothing.

_ALL_SHARDED = 3


def is_replicated(plan: Plan, title: str) -> bool:
    """Whether each rank holds the whole model; otherwise FSDP shards all of it.

    Raises
    ------
    InputError : whole models beside models that are split over GPUs, which the tool shards in any case
    """
    zero = plan.peek("layout.zero", _ALL_SHARDED)
    whole = all(plan.peek(f"layout.{key}", 1) == 1 for key in ("tp", "pp", "cp", "ep"))
    if zero == 0 and not whole:
        hint = "fix layout.zero to 3"
        raise InputError(Problem(f"{title} shards models that are split over GPUs", Location("--to"), hint))
    if zero in (0, _ALL_SHARDED):
        plan.said("layout.zero")
    return bool(zero == 0)


def shard_sizes(plan: Plan) -> tuple[int, int] | None:
    """Replicas of sharded states, and data-parallel ranks that share each; None where all of them share one.

    Context-parallel ranks share states too, which these tools do not count.
    """
    group = plan.take("layout.zero_group")
    if not group:
        return None
    context = plan.peek("layout.cp", 1)
    ranks = plan.peek("gpus", 1) // (plan.peek("layout.tp", 1) * plan.peek("layout.pp", 1) * context)
    shards = max(group // context, 1)
    return max(ranks // shards, 1), shards


# The DeepSpeed configuration of a plan. Keys: deepspeed.ai/docs/config-json; `auto` leaves a value to the trainer.

_GATHERING = {
    "layout.prefetch_elements": "stage3_prefetch_bucket_size",
    "layout.live_elements": "stage3_max_live_parameters",
    "layout.reuse_elements": "stage3_max_reuse_distance",
    "layout.persistent_elements": "stage3_param_persistence_threshold",
}


def deepspeed_settings(plan: Plan) -> dict[str, Any] | None:
    """ZeRO stage and offload of a plan, batches and precision left to the trainer; None where it takes no part."""
    shared_out = plan.take("layout.zero", 0) or plan.peek("train.backend") == DEEPSPEED
    return deepspeed_configuration(plan) if shared_out else None


def deepspeed_configuration(plan: Plan) -> dict[str, Any]:
    """ZeRO stage and offload of a plan, batches and precision left to the trainer."""
    zero = plan.take("layout.zero", 0)
    section: dict[str, Any] = {"stage": zero}
    if plan.peek("train.backend") == DEEPSPEED:
        plan.said("train.backend")
    bucket_gib = plan.take("layout.bucket_gib")
    if bucket_gib is not None:
        section["reduce_bucket_size"] = round(bucket_gib * GIB / SIXTEEN_BIT)
    if zero == _ALL_SHARDED:
        told = {word: plan.take(key) for key, word in _GATHERING.items()}
        section |= {word: round(elements) for word, elements in told.items() if elements is not None}
    host = {"device": "cpu", "pin_memory": True}
    states, weights = kept_in_host_memory(plan)
    section |= {"offload_optimizer": host} if states else {}
    section |= {"offload_param": host} if weights else {}
    types: dict[str, Any] = {}  # unasked both are that of the run
    if plan.take("train.gradient_dtype") == "fp32":
        types["data_types"] = {"grad_accum_dtype": "fp32"}
    if plan.take("train.reduce_dtype") == "fp32":
        types["communication_data_type"] = "fp32"
    return types | {
        "zero_optimization": section,
        "bf16": {"enabled": "auto"},
        "fp16": {"enabled": "auto"},
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
    }


def kept_in_host_memory(plan: Plan) -> tuple[bool, bool]:
    """Whether host memory keeps the optimizer's states, from stage 1 on, and with them the weights, in stage 3.

    An offload that the stage of the plan does not allow stays to be said.
    """
    zero, offload = plan.peek("layout.zero", 0), plan.peek("layout.offload")
    weights = offload == "params" and zero == _ALL_SHARDED
    states = weights or (offload == "optimizer" and zero > 0)
    if states:
        plan.said("layout.offload")
    return states, weights


# Settings as the words that flags of Hugging Face scripts take.


def as_words(values: Mapping[str, Any]) -> dict[str, Any]:
    """Switches as `true` and `false`, which these scripts read after a flag that is on unasked."""
    return {key: str(value).lower() if isinstance(value, bool) else value for key, value in values.items()}


# Modules with adapters, by the names that Hugging Face models have for them.

LORA, QLORA, SFT = "lora", "qlora", "sft"
QLORA_BITS = 4  # of a weight, as the tools mean by the name
BITS = {4: "load_in_4bit", 8: "load_in_8bit"}
"""Switches of transformers for weights in so many bits."""
_PROJECTIONS = ("q", "k", "v", "o", "gate", "up", "down", "qkv", "gate_up")
_GROUPS = {"attention": ("q", "k", "v", "o"), "mlp": ("gate", "up", "down")}


def adapted_modules(plan: Plan) -> list[str]:
    """The modules of a plan's adapters; `all-linear` stays as it is, and so do names of modules."""
    targets = [name for target in plan.take("lora.targets") or () for name in _GROUPS.get(target, (target,))]
    return [f"{name}_proj" if name in _PROJECTIONS else name for name in targets]


def named_adapter(plan: Plan) -> str | None:
    """The adapters that a plan's job is named after, or those beside it: LoRA's name, or QLoRA's with 4-bit weights.

    None without such adapters.
    """
    job = plan.peek("job")
    named = job if job in (LORA, QLORA) else plan.peek("adapter")
    if named not in (LORA, QLORA):
        return None
    plan.said("adapter")
    return QLORA if named == QLORA or plan.peek("train.bits") == QLORA_BITS else LORA


# The configuration of accelerate for a plan.
#
# Keys: accelerate src/accelerate/commands/config/config_args.py and utils/dataclasses.py, ParallelismConfig (1.12).

FSDP_VERSION = 2
_GRADIENTS, _ALL_ON_HOST = 2, 3  # ZeRO stages that FSDP has
_OFFLOADS = ("optimizer", "params")  # that FSDP or DeepSpeed has


def accelerate_configuration(plan: Plan) -> dict[str, Any]:
    """Processes, precision and sharding: FSDP where it has the stage, DeepSpeed for the others."""
    nodes, gpus = plan.take("nodes", 1), plan.take("gpus", 1)
    plan.said("gpus_per_node")
    word = plan.peek("precision")
    values: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "num_machines": nodes,
        "num_processes": gpus,
        "machine_rank": 0,
        "mixed_precision": word if word in ("bf16", "fp16") else "no",
    }
    fsdp = fsdp_settings(plan)
    zero, offload, backend = plan.take("layout.zero", 0), plan.peek("layout.offload"), plan.take("train.backend")
    if fsdp is not None:
        settings = {"fsdp_version": FSDP_VERSION, **{f"fsdp_{name}": value for name, value in fsdp.items()}}
        return values | {"distributed_type": "FSDP", "fsdp_config": settings, **_parallelism_settings(plan, zero)}
    if zero or offload in _OFFLOADS or backend == DEEPSPEED:
        states, weights = ("cpu" if kept else "none" for kept in kept_in_host_memory(plan))
        stage = {"zero_stage": zero, "offload_optimizer_device": states, "offload_param_device": weights}
        return values | {"distributed_type": "DEEPSPEED", "deepspeed_config": stage}
    return values | {"distributed_type": "MULTI_GPU" if gpus > 1 else "NO"}


def fsdp_settings(plan: Plan) -> dict[str, Any] | None:
    """FSDP of a plan, in the names of accelerate without their prefix; None where it runs on something else.

    FSDP shards gradients and optimizer states, or all states; it offloads weights and states together.
    """
    zero, offload = plan.peek("layout.zero", 0), plan.peek("layout.offload")
    if zero not in (_GRADIENTS, _ALL_ON_HOST) or offload == "optimizer" or plan.peek("train.backend") == DEEPSPEED:
        return None
    plan.said("layout.zero")
    plan.said("train.backend")
    if offload == "params":
        plan.said("layout.offload")
    return {
        "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "reshard_after_forward": zero == _ALL_ON_HOST,
        "offload_params": offload == "params",
        "state_dict_type": "SHARDED_STATE_DICT",
    }


def trainer_sharding(plan: Plan) -> dict[str, Any]:
    """How the Trainer of transformers shards: FSDP where it has the stage, DeepSpeed for the others.

    Keys: transformers src/transformers/training_args.py (read at 4.57 and 5.24). The words of `fsdp` say to releases
    before 5 what later ones read from `fsdp_config`.
    """
    fsdp = fsdp_settings(plan)
    if fsdp is None:
        return {"deepspeed": deepspeed_settings(plan)}
    offload = fsdp.pop("offload_params")
    words = ["full_shard" if fsdp["reshard_after_forward"] else "shard_grad_op", "auto_wrap", *(["offload"] * offload)]
    settings = {"version": FSDP_VERSION, **fsdp, "cpu_offload": offload}
    return {"fsdp": " ".join(words), "fsdp_config": settings}


def _parallelism_settings(plan: Plan, zero: int) -> dict[str, Any]:
    """Tensor and context parallelism and replicas of the shards, all of which accelerate has with FSDP alone."""
    tp, cp = plan.take("layout.tp", 1), plan.peek("layout.cp", 1)
    if zero == _ALL_ON_HOST:
        plan.said("layout.cp")
    ranks = max(1, plan.peek("gpus", 1) // (tp * cp))
    group = max((plan.take("layout.zero_group") or ranks * cp) // cp, 1)
    if (tp, cp, group) == (1, 1, ranks):
        return {}
    prefix = "parallelism_config_"
    sizes = {"dp_replicate_size": ranks // group, "dp_shard_size": group, "tp_size": tp, "cp_size": cp}
    return {
        "parallelism_config": {f"{prefix}{name}": size for name, size in sizes.items()},
    }


# What TRL's trainers are told of a plan. Keys: trl/trainer/*_config.py and model_config.py (read at 1.16).

GRPO = "grpo"
_TRAINERS = {
    "sft": "sft", "lora": "sft", "qlora": "sft", "dpo": "dpo", "kto": "kto", "reward": "reward", GRPO: "grpo",
}  # fmt: skip
_PRECOMPUTED = "precomputed"
_COMPARES = ("dpo", "kto")  # with a reference, which no setting rules out any more (TRL 1.16, ms-swift 4.6)
_LOSSES: dict[str, dict[str, Any]] = {
    "dpo": {"loss_type": "sigmoid"},
    "kto": {"desirable_weight": 1.0},
    "reward": {"center_rewards_coefficient": 0.0},
}
OPTIMIZERS = {
    "adamw": "", "adamw-foreach": "adamw_torch", "adamw-fused": "adamw_torch_fused", "adamw-8bit": "adamw_8bit",
    "adamw-4bit": "adamw_torch_4bit", "adamw-anyprecision": "adamw_anyprecision", "paged-adamw": "paged_adamw_32bit",
    "paged-adamw-8bit": "paged_adamw_8bit", "adafactor": "adafactor", "sgd": "sgd", "adagrad": "adagrad",
    "lion": "lion_32bit", "lion-8bit": "lion_8bit", "paged-lion": "paged_lion_32bit",
    "paged-lion-8bit": "paged_lion_8bit", "ademamix": "ademamix", "ademamix-8bit": "ademamix_8bit",
    "paged-ademamix": "paged_ademamix_32bit", "paged-ademamix-8bit": "paged_ademamix_8bit", "rmsprop": "rmsprop",
    "rmsprop-8bit": "rmsprop_bnb_8bit", "lomo": "lomo", "adalomo": "adalomo", "grokadamw": "grokadamw",
    "schedule-free-adamw": "schedule_free_adamw", "schedule-free-sgd": "schedule_free_sgd",
    "stable-adamw": "stable_adamw",
}  # fmt: skip
"""Words of `optim` in transformers, training_args.py, OptimizerNames; none for what the Trainer takes unasked."""
KERNELS = {"rotary", "norm", "activation"}  # that Liger has all of
SAYS = (
    "model", "job", "precision", "optimizer", "attention", "train.seq_len", "train.padding", "train.micro_batch",
    "train.grad_accum", "train.steps", "train.epochs", "train.checkpoint_every", "train.evaluate_every", "train.bits",
    "train.weights_dtype", "train.fused_kernels", "layout.recompute", "layout.offload", "lora.rank", "lora.targets",
    "lora.alpha", "lora.dropout", "lora.dora", "lora.modules_to_save",
    "rollout.prompts", "rollout.group", "rollout.max_output_tokens", "rollout.updates", "rollout.engine", "rollout.tp",
    "rollout.gpu_memory_utilization", "rollout.sleep", "train.reference",
)  # fmt: skip
"""Scenario keys that the settings state."""
ADDED = Added("learning_rate, lr_scheduler_type, warmup_ratio", "max_steps or num_train_epochs", "lora_alpha")
"""What trainers of transformers call what the user has to add."""


def trl_trainer(plan: Plan) -> str:
    """What TRL calls the trainer of a plan's job: the command after `trl`, and its script; `sft` where it has none."""
    return _TRAINERS.get(plan.peek("job"), "sft")


def trl_settings(plan: Plan, *, splits_answers: bool = False) -> dict[str, Any]:
    """The arguments of a TRL trainer, without those that share out the GPUs.

    splits_answers : whether the trainer of GRPO splits sequences over GPUs, which TRL's own does not

    Raises
    ------
    InputError : sequences that TRL would have to split
    """
    groups = plan.peek("job") == GRPO
    if groups and not splits_answers and plan.peek("layout.cp", 1) > 1:
        raise InputError(
            Problem("TRL's GRPO does not split sequences over GPUs", plan.where("layout.cp"), "fix cp to 1")
        )
    return {
        "model_name_or_path": plan.take("model"),
        **_weight_settings(plan),
        "attn_implementation": plan.word("attention", inverse(ATTENTION)),
        **_job_settings(plan),
        "dataset_name": "DATASET",
        **(_group_settings(plan) if groups else {"max_length": plan.take("train.seq_len")}),
        **_padding_settings(plan),
        "per_device_train_batch_size": plan.take("train.micro_batch"),
        "gradient_accumulation_steps": plan.take("train.grad_accum"),
        "learning_rate": LEARNING_RATE,
        "max_steps": optimizer_steps(plan),
        "num_train_epochs": None if plan.peek("train.steps") else plan.take("train.epochs"),
        **_precision_settings(plan),
        **_activation_settings(plan),
        "optim": plan.word("optimizer", OPTIMIZERS) or None,
        **_kernel_settings(plan),
        **saved_and_evaluated(plan),
        "output_dir": "output",
    }


def saved_and_evaluated(plan: Plan) -> dict[str, Any]:
    """When the Trainer of transformers saves and evaluates; where the plan saves nowhere, at the end of an epoch."""
    saved, evaluated = plan.take("train.checkpoint_every"), plan.take("train.evaluate_every")
    return {
        "save_strategy": "steps" if saved else "epoch",
        "save_steps": saved,
        "eval_strategy": "steps" if evaluated else None,
        "eval_steps": evaluated,
    }


def optimizer_steps(plan: Plan) -> int | None:
    """Optimizer steps of the run, of which an iteration of reinforcement learning may have several; PPO counts none."""
    if plan.peek("job") == "ppo":
        return None
    steps = plan.take("train.steps")
    if steps is None or plan.peek("job") != GRPO:
        return None if steps is None else int(steps)
    answers, batch = plan.peek("rollout.prompts", 1) * plan.peek("rollout.group", 1), plan.peek("train.global_batch")
    of_iteration = max(round(answers / batch), 1) if batch else 1
    return int(steps * of_iteration * plan.peek("rollout.updates", 1))


def answer_settings(plan: Plan) -> dict[str, Any]:
    """How GRPOConfig of TRL, and what builds on it, is told to write answers; a server has settings of its own."""
    engine, kept = plan.peek("rollout.engine"), plan.peek("train.reference")
    if engine in (VLLM, TRANSFORMERS):
        plan.said("rollout.engine")
    usual = ADAPTERS_OFF if named_adapter(plan) or plan.peek("lora.rank") else COPY
    if kept in (None, NONE, usual):
        plan.said("train.reference")
    group = plan.take("rollout.group", 1)
    values: dict[str, Any] = {
        "num_generations": group,
        "generation_batch_size": round(plan.take("rollout.prompts") * group),
        "max_completion_length": plan.take("rollout.max_output_tokens"),
        "num_iterations": plan.take("rollout.updates", 1),
        "beta": _PENALTY if kept in (COPY, ADAPTERS_OFF) else 0.0,
        "use_vllm": engine == VLLM,
    }
    if engine != VLLM:
        plan.said("rollout.tp", "rollout.pp", "rollout.ep", "rollout.gpu_memory_utilization")
        if "train.seq_len" not in plan.asked:  # that of the longest prompt with its answer
            plan.said("train.seq_len")
        return values
    if plan.peek("rollout.gpus") is not None:
        return {
            **values,
            "vllm_mode": "server",
            "vllm_server_host": _SERVER if plan.peek("nodes", 1) > 1 else "127.0.0.1",
        }
    return {
        **values,
        "vllm_mode": "colocate",
        "vllm_tensor_parallel_size": plan.take("rollout.tp", 1),
        "vllm_gpu_memory_utilization": plan.take("rollout.gpu_memory_utilization"),
    }


SERVER_FILE, _SERVER = "rollout.sh", "ROLLOUT_HOST"
"""The script beside a trainer's that starts the engine on GPUs of its own, and what stands for its node."""


def served_apart(plan: Plan, title: str, words: Sequence[str], prefix: str = "", dash: str = "-") -> Served:
    """The engine of GRPO on GPUs of its own: the first of the only node, or nodes that no trainer has.

    title : of the tool; words : that start its server; prefix, dash : of the names of its flags

    Raises
    ------
    InputError : GPUs that are neither a part of the only node nor whole nodes, or no whole replicas
    """
    writing, gpus, nodes = plan.take("rollout.gpus"), plan.peek("gpus"), plan.peek("nodes", 1)
    each, tp = gpus // nodes, plan.take("rollout.tp", 1)
    of_a_server = min(writing, each)
    if of_a_server % tp:
        what = (
            f"{title} has servers of whole replicas, and rollout.tp {tp} does not divide {of_a_server} GPUs of a node"
        )
        raise InputError(Problem(what, plan.where("rollout.tp"), "choose a rollout.tp that divides them"))
    if (nodes > 1 and writing % each) or writing >= gpus:
        hint = f"give a multiple of the {each} GPUs of a node" if nodes > 1 else "leave some to the trainer"
        what = f"{title} has an engine on a part of the only node or on whole nodes, not on {writing} of {gpus} GPUs"
        raise InputError(Problem(what, plan.where("rollout.gpus"), hint))
    if plan.peek("rollout.sleep") == NONE:
        plan.said("rollout.sleep")
    flags = {
        "model": plan.peek("model"),
        "tensor_parallel_size": tp,
        "data_parallel_size": of_a_server // tp,
        "gpu_memory_utilization": plan.take("rollout.gpu_memory_utilization"),
        "max_model_len": plan.peek("train.seq_len"),
    }
    named = {
        (name if name == "model" else f"{prefix}{name}").replace("_", dash): value for name, value in flags.items()
    }
    devices = ["CUDA_VISIBLE_DEVICES=" + ",".join(map(str, part)) for part in (range(writing), range(writing, gpus))]
    shared = nodes == 1
    text = command_text([*devices[: int(shared)], *words], named)
    return Served(gpus - writing, nodes if shared else nodes - writing // each, text, devices[1] if shared else "")


class Served(Immutable):
    """An engine on GPUs of its own: the GPUs and nodes that are left to train, and the script of the engine.

    devices : the variable that keeps the trainer to its GPUs; empty where it has all of its nodes
    """

    gpus: int
    nodes: int
    script: str
    devices: str


def _group_settings(plan: Plan) -> dict[str, Any]:
    """How GRPO of TRL writes answers, and who rates them."""
    values, asleep = answer_settings(plan), plan.peek("rollout.sleep")
    if asleep in (_SLEEPS[0], _SLEEPS[2]):
        plan.said("rollout.sleep")
    rated = plan.take("train.reward_model")
    if plan.peek("train.padding") == "longest-in-global-batch":  # of a process, in a generation batch
        plan.said("train.padding")
    return values | {
        "vllm_max_model_length": plan.take("train.seq_len") if values["use_vllm"] else None,
        "vllm_enable_sleep_mode": True if asleep == _SLEEPS[2] and values["use_vllm"] else None,
        "reward_model_name_or_path": None if rated in (None, NONE) else rated,
        "reward_funcs": ["REWARD_FUNCTION"] if rated in (None, NONE) else None,
    }


def _job_settings(plan: Plan) -> dict[str, Any]:
    """Adapters, and the loss by which a file tells its trainer."""
    job = plan.peek("job")
    if job in _TRAINERS:
        plan.said("job")
    values = dict(_LOSSES.get(job, {}))
    if named_adapter(plan) or plan.peek("lora.rank"):
        targets = adapted_modules(plan)
        values |= {
            "use_peft": True,
            "lora_r": plan.take("lora.rank"),
            "lora_target_modules": "all-linear" if targets == ["all-linear"] else targets or None,
            "lora_alpha": plan.take("lora.alpha"),
            "lora_dropout": plan.take("lora.dropout", 0),
            "use_dora": plan.take("lora.dora") or None,
            "lora_modules_to_save": list(plan.take("lora.modules_to_save") or ()) or None,
        }
    return values | _reference_settings(plan)


def _reference_settings(plan: Plan) -> dict[str, Any]:
    """Where the log-probabilities of a reference come from; TRL has a copy, or adapters off, by itself.

    Raises
    ------
    InputError : a job that compares with a reference is to have none
    """
    chosen, job = plan.peek("train.reference"), plan.peek("job")
    if job == GRPO:  # by its penalty
        return {}
    if job in _COMPARES and chosen == NONE:
        what = f"{job.upper()} of TRL's trainers has a reference"
        raise InputError(Problem(what, plan.where("train.reference"), "leave train.reference out, or say precomputed"))
    usual = "adapters-off" if named_adapter(plan) else "copy"
    if chosen in (_PRECOMPUTED, usual):
        plan.said("train.reference")
    return {"precompute_ref_log_probs": True} if chosen == _PRECOMPUTED else {}


def _weight_settings(plan: Plan) -> dict[str, Any]:
    """The format in which weights are loaded, and the bits of frozen ones."""
    values: dict[str, Any] = {"dtype": plan.word("train.weights_dtype", inverse(DTYPES))}
    bits = plan.peek("train.bits", 4 if plan.peek("job") == "qlora" else None)
    if bits in BITS:
        plan.said("train.bits")
        values[BITS[bits]] = True
    return values


def _padding_settings(plan: Plan) -> dict[str, Any]:
    word = plan.peek("train.padding")
    if word in ("packed", "none", "longest-in-micro-batch", "grouped-by-length"):
        plan.said("train.padding")
    return {
        "packing": True if word == "packed" else None,
        "padding_free": True if word == "none" else None,
        "train_sampling_strategy": "group_by_length" if word == "grouped-by-length" else None,
    }


def _precision_settings(plan: Plan) -> dict[str, Any]:
    word = plan.peek("precision")
    if word in ("bf16", "fp16", "fp32"):
        plan.said("precision")
    return {"bf16": word not in ("fp16", "fp32"), "fp16": True if word == "fp16" else None}


def _activation_settings(plan: Plan) -> dict[str, Any]:
    """All layers recomputed or none; activations may go to host memory."""
    word, moved = plan.peek("layout.recompute"), plan.peek("layout.offload") == "activations"
    if word in ("full", "none"):
        plan.said("layout.recompute")
    if moved:
        plan.said("layout.offload")
    return {"gradient_checkpointing": word == "full", "activation_offloading": True if moved else None}


def _kernel_settings(plan: Plan) -> dict[str, Any]:
    """Liger's kernels; the losses of TRL never hold all logits, with or without them."""
    if plan.peek("loss") == "fused":
        plan.said("loss")
    if set(plan.peek("train.fused_kernels") or ()) != KERNELS:
        return {}
    plan.said("train.fused_kernels", "loss")
    return {"use_liger_kernel": True}


# Adapters of peft and quantised weights beneath them, as TRL, LLaMA-Factory and scripts of one's own set them.
#
# Targets of a family: peft src/peft/utils/constants.py, TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING (0.18).

PEFT = Table(file="peft")
"""Arguments of LoraConfig and BitsAndBytesConfig."""
ALL_LINEAR = "all-linear"
BITSANDBYTES = "bitsandbytes"
_ALL = ("all", "alllinear")
_PROJECTION = re.compile(r"(?<![a-z0-9_])(?:[a-z0-9]+_)+proj(?![a-z0-9_])|query_key_value|lm_head|embed_tokens")
_ALTERNATIVES = re.compile(r"\((?:\?:)?([a-z0-9_|]+)\)(_proj)")
_ALPHA = re.compile(r"(^|[._])(lora|peft|lora_tuning)[._](lora_)?alpha$|^lora_alpha$")
_PATTERN = frozenset("^$()|\\*?[]")
_QUERY_VALUE = ("q_proj", "v_proj")
_FUSED, _OLD_GPT = ("query_key_value",), ("c_attn",)
_FAMILIES = {
    "gptneox": _FUSED, "pythia": _FUSED, "falcon": _FUSED, "bloom": _FUSED, "chatglm": _FUSED, "gpt2": _OLD_GPT,
    "gptbigcode": _OLD_GPT, "starcoderbase": _OLD_GPT, "mpt": ("Wqkv",), "codegen": ("qkv_proj",),
    "phi2": ("q_proj", "v_proj", "fc1", "fc2"), "phi1": ("q_proj", "v_proj", "fc1", "fc2"),
}  # fmt: skip
_QUERY_VALUE_FAMILIES = (
    "llama", "mistral", "mixtral", "zephyr", "qwen", "gemma", "stablelm", "opt", "vicuna", "smollm", "yi", "tinyllama",
    "deepseekr1distill",
)  # fmt: skip


def usual_targets(model: object) -> tuple[str, ...] | None:
    """The modules to which peft gives adapters unasked, by the family that a model's name tells; None: not known."""
    name = plain(str(model).rpartition("/")[2])
    for family, targets in _FAMILIES.items():
        if family in name:
            return targets
    return _QUERY_VALUE if any(family in name for family in _QUERY_VALUE_FAMILIES) else None


def target_modules(value: object) -> tuple[str, ...] | None:
    """Modules of a list, of text between commas, or of a pattern of names; `all-linear` for all of them.

    Raises UnreadableError: a pattern that names none.
    """
    if isinstance(value, str) and _PATTERN & set(value):
        parts = [f"{part}{end}" for words, end in _ALTERNATIVES.findall(value) for part in words.split("|")]
        found = tuple(dict.fromkeys((*parts, *_PROJECTION.findall(value))))
        if not found:
            raise UnreadableError(f"{show(value)} names no module that is known here")
        return found
    words = listed(value) or ()
    if any(plain(word) in _ALL for word in words):
        return (ALL_LINEAR,)
    return tuple(dict.fromkeys(word.rpartition(".")[2] for word in words)) or None


def state_targets(draft: Draft, found: Written | None, default: tuple[str, ...] | None, note: str = "") -> None:
    """State the modules with adapters; the default is the tool's own."""
    if found is not None:
        draft.state("lora.targets", draft.value(found, target_modules), found)
    draft.default("lora.targets", default, note)


def state_alpha(draft: Draft) -> None:
    """State the scale of adapters, which all tools know by nearly the same name."""
    for name in draft.keys if "lora.rank" in draft.facts else ():
        if _ALPHA.search(name):
            draft.state("lora.alpha", draft.value(draft.take(name), above_zero), draft.keys[name])


def state_bits(draft: Draft, bits: int, written: Written, quantiser: str = BITSANDBYTES) -> None:
    """State in how many bits frozen weights are held, and which library does it unasked."""
    draft.state("train.bits", bits, written)
    draft.default("train.quantiser", quantiser)


_STORED = {
    "gptq": ("auto-gptq", 4), "awq": ("awq", 4), "bnb4bit": (BITSANDBYTES, 4), "bnb8bit": (BITSANDBYTES, 8),
    "hqq": ("hqq", 4), "aqlm": (BITSANDBYTES, 4),
}  # fmt: skip
_QUANTISERS = {"bnb": BITSANDBYTES, "bitsandbytes": BITSANDBYTES, "hqq": "hqq", "gptq": "auto-gptq", "awq": "awq"}


def quantiser_called(word: object) -> str | None:
    """The library that quantises, by the word that configurations have for it."""
    return _QUANTISERS.get(plain(word))


def quantised_as(model: object) -> tuple[str, int] | None:
    """The library that a checkpoint's name says its weights were quantised by, and in how many bits."""
    name = plain(str(model).rpartition("/")[2])
    return next((told for word, told in _STORED.items() if word in name), None)


def state_name(draft: Draft, model: Written) -> None:
    """State how frozen weights are held where the checkpoint's name says it."""
    told = quantised_as(model.value)
    if told is None:
        return
    if "aqlm" in plain(model.value):
        for key, value in (("train.quantiser", told[0]), ("train.bits", told[1])):
            draft.assume(key, value, "in place of AQLM, which holds about 2 bits", model.where)
    draft.state("train.bits", told[1], model, "from the name of the checkpoint")
    draft.state("train.quantiser", told[0], model, "from the name of the checkpoint")


# How reinforcement learning writes its answers: keys of the section `rollout` that tools state as they stand.

Stated = tuple[tuple[str, ...], "Converter", object]
"""What a tool calls a setting, how its value is read, and what it is where nobody says; None: nothing."""


def state_rollout(draft: Draft, settings: Mapping[str, Stated]) -> None:
    """State each setting of the rollout that the files have, or the tool's default.

    settings : key of the section `rollout` -> how the tool has it
    """
    for key, (names, read, usual) in settings.items():
        found = draft.take(*names)
        if found is not None:
            draft.state(f"rollout.{key}", draft.value(found, read), found)
        elif draft.unread.keys().isdisjoint(names) and usual is not None:
            draft.default(f"rollout.{key}", usual)


def state_reference(draft: Draft, names: Sequence[str], usual: bool) -> None:
    """State whether a reference stands beside the policy: where one of the switches or weights is on.

    usual : whether one does where nobody says
    """
    found = [written for name in names if (written := draft.take(name)) is not None]
    on = next((written for written in found if is_on(written.value)), None)
    adapters = draft.fact("lora.rank") is not None
    kept = "adapters-off" if adapters else "copy"
    if on is not None:
        draft.state("train.reference", kept, on)
    elif found:
        draft.state("train.reference", "none", found[0])
    else:
        draft.default("train.reference", kept if usual else "none")


def state_models(draft: Draft, names: Mapping[str, tuple[str, ...]], *, beside: bool = True) -> None:
    """State the models beside the policy that the files name otherwise than the policy itself.

    names : scenario key -> the tool's keys; `beside`: whether the job has such models
    """
    for key, keys in names.items():
        found = draft.take(*keys) if beside else None
        if found is not None:
            draft.state(key, draft.value(found, text), found)


_AND = " and "  # between the pools that a number of GPUs is the sum of


def state_pools(draft: Draft, writing: object, written: Written | None) -> None:
    """State that answers are written on GPUs of their own, beside those that are known to train."""
    _add_pool(draft, "rollout", writing, written, "that write answers")


def state_model_pool(draft: Draft, section: str, gpus: object, written: Written | None) -> None:
    """State that critic, reward model or reference, by its section, has GPUs of its own, beside those known so far."""
    _add_pool(draft, section, gpus, written, f"of the {section}{' model' if section == 'reward' else ''}")


def _add_pool(draft: Draft, section: str, more: object, written: Written | None, words: str) -> None:
    before = draft.facts.get("gpus")
    if before is None or not isinstance(before.value, int) or not isinstance(more, int):
        return
    if written is None:
        draft.default(f"{section}.gpus", more)
    else:
        draft.state(f"{section}.gpus", more, written)
    draft.drop("nodes")
    known = before.note.replace(_AND, ", ") if _AND in before.note else f"{before.value} that train"
    whole = replace(before, value=before.value + more, note=f"{known}{_AND}{more} {words}")
    draft.replace("gpus", whole if written is None else replace(whole, origin="read", where=written.where))


def pair_single_answers(draft: Draft) -> None:
    """Write single answers to prompts, whose baseline is no group, as half as many prompts with two answers each."""
    prompts = draft.fact("rollout.prompts")
    if draft.fact("rollout.group") == 1 and isinstance(prompts, int):
        draft.narrow("rollout.group", 2, "a pair stands for single answers to two prompts")
        draft.narrow("rollout.prompts", max(math.ceil(prompts / 2), 1), f"as pairs: {prompts} answers")


def state_oversampling(draft: Draft, written: Written | None, generated: object, trained: object) -> None:
    """State how many answers are written for each that is trained on, where more prompts are answered than are kept."""
    if isinstance(generated, int) and isinstance(trained, int) and generated > trained:
        note = f"{generated} prompts are answered and {trained} trained on"
        draft.state("rollout.oversampling", round(generated / trained, 4), written, note)


# How TRL, and the tools whose trainers are TRL's, write the answers of GRPO and PPO.
#
# Keys and defaults: trl/trainer/grpo_config.py and trl/experimental/ppo/ppo_config.py (read at 1.16), and the arguments
# of ms-swift (swift/rlhf_trainers/args_mixin.py, read at 4.2), which follow them.

COPY, ADAPTERS_OFF, NONE = "copy", "adapters-off", "none"
VLLM, TRANSFORMERS = "vllm", "hf-transformers"
"""Engines of these trainers."""
_PENALTY = 0.04  # for straying from the reference, where one is kept
_ANSWER = 512  # tokens at which an answer is cut, unasked
_PPO_ANSWER, _PPO_EPOCHS = 53, 4
_SLEEPS = {0: "none", 1: "weights-to-host", 2: "weights-dropped"}
_GROUP: Mapping[str, Stated] = {
    "group": (("num_generations",), positive, 8),
    "max_output_tokens": (("max_completion_length",), positive, None),
    "updates": (("num_iterations",), positive, 1),
}
_PPO: Mapping[str, Stated] = {
    "max_output_tokens": (("response_length", "max_completion_length", "max_new_tokens"), positive, None),
    "updates": (("num_ppo_epochs", "ppo_epochs"), positive, _PPO_EPOCHS),
}
_ENGINE: Mapping[str, Stated] = {
    "tp": (("vllm_tensor_parallel_size",), positive, 1),
    "pp": (("vllm_pipeline_parallel_size",), positive, None),
    "max_sequences": (("vllm_max_num_seqs",), positive_or_open, None),
    "gpu_memory_utilization": (("vllm_gpu_memory_utilization", "gpu_memory_utilization"), above_zero, None),
}


def state_group_answers(draft: Draft, prefix: str = "", beta: float = 0.0, share: float | None = None) -> None:
    """How GRPOConfig of TRL, and what builds on it, writes answers.

    A generation batch has `steps_per_generation` micro-batches of each GPU, those of an optimizer step unless told so,
    and `num_generations` answers to each prompt (GRPOConfig.__post_init__). A reference is kept where beta is above 0.

    prefix : of the names of the settings; beta : where nobody says; share : of the card that the engine takes then
    """
    state_rollout(draft, _prefixed(_GROUP, prefix))
    _length(draft, f"{prefix}max_completion_length", _ANSWER)
    _engine(draft, prefix, share)
    _reference(draft, f"{prefix}beta", beta)
    whole_batch = draft.take(f"{prefix}generation_batch_size")
    if whole_batch is not None:
        answers, group = draft.value(whole_batch, positive), draft.fact("rollout.group")
        if isinstance(answers, int) and isinstance(group, int):
            note = f"{answers} answers in groups of {group}"
            draft.state("rollout.prompts", max(answers // group, 1), whole_batch, note)
    draft.following.append(lambda known: _prompts(known, prefix))
    draft.following.append(_iterations)


def state_scored_answers(draft: Draft, answer: int = _PPO_ANSWER, buffers: int = 1) -> None:
    """How PPOConfig of TRL writes answers: one to each prompt, and as many prompts as optimizer steps have samples.

    answer : tokens at which an answer is cut, unasked; buffers : optimizer steps that a pass over the answers has
    """
    state_rollout(draft, _PPO)
    _length(draft, "response_length", answer)
    draft.default("rollout.engine", TRANSFORMERS, "the trainer's own model writes")
    draft.default("rollout.group", 1)
    draft.following.append(lambda known: _prompts(known, "", buffers))


def _prefixed(settings: Mapping[str, Stated], prefix: str) -> Mapping[str, Stated]:
    return {
        key: (tuple(f"{prefix}{name}" for name in names), read, usual) for key, (names, read, usual) in settings.items()
    }


def _length(draft: Draft, name: str, usual: int) -> None:
    """Tokens at which an answer is cut where nobody says, unless no such sequence has room for it."""
    limit = draft.fact("train.seq_len")
    if (
        "rollout.max_output_tokens" not in draft.facts
        and draft.peek(name) is None
        and name not in draft.unread
        and (not isinstance(limit, int) or limit > usual)
    ):
        draft.default("rollout.max_output_tokens", usual)


def _engine(draft: Draft, prefix: str, share: float | None) -> None:
    """The engine, where it is vLLM; on GPUs of its own where it is a server."""
    names = f"{prefix}use_vllm", "fast_inference"
    engine = draft.on(*names)
    if engine is None:
        if draft.unread.keys().isdisjoint(names):
            draft.default("rollout.engine", TRANSFORMERS, "the trainer's own model writes")
        return
    draft.state("rollout.engine", VLLM, engine)
    state_rollout(draft, _prefixed(_ENGINE, prefix))
    mode = draft.take(f"{prefix}vllm_mode")
    if mode is not None:
        draft.state("rollout.colocated", plain(mode.value) == "colocate", mode)
    if share is not None:
        draft.default("rollout.gpu_memory_utilization", share)
    asleep, level = draft.take(f"{prefix}vllm_enable_sleep_mode", "unsloth_vllm_standby"), draft.take("sleep_level")
    if asleep is not None and draft.fact("rollout.colocated") is not False:
        draft.state("rollout.sleep", _SLEEPS[2] if is_on(asleep.value) else _SLEEPS[0], asleep)
    if level is not None and draft.fact("rollout.colocated") is not False:
        draft.state("rollout.sleep", _SLEEPS.get(int(str(draft.value(level, whole) or 0))), level)


_SERVERS: Mapping[tuple[str, ...], str] = {("trl", "vllm-serve"): "", ("swift", "rollout"): "vllm_"}
"""Commands that start an engine on GPUs of its own, with what the names of their flags begin with."""


def state_server(draft: Draft, source: Source) -> None:
    """State the GPUs of an engine that serves answers, whose command is in the same script or in one beside it.

    Where it is nowhere to be found, that is told.
    """
    if draft.fact("rollout.colocated") is not False:
        return
    beside = source.companion(SERVER_FILE, (".sh",))
    if beside is not None and SERVER_FILE not in source.beside and beside.path.parent != source.path.parent:
        beside = None  # that of another trainer
    scripts = [each for each in (source, beside) if each is not None and each.kind == "shell"]
    for script in scripts:
        command = find_command(script, lambda words: words[:2] in _SERVERS)
        if command is not None:
            started = tuple(word.text for word in unwrapped(command).command.words[:2])
            _state_server(draft, flag_keys(command_arguments(command, 2)), _SERVERS[started], command.words[0].where)
            return
    draft.lose(
        "vllm_mode", "writes answers on GPUs that this file does not name: pass --rollout-gpus, and --gpus of all"
    )


def _state_server(draft: Draft, keys: Keys, prefix: str, where: Location) -> None:
    hosts = draft.take("vllm_server_host", "vllm_server_base_url")
    draft.count("vllm_server_*", "vllm_group_port")
    names = ("tensor_parallel_size", "data_parallel_size", "pipeline_parallel_size")
    sizes = [draft.value(keys.get(f"{prefix}{name}"), positive) or 1 for name in names]
    servers = len(listed(hosts.value) or ()) if hosts is not None else 1
    gpus = max(servers, 1) * math.prod(int(str(size)) for size in sizes)
    draft.drop("rollout.tp")  # that of an engine beside the trainer
    draft.state("rollout.tp", sizes[0], keys.get(f"{prefix}{names[0]}") or Written(1, where))
    share = keys.get(f"{prefix}gpu_memory_utilization")
    if share is not None:
        draft.drop("rollout.gpu_memory_utilization")
        draft.state("rollout.gpu_memory_utilization", draft.value(share, above_zero), share)
    state_pools(draft, gpus, Written(gpus, where))
    draft.state("rollout.gpus", gpus, Written(gpus, where))  # where nobody has said yet how many train


def _reference(draft: Draft, name: str, usual: float) -> None:
    """A reference where the penalty for straying from it counts: a copy, or the model with its adapters off."""
    beta = draft.take(name)
    counts = draft.value(beta, above_zero_or_off) if beta is not None else usual

    def settle(known: Draft) -> None:
        kept = ADAPTERS_OFF if known.fact("lora.rank") is not None else COPY
        if beta is not None:
            known.state("train.reference", kept if counts else NONE, beta)
        elif name not in known.unread:
            known.default("train.reference", kept if counts else NONE)

    draft.following.append(settle)


def _prompts(draft: Draft, prefix: str, buffers: int = 1) -> None:
    """Prompts of an iteration: its micro-batches have whole groups of answers."""
    names = ("train.micro_batch", "train.grad_accum", "rollout.group")
    micro, accum, group = (draft.fact(key) for key in names)
    chosen = draft.value(draft.take(f"{prefix}steps_per_generation"), positive)
    batch = draft.fact("train.global_batch")
    if accum is None and isinstance(batch, int) and isinstance(group, int):  # Megatron is told the global batch
        answers = batch * (chosen if isinstance(chosen, int) else 1)
        used = ["train.global_batch", *(["rollout.group"] if "rollout.group" in draft.facts else [])]
        draft.derive("rollout.prompts", math.ceil(answers / group), used, f"{answers} answers in groups of {group}")
        return
    steps = chosen or accum or 1
    split = [draft.fact(f"layout.{key}") for key in ("tp", "pp", "cp")]
    ranks = math.prod(size for size in split if isinstance(size, int))
    if all(isinstance(size, int) for size in (micro, steps, group, draft.trainers)):
        answers = buffers * int(str(micro)) * int(str(steps)) * max(int(str(draft.trainers)) // ranks, 1)
        each = int(str(group))
        used = [name for name in (*names, "gpus") if name in draft.facts]
        if answers % each:
            why = f"{answers} answers of an iteration are no whole groups of {each}: the trainer refuses them"
            draft.lose(f"{prefix}num_generations", why)
        draft.derive("rollout.prompts", math.ceil(answers / each), used, f"{answers} answers in groups of {each}")


def _iterations(draft: Draft) -> None:
    """Steps of the run as iterations, each of which may have several optimizer steps."""
    steps, micro, accum = (
        draft.facts.get("train.steps"),
        draft.fact("train.micro_batch"),
        draft.fact("train.grad_accum"),
    )
    split = [draft.fact(f"layout.{key}") for key in ("tp", "pp", "cp")]
    ranks = math.prod(size for size in split if isinstance(size, int))
    batch = draft.fact("train.global_batch")
    if batch is None and isinstance(micro, int) and isinstance(accum, int) and isinstance(draft.trainers, int):
        batch = micro * accum * max(draft.trainers // ranks, 1)
    sizes = [draft.fact(f"rollout.{key}") for key in ("prompts", "group", "updates")]
    if steps is None or not isinstance(steps.value, int) or not all(isinstance(each, int) for each in (batch, *sizes)):
        return
    prompts, group, updates = (int(str(each)) for each in sizes)
    of_iteration = max(round(prompts * group / int(str(batch))), 1) * updates
    if of_iteration > 1:
        note = f"{steps.value:,} optimizer steps, {of_iteration} of each iteration"
        draft.replace("train.steps", replace(steps, value=max(steps.value // of_iteration, 1), note=note))


# Python scripts that train with transformers, peft and TRL: their calls under the names of command lines.
#
# Defaults: peft src/peft/tuners/lora/config.py, LoraConfig (0.18).

RANK, DROPOUT = 8, 0
"""What peft fills in."""
ARGUMENTS = ("TrainingArguments", "Seq2SeqTrainingArguments")
_MODEL = "model_name_or_path"
_OTHER_LOADS = ("tokenizer", "processor", "config", "featureextractor", "pipeline")
_QUANTISED = ("BitsAndBytesConfig",)
_ADAPTERS: Mapping[str, str] = {
    "r": "lora_r", "target_modules": "lora_target_modules", "modules_to_save": "lora_modules_to_save",
    "target_parameters": "lora_target_parameters", "task_type": "lora_task_type",
}  # fmt: skip
_OF_TRAINERS = frozenset({"max_seq_length", "packing", "dataset_text_field", "neftune_noise_alpha"})
_OF_LOADS = frozenset({"dtype", "torch_dtype", "attn_implementation", "load_in_4bit", "load_in_8bit"})
BY_CARD = "auto"
"""What a switch of mixed precision says that follows the card."""
_MIXED = ("bf16", "fp16")
_ASKS_CARD = re.compile(r"is_(torch_)?(bf16|bfloat16)_(gpu_)?(supported|available)")
_PREPARES = "prepare_model_for_kbit_training"
_RECOMPUTES = "gradient_checkpointing_enable"


def is_by_card(name: str, written: Written) -> bool:
    """Whether a script asks the card if it has bfloat16: `bf16=is_bfloat16_supported()`, `fp16=not ...`."""
    return name in _MIXED and _ASKS_CARD.search(str(written.value)) is not None


TRAININGS = "training"
"""What `--set` calls the training that is read of a script with several, by its number or its trainer."""
_TRAINER, _TRAINS = "Trainer", ".train"


def trainings_of(source: Source) -> tuple[tuple[int, Call], ...]:
    """The trainers that a script makes and lets train, each with its place among the calls."""
    calls = source.module.calls if source.module is not None else ()
    made = [place for place, call in enumerate(calls) if call.name.rpartition(".")[2].endswith(_TRAINER)]
    ends = [*made[1:], len(calls)]
    return tuple(
        (place, calls[place])
        for place, end in zip(made, ends, strict=False)
        if any(call.name.endswith(_TRAINS) for call in calls[place:end])
    )


def calls_made(source: Source) -> tuple[Call, ...]:
    """The calls of a file; of a script with several trainings those of one, and then what is before it, nearest first.

    It is the one that was asked for, or the last, which those before it prepare.
    """
    calls = source.module.calls if source.module is not None else ()
    trainings = trainings_of(source)
    if len(trainings) < 2:
        return calls
    chosen = _chosen(source, trainings)
    start = trainings[chosen - 1][0] + 1 if chosen else 0
    end = trainings[chosen][0]
    return (*calls[start : end + 1], *reversed(calls[:start]))


def _chosen(source: Source, trainings: Sequence[tuple[int, Call]]) -> int:
    """Which of several trainings is read. Raises InputError: one that the script does not have."""
    asked = source.given.get(TRAININGS)
    names = [call.name.rpartition(".")[2] for _, call in trainings]
    if asked is None:
        return len(names) - 1
    if asked.isdecimal() and 0 < int(asked) <= len(names):
        return int(asked) - 1
    if asked in names:
        return names.index(asked)
    hint = f"it has {', '.join(f'{number}: {name}' for number, name in enumerate(names, 1))}"
    raise InputError(Problem(f"the script has no training '{asked}'", Location(f"--set {TRAININGS}"), hint))


def trainings_told(source: Source) -> dict[str, Written]:
    """A key that says which of several trainings is read; none where a script has one alone."""
    trainings = trainings_of(source)
    if len(trainings) < 2:
        return {}
    each = (f"{call.name.rpartition('.')[2]} in line {call.where.line}" for _, call in trainings)
    return {TRAININGS: Written(", ".join(each), trainings[_chosen(source, trainings)][1].where)}


def tell_trainings(draft: Draft, source: Source) -> None:
    """Say that a script trains several times, and which of them is read."""
    told = draft.keys.get(TRAININGS)
    if told is not None and (trainings := trainings_of(source)):
        number = _chosen(source, trainings) + 1
        choose = f"--set {TRAININGS}=N reads another"
        draft.lose(
            TRAININGS, f"the script trains {len(trainings)} times ({told.value}); number {number} is read, {choose}"
        )


def find_call(source: Source, *wanted: str) -> Call | None:
    """The first call of one of these; None without one, and where a file is no Python."""
    return next((call for call in calls_made(source) if call.is_a(*wanted)), None)


def keys_called(source: Source, arguments: Iterable[str], trainers: Iterable[str]) -> Keys:
    """Arguments of the calls that load, quantise, adapt and train, by the names of TRL's command line.

    arguments, trainers : the classes that hold a trainer's arguments, and the trainers
    """
    found: dict[str, Written] = trainings_told(source)
    _model(found, source, find_call(source, *trainers))
    quantised, adapters = find_call(source, *_QUANTISED), find_call(source, "LoraConfig")
    if quantised is not None:
        found |= _plain(quantised.kwargs)
    if adapters is not None:
        found["use_peft"] = Written(True, adapters.where)
        found |= _plain({_ADAPTERS.get(name, name): value for name, value in adapters.kwargs.items()})
    _recompute(found, source)
    given = find_call(source, *arguments)
    return found | (_plain(given.kwargs) if given is not None else {})


def state_peft(draft: Draft) -> None:
    """State what peft fills in where a script makes the configuration of its adapters itself."""
    for key, name, value in (("lora.rank", "lora_r", RANK), ("lora.dropout", "lora_dropout", DROPOUT)):
        if draft.peek(name) is None:
            draft.default(key, value)


def _model(found: dict[str, Written], source: Source, trainer: Call | None) -> None:
    """The model that is loaded, and how; trainers of TRL load a model themselves by its name."""
    named = (trainer.kwargs.get("model") or next(iter(trainer.args), None)) if trainer is not None else None
    loads = [*_loads(source)]
    load = next((each for each in loads if named is not None and each is named.value), next(iter(loads), None))
    if load is not None:
        name = load.kwargs.get("pretrained_model_name_or_path") or next(iter(load.args), None)
        if name is not None:
            found[_MODEL] = name
        found |= _plain({key: value for key, value in load.kwargs.items() if key in _OF_LOADS})
    if trainer is not None:
        if named is not None and isinstance(named.value, str):
            found[_MODEL] = named
        found |= _plain({key: value for key, value in trainer.kwargs.items() if key in _OF_TRAINERS})


def _loads(source: Source) -> Iterable[Call]:
    """Calls that load a model: `X.from_pretrained` of all but tokenizers and the like."""
    for call in calls_made(source):
        owner = call.name.removesuffix(".from_pretrained").rpartition(".")[2].lower()
        if call.name.endswith(".from_pretrained") and not any(word in owner for word in _OTHER_LOADS):
            yield call


def _recompute(found: dict[str, Written], source: Source) -> None:
    """Recomputation that a call turns on; peft's preparation of quantised models does so unasked."""
    prepared, enabled = find_call(source, _PREPARES), find_call(source, _RECOMPUTES)
    if prepared is not None:
        asked = prepared.kwargs.get("use_gradient_checkpointing")
        if asked is None or is_on(asked.value):
            found["gradient_checkpointing"] = Written(True, prepared.where)
    if enabled is not None:
        found["gradient_checkpointing"] = Written(True, enabled.where)


def _plain(arguments: Mapping[str, Written]) -> dict[str, Written]:
    """Arguments as configurations have them: groups by dotted key, `torch.bfloat16` as text; objects are left out."""
    found: dict[str, Written] = {}
    for name, each in arguments.items():
        if is_by_card(name, each):
            found[name] = Written(BY_CARD, each.where)
        elif isinstance(each.value, Mapping):
            found |= _plain({f"{name}.{key}": value for key, value in call_keys(each).items()})
        elif isinstance(each.value, str | int | float | bool | list | tuple | Name | Unread | None):
            found[name] = Written(_value(each.value), each.where)
    return found


def _value(value: object) -> object:
    if isinstance(value, Name):
        return Expression(value.text)
    if isinstance(value, list | tuple):
        return [_value(each.value if isinstance(each, Written) else each) for each in value]
    return value


# What the files of launchers leave open: they start a job without saying of which model it is.


def miss_model(draft: Draft) -> None:
    """Say that the model is missing, and how to name it."""
    draft.miss("model", f"a file of {draft.tool} names none", "the trainer's configuration too")


# Names of recipes, `llama3_8b_pretrain_8gpu_gb300_bf16_config`: the model, the job and the hardware in them.

_RECIPE = re.compile(
    r"_*(?P<model>[a-z0-9_]+?)_(?P<job>pretrain|sft|peft|lora|dora|finetune|qat|quantize)(?:_(?P<rest>[a-z0-9_]+))?"
)
_GPUS = re.compile(r"(?:^|_)(\d+)gpus?(?:_|$)")
_CARD = re.compile(r"(?:^|_)((?:gb|vr|b|h|a|r|l|mi)\d{2,3}[a-z]?)(?:_|$)")
_PRECISION = re.compile(r"(?:^|_)(bf16|fp16|fp8[a-z]{0,2}|nvfp4|mxfp8|mxfp4)(?:_|$)")
_LENGTH = re.compile(r"[-_](\d+)k$")
_VERSIONS = (
    (re.compile(r"^llama(\d)(\d)-"), r"llama-\1.\2-"),
    (re.compile(r"^qwen35-(?:vl|text)-"), "qwen3.5-"),
    (re.compile(r"^qwen(\d)(5)-"), r"qwen\1.\2-"),
    (re.compile(r"^glm(\d)(\d)\b"), r"glm-\1.\2"),
    (re.compile(r"^nemotronh-"), "nemotron-h-"),
    (re.compile(r"-([1-9])00m\b"), r"-0.\1b"),
    (re.compile(r"(\d)p(\d)"), r"\1.\2"),
)
_OTHERS: Mapping[str, str] = {
    "llama4-e16": "llama-4-scout-17b-16e", "llama4-e128": "llama-4-maverick-17b-128e",
    "glm-4.5-355b": "glm-4.5-355b-a32b", "glm-4.5-air-106b": "glm-4.5-air-106b-a12b",
    "moonlight-16b": "moonlight-16b-a3b", "qwen3-next-80b": "qwen3-next-80b-a3b", "olmoe-7b": "olmoe-1b-7b",
    "llama-3.1-nemotron-70b": "llama-3.1-70b", "llama-3.1-nemotron-nano-8b": "llama-3.1-8b",
}  # fmt: skip
"""Models whose recipes are called otherwise."""


class Recipe(Immutable):
    """What the name of a recipe says; None and empty where it says nothing.

    job : pretrain, sft, lora and the like, as the name has it
    """

    model: str
    job: str = ""
    gpus: int | None = None
    gpu: str | None = None
    precision: str | None = None


def parse_recipe(name: str) -> Recipe:
    """The parts of a recipe's name; all of it is the model where it names no job."""
    bare = name.rpartition(".")[2].removesuffix("_config").removesuffix("_recipe")
    match = _RECIPE.fullmatch(bare)
    if match is None:
        return Recipe(recipe_model(bare))
    rest = match["rest"] or ""
    gpus, card, precision = (pattern.search(rest) for pattern in (_GPUS, _CARD, _PRECISION))
    return Recipe(
        recipe_model(match["model"]),
        match["job"],
        int(gpus[1]) if gpus else None,
        card[1] if card else None,
        precision[1] if precision else None,
    )


def recipe_model(name: str) -> str:
    """The catalogue's model that a recipe is called after, else the name as it is."""
    word = _LENGTH.sub("", name.lower().replace("_", "-"))
    for pattern, meant in _VERSIONS:
        word = pattern.sub(meant, word)
    try:
        return Registry().model(_OTHERS.get(word, word)).name
    except (InputError, OSError):
        return name


# What scenarios call the things that host memory may keep.

OPTIMIZER, PARAMS, ACTIVATIONS, NO_OFFLOAD = "optimizer", "params", "activations", "none"


# FSDP settings as transformers, accelerate and axolotl have them: sharding, offload and recomputation.
#
# Keys: transformers' `TrainingArguments.fsdp` and `fsdp_config`, accelerate's `FullyShardedDataParallelPlugin`. Their
# names stand with and without the prefix `fsdp_`.

_STRATEGIES: Mapping[str, int] = {
    "fullshard": 3, "1": 3, "shardgradop": 2, "2": 2, "noshard": 0, "3": 0, "hybridshard": 3, "4": 3,
    "hybridshardzero2": 2, "5": 2,
}  # fmt: skip


def state_fsdp(draft: Draft, options: Written | None, section: str) -> None:
    """State the sharding of FSDP.

    options : the list of options (`full_shard auto_wrap`), or a switch
    section : the dotted prefix of the settings, `fsdp_config.`
    """
    words = [plain(word) for word in listed(options.value) or ()] if options and options.value is not True else []
    where = options or next((each for name, each in draft.keys.items() if name.startswith(section)), None)
    strategy = _take_fsdp(draft, section, "sharding_strategy")
    reshard = _take_fsdp(draft, section, "reshard_after_forward")
    stage = next((_STRATEGIES[word] for word in words if word in _STRATEGIES), None)
    if strategy is not None and plain(strategy.value) in _STRATEGIES:
        draft.state("layout.zero", _STRATEGIES[plain(strategy.value)], strategy)
    if stage is not None:
        draft.state("layout.zero", stage, options)
    if reshard is not None:
        word = plain(reshard.value)  # a strategy in files of FSDP 1, a switch in those of FSDP 2
        zero = _STRATEGIES[word] if word in _STRATEGIES else 3 if _is_fsdp_on(reshard) else 2
        draft.state("layout.zero", zero, reshard)
    draft.state("layout.zero", 3, where, "FSDP shards all states unless told otherwise")
    offload = _take_fsdp(draft, section, "offload_params") or _take_fsdp(draft, section, "cpu_offload")
    if "offload" in words and options is not None:
        draft.state("layout.offload", PARAMS, options)
    elif offload is not None and _is_fsdp_on(offload):
        draft.state("layout.offload", PARAMS, offload)
    recompute = _take_fsdp(draft, section, "activation_checkpointing")
    if recompute is not None and _is_fsdp_on(recompute):
        draft.state("layout.recompute", "full", recompute)


def _take_fsdp(draft: Draft, section: str, name: str) -> Written | None:
    return draft.take(f"{section}{name}", f"{section}fsdp_{name}")


def _is_fsdp_on(written: Written) -> bool:
    return bool(switch(written.value))


FSDP = Table(file="fsdp", prefixes=("fsdp_config.", "fsdp_config.fsdp_"))
"""Settings of FSDP, in the section that files of several tools have for them."""


# Micro-batches that a trainer fills up to a number of tokens.

_MOST = 65_536  # sequences of a micro-batch; no GPU holds more
_SPLIT = ("layout.tp", "layout.pp", "layout.cp")


def assume_micro_batch(draft: Draft, tokens: int, where: Location | None) -> None:
    """Assume as many sequences of full length as go in, and as divide those that a rank has in a step.

    It waits for the number of GPUs, which may be passed. tokens : of a micro-batch
    """
    draft.following.append(lambda known: _assume(known, tokens, where))


def _assume(draft: Draft, tokens: int, where: Location | None) -> None:
    length = draft.fact("train.seq_len")
    if not isinstance(length, int):
        return
    most = max(1, min(tokens // length, _MOST))
    share = _share(draft)
    size = next((each for each in range(min(most, share), 0, -1) if share % each == 0), 1) if share else most
    draft.assume(
        "train.micro_batch",
        size,
        f"{tokens:,} tokens hold {most} sequence{'s' if most > 1 else ''} of full length",
        where,
    )


def _share(draft: Draft) -> int:
    """Sequences of an optimizer step that one data-parallel rank has; 0 where that is not known."""
    batch, gpus = draft.fact("train.global_batch"), draft.trainers
    sizes = (draft.fact(key) for key in _SPLIT)
    split = math.prod(size for size in sizes if isinstance(size, int))
    ranks = gpus // split if isinstance(gpus, int) and gpus % split == 0 else 0  # none where all GPUs write answers
    return batch // ranks if isinstance(batch, int) and ranks > 0 and batch % ranks == 0 else 0


# Optimizers by the names that transformers, TRL and others give to them.

ADAMW, ADAFACTOR, MUON = "adamw", "adafactor", "muon"
NEAREST: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(("dion", "dion2"), (MUON, "a momentum that is made orthogonal in a low rank")),
    "sinkgd": (ADAMW, "other states than those of AdamW"),
}
"""Names of optimizers that no file describes: what is taken in their place, and how they differ."""


def state_optimizer(draft: Draft, name: str, written: Written | None) -> None:
    """State the optimizer that a key names; one that is not modelled is lost, and the nearest is assumed.

    name : the foreign key; it counts as read
    """
    word = text(written.value) if written else None
    if written is None or word is None:
        return
    called = BUILT_IN.called("optimizer", word.strip().lower())
    if called in BUILT_IN.names("optimizer"):
        draft.take(name)
        draft.state("optimizer", called, written)
        return
    nearest, how = NEAREST.get(plain(word), (ADAMW, "an optimizer that is not known here"))
    draft.lose(name, f"{word} has {how}; {nearest} is assumed in its place")
    draft.assume("optimizer", nearest, f"in place of {word}", written.where)


# DeepSpeed configurations: what its engine shares out, offload, precision, buckets, batches and optimizer.
#
# `auto` leaves a value to the trainer. Keys: DeepSpeed's configuration reference, deepspeed.ai/docs/config-json; what
# `auto` becomes: transformers src/transformers/integrations/deepspeed.py, HfTrainerDeepSpeedConfig.

_STAGE = re.compile(r"(?:zero|stage|ds|_z)[\s_-]*([0-3])")
_AUTO = "auto"
_SHARDED = "zero_optimization."
_STATES, _WEIGHTS = f"{_SHARDED}offload_optimizer.", f"{_SHARDED}offload_param."
_BUCKET = f"{_SHARDED}reduce_bucket_size"
_OVERLAP = f"{_SHARDED}overlap_comm"
_IN_HOST_MEMORY = "cpu"
_LEAST_SHARDED = 2  # up to this stage overlap_comm takes a second bucket (runtime/zero/stage_1_and_2.py, ipg_buckets)
_ADAM = ("adam", "adamw", "onebitadam", "zerooneadam", "fusedadam", "cpuadam")


def _unless_auto(read: Converter) -> Converter:
    """A value that DeepSpeed is given, or None where it is left to the trainer."""
    return lambda value: None if plain(value) == _AUTO else read(value)


def _unless_own(elements: float) -> Converter:
    """A count of elements, or None where it is the one that DeepSpeed has unasked, or is left to the trainer."""

    def read(value: object) -> object:
        told = number(value)
        return None if told == elements else told

    return _unless_auto(read)


def _computes_in(precision: str) -> Converter:
    """A number format where its section is enabled."""
    return _unless_auto(lambda value: precision if switch(value) else None)


DEEPSPEED_TABLE = Table(
    keys=(
        Key(("bf16.enabled", "bfloat16.enabled"), "precision", _computes_in("bf16")),
        Key(("fp16.enabled",), "precision", _computes_in("fp16")),
        Key((f"{_SHARDED}stage",), "layout.zero", _unless_auto(whole), default=0),
        Key((f"{_SHARDED}mics_shard_size",), "layout.zero_group", _unless_auto(positive_or_open)),
        Key(("train_micro_batch_size_per_gpu",), "train.micro_batch", _unless_auto(positive)),
        Key(("gradient_accumulation_steps",), "train.grad_accum", _unless_auto(positive)),
        Key(("train_batch_size",), "train.global_batch", _unless_auto(positive)),
        Key((f"{_STATES}ratio",), "layout.offload_fraction", _unless_auto(number)),
        Key((f"{_SHARDED}stage3_prefetch_bucket_size",), "layout.prefetch_elements", _unless_own(5e7)),
        Key((f"{_SHARDED}stage3_max_live_parameters",), "layout.live_elements", _unless_own(1e9)),
        Key((f"{_SHARDED}stage3_max_reuse_distance",), "layout.reuse_elements", _unless_own(1e9)),
        Key((f"{_SHARDED}stage3_param_persistence_threshold",), "layout.persistent_elements", _unless_own(1e5)),
    ),
    file="deepspeed",
)  # fmt: skip
"""Its keys. Harmless values are those that DeepSpeed has unasked."""


def read_deepspeed(draft: Draft, named: Written, source: Source) -> None:
    """State what the DeepSpeed configuration says that a key names; where it is not found, what its name says."""
    if isinstance(named.value, dict):
        return  # it stands in the file itself; `state_deepspeed` reads its keys
    draft.state("train.backend", DEEPSPEED, named)
    found = source.companion(named.value)
    if found is not None:
        state_deepspeed(draft, found.keys)
        return
    stage = _STAGE.search(str(named.value).lower())
    if stage is None:
        draft.miss("layout.zero", f"{named.value} was not found", "--zero N, or name the DeepSpeed file too")
        return
    draft.assume("layout.zero", int(stage[1]), f"from the name of {named.value}, which was not found", named.where)
    offload = "offload" in str(named.value).lower()
    if offload:
        what = OPTIMIZER if "optim" in str(named.value).lower() or int(stage[1]) < 3 else PARAMS
        draft.assume("layout.offload", what, f"from the name of {named.value}, which was not found", named.where)


def state_deepspeed(draft: Draft, keys: Mapping[str, Written], prefix: str = "") -> None:
    """State what a DeepSpeed configuration says; batches only where the trainer did not.

    keys : its dotted keys, below `prefix` where it stands in another file
    """
    own = {key.removeprefix(prefix): written for key, written in keys.items() if key.startswith(prefix)}
    draft.take(*(f"{prefix}{key}" for key in own))
    draft.state("train.backend", DEEPSPEED, next(iter(own.values()), None))
    _state_deepspeed_offload(draft, own, prefix)
    for row in DEEPSPEED_TABLE.whole.keys:
        stated = next((own[name] for name in row.names if name in own), None)
        if row.to != "layout.offload_fraction" or draft.fact("layout.offload") is not None:
            draft.state(row.to, draft.value(stated, row.read), stated)
    if f"{_SHARDED}stage" not in own:
        draft.default("layout.zero", 0, "DeepSpeed without a ZeRO stage")
    _state_deepspeed_optimizer(draft, own)
    draft.following.append(partial(_state_bucket, own=own))
    draft.following.append(partial(_state_overlap, own=own))
    for key, written in own.items():
        loss = DEEPSPEED_TABLE.loss(key)
        if loss is not None and _is_given(written) and is_on(written.value) and written.value not in loss.harmless:
            _lose(draft, f"{prefix}{key}", written, loss.why, loss.effect)


def _lose(draft: Draft, name: str, written: Written, why: str, effect: Effect = "memory or time") -> None:
    """A key that sets nothing, which may stand in another file than the draft's."""
    draft.keys.setdefault(name, written)
    draft.lose(name, why, effect)


def _is_given(written: Written) -> bool:
    """Whether a value is there and is not left to the trainer."""
    return written.value is not None and plain(written.value) != _AUTO


def _state_deepspeed_offload(draft: Draft, own: Mapping[str, Written], prefix: str) -> None:
    """State what is kept in host memory: scenarios move the optimizer along with the weights."""
    params, states = _moved(own.get(f"{_WEIGHTS}device")), _moved(own.get(f"{_STATES}device"))
    states = states or _moved(own.get(f"{_SHARDED}cpu_offload"))
    for written, what, key in ((params, PARAMS, f"{_WEIGHTS}device"), (states, OPTIMIZER, f"{_STATES}device")):
        if written is not None:
            draft.state("layout.offload", what, written)
            if plain(written.value) not in (_IN_HOST_MEMORY, "true"):
                _lose(draft, f"{prefix}{key}", written, f"keeps them on {written.value}; counted in host memory")
    if params is not None and states is None:
        draft.following.append(_weights_alone)


def _moved(written: Written | None) -> Written | None:
    """A device that is named, or a switch that is on."""
    return written if written is not None and plain(written.value) not in ("none", "false") else None


def _weights_alone(draft: Draft) -> None:
    """Where all weights learn, states that stay on the card are most of it: weights are counted there too then."""
    if draft.fact("layout.offload") == PARAMS and not any(key.startswith("lora.") for key in draft.facts):
        note = "the weights alone wait in host memory; they are counted on the card, where the optimizer stays"
        draft.narrow("layout.offload", NO_OFFLOAD, note)


def _state_deepspeed_optimizer(draft: Draft, own: Mapping[str, Written]) -> None:
    """The engine's own optimizer, which takes the place of the trainer's."""
    written = own.get("optimizer.type")
    if written is None or not _is_given(written):
        return
    if plain(written.value) in _ADAM:
        draft.state("optimizer", ADAMW, written)
    else:
        state_optimizer(draft, "optimizer.type", written)


def _state_bucket(draft: Draft, own: Mapping[str, Written]) -> None:
    """The buffer in which gradients are reduced: elements, of which `auto` is the square of the hidden size."""
    written = own.get(_BUCKET)
    if written is None:
        return
    elements = draft.value(written, _unless_auto(above_zero_or_off))
    note = ""
    if plain(written.value) == _AUTO:
        elements, note = _square_of_hidden(draft.fact("model")), "the square of the hidden size"
    if not isinstance(elements, int | float):
        return
    stage, overlaps = draft.fact("layout.zero"), own.get(_OVERLAP)
    doubled = overlaps is not None and _is_given(overlaps) and is_on(overlaps.value)
    buckets = 2 if doubled and isinstance(stage, int) and stage <= _LEAST_SHARDED else 1
    size = FLOAT32 if draft.fact("precision") == "fp32" else SIXTEEN_BIT
    draft.state("layout.bucket_gib", round(buckets * float(elements) * size / GIB, 4), written, note)


def _state_overlap(draft: Draft, own: Mapping[str, Written]) -> None:
    """Whether the exchange of gradients hides behind the backward; with ZeRO-3 gathers run ahead on the same stream."""
    written, stage = own.get(_OVERLAP), draft.fact("layout.zero")
    if written is None or not _is_given(written) or plain(written.value) == _AUTO or not stage:
        return
    hides = "data-parallel" if isinstance(stage, int) and stage <= _LEAST_SHARDED else "sharding"
    draft.state("train.overlap", (hides if is_on(written.value) else "off",), written)


def _square_of_hidden(model: object) -> float | None:
    try:
        return float(Registry().model(str(model)).hidden) ** 2 if model is not None else None
    except InputError:
        return None


# accelerate's configuration files: processes, precision, DeepSpeed, FSDP, Megatron and parallelism.
#
# Keys and defaults: accelerate src/accelerate/commands/config/config_args.py and src/accelerate/utils/launch.py (1.12).

_PRECISIONS = {"bf16": "bf16", "fp16": "fp16", "fp8": "fp8"}
_SETTINGS = "parallelism_config."
_OWN = f"{_SETTINGS}parallelism_config_"
_MEGATRON = "megatron_lm_config.megatron_lm_"


def _degree_keys(*sizes: str) -> tuple[str, ...]:
    return tuple(f"{prefix}{size}" for size in sizes for prefix in (_OWN, _SETTINGS))


ACCELERATE_TABLE = Table(file="accelerate", beside=(FSDP,))


def state_accelerate(draft: Draft, source: Source) -> None:
    """State what a configuration of accelerate says of hardware, precision and sharding."""
    kind = draft.peek("distributed_type")
    word = plain(kind.value) if kind is not None else "no"
    _state_processes(draft, word)
    mixed = draft.take("mixed_precision")
    if mixed is not None:
        draft.state("precision", _PRECISIONS.get(plain(mixed.value)), mixed)
        if plain(mixed.value) == "no":
            draft.state("train.mixed_precision", "none", mixed)
    if word == "deepspeed":
        draft.state("train.backend", DEEPSPEED, kind)
        _state_deepspeed(draft, source)
    elif word == "fsdp":
        state_fsdp(draft, draft.peek("distributed_type"), "fsdp_config.")
    elif word == "megatronlm":
        _state_megatron(draft)
    elif kind is not None and word in ("no", "multigpu", "multixpu", "multinpu"):
        draft.state("layout.zero", 0, kind)
    _state_replica_groups(draft)


def _state_processes(draft: Draft, word: str) -> None:
    processes, machines = draft.take("num_processes"), draft.take("num_machines")
    if processes is not None:
        draft.state("gpus", draft.value(processes, positive_or_open), processes)
    elif word == "no":
        draft.default("gpus", 1, "not distributed")
    if machines is not None and "gpus" not in draft.facts:
        draft.state("nodes", draft.value(machines, positive_or_open), machines)


def _state_deepspeed(draft: Draft, source: Source) -> None:
    file, stage = draft.take("deepspeed_config.deepspeed_config_file"), draft.take("deepspeed_config.zero_stage")
    if file is not None:
        read_deepspeed(draft, file, source)
    if stage is not None:
        draft.state("layout.zero", draft.value(stage, whole), stage)
    draft.default("layout.zero", 2, "zero_stage: 2")
    for name, what in (("offload_param_device", PARAMS), ("offload_optimizer_device", OPTIMIZER)):
        found = draft.on(f"deepspeed_config.{name}")
        if found is not None:
            draft.state("layout.offload", what, found)


def _state_megatron(draft: Draft) -> None:
    sharded, again = draft.take(f"{_MEGATRON}use_distributed_optimizer"), draft.on(f"{_MEGATRON}recompute_activations")
    if sharded is not None:
        draft.state("layout.zero", 1 if is_on(sharded.value) else 0, sharded)
    if again is not None:
        draft.state("layout.recompute", "selective", again)


def _state_replica_groups(draft: Draft) -> None:
    """Replicas of the sharded states: a group has the ranks that share one copy."""
    copies, shared = (
        draft.take(*_degree_keys("dp_replicate_size")),
        draft.take(*_degree_keys("dp_shard_size")),
    )
    count, size = draft.value(copies, positive_or_open), draft.value(shared, positive_or_open)
    if isinstance(count, int) and count > 1 and isinstance(size, int):
        draft.state("layout.zero_group", size * draft.size(*_degree_keys("cp_size", "sp_size")), shared)


# transformers' TrainingArguments, which TRL, LLaMA-Factory, ms-swift and Unsloth have too.
#
# Keys and defaults: transformers src/transformers/training_args.py (read at 4.46, 4.57, 5.0 and 5.23).

SAVE_STEPS = 500
LOGGING_STEPS = 500
_GROUPED = ("grouplength", "groupbylength", "batchrebalance")
_RECOMPUTE = ("activation_checkpointing", "gradient_checkpointing")
_LIGER = {
    "rope": "rotary", "rms_norm": "norm", "layer_norm": "norm", "swiglu": "activation", "geglu": "activation",
}  # fmt: skip
LIGER_KERNELS = tuple(dict.fromkeys(_LIGER.values()))
"""What Liger's kernels take the place of."""
LINEAR_LOG_PROBABILITIES = "linear-log-probabilities"
"""What log-probabilities without the logits of all tokens are called among fused kernels."""
ATTENTION = {
    **dict.fromkeys(
        globs("""
        flash_attention_2 flash_attention_3 flash_attention_4 flash_attention fa2 fa3 flash_attn flash
        kernels-community/flash-attn2 kernels-community/flash-attn3 kernels-community/flash-attn
        kernels-community/vllm-flash-attn3 kernels-community/vllm-flash-attn
        """),
        "flash",
    ),
    "sdpa": "sdpa", "eager": "eager", "auto": None,
}  # fmt: skip
"""Words of `attn_implementation`."""
DTYPES = {
    "bfloat16": "bf16", "bf16": "bf16", "float16": "fp16", "fp16": "fp16", "half": "fp16", "float32": "fp32",
    "fp32": "fp32", "float": "fp32", "torch.bfloat16": "bf16", "torch.float16": "fp16", "torch.float32": "fp32",
}  # fmt: skip
"""Words of `dtype` and `torch_dtype` that name a number format; `auto` is that of the checkpoint."""
TRAINER = Table(file="transformers", beside=(FSDP,))
"""Arguments of the Trainer. A tool's own rows stand before these where its defaults differ."""


def state_arguments(draft: Draft, source: Source, *, precision: str = "fp32", recompute: str = "none") -> None:
    """State all that TrainingArguments say beside the rows of `TRAINER`, from precision to checkpoints.

    precision, recompute : what the tool fills in without the keys
    """
    state_sharding(draft, source)
    state_precision(draft, precision)
    state_optim(draft)
    state_recompute(draft, recompute)
    state_grouping(draft)
    state_liger(draft)
    state_checkpoints(draft)
    state_evaluations(draft)


def state_precision(draft: Draft, default: str = "fp32") -> None:
    """State what mixed precision computes in; without it, what the weights are loaded in."""
    for name in ("bf16", "fp16"):
        found = draft.on(name)
        if found is not None and plain(found.value) != BY_CARD:
            draft.state("precision", name, found)
        elif found is not None and name == "bf16":
            draft.default("precision", name, "where the card has it")
    off = draft.peek("bf16")
    if off is not None and not is_on(off.value):
        weights = draft.fact("train.weights_dtype")
        draft.state("precision", "fp32" if weights is None else weights, off, "no mixed precision")
        if weights in _MIXED and draft.on("fp16") is None:
            draft.state("train.mixed_precision", "none", off)
    draft.default("precision", default)


def state_optim(draft: Draft, default: str = ADAMW) -> None:
    """State the optimizer; `adafactor: true` is the older way to say so."""
    old = draft.on("adafactor")
    state_optimizer(draft, "optim", draft.peek("optim"))
    if old is not None:
        draft.state("optimizer", ADAFACTOR, old)
    draft.default("optimizer", default)


def state_recompute(draft: Draft, default: str = "none") -> None:
    """State whether layers are recomputed, and whether their inputs wait in host memory."""
    found = draft.take(*_RECOMPUTE)
    if found is not None and not isinstance(found.value, dict):
        draft.state("layout.recompute", "full" if is_on(found.value) else "none", found)
    offload = draft.on(*(f"{name}_kwargs.offload" for name in _RECOMPUTE))
    if offload is not None:
        draft.state("layout.offload", ACTIVATIONS, offload)
    draft.default("layout.recompute", default)


def state_grouping(draft: Draft) -> None:
    """State that batches are made of samples of like length, where they are."""
    sampling, grouped = draft.take("train_sampling_strategy"), draft.on("group_by_length")
    if sampling is not None and plain(sampling.value) in _GROUPED:
        draft.state("train.padding", "grouped-by-length", sampling)
    elif grouped is not None:
        draft.state("train.padding", "grouped-by-length", grouped)


def state_sharding(draft: Draft, source: Source) -> None:
    """State how DeepSpeed or FSDP shards; without either nothing is sharded."""
    named, options = draft.on("deepspeed"), draft.take("fsdp")
    _include(draft, source, "fsdp_config")
    configured = any(name.startswith("fsdp_config.") for name in draft.keys)
    if any(name.startswith("deepspeed.") for name in draft.keys):
        state_deepspeed(draft, draft.keys, "deepspeed.")
        draft.count("deepspeed.*")
    elif named is not None:
        read_deepspeed(draft, named, source)
    elif options is not None and is_on(options.value):
        state_fsdp(draft, options, "fsdp_config.")
    elif configured and options is None:
        state_fsdp(draft, None, "fsdp_config.")
    draft.default("layout.zero", 0, "neither DeepSpeed nor FSDP")


def _include(draft: Draft, source: Source, section: str) -> None:
    """Put the keys of a file that a key names below that key."""
    named = draft.on(section)
    found = source.companion(named.value) if named is not None else None
    if found is not None:
        draft.keys.update({f"{section}.{key}": written for key, written in found.keys.items()})


def state_liger(draft: Draft) -> None:
    """State the kernels that Liger puts in place of the model's own; its loss never holds all logits."""
    found = draft.on("use_liger_kernel", "use_liger")
    if found is None:
        return
    chosen = {
        name.removeprefix("liger_kernel_config."): is_on(written.value)
        for name, written in draft.keys.items()
        if name.startswith("liger_kernel_config.")
    }
    kernels = dict.fromkeys(kind for part, kind in _LIGER.items() if chosen.get(part, True))
    draft.state("train.fused_kernels", tuple(kernels) or None, found)
    if chosen.get("fused_linear_cross_entropy", not chosen.get("cross_entropy", False)):
        draft.state("loss", "fused", found)


def state_checkpoints(draft: Draft, every: int = SAVE_STEPS) -> None:
    """State how many steps lie between checkpoints; a share of the run is read where its steps are stated."""
    strategy, steps = draft.take("save_strategy"), draft.take("save_steps")
    if strategy is not None and plain(strategy.value) != "steps":
        return
    if steps is not None:
        draft.state("train.checkpoint_every", _state_interval(draft, steps), steps)
    else:
        draft.default("train.checkpoint_every", every)


def state_evaluations(draft: Draft) -> None:
    """State how many steps lie between evaluations; those of every epoch have no counterpart."""
    strategy, steps = draft.take("eval_strategy", "evaluation_strategy"), draft.take("eval_steps")
    word = plain(strategy.value) if strategy is not None else "no"
    if word == "steps":
        every = steps or draft.peek("logging_steps")
        found = _state_interval(draft, every) if every is not None else LOGGING_STEPS
        draft.state("train.evaluate_every", found, every or strategy)
    elif word == "epoch":
        name = next(each for each in ("eval_strategy", "evaluation_strategy") if each in draft.keys)
        draft.lose(name, "evaluates after every epoch")


def _state_interval(draft: Draft, written: Written) -> int | None:
    """A number of steps, or a share of the steps of the run."""
    found, most = draft.value(written, interval_or_share), draft.value(draft.peek("max_steps"), positive_or_open)
    if isinstance(found, float):
        return math.ceil(found * most) if isinstance(most, int) else None
    return found if isinstance(found, int) else None


def state_attention(draft: Draft, *keys: str) -> None:
    """State the attention kernel; without the key transformers takes PyTorch's.

    keys : the names of the key, the newest first
    """
    found = draft.take(*(keys or ("attn_implementation",)))
    if found is not None:
        word = plain(found.value)
        known = {plain(name): kernel for name, kernel in ATTENTION.items()}
        if word in known:
            draft.state("attention", known[word], found)
        else:
            name = next(each for each in keys or ("attn_implementation",) if draft.keys.get(each) is found)
            draft.lose(name, "names an attention kernel that is not modelled")
    draft.default("attention", "sdpa", "the choice of transformers")


def state_dtype(draft: Draft, *keys: str) -> Written | None:
    """State the number format that the model is loaded in; None where no key says one.

    keys : the names of the key, the newest first
    """
    found = draft.take(*(keys or ("dtype", "torch_dtype")))
    if found is None or plain(found.value) in ("auto", "none", "null"):
        return None
    draft.state("train.weights_dtype", draft.value(found, word_of(DTYPES)), found)
    return found


# Commands of shell scripts that start a trainer: its flags, the files that it names, and what its launcher says.

if TYPE_CHECKING:
    Starts = Callable[[Sequence[str]], bool]
_FILES = (".yaml", ".yml", ".json")


def find_launch(source: Source, starts: Starts) -> Command | None:
    """The last command of a script that starts a trainer; None without one.

    starts : whether words, from the program's name on, start it
    """
    commands = source.script.commands if source.script is not None else ()
    return next((each for each in reversed(commands) if starts(_texts(_words(each)))), None)


def keys_started(source: Source, starts: Starts) -> Keys:
    """The keys of a configuration, or those that a script's command states: its files first, its flags over them."""
    command = find_launch(source, starts)
    if command is None:
        return source.keys
    arguments = parse_flags(_words(command)[1:])
    keys: dict[str, Written] = {}
    named = [
        flag.values[0] for name in ("config", "config_file") if (flag := arguments.flags.get(name)) and flag.values
    ]
    for word in (*arguments.positionals, *named):
        found = source.companion(word.text) if word.text.lower().endswith(_FILES) and not word.unknown else None
        keys |= found.keys if found is not None else {}
    return keys | {name: _written(flag) for name, flag in arguments.flags.items()}


def script_started(source: Source) -> Word | None:
    """The Python file that the last command of a launch script starts which starts one; None without one."""
    commands = source.script.commands if source.script is not None else ()
    first = (_words(each)[0] for each in reversed(commands))
    return next((word for word in first if word.text.endswith(PYTHON) and not word.unknown), None)


def starts_script(words: Sequence[str]) -> bool:
    """Whether a command starts a Python file, whatever that is."""
    return bool(words) and words[0].endswith(PYTHON)


def words_started(source: Source, starts: Starts) -> tuple[str, ...]:
    """The words of the command, from the program's name on; none without one."""
    command = find_launch(source, starts)
    return tuple(_texts(_words(command))) if command is not None else ()


def state_launch(draft: Draft, source: Source, starts: Starts) -> None:
    """State the GPUs that a command is started on, and what the accelerate file of its launcher says."""
    command = find_launch(source, starts)
    if command is None or source.script is None:
        return
    said = launched_hardware(source.script, command)
    for file in _accelerate_files(source, command):
        part = Draft(draft.tool, file.keys, draft.version)
        state_accelerate(part, file)
        part.apply(ACCELERATE_TABLE)
        part.finish(ACCELERATE_TABLE)
        state_gpus(draft, said)
        draft.merge(part)
    for named in _flagged(command, "deepspeed_config_file"):
        part = Draft(draft.tool, {}, draft.version)
        read_deepspeed(part, Written(named.text, named.where), source)
        draft.merge(part)
    state_gpus(draft, said)


def _accelerate_files(source: Source, command: Command) -> Iterator[Source]:
    for named in _flagged(command, "config_file"):
        found = source.companion(named.text)
        if found is not None:
            yield found


def _flagged(command: Command, name: str) -> Iterator[Word]:
    """What the launchers of a command are given for a flag."""
    for runner in (*command.within, *unwrapped(command).runners):
        flag = parse_flags(runner.words[1:]).flags.get(name)
        if flag is not None and flag.values and not flag.values[0].unknown:
            yield flag.values[0]


def _written(flag: Flag) -> Written:
    if not flag.values:
        return Written(True, flag.where)
    unknown = [name for word in flag.values for name in word.unknown]
    texts = [word.text for word in flag.values]
    value: object = texts[0] if len(texts) == 1 else texts
    if unknown:
        return Written(Unread(str(texts[0]), f"${unknown[0]} is not known: pass --set {unknown[0]}=VALUE"), flag.where)
    return Written(value, flag.values[0].where)


def _words(command: Command) -> tuple[Word, ...]:
    return unwrapped(command).command.words


def _texts(words: Sequence[Word]) -> list[str]:
    return [word.text for word in words]
