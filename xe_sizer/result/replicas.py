"""What replicas of a service may be beside alike ones of one model: layout, LoRA adapters, sessions kept, two kinds."""

from __future__ import annotations

from xe_sizer.result.common import Struct


class ReplicaLayout(Struct, frozen=True):
    """How the GPUs of one replica share the model; `dp` ranks serve sequences of their own and the experts together."""

    tp: int
    pp: int
    ep: int
    dp: int


class Adapters(Struct, frozen=True):
    """LoRA adapters of the service.

    count : that requests ask for; held : of them on the GPU at once; rank : that they are allocated with
    bytes : of all held ones on one GPU; adapter_bytes : of one, on all GPUs of a replica
    distinct : different ones in a decode step, in the mean; seconds, share : of a decode step, and over all of it
    """

    count: int
    held: int
    rank: int
    bytes: float
    adapter_bytes: float
    distinct: float
    seconds: float
    share: float


class Fit(Struct, frozen=True):
    """The longest sequences, or the most of them, that fit at once, each to its last token.

    question : context or sessions; tokens : prompt and answer; bound : memory, positions (of the model), max_model_len,
    or max_sequences (of the engine), whatever ends it
    """

    question: str
    tokens: int
    input_tokens: int
    output_tokens: int
    sessions: int
    sessions_per_replica: int
    bound: str


class SessionCache(Struct, frozen=True):
    """Users who come back to a cache on the GPU or in host memory, of one replica.

    sessions : whose users think; on_gpu, in_host : for which there is room
    hit_gpu, hit_host, missed : shares of those that come back
    fetch_s : to bring one back from host memory; recompute_s : to compute it again instead
    ttft_gpu_s, ttft_host_s, ttft_missed_s : mean time to the first token of each kind
    """

    host_gib: float
    sessions: float
    on_gpu: float
    in_host: float
    hit_gpu: float
    hit_host: float
    missed: float
    fetch_s: float
    recompute_s: float
    ttft_gpu_s: float
    ttft_host_s: float
    ttft_missed_s: float


class Aggregated(Struct, frozen=True):
    """The same service with prompts and answers on all replicas; latencies are those that limits are compared with."""

    gpus: int
    replicas: int
    layout: ReplicaLayout
    meets_limits: bool
    ttft_s: float | None
    tpot_s: float | None
    max_requests_per_s: float


DISAGGREGATED, AGGREGATED, ALIKE = "disaggregated", "aggregated", "alike"
"""What serves the load better: prompts on replicas of their own, or on all replicas; neither by more than 5 %."""


class Disaggregation(Struct, frozen=True):
    """Prompts are read on replicas of their own, the others of the result only decode.

    prefill_gpus : of one prefill replica; utilisation : of the prefill replicas and of the links to the others
    queue_s, prefill_s, transfer_s, decode_s : mean parts of the time to the first token, which they sum to; null where
    it is unbounded
    transfer_bytes : cache of one prompt; path : over which it goes, node or network
    aggregated : the answer without, null where it has none; better : which is; by : gpus or max_requests_per_s
    """

    prefill_replicas: int
    prefill_gpus: int
    prefill_layout: ReplicaLayout
    decode_replicas: int
    utilisation: float
    link_utilisation: float
    queue_s: float | None
    prefill_s: float
    transfer_s: float
    decode_s: float
    transfer_bytes: float
    path: str
    aggregated: Aggregated | None
    better: str
    by: str
