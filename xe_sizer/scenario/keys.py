"""The keys of a scenario as keyword arguments of the public API: the same tree as `schema`, all optional.

A key that is None counts as not given. Ranges and choices are those of the schema, which checks the values.
Written by `python scripts/keys.py`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict


class HistogramKeys(TypedDict, total=False):
    """Token lengths of a data set, counted."""

    lengths: Sequence[int] | None
    counts: Sequence[float] | None


class DataKeys(TypedDict, total=False):
    """What is trained on: a data set profile, a file of samples, a histogram, or statistics of the token lengths."""

    profile: str | Path | None
    file: str | Path | None
    tokenizer: str | Path | None
    samples: int | None
    mean_tokens: float | None
    chosen_tokens: float | None
    rejected_tokens: float | None
    min_tokens: int | None
    max_tokens: int | None
    tokens: float | None
    histogram: HistogramKeys | None
    images: int | None
    image_size: str | None


class TrainKeys(TypedDict, total=False):
    """How long to train and how batches are made."""

    steps: int | None
    epochs: float | None
    global_batch: int | None
    micro_batch: int | None
    grad_accum: int | None
    seq_len: int | None
    target_len: int | None
    padding: str | None
    task: str | None
    weights_dtype: str | None
    gradient_dtype: str | None
    reduce_dtype: str | None
    mixed_precision: str | None
    backend: str | None
    fp8_recipe: str | None
    overlap: Sequence[str] | None
    fused_kernels: Sequence[str] | None
    quantiser: str | Path | None
    bits: int | None
    trainable_layers: int | None
    experts_per_token: int | None
    mtp_layers: int | None
    expert_skew: float | None
    capacity_factor: float | None
    pad_to_capacity: bool | None
    optimizer_rank: int | None
    reference: str | None
    teacher_model: str | Path | None
    teacher_top_k: int | None
    dropout: float | None
    reduce_every_micro_batch: bool | None
    empty_cache_steps: int | None
    freeze: Sequence[str] | None
    checkpoint_every: int | None
    async_checkpoint: bool | None
    batch_ramp_up: Sequence[int] | None
    evaluate_every: int | None
    evaluate_samples: int | None
    critic_model: str | Path | None
    reward_model: str | Path | None
    failures_per_gpu_day: float | None


class StorageKeys(TypedDict, total=False):
    """Where checkpoints go."""

    write_gb_per_s: float | None


class LayoutKeys(TypedDict, total=False):
    """How the model is spread over GPUs; what is left out is chosen."""

    tp: int | None
    pp: int | None
    vpp: int | None
    cp: int | None
    cp_kind: str | None
    ep: int | None
    expert_tp: int | None
    dp: int | None
    zero: int | None
    zero_group: int | None
    schedule: str | None
    uneven_stages: bool | None
    stages: Sequence[int] | None
    first_stage_layers: int | None
    last_stage_layers: int | None
    account_for_embedding: bool | None
    account_for_loss: bool | None
    sequence_parallel: bool | None
    recompute: str | None
    recompute_modules: Sequence[str] | None
    recompute_policy: str | None
    recompute_keep: Sequence[str] | None
    recompute_offload: Sequence[str] | None
    recompute_layers: int | None
    offload: str | None
    bucket_gib: float | None
    prefetch_elements: float | None
    live_elements: float | None
    reuse_elements: float | None
    persistent_elements: float | None
    offload_layers: int | None
    offload_fraction: float | None


class LoraKeys(TypedDict, total=False):
    """Adapters of the jobs that have them."""

    rank: int | None
    targets: Sequence[str] | None
    alpha: float | None
    dropout: float | None
    block_size: int | None
    frequencies: int | None
    dora: bool | None
    modules_to_save: Sequence[str] | None


class PTuningKeys(TypedDict, total=False):
    """The prompt encoder of prompt tuning."""

    virtual_tokens: int | None
    encoder_hidden: int | None


class LimitsKeys(TypedDict, total=False):
    """What the answer must keep; a broken limit is exit code 1."""

    max_hours: float | None
    max_cost: float | None
    max_ttft_s: float | None
    max_tpot_s: float | None
    max_request_s: float | None
    max_cost_per_million_tokens: float | None
    max_gpus: int | None
    max_kw: float | None
    min_headroom_gib: float | None
    confidence: float | None


class CostKeys(TypedDict, total=False):
    """What hardware costs: rented by the hour, or owned."""

    price_per_gpu_hour: float | Mapping[str, float] | None
    capex_per_server: float | Mapping[str, float] | None
    years: float | None
    utilisation: float | None
    kwh_price: float | None
    pue: float | None
    staff_share: float | None
    api_price_per_million: Sequence[float] | None
    currency: str | None


class EfficiencyKeys(TypedDict, total=False):
    """Fixed fractions of the peaks instead of the operator laws."""

    flops: float | None
    memory: float | None
    ideal: bool | None


class RolloutKeys(TypedDict, total=False):
    """How answers are written and rated between the optimizer steps of reinforcement learning."""

    engine: str | Path | None
    prompts: int | None
    group: int | None
    input_tokens: float | None
    output_tokens: float | None
    max_output_tokens: int | None
    output_spread: float | None
    lengths: str | Path | None
    oversampling: float | None
    updates: int | None
    colocated: bool | None
    gpus: int | None
    tp: int | None
    pp: int | None
    ep: int | None
    gpu_memory_utilization: float | None
    weights: str | None
    kv_cache: str | None
    max_sequences: int | None
    log_prob_micro_batch: int | None
    sleep: str | None
    offload: str | None
    asynchronous: bool | None
    max_staleness: int | None
    partial: bool | None
    update: str | None
    transport: str | None
    verifier_s: float | None
    verifier_workers: int | None


class EnvironmentKeys(TypedDict, total=False):
    """What responses wait for between their turns, and the CPUs that it runs on."""

    turns: float | None
    turn_tokens: float | None
    seconds: float | None
    spread: float | None
    start_s: float | None
    cores: float | None
    pool_cores: float | None
    at_once: int | None
    server_cores: int | None


class CriticKeys(TypedDict, total=False):
    """Where the critic of a reinforcement-learning job is trained."""

    colocated: bool | None
    gpus: int | None
    tp: int | None
    pp: int | None


class RewardKeys(TypedDict, total=False):
    """Where the reward model of a reinforcement-learning job runs, and how it judges responses."""

    colocated: bool | None
    gpus: int | None
    with_critic: bool | None
    tp: int | None
    pp: int | None
    engine: str | Path | None
    input_tokens: float | None
    output_tokens: float | None
    streams: bool | None


class ReferenceKeys(TypedDict, total=False):
    """Where the reference model of a reinforcement-learning job runs."""

    colocated: bool | None
    gpus: int | None
    tp: int | None
    pp: int | None


class TeacherKeys(TypedDict, total=False):
    """Where the teacher of a distillation on the student's own responses runs."""

    colocated: bool | None
    gpus: int | None
    tp: int | None
    pp: int | None
    engine: str | Path | None


