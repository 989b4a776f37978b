"""Sections of a measurement record and the kinds of value that its keys take."""

from __future__ import annotations

from typing import Annotated

import msgspec

Count = Annotated[int, msgspec.Meta(ge=0, le=10**9)]
Degree = Annotated[int, msgspec.Meta(ge=0, le=10**6)]
Size = Annotated[int, msgspec.Meta(ge=0, le=10**7)]
Layers = Annotated[int, msgspec.Meta(ge=0, le=10**4)]
Total = Annotated[float, msgspec.Meta(ge=0, le=1e18)]
Time = Annotated[float, msgspec.Meta(gt=1e-9, le=1e12)]
Rate = Annotated[float, msgspec.Meta(gt=1e-9, le=1e12)]
Gib = Annotated[float, msgspec.Meta(gt=1e-6, le=1e9)]
Share = Annotated[float, msgspec.Meta(gt=0, le=1)]
HitShare = Annotated[float, msgspec.Meta(ge=0, le=1)]
Spread = Annotated[float, msgspec.Meta(ge=0, le=20)]


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes that define a model or override a known one's."""

    layers: Layers | None = None
    hidden: Size | None = None
    heads: Size | None = None
    kv_heads: Size | None = None
    head_dim: Size | None = None
    ffn: Size | None = None
    vocab: Size | None = None
    params: Total | None = None
    experts: Size | None = None
    experts_per_token: Size | None = None


class LayoutStated(msgspec.Struct, frozen=True, kw_only=True):
    tp: Degree | None = None
    pp: Degree | None = None
    vpp: Degree | None = None
    cp: Degree | None = None
    ep: Degree | None = None
    dp: Degree | None = None
    zero: Degree | None = None
    sequence_parallel: bool | None = None
    megatron_fsdp: Degree | None = None
    attention_dp: Degree | None = None
    moe_tp: Degree | None = None
    expert_tp: Degree | None = None
    cp_kind: str | None = None
    first_stage_layers: Degree | None = None
    last_stage_layers: Degree | None = None


class Batch(msgspec.Struct, frozen=True, kw_only=True, rename={"total": "global"}):
    """What one optimizer step takes; of reinforcement learning also an iteration's prompts, `group` answers to each."""

    micro: Degree | None = None
    total: Degree | None = None
    grad_accum: Degree | None = None
    tokens: Total | str | None = None
    prompts: Degree | None = None
    group: Degree | None = None


class Lora(msgspec.Struct, frozen=True, kw_only=True):
    rank: Degree | None = None
    targets: str | list[str] | None = None
    dropout: Annotated[float, msgspec.Meta(ge=0, lt=1)] | None = None
    modules_to_save: str | list[str] | None = None
    dora: bool | None = None


class Rollout(msgspec.Struct, frozen=True, kw_only=True):
    """The generating side of reinforcement learning; `gpu` where it is another kind than the trainer's.

    partial : answers go on while the weights change; staleness : updates that weights may be behind those that learn
    offload : of the trainer, what waits in host memory while answers are written: none, optimizer or params (with it)
    """

    engine: str | None = None
    gpu: str | None = None
    gpus: Degree | None = None
    tp: Degree | None = None
    pp: Degree | None = None
    ep: Degree | None = None
    gpu_memory_utilization: Share | None = None
    weights: str | None = None
    max_sequences: Degree | None = None
    partial: bool | None = None
    staleness: Degree | None = None
    offload: str | None = None


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured; times as the source states them.

    iteration_s : from one batch of prompts to the next; its phases: rollout_s, logprob_s (of the policy before the
    update, the reference and a critic), reward_s, train_s (all updates of policy and critic), sync_s
    """

    step_time_s: Time | None = None
    iteration_s: Time | None = None
    rollout_s: Time | None = None
    logprob_s: Time | None = None
    reward_s: Time | None = None
    train_s: Time | None = None
    sync_s: Time | None = None
    tokens_per_s_per_gpu: Rate | None = None
    tokens_per_s_total: Rate | None = None
    samples_per_s: Rate | None = None
    minutes: Time | None = None
    seconds: Time | None = None
    steps: Total | None = None
    epochs: Total | None = None
    rows: Total | None = None
    tokens: Total | None = None
    gpu_hours: Time | None = None
    peak_memory_gib: Gib | None = None
    reserved_memory_gib: Gib | None = None
    nvidia_smi_gib: Gib | None = None
    memory_metric: str | None = None
    oom: bool | None = None
    fits: bool | None = None
    ttft_ms: Time | None = None
    prefill_ms: Time | None = None
    tpot_ms: Time | None = None
    tpot_ms_p50: Time | None = None
    output_tokens_per_s: Rate | None = None
    total_tokens_per_s: Rate | None = None
    requests_per_s: Rate | None = None
    output_tokens_per_s_per_gpu: Rate | None = None
    request_latency_s: Time | None = None
