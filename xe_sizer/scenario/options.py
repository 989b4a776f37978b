"""Options of the command line and environment variables, each with the scenario key that it sets."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from xe_sizer.scenario.caller import CommandLine
from xe_sizer.scenario.limits import LIMITS


def _limit_options(wing: str | None) -> dict[str, str]:
    """Options of the limits that both wings judge (None), or one of them alone."""
    return {rule.option: rule.key for rule in LIMITS if rule.wing == wing}


_ALONE = ("prompts", "group", "max_output_tokens", "oversampling", "updates", "colocated", "asynchronous",
          "max_staleness", "verifier_workers")  # fmt: skip
_ROLLOUT = {
    **{name.replace("_", "-"): f"rollout.{name}" for name in _ALONE},
    **{
        f"rollout-{name.replace('_', '-')}": f"rollout.{name}"
        for name in ("engine", "input_tokens", "output_tokens", "output_spread", "gpus", "tp", "pp", "ep",
                     "gpu_memory_utilization", "weights", "kv_cache", "max_sequences", "sleep", "offload", "partial")
    },
    "verifier-seconds": "rollout.verifier_s",
}  # fmt: skip
"""Options of reinforcement learning; those that another section has too say whose they are."""

OPTIONS: Mapping[str, str] = MappingProxyType({
    "model": "model",
    "gpu": "gpu",
    "server": "server",
    "gpus": "gpus",
    "nodes": "nodes",
    "host-memory-gib": "host_memory_gib",
    "partial-servers": "partial_servers",
    "job": "job",
    "adapter": "adapter",
    "stack": "stack",
    "precision": "precision",
    "tp": "layout.tp",
    "pp": "layout.pp",
    "vpp": "layout.vpp",
    "cp": "layout.cp",
    "cp-kind": "layout.cp_kind",
    "ep": "layout.ep",
    "expert-tp": "layout.expert_tp",
    "dp": "layout.dp",
    "zero": "layout.zero",
    "zero-group": "layout.zero_group",
    "sequence-parallel": "layout.sequence_parallel",
    "schedule": "layout.schedule",
    "uneven-stages": "layout.uneven_stages",
    "stages": "layout.stages",
    "first-stage-layers": "layout.first_stage_layers",
    "last-stage-layers": "layout.last_stage_layers",
    "account-for-embedding": "layout.account_for_embedding",
    "account-for-loss": "layout.account_for_loss",
    "micro-batch": "train.micro_batch",
    "grad-accum": "train.grad_accum",
    "global-batch": "train.global_batch",
    "seq-len": "train.seq_len",
    "target-len": "train.target_len",
    "dataset": "data.profile",
    "tokenizer": "data.tokenizer",
    "samples": "data.samples",
    "mean-tokens": "data.mean_tokens",
    "chosen-tokens": "data.chosen_tokens",
    "rejected-tokens": "data.rejected_tokens",
    "min-tokens": "data.min_tokens",
    "max-tokens": "data.max_tokens",
    "tokens": "data.tokens",
    "sample-images": "data.images",
    "sample-image-size": "data.image_size",
    "epochs": "train.epochs",
    "steps": "train.steps",
    "padding": "train.padding",
    "task": "train.task",
    "weights-dtype": "train.weights_dtype",
    "backend": "train.backend",
    "fp8-recipe": "train.fp8_recipe",
    "fused-kernels": "train.fused_kernels",
    "reference": "train.reference",
    "hard-negatives": "embedding.hard_negatives",
    "negatives-across-gpus": "embedding.across_gpus",
    "cached-gradients": "embedding.cached",
    "teacher-model": "train.teacher_model",
    "dropout": "train.dropout",
    "quantiser": "train.quantiser",
    "bits": "train.bits",
    "reduce-every-micro-batch": "train.reduce_every_micro_batch",
    "empty-cache-steps": "train.empty_cache_steps",
    "freeze": "train.freeze",
    "batch-ramp-up": "train.batch_ramp_up",
    "checkpoint-every": "train.checkpoint_every",
    "async-checkpoint": "train.async_checkpoint",
    "storage-write-gb-per-s": "storage.write_gb_per_s",
    "evaluate-every": "train.evaluate_every",
    "evaluate-samples": "train.evaluate_samples",
    "failures-per-gpu-day": "train.failures_per_gpu_day",
    "critic-model": "train.critic_model",
    "reward-model": "train.reward_model",
    **_ROLLOUT,
    "recompute": "layout.recompute",
    "recompute-modules": "layout.recompute_modules",
    "recompute-layers": "layout.recompute_layers",
    "offload": "layout.offload",
    "bucket-gib": "layout.bucket_gib",
    "prefetch-elements": "layout.prefetch_elements",
    "live-elements": "layout.live_elements",
    "reuse-elements": "layout.reuse_elements",
    "persistent-elements": "layout.persistent_elements",
    "offload-layers": "layout.offload_layers",
    "offload-fraction": "layout.offload_fraction",
    "optimizer": "optimizer",
    "optimizer-rank": "train.optimizer_rank",
    "trainable-layers": "train.trainable_layers",
    "experts-per-token": "train.experts_per_token",
    "attention": "attention",
    "loss": "loss",
    "lora-rank": "lora.rank",
    "lora-targets": "lora.targets",
    "lora-dropout": "lora.dropout",
    "dora": "lora.dora",
    "block-size": "lora.block_size",
    "frequencies": "lora.frequencies",
    "modules-to-save": "lora.modules_to_save",
    "flops-efficiency": "efficiency.flops",
    "memory-efficiency": "efficiency.memory",
    "ideal": "efficiency.ideal",
    **_limit_options("training"),
    **_limit_options(None),
    "confidence": "limits.confidence",
    "price-per-gpu-hour": "cost.price_per_gpu_hour",
})  # fmt: skip
"""Option name (without dashes in front) to scenario key, for the command line and the environment."""

_ONLY_SERVE = {
    "request-rate": "serve.request_rate",
    "concurrency": "serve.concurrency",
    "users": "serve.users",
    "think-time": "serve.think_time_s",
    "batch": "serve.batch",
    "requests": "serve.requests",
    "arrivals": "serve.arrivals",
    "trace": "serve.trace",
    "input-tokens": "serve.input_tokens",
    "output-tokens": "serve.output_tokens",
    "input-spread": "serve.input_spread",
    "output-spread": "serve.output_spread",
    "images": "serve.images",
    "image-size": "serve.image_size",
    "prefix-hit-share": "serve.prefix_hit_share",
    "fit": "serve.fit",
    "kv-host-gib": "serve.kv_host_gib",
    "weights": "serve.weights",
    "activations": "serve.activations",
    "kv-cache": "serve.kv_cache",
    "scheme": "serve.scheme",
    "engine": "serve.engine",
    "gpu-memory-utilization": "serve.gpu_memory_utilization",
    "max-sequences": "serve.max_sequences",
    "max-model-len": "serve.max_model_len",
    "max-step-tokens": "serve.max_step_tokens",
    "scheduler-recv-interval": "serve.scheduler_recv_interval",
    "batch-wait-iters": "serve.batch_wait_iters",
    "draft-tokens": "serve.draft_tokens",
    "acceptance-rate": "serve.acceptance_rate",
    "draft-cost": "serve.draft_cost",
    **_limit_options("serving"),
    "objective": "serve.objective",
    "hourly-load": "serve.hourly_load",
    "replica-start": "serve.replica_start_s",
    "percentile": "serve.percentile",
    "spare-replicas": "serve.spare_replicas",
    "adapters": "serve.adapters",
    "adapter-slots": "serve.adapter_slots",
    **{f"prefill-{name}": f"serve.prefill_{name}" for name in ("replicas", "tp", "pp", "ep", "dp")},
}
_SHARED = (
    "precision", "tp", "pp", "ep", "dp", "lora-rank", "lora-targets", "flops-efficiency", "memory-efficiency", "ideal",
    *_limit_options(None), "confidence", "price-per-gpu-hour",
)  # fmt: skip
SERVE_OPTIONS: Mapping[str, str] = MappingProxyType(
    {name: OPTIONS[name] for name in ("model", "gpu", "server", "gpus", "nodes")}
    | _ONLY_SERVE
    | {name: OPTIONS[name] for name in _SHARED}
)
"""The same of the command that sizes inference."""

SERVE_LIMITS = frozenset(_limit_options("serving").values())
ALL_OPTIONS: Mapping[str, str] = MappingProxyType(dict(OPTIONS) | _ONLY_SERVE)
OPTION_OF: Mapping[str, str] = MappingProxyType({key: option for option, key in ALL_OPTIONS.items()})
"""The option of every key that has one."""
TWO_WAY = frozenset({"layout.sequence_parallel", "rollout.colocated"})
"""Switches that can also be put off: --no-..."""
COMMAND_LINE = CommandLine(OPTION_OF, TWO_WAY)

PREFIX = "XE_SIZER_"
OTHER_VARIABLES = frozenset({"XE_SIZER_PROFILES"})


def variable_name(option: str) -> str:
    """The environment variable of an option: micro-batch is XE_SIZER_MICRO_BATCH."""
    return PREFIX + option.upper().replace("-", "_")


@cache
def variables() -> Mapping[str, str]:
    """Environment variable -> scenario key."""
    return {variable_name(option): key for option, key in ALL_OPTIONS.items()}
