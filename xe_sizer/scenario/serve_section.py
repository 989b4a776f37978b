"""The section `serve` of a scenario file: the load of a service, its lengths, formats and the engine's settings."""

from typing import Annotated, Literal

from msgspec import Meta

from xe_sizer.profiles.fields import named, or_else
from xe_sizer.scenario.values import (
    Degree,
    Fraction,
    ImageSize,
    MeanTokens,
    Name,
    NotNegative,
    Positive,
    Section,
    Share,
    Tokens,
)
from xe_sizer.software.number_formats import cache_format_names, format_names, other_formats

LOADS = ("request_rate", "concurrency", "users", "batch")  # keys of `serve`, of which a scenario has at most one
NumberFormat = Annotated[str, named(format_names, other_formats)]
CacheFormat = Annotated[str, named(cache_format_names, other_formats)]
Percentile = Annotated[float, Meta(ge=50, le=99.9)]
Iterations = Annotated[int, Meta(ge=0, le=1_000_000)]
Arrivals = Annotated[Literal["poisson", "constant"], or_else(random="poisson", even="constant", uniform="constant")]
Spares = Annotated[int, Meta(ge=0, le=1_000)]
Spread = Annotated[float, Meta(ge=0, le=20)]


class ServeSection(Section, frozen=True):
    """What is served: the load, its lengths, number formats and the engine's settings."""

    engine: Annotated[Name | None, Meta(description="Inference engine, e.g. vllm, or the path of an engine file")] = (
        None
    )
    request_rate: Annotated[Positive | None, Meta(description="Requests per second, all replicas together")] = None
    concurrency: Annotated[Degree | None, Meta(description="Requests in flight, all replicas together")] = None
    users: Annotated[
        Degree | None, Meta(description="People who send a request, read the answer and send the next")
    ] = None
    think_time_s: Annotated[
        Positive | None, Meta(description="Seconds between an answer and the user's next request; default: 30")
    ] = None
    batch: Annotated[
        Degree | None,
        Meta(description="Requests that each replica starts together and runs to completion (a benchmark)"),
    ] = None
    requests: Annotated[
        Degree | None,
        Meta(
            description="Number of requests in a benchmark: sent all at once, at the rate or at the concurrency; "
            "latencies are those of the benchmark"
        ),
    ] = None
    arrivals: Annotated[
        Arrivals | None,
        Meta(description="Arrivals of a benchmark's requests at a rate: at random (default) or evenly spaced"),
    ] = None
    trace: Annotated[
        Name | None,
        Meta(description="File of requests to replay: timestamp, prompt and output tokens; CSV or JSON Lines"),
    ] = None
    input_tokens: Annotated[
        Positive | None, Meta(description="Mean tokens of a prompt, without its images' tokens")
    ] = None
    output_tokens: Annotated[MeanTokens | None, Meta(description="Mean output tokens of a request")] = None
    input_spread: Annotated[Spread | None, Meta(description="Standard deviation of prompt lengths / mean")] = None
    output_spread: Annotated[Spread | None, Meta(description="Standard deviation of output lengths / mean")] = None
    images: Annotated[
        Annotated[int, Meta(ge=0, le=1_000)] | None, Meta(description="Images in each prompt; 0: text only")
    ] = None
    image_size: Annotated[ImageSize | None, Meta(description="Width and height of an image, e.g. 1024x1024")] = None
    prefix_hit_share: Annotated[Share | None, Meta(description="Share of prompt tokens found in the prefix cache")] = (
        None
    )
    fit: Annotated[
        Literal["context", "sessions"] | None,
        Meta(description="Find the longest context at the concurrency, or the most sessions of the given length"),
    ] = None
    kv_host_gib: Annotated[
        NotNegative | None,
        Meta(description="Host memory for the KV cache of a replica, for returning users, in GiB; 0: GPU memory only"),
    ] = None
    draft_tokens: Annotated[
        Annotated[int, Meta(ge=0, le=64)] | None, Meta(description="Tokens that speculative decoding proposes per step")
    ] = None
    acceptance_rate: Annotated[Share | None, Meta(description="Probability that a proposed token is accepted")] = None
    draft_cost: Annotated[
        Share | None, Meta(description="Time to draft one token as a share of the time of a step")
    ] = None
    weights: Annotated[NumberFormat | None, Meta(description="Number format of the weights")] = None
    activations: Annotated[NumberFormat | None, Meta(description="Number format of the activations")] = None
    kv_cache: Annotated[CacheFormat | None, Meta(description="Number format of the KV cache")] = None
    scheme: Annotated[
        Name | None, Meta(description="Bits of weights, activations and KV cache, e.g. w4a16k8; instead of formats")
    ] = None
    gpu_memory_utilization: Annotated[
        Fraction | None, Meta(description="Share of the GPU memory that the engine may use")
    ] = None
    max_sequences: Annotated[Degree | None, Meta(description="Maximum requests in one step of a replica")] = None
    max_model_len: Annotated[
        Tokens | None,
        Meta(description="Longest prompt plus answer that the engine accepts; default: the model's maximum"),
    ] = None
    max_step_tokens: Annotated[Degree | None, Meta(description="Maximum tokens in one step of a replica")] = None
    scheduler_recv_interval: Annotated[
        Degree | None, Meta(description="Decode steps between the scheduler's checks for new requests (SGLang)")
    ] = None
    batch_wait_iters: Annotated[
        Iterations | None,
        Meta(description="Decode steps for which prompts wait to be batched with others (TensorRT-LLM)"),
    ] = None
    objective: Annotated[
        Literal["throughput", "latency"] | None,
        Meta(description="What the placement is chosen for: throughput or latency; default: depends on the load"),
    ] = None
    hourly_load: Annotated[
        Annotated[tuple[NotNegative, ...], Meta(min_length=24, max_length=24)] | None,
        Meta(description="Load of the 24 hours of a day, from midnight, in any unit: the given load is the highest"),
    ] = None
    replica_start_s: Annotated[
        NotNegative | None,
        Meta(description="Seconds until a new replica is ready; default: weights read at 2 GB/s per server, plus 60 s"),
    ] = None
    percentile: Annotated[Percentile | None, Meta(description="Percentile at which latency limits must hold")] = None
    adapters: Annotated[
        Degree | None,
        Meta(description="LoRA adapters that requests use, each equally often; see lora.rank and targets"),
    ] = None
    adapter_slots: Annotated[
        Degree | None, Meta(description="Adapters held on the GPU at once, and thus the most in a step; default: all")
    ] = None
    prefill_replicas: Annotated[
        Degree | Literal["auto"] | None,
        Meta(description="Replicas that only prefill, while the others only decode; auto: the best number of both"),
    ] = None
    prefill_tp: Annotated[Degree | None, Meta(description="Tensor-parallel ranks of a prefill replica")] = None
    prefill_pp: Annotated[Degree | None, Meta(description="Pipeline stages of a prefill replica")] = None
    prefill_ep: Annotated[Degree | None, Meta(description="Expert-parallel ranks of a prefill replica")] = None
    prefill_dp: Annotated[Degree | None, Meta(description="Attention groups of a prefill replica")] = None
    spare_replicas: Annotated[Spares | None, Meta(description="Extra replicas in case of failures")] = None