class EmbeddingKeys(TypedDict, total=False):
    """What embedding models compare while they learn."""

    hard_negatives: int | None
    across_gpus: bool | None
    cached: bool | None


class ServeKeys(TypedDict, total=False):
    """What is served: the load, its lengths, number formats and the engine's settings."""

    engine: str | Path | None
    request_rate: float | None
    concurrency: int | None
    users: int | None
    think_time_s: float | None
    turns: int | None
    turn_tokens: float | None
    tool_seconds: float | None
    batch: int | None
    requests: int | None
    arrivals: str | None
    trace: str | Path | None
    input_tokens: float | None
    output_tokens: float | None
    documents: int | None
    input_spread: float | None
    output_spread: float | None
    longest_input_tokens: int | None
    longest_output_tokens: int | None
    images: int | None
    image_size: str | None
    prefix_hit_share: float | None
    fit: str | None
    kv_host_gib: float | None
    cpu_layers: int | str | None
    ngram_tables: str | None
    host_memory_gb_per_s: float | None
    speculative: str | None
    draft_model: str | Path | None
    draft_tp: int | None
    draft_tokens: int | None
    draft_width: int | None
    draft_depth: int | None
    acceptance_rate: Sequence[float] | float | None
    draft_cost: float | None
    weights: str | None
    activations: str | None
    kv_cache: str | None
    state_dtype: str | None
    scheme: str | None
    gpu_memory_utilization: float | None
    max_sequences: int | None
    max_model_len: int | None
    max_step_tokens: int | None
    scheduler_recv_interval: int | None
    batch_wait_iters: int | None
    dispatcher: str | None
    expert_skew: float | None
    redundant_experts: int | None
    two_batch_overlap: bool | None
    expert_gpus: int | str | None
    micro_batches: int | None
    objective: str | None
    hourly_load: Sequence[float] | None
    replica_start_s: float | None
    percentile: float | None
    adapters: int | None
    adapter_slots: int | None
    prefill_replicas: int | str | None
    prefill_tp: int | None
    prefill_pp: int | None
    prefill_ep: int | None
    prefill_dp: int | None
    encode_replicas: int | str | None
    spare_replicas: int | None


class Keys(TypedDict, total=False):
    """One question: a model, a job, its data, and the hardware or the limits."""

    model: str | Path | Mapping[str, object] | None
    server: str | Path | None
    gpu: str | Path | None
    slice: str | Path | None
    gpus: int | None
    nodes: int | None
    host_memory_gib: float | None
    job: str | None
    adapter: str | None
    stack: str | Path | None
    precision: str | None
    optimizer: str | Path | None
    attention: str | None
    loss: str | None
    objective: str | None
    partial_servers: bool | None
    free: Sequence[str] | None
    data: DataKeys
    train: TrainKeys
    storage: StorageKeys
    layout: LayoutKeys
    lora: LoraKeys
    p_tuning: PTuningKeys
    limits: LimitsKeys
    cost: CostKeys
    efficiency: EfficiencyKeys
    rollout: RolloutKeys
    environment: EnvironmentKeys
    critic: CriticKeys
    reward: RewardKeys
    reference: ReferenceKeys
    teacher: TeacherKeys
    embedding: EmbeddingKeys
    serve: ServeKeys
