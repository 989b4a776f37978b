"""The section `rollout` of a scenario file: how a reinforcement-learning job writes and rates its answers."""

from typing import Annotated, Literal

from msgspec import Meta

from xe_sizer.profiles.fields import named
from xe_sizer.scenario.serve_section import CacheFormat, NumberFormat, Spread
from xe_sizer.scenario.values import Degree, Fraction, Name, NotNegative, Positive, Section, Tokens
from xe_sizer.software.rollout import sleep_names

Oversampling = Annotated[float, Meta(ge=1, le=100)]
Sleep = Annotated[str, named(sleep_names)]


class RolloutSection(Section, frozen=True):
    """How answers are written and rated between the optimizer steps of reinforcement learning."""

    engine: Annotated[
        Name | None, Meta(description="Inference engine that writes the answers, e.g. vllm; default: the stack's")
    ] = None
    prompts: Annotated[Degree | None, Meta(description="Prompts of an iteration")] = None
    group: Annotated[Degree | None, Meta(description="Answers to each prompt")] = None
    input_tokens: Annotated[Positive | None, Meta(description="Mean tokens of a prompt")] = None
    output_tokens: Annotated[NotNegative | None, Meta(description="Mean tokens of an answer")] = None
    max_output_tokens: Annotated[Tokens | None, Meta(description="Tokens at which answers are cut")] = None
    output_spread: Annotated[
        Spread | None, Meta(description="Standard deviation of answer lengths / mean, before the cut")
    ] = None
    oversampling: Annotated[
        Oversampling | None, Meta(description="Answers written for each that is trained on (dynamic sampling)")
    ] = None
    updates: Annotated[Degree | None, Meta(description="Passes over the answers of an iteration (PPO epochs)")] = None
    colocated: Annotated[
        bool | None, Meta(description="Write answers on the GPUs that train, in turn; else on GPUs of their own")
    ] = None
    gpus: Annotated[Degree | None, Meta(description="GPUs that only write answers")] = None
    tp: Annotated[Degree | None, Meta(description="Tensor-parallel GPUs of a replica that writes answers")] = None
    pp: Annotated[Degree | None, Meta(description="Pipeline stages of a replica that writes answers")] = None
    ep: Annotated[Degree | None, Meta(description="Expert-parallel GPUs of a replica that writes answers")] = None
    gpu_memory_utilization: Annotated[
        Fraction | None, Meta(description="Share of the GPU memory that the engine may use while answers are written")
    ] = None
    weights: Annotated[NumberFormat | None, Meta(description="Number format of the weights that write answers")] = None
    kv_cache: Annotated[CacheFormat | None, Meta(description="Number format of the engine's KV cache")] = None
    max_sequences: Annotated[Degree | None, Meta(description="Maximum answers that a replica writes at once")] = None
    sleep: Annotated[Sleep | None, Meta(description="What the engine gives back between the phases on shared GPUs")] = (
        None
    )
    offload: Annotated[
        Literal["none", "optimizer", "params"] | None,
        Meta(description="What the trainer leaves to host memory while answers are written; params: all states"),
    ] = None
    asynchronous: Annotated[
        bool | None, Meta(description="Write the next answers while training on these, on GPUs of their own")
    ] = None
    max_staleness: Annotated[
        Degree | None, Meta(description="Iterations by which answers may be older than the weights; default: 1")
    ] = None
    partial: Annotated[
        bool | None, Meta(description="Long answers are interrupted and go on in the next iteration")
    ] = None
    verifier_s: Annotated[NotNegative | None, Meta(description="CPU seconds that rating one answer takes")] = None
    verifier_workers: Annotated[
        Degree | None, Meta(description="Answers rated at once, by as many CPU processes; default: 8 per GPU")
    ] = None
