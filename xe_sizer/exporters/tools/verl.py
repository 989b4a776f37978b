"""verl commands for reinforcement learning: Hydra overrides of its PPO trainer, with FSDP or Megatron under it.

Keys: verl/trainer/config (read at 0.8).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.exporters.as_text import override_text
from xe_sizer.exporters.exporter import LEARNING_RATE, Added, Exporter, Written
from xe_sizer.exporters.parts.adapters import adapted_modules, adapter_of

if TYPE_CHECKING:
    from xe_sizer.exporters.plan import Plan

_ROOT = "actor_rollout_ref."
_ACTOR, _MODEL, _ROLLOUT = f"{_ROOT}actor.", f"{_ROOT}model.", f"{_ROOT}rollout."
_ESTIMATORS = {"ppo": "gae", "grpo": "grpo"}
_ENGINES = {"vllm": "vllm", "sglang": "sglang", "hf-transformers": "hf", "tensorrt-llm": "trtllm"}
_MEGATRON = {
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
    "rollout.sleep", "train.reference", "gpus",
)  # fmt: skip


def _write(plan: Plan) -> Written:
    job = plan.peek("job")
    if job not in _ESTIMATORS:
        hint = f"jobs that verl's trainer has are {', '.join(_ESTIMATORS)}"
        raise InputError(Problem(f"verl's PPO trainer does not do {job}", Location("--to"), hint))
    plan.said("job", "optimizer", "precision", "attention", "train.padding", "train.grad_accum")
    megatron = any(plan.peek(f"layout.{ranks}", 1) > 1 for ranks in _SPLIT)
    words = ["python3", "-m", "verl.trainer.main_ppo"]
    if megatron:
        words += ["--config-path=config", "--config-name=ppo_megatron_trainer.yaml"]
    values = {
        "algorithm.adv_estimator": _ESTIMATORS[job],
        f"{_MODEL}path": plan.take("model"),
        "data.train_files": "DATASET",
        f"{_ACTOR}optim.lr": LEARNING_RATE,
        **_batches(plan),
        **_answers(plan),
        **(_under_megatron(plan) if megatron else _under_fsdp(plan)),
        **_waiting(plan, "megatron" if megatron else "fsdp_config"),
        **_beside(plan),
        **_adapters(plan),
        **_run(plan),
    }
    return Written(override_text(words, values))


def _batches(plan: Plan) -> dict[str, Any]:
    """Prompts of an iteration and of an optimizer step, and the lengths of prompts and answers."""
    group, length = plan.take("rollout.group", 1), plan.take("train.seq_len")
    answer = int(plan.take("rollout.max_output_tokens", length // 2))
    batch = plan.take("train.global_batch")
    return {
        "data.train_batch_size": round(plan.take("rollout.prompts")),
        "data.max_prompt_length": max(length - answer, 1),
        "data.max_response_length": answer,
        f"{_ROLLOUT}n": group,
        f"{_ACTOR}ppo_mini_batch_size": batch // group if batch else None,
        f"{_ACTOR}ppo_micro_batch_size_per_gpu": plan.take("train.micro_batch"),
        f"{_ACTOR}ppo_epochs": plan.take("rollout.updates", 1),
    }


def _answers(plan: Plan) -> dict[str, Any]:
    """How the engine writes answers, on the GPUs that train."""
    engine, sleep = plan.peek("rollout.engine"), plan.peek("rollout.sleep")
    if engine in _ENGINES:
        plan.said("rollout.engine")
    if sleep in ("none", "weights-dropped"):
        plan.said("rollout.sleep")
    return {
        f"{_ROLLOUT}name": _ENGINES.get(engine),
        f"{_ROLLOUT}tensor_model_parallel_size": plan.take("rollout.tp", 1),
        f"{_ROLLOUT}pipeline_model_parallel_size": plan.take("rollout.pp"),
        f"{_ROLLOUT}gpu_memory_utilization": plan.take("rollout.gpu_memory_utilization"),
        f"{_ROLLOUT}max_num_seqs": plan.take("rollout.max_sequences"),
        f"{_ROLLOUT}free_cache_engine": None if sleep is None else sleep != "none",
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
    recompute = plan.peek("layout.recompute")
    if recompute in ("full", "none"):
        plan.said("layout.recompute")
    return values | {
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
    values = {f"{_ACTOR}megatron.{word}": plan.take(f"layout.{key}", 1) for key, word in _MEGATRON.items()}
    return values | {
        f"{_ACTOR}megatron.use_distributed_optimizer": False if zero == 0 else None,
        f"{again}granularity": recompute if recompute in ("full", "selective") else None,
        f"{again}method": "uniform" if recompute == "full" else None,
        f"{again}num_layers": 1 if recompute == "full" else None,
    }


def _waiting(plan: Plan, section: str) -> dict[str, Any]:
    """What waits in host memory while answers are written."""
    moved = plan.take("rollout.offload", "none")
    return {
        f"{_ACTOR}{section}.param_offload": moved == "params",
        f"{_ACTOR}{section}.optimizer_offload": moved in ("params", "optimizer"),
    }


def _beside(plan: Plan) -> dict[str, Any]:
    """The models beside the actor: reference, critic and reward model."""
    reward = plan.take("train.reward_model")
    rated = reward not in (None, "none")
    return {
        f"{_ACTOR}use_kl_loss": plan.take("train.reference") in ("copy", "adapters-off"),
        "critic.model.path": plan.take("train.critic_model"),
        "reward_model.enable": True if rated else None,
        "reward_model.model.path": reward if rated else None,
    }


def _adapters(plan: Plan) -> dict[str, Any]:
    if not adapter_of(plan):
        return {}
    targets = adapted_modules(plan)
    return {
        f"{_MODEL}lora_rank": plan.take("lora.rank"),
        f"{_MODEL}lora_alpha": plan.take("lora.alpha"),
        f"{_MODEL}target_modules": "all-linear" if targets == ["all-linear"] else f"[{','.join(targets)}]",
    }


def _run(plan: Plan) -> dict[str, Any]:
    """GPUs, and how long the run is: steps are iterations."""
    nodes = plan.take("nodes", 1)
    return {
        "trainer.nnodes": nodes,
        "trainer.n_gpus_per_node": plan.take("gpus") // nodes,
        "trainer.total_training_steps": plan.take("train.steps"),
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
