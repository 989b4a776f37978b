"""A scenario of inference with everything resolved: engine, formats, traffic, load, and what the placement may be."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from xe_sizer.errors import InputError, Problem
from xe_sizer.graph.drafter import dflash_block, dflash_context, eagle3_head, eagle_head, medusa_heads, mtp_module
from xe_sizer.graph.model import NO_HEAD
from xe_sizer.graph.vision import seen_image
from xe_sizer.graph.weights import adapted_weights
from xe_sizer.immutable import Immutable
from xe_sizer.laws.device import FP4, INT4, INT8, sixteen_bit
from xe_sizer.laws.hardware import INFERENCE_POWER_SHARE, find_slice, sliced
from xe_sizer.profiles.catalogue import default_engine, load_engine
from xe_sizer.profiles.text import at_home
from xe_sizer.result import serving as result
from xe_sizer.scenario.conflicts import conflicts
from xe_sizer.scenario.provenance import (
    Provenance,
    assumptions,
    borrowed_laws,
    collect,
    efficiency_of,
    gpu_count,
    in_reading_order,
    model_and_server,
    relative,
)
from xe_sizer.scenario.schema import LOADS
from xe_sizer.scenario.tariff import SERVING_UTILISATION, tariff_of
from xe_sizer.serving.conflicts import RULES, AskedService, input_tokens, output_tokens
from xe_sizer.serving.job import (
    DEFAULT_TURN_TOKENS,
    HOST_BYTES_PER_S,
    Allocated,
    Drafter,
    Images,
    ReplicaLayouts,
    ServedAdapters,
    Traffic,
    cpu_layers,
    serving_job,
)
from xe_sizer.serving.memory import fewest_cpu_layers, host_layer_bytes, ngram_table_bytes
from xe_sizer.serving.resolved import ResolvedService
from xe_sizer.serving.sessions import HostCache, Turns
from xe_sizer.serving.step_time import Work, step_time, vision_encoder
from xe_sizer.software.adapter_targets import ALL_LINEAR, resolve_targets
from xe_sizer.software.dispatchers import DISPATCHERS
from xe_sizer.software.host import on_host
from xe_sizer.software.number_formats import E4M3, TORCH_TYPES, format_of, parse_scheme, plain_format, scheme, told_by
from xe_sizer.software.speculation import (
    DFLASH,
    DRAFT_MODEL,
    EAGLE,
    EAGLE3,
    MEDUSA,
    METHODS,
    MTP,
    branched,
    drafting_of,
    extended,
)
from xe_sizer.units import GIB, GIGA, MICRO, SIXTEEN_BIT

if TYPE_CHECKING:
    from xe_sizer.errors import Location
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.laws.device import Efficiency
    from xe_sizer.laws.hardware import Accelerator, Server
    from xe_sizer.profiles.catalogue import Registry
    from xe_sizer.scenario.scenario import Scenario
    from xe_sizer.scenario.schema import LimitsSection, ScenarioFile
    from xe_sizer.serving.estimate import ServingEstimate
    from xe_sizer.serving.job import ServingJob
    from xe_sizer.serving.trace import Trace
    from xe_sizer.software.engine import Engine
    from xe_sizer.software.number_formats import Scheme, Told
    from xe_sizer.software.speculation import Drafting

# Images of the requests.

DEFAULT_IMAGE_SIZE = "1024x1024"


def build_images(provenance: Provenance, model: ModelShape, traffic: Traffic) -> Images | None:
    """Build the images of every request; None where it has none.

        tokens of a prompt = text + images x tokens of an image

    Parameters
    ----------
    provenance : the keys `serve.images` and `serve.image_size`
    model : its encoder says what becomes of an image
    traffic : prompts without images [tokens]

    Returns
    -------
    Images, or None

    Source: `graph.vision.seen_image`.
    """
    each = provenance.resolve_default("serve.images", 0)
    if not each or model.vision is None:
        return None
    width, height = provenance.resolve_default("serve.image_size", DEFAULT_IMAGE_SIZE).split("x")
    seen = seen_image(model.vision, int(width), int(height))
    return Images(each, seen, traffic.inputs + each * seen.tokens)


def with_images(traffic: Traffic, images: Images | None) -> Traffic:
    """Add the tokens of images to the prompts of the traffic, which all have as many; text alone varies in length."""
    if images is None:
        return traffic
    spread = traffic.input_spread * traffic.inputs / images.prompt_tokens
    longest = traffic.longest_input + images.prompt_tokens - traffic.inputs
    return replace(traffic, inputs=images.prompt_tokens, input_spread=spread, longest_input=longest)


def loaded(model: ModelShape, scenario: Scenario) -> ModelShape:
    """The model as an engine loads it: without its encoder where it is told that there are no images.

    Without outputs it has no head: a classifier's and a reranker's, a product on one state of a text, is left out.

    Source: vLLM's --limit-mm-per-prompt with image=0 (MultiModalConfig: --language-model-only).
    """
    shape = replace(model, vision=None) if scenario.values.serve.images == 0 else model
    return shape if output_tokens(scenario, model) else shape.headed(NO_HEAD)


def images_in(estimate: ServingEstimate) -> result.Images | None:
    """Images of a prompt and what encoding them takes on the placement that was chosen; None where there are none."""
    job, placement = estimate.resolved.job, estimate.placement
    images = job.images
    if images is None:
        return None
    step = step_time(job, placement, Work(prefills=1.0, prefill_tokens=images.prompt_tokens))
    return result.Images(
        per_request=images.each,
        size=estimate.resolved.values.serve.image_size or "",
        tokens_each=images.seen.tokens,
        tokens=images.each * images.seen.tokens,
        patches_each=images.seen.pieces * images.seen.patches,
        encoder_s=float(step.parts[vision_encoder.name][0]),
    )


# LoRA adapters, as the scenario asks for them and as the engine allocates them.

DEFAULT_RANK = 16  # of vLLM (max_lora_rank), and of most published adapters


def served_adapters(
    scenario: Scenario, provenance: Provenance, model: ModelShape, engine: Engine, gpu: Accelerator
) -> ServedAdapters | None:
    """The adapters of the service; None where it has none. They are known to have no problems."""
    if scenario.values.serve.adapters is None:
        return None
    count = provenance.resolve_default("serve.adapters", 1)
    asked = provenance.resolve_default("lora.rank", DEFAULT_RANK)
    rank = next((allocated for allocated in engine.memory.adapter_ranks if allocated >= asked), asked)
    targets = tuple(provenance.resolve_default("lora.targets", (ALL_LINEAR,)))
    held = provenance.resolve_default("serve.adapter_slots", min(count, engine.batching.max_sequences))
    where = (ALL_LINEAR,) if engine.memory.adapters == "all" else targets
    names = (part for name in resolve_targets(model, where) for part in adapted_weights(name))
    kernels = max(engine.kernels.adapter_us * MICRO / gpu.laws.memory_bound_floor_s, 1.0)
    return ServedAdapters(count, min(held, count), dict.fromkeys(names, rank), SIXTEEN_BIT, kernels)


# Speculative decoding: the method, what drafts, and how often a draft is kept.

# Published: checkpoints in fewer bits keep the modules for multi-token prediction in 16 (NVIDIA's NVFP4).
DRAFTED_BITS = 8


def drafting_method(scenario: Scenario, model: ModelShape) -> Drafting | None:
    """The method of speculative decoding; None where there is none, or nobody says what drafts."""
    serve = scenario.values.serve
    name = drafting_of(serve.speculative, serve.draft_model, serve.draft_tokens, model)
    return METHODS[name] if name else None


def build_drafter(
    scenario: Scenario, provenance: Provenance, registry: Registry, job: ServingJob, traffic: Traffic
) -> Drafter | None:
    """Build what proposes the tokens of the traffic; None where it takes neither memory nor a pass.

    Raises InputError for a model that drafts and is not known, or has another vocabulary.
    """
    method = drafting_method(scenario, job.model)
    if method is None or not method.computes:
        return None
    named, stated = scenario.values.serve.draft_model, None
    if named is not None:
        where = partial(scenario.locate, ("serve", "draft_model"))
        stated = registry.model(relative(scenario, "serve.draft_model", named), where)
        provenance.resolve_default("serve.draft_model", None)
    depth, tp = len(traffic.acceptance), scenario.values.serve.draft_tp
    further = first = _drafting_model(method.name, job.model, stated, depth)
    if method.name in (EAGLE3, DFLASH):
        further = replace(first, joined_width=0)
    if method.name == DRAFT_MODEL and first.joined_width:
        message = f"{first.name} drafts from states of the model that it is trained for, and writes no text alone"
        hint = "name its method: --speculative eagle3, eagle or dflash"
        raise InputError(Problem(message, scenario.locate(("serve", "draft_model")), hint))
    if method.name == DRAFT_MODEL and abs(first.vocab / job.model.vocab - 1.0) > SAME_VOCABULARY:
        message = f"{first.name} has {first.vocab:,} words in its vocabulary, {job.model.name} {job.model.vocab:,}"
        hint = "take a model of the same family, which has the same tokens"
        raise InputError(Problem(message, scenario.locate(("serve", "draft_model")), hint))
    formats = _drafting_scheme(method, job, first)
    context = dflash_context(first) if method.name == DFLASH else None
    made = [
        serving_job(model, job.engine, formats, job.server, job.efficiency)
        for model in (first, further, context)
        if model is not None
    ]
    passes = 1 if method.at_once else depth
    return Drafter(
        method=method.name,
        first=made[0],
        further=made[1],
        passes=passes if scenario.values.serve.draft_cost is None else 0,
        width=traffic.draft_tokens / passes,
        modules=job.model.mtp_layers if method.name == MTP else 1,
        own_embedding=method.name == DRAFT_MODEL,
        own_head=method.own_head,
        embeds=method.name != MEDUSA,
        context=made[2] if context is not None else None,
        tp=tp,
    )


SAME_VOCABULARY = 0.05  # chosen: vocabularies of one family differ by the rows that checkpoints add to them


def _drafting_model(method: str, model: ModelShape, stated: ModelShape | None, depth: int) -> ModelShape:
    if method == MTP:
        return mtp_module(model)
    if method == MEDUSA:
        return medusa_heads(model, depth)
    if method == DFLASH:
        return dflash_block(model, stated)
    if method == DRAFT_MODEL and stated is not None:
        return stated
    return eagle_head(model, stated) if method == EAGLE else eagle3_head(model, stated)


def _drafting_scheme(method: Drafting, job: ServingJob, model: ModelShape) -> Scheme:
    """The formats of what drafts: of its checkpoint, in the cache of the model."""
    if not method.own_weights and job.scheme.weights.bits >= DRAFTED_BITS:
        return job.scheme
    gpu, cache = job.server.accelerator, job.scheme.cache.name
    peaks, published = gpu.peak_flops_per_s, model.checkpoint_format if method.own_weights else None
    names = format_names(job.engine, gpu.generation, peaks, sixteen_bit(peaks), published, cache=cache)
    return scheme_of(job.engine, peaks, **names)


# The resolved scenario.

DEFAULT_PERCENTILE = 95.0
ONE_HOST = 8  # published: accelerators of one host at most, as HGX and DGX have them; more share a rack's NVLink
WIDE_BITS = 16  # of a weight of a checkpoint whose profile says no format
DEFAULT_DRAFT_COST = 0.05
DEFAULT_THINK_TIME_S = 30.0
"""Between an answer and the next request of its reader: assumed, a minute or less of reading and typing."""
PLACEMENT_KEYS = ("tp", "pp", "ep", "dp")
BATCHING_KEYS = ("max_sequences", "max_step_tokens")
LAUNCH_KEYS = (*BATCHING_KEYS, "scheduler_recv_interval", "batch_wait_iters")
"""Launch options; an answer says nothing of the last two, which some engines have, where nobody sets them."""


class Objectives(Immutable, eq=True):
    """What a service must keep where the user does not say; None: nothing [s]."""

    max_ttft_s: float | None = None
    max_tpot_s: float | None = None
    max_request_s: float | None = None


INTERACTIVE = Objectives(max_ttft_s=10.0, max_tpot_s=0.1)
"""An answer that begins within 10 s and is written no slower than people read, 10 tokens a second for each of them."""
WHOLE = Objectives(max_request_s=INTERACTIVE.max_ttft_s)
"""Embeddings and scores, which come all at once: as soon as an answer must begin."""
BENCHMARK = Objectives()
"""A measurement keeps what it kept."""
JUDGED = frozenset({"request_rate", "concurrency", "users"})
"""Loads that somebody waits for. A batch, requests that come all at once, and a replica that takes all that it can are
tests of throughput."""


def resolve(scenario: Scenario, registry: Registry, objectives: Objectives = INTERACTIVE) -> ResolvedService:
    """Everything that sizing an inference service needs.

    objectives : limits on latency of a load for which the user gives none

    Raises
    ------
    InputError : every unknown name, and every contradiction with model, hardware or engine
    """
    problems: list[Problem] = []
    provenance = Provenance(scenario, registry)
    model, server = model_and_server(problems, scenario, registry, provenance)
    engine = collect(problems, _engine, scenario, registry, provenance, server)
    gpus = gpu_count(provenance, server)
    found = None
    if server:
        collect(problems, tariff_of, provenance, server, INFERENCE_POWER_SHARE, SERVING_UTILISATION)
    if server and engine:
        found = collect(problems, _scheme, scenario, provenance, server.accelerator, model, engine)
    problems += conflicts(AskedService(scenario, model, server, gpus, engine, found), RULES)
    if problems or scenario.invalid_keys or not (model and server and engine and found):
        raise InputError(in_reading_order(problems, scenario))
    if scenario.values.slice is not None:
        part = find_slice(server.accelerator, provenance.resolve_default("slice", None))
        assert part is not None  # `slices_stand_alone` refused others
        server = sliced(server, part)
    return _assembled(scenario, provenance, registry, model, server, engine, found, gpus, objectives)


def _assembled(
    scenario: Scenario,
    provenance: Provenance,
    registry: Registry,
    model: ModelShape,
    server: Server,
    engine: Engine,
    found: Scheme,
    gpus: int | None,
    objectives: Objectives,
) -> ResolvedService:
    values = scenario.values
    efficiency, launch = efficiency_of(scenario), {name: getattr(values.serve, name) for name in LAUNCH_KEYS}
    share = values.serve.gpu_memory_utilization
    job = build_job(
        loaded(model, scenario), server, engine, found, efficiency, _longest(scenario, model), share,
        values.serve.ngram_tables, values.serve.state_dtype, **launch,
    )  # fmt: skip
    _resolve_tables(job, scenario, provenance)
    if job.model.state_space and job.model.state_space.state_rows:
        provenance.resolve_default("serve.state_dtype", job.model.state_space.state_dtype, "stack")
    engine = job.engine
    provenance.resolve_default("serve.gpu_memory_utilization", engine.memory.utilization, "stack")
    for name in BATCHING_KEYS:
        provenance.resolve_default(f"serve.{name}", getattr(engine.batching, name), "stack")
    load = _load(scenario, engine)
    trace = _trace(scenario, provenance)
    traffic = _traffic(provenance, model, drafting_method(scenario, model), trace)
    images = build_images(provenance, model, traffic)
    traffic = with_images(traffic, images)
    adapters = served_adapters(scenario, provenance, model, engine, server.accelerator)
    if values.serve.max_model_len is not None or model.max_positions:
        provenance.resolve_default("serve.max_model_len", model.max_positions)
    amount = trace.rate if trace else float(provenance.resolve_default(f"serve.{load}", 1)) if load else 0.0
    think_s = provenance.resolve_default("serve.think_time_s", DEFAULT_THINK_TIME_S) if load == "users" else 0.0
    turns = _turns(scenario, provenance, traffic)
    if turns is not None:  # a session's last answer is followed by the thought that begins another
        think_s = think_s and (turns.gap_s * turns.returning + think_s / turns.turns)
        traffic = turns.traffic(traffic, 1.0)
    requests, arrivals = _requests(scenario, provenance, trace), _arrivals(scenario, provenance)
    job = replace(job, allocated=_allocated(values, engine), **_expert_settings(scenario, provenance, job))
    job = replace(job, drafter=build_drafter(scenario, provenance, registry, job, traffic))
    job = _with_cpu_layers(job, scenario, provenance, traffic, gpus, amount)
    if objectives is INTERACTIVE and not traffic.outputs:
        objectives = WHOLE
    limits = _limits(provenance, objectives if load in JUDGED and not values.serve.fit else BENCHMARK)
    percentile = provenance.resolve_default("serve.percentile", DEFAULT_PERCENTILE)
    spare_replicas = provenance.resolve_default("serve.spare_replicas", 0)
    provenance.keep(("layout", "limits", "cost", "efficiency", "serve", *(("lora",) if values.serve.adapters else ())))
    return ResolvedService(
        scenario=scenario,
        values=provenance.values,
        origins=provenance.origins,
        job=replace(job, images=images, adapters=adapters),
        traffic=traffic,
        load=load,
        amount=amount,
        think_s=think_s,
        requests=requests,
        arrivals=arrivals,
        trace=trace,
        limits=limits,
        objective=values.serve.objective,
        **_replicas(values, turns),
        gpus=gpus,
        percentile=percentile,
        spare_replicas=spare_replicas,
        tariff=tariff_of(provenance, server, INFERENCE_POWER_SHARE, SERVING_UTILISATION),
        read_from_name=_read_from_name(scenario, model, found),
        warnings=tuple(_warnings(model, server, engine, traffic, turns, efficiency)),
    )


def _expert_settings(scenario: Scenario, provenance: Provenance, job: ServingJob) -> dict[str, Any]:
    """How the experts of a mixture are reached and balanced; nothing for other models."""
    if job.model.experts is None:
        return {}
    serve, has = scenario.values.serve, job.engine.exchanges
    wide = job.server.accelerators > max(ONE_HOST, job.model.experts.per_token)
    name = has.wide_dispatcher if wide and has.wide_dispatcher else job.dispatcher.name
    if serve.dispatcher is not None:
        name = provenance.resolve_default("serve.dispatcher", name, "stack")
    return {
        "dispatcher": DISPATCHERS[name],
        "expert_skew": serve.expert_skew,
        "redundant_experts": serve.redundant_experts,
        "halves": bool(serve.two_batch_overlap),
        "expert_gpus": None if isinstance(serve.expert_gpus, str) else serve.expert_gpus or 0,
        "micro_batches": serve.micro_batches,
    }


def _allocated(values: ScenarioFile, engine: Engine) -> Allocated | None:
    """The cache that the engine allocates for the context that it is told; None where it is not, or it is looked for.

    A context for requests whose number nobody says is shared by all of them.

    Source: llama_context in llama.cpp: n_ctx cells, or n_ctx / n_seq_max for each of the sequences at once.
    """
    serve = values.serve
    if engine.memory.pool != "context" or serve.max_model_len is None or serve.fit is not None:
        return None
    return Allocated(serve.max_sequences or 1, serve.max_model_len)


def _resolve_tables(job: ServingJob, scenario: Scenario, provenance: Provenance) -> None:
    """Where tables of n-grams are. Raises InputError where they do not fit into the memory of a host."""
    tables = job.model.ngram_tables
    if tables is None:
        return
    provenance.resolve_default("serve.ngram_tables", "host" if tables.on_host else "gpu", "stack")
    needed, usable = ngram_table_bytes(job.model, job.scheme), job.server.host_usable_bytes
    if tables.on_host and usable is not None and needed > usable:
        message = f"tables of n-grams take {needed / GIB:.1f} of {usable / GIB:.1f} GiB of host memory"
        raise InputError(Problem(message, scenario.locate(("serve", "ngram_tables")), "keep them on the GPUs: gpu"))


def _with_cpu_layers(
    job: ServingJob, scenario: Scenario, provenance: Provenance, traffic: Traffic, gpus: int | None, amount: float
) -> ServingJob:
    """The job with layers on the CPU: as many as are asked for, or as few as let the rest fit on the GPUs."""
    asked = scenario.values.serve.cpu_layers
    if not asked:
        return job
    rate = provenance.resolve_default("serve.host_memory_gb_per_s", HOST_BYTES_PER_S / GIGA)
    cpu = cpu_layers(job, job.model.layers, rate * GIGA)
    if isinstance(asked, int):
        layers = asked
    else:
        placement = ReplicaLayouts.of(pp=gpus or 1)
        found = replace(job, cpu=cpu)
        layers = fewest_cpu_layers(found, placement, traffic.inputs, traffic.outputs, max(amount, 1.0))
    provenance.resolve_default("serve.cpu_layers", layers)
    job = replace(job, cpu=replace(cpu, layers=layers) if layers else None)
    kept = job.allocated or Allocated(max(amount, 1.0), traffic.inputs + traffic.outputs)
    needed = host_layer_bytes(job, kept.sequences, kept.tokens)
    usable = job.server.host_usable_bytes
    if job.cpu and usable is not None and needed > usable:
        message = f"{layers} layers on the CPU take {needed / GIB:.1f} of {usable / GIB:.1f} GiB of host memory"
        hint = "take narrower weights, or fewer layers on the CPU"
        raise InputError(Problem(message, scenario.locate(("serve", "cpu_layers")), hint))
    return job


def _engine(scenario: Scenario, registry: Registry, provenance: Provenance, server: Server | None) -> Engine:
    """The engine that was named, else the stack where that is one, else the default for the format of the weights."""
    stack = scenario.values.stack and registry.called("engine", scenario.values.stack)
    generation = server.accelerator.generation if server else ""
    default = stack if stack in registry.names("engine") else default_engine(_family(scenario), generation)
    name = relative(scenario, "serve.engine", provenance.resolve_default("serve.engine", default))
    return engine_on(server, name, partial(scenario.locate, ("serve", "engine")), registry)


def engine_on(server: Server | None, name: str, where: Callable[[], Location], registry: Registry) -> Engine:
    """The engine of a name or path, in its port to the server's accelerators where it has one. Raises InputError."""
    engine = load_engine(name, where, registry)
    port = engine.ports.get(server.accelerator.vendor) if server else None
    if port is None:
        return engine
    return load_engine(port if "@" in port or not engine.release else f"{port}@{engine.release}", where, registry)


def _longest(scenario: Scenario, model: ModelShape) -> float:
    """Tokens of the longest sequence that the engine is to serve: as given, else what the model or the traffic has."""
    serve = scenario.values.serve
    outputs = output_tokens(scenario, model)
    history = ((serve.turns or 1) - 1) * ((serve.turn_tokens or DEFAULT_TURN_TOKENS) + outputs)
    asked = (serve.input_tokens or input_tokens(model)) + history + outputs
    return max(serve.max_model_len or model.max_positions or 0, asked)


def _family(scenario: Scenario) -> str:
    """Family of the weights' format where a scenario or the name of its model says it, else empty."""
    if scenario.values.serve.weights:
        return format_of(scenario.values.serve.weights).family
    name = scenario.values.model
    told = told_by(name) if isinstance(name, str) else None
    return told.format.family if told and told.format else ""


def _load(scenario: Scenario, engine: Engine) -> str | None:
    """The load that is given; else a batch where an engine runs one after the other, or one request is to be fast."""
    asked = next((name for name in LOADS if getattr(scenario.values.serve, name) is not None), None)
    if scenario.values.serve.trace is not None:
        return "request_rate"
    alone = engine.batching.batching == "static" or scenario.values.serve.objective == "latency"
    if asked is None and alone and not _is_test(scenario):
        return "batch"
    return asked or ("concurrency" if scenario.values.serve.fit else None)


def _is_test(scenario: Scenario) -> bool:
    """Whether so many requests are asked for, and measured until the last is answered."""
    return scenario.values.serve.requests is not None or scenario.values.serve.trace is not None


def _requests(scenario: Scenario, provenance: Provenance, trace: Trace | None) -> int | None:
    """Requests of a test: those of the trace, where nobody says how many of them."""
    if not _is_test(scenario):
        return None
    return int(provenance.resolve_default("serve.requests", len(trace.inputs) if trace else None, "trace"))


def _arrivals(scenario: Scenario, provenance: Provenance) -> str:
    """How the requests of a test come at a rate."""
    at_rate = scenario.values.serve.requests is not None and scenario.values.serve.request_rate is not None
    return str(provenance.resolve_default("serve.arrivals", "poisson")) if at_rate else "poisson"


def _trace(scenario: Scenario, provenance: Provenance) -> Trace | None:
    """The requests to replay, no more of them than a test is to have."""
    if scenario.values.serve.trace is None:
        return None
    from xe_sizer.serving.trace import load_trace

    path = relative(scenario, "serve.trace", str(provenance.resolve_default("serve.trace", None)))
    trace = load_trace(at_home(path), scenario.locate(("serve", "trace")))
    asked, held = scenario.values.serve.requests, len(trace.inputs)
    if asked is not None and asked > held:
        hint = "leave requests out, and all of the trace are replayed"
        raise InputError(Problem(f"the trace has {held:,} requests", scenario.locate(("serve", "requests")), hint))
    return trace.first(asked or held)


def _turns(scenario: Scenario, provenance: Provenance, traffic: Traffic) -> Turns | None:
    """The turns of a session; None where requests have no history."""
    serve = scenario.values.serve
    if serve.turns is None or serve.turns == 1:
        return None
    turns = int(provenance.resolve_default("serve.turns", 1))
    added = provenance.resolve_default("serve.turn_tokens", DEFAULT_TURN_TOKENS)
    gap_s = provenance.resolve_default("serve.tool_seconds", serve.think_time_s or DEFAULT_THINK_TIME_S)
    host_bytes = (serve.kv_host_gib or 0.0) * GIB
    cached = serve.prefix_hit_share is None  # 0, the one share that goes with turns: the prefix cache is off
    return Turns(traffic.inputs, added, traffic.outputs, traffic.input_spread, turns, gap_s, host_bytes, cached)


def _replicas(values: ScenarioFile, turns: Turns | None) -> dict[str, Any]:
    """What is asked of replicas: sizes of their placement, of those that only read prompts too, and what they hold."""
    serve, layout = values.serve, values.layout
    sizes = {key: (getattr(layout, key), getattr(serve, f"prefill_{key}")) for key in PLACEMENT_KEYS}
    returning: HostCache | Turns | None = turns
    if serve.kv_host_gib is not None and turns is None:
        returning = HostCache(serve.kv_host_gib * GIB, serve.prefix_hit_share or 0.0)
    return {
        "fixed": {key: size for key, (size, _) in sizes.items() if size is not None},
        "prefill_fixed": {key: size for key, (_, size) in sizes.items() if size is not None},
        "prefill_replicas": serve.prefill_replicas,
        "encode_replicas": serve.encode_replicas or None,
        "returning": returning,
        "fit": serve.fit,
    }


def _limits(provenance: Provenance, objectives: Objectives) -> LimitsSection:
    """The user's limits, with the objectives for those on latency that are not given."""
    limits: LimitsSection = provenance.scenario.values.limits
    for name, objective in msgspec.structs.asdict(limits).items():
        default = getattr(objectives, name, None)
        if objective is None and default is not None:
            limits = msgspec.structs.replace(limits, **{name: provenance.resolve_default(f"limits.{name}", default)})
    return limits


def build_job(
    model: ModelShape, server: Server, engine: Engine, formats: Scheme, efficiency: Efficiency, longest: float,
    utilization: float | None = None, ngram_tables: str | None = None, state_dtype: str | None = None, **launch: Any,
) -> ServingJob:  # fmt: skip
    """The model with the engine on its card and host, as it was told to start.

    longest : sequence that the engine is to serve [tokens]
    utilization : share of the memory that it may use; None: its own [-]
    ngram_tables : where those of the model are, gpu or host; None: where it keeps them
    state_dtype : of recurrent states; None: what the model or the engine says
    launch : limits and launch options of its batches by name; None: its own
    """
    gpu = server.accelerator
    picks, kernels = model.indexer, engine.kernels
    if picks and not kernels.picks(picks.kind, gpu.generation):  # that it is not refused, `serving.conflicts`
        dense = kernels.sparse_else[picks.kind] == "dense" or model.compressed_attention
        model = replace(model, indexer=None) if dense else model
    engine = engine.on_card(gpu.memory_bytes, gpu.generation).in_context(longest)
    if model.ngram_tables:  # one memory for CPU and GPU holds them all the same
        tables = model.ngram_tables
        usual = engine.memory.ngram_tables if tables.gated else "gpu"  # what engines move is the tables of layers
        away = (ngram_tables or usual) == "host" and server.host_apart
        model = replace(model, ngram_tables=replace(tables, on_host=away))
    if space := model.state_space:
        wide = formats.weights.name if formats.weights.bits > WIDE_BITS else sixteen_bit(gpu.peak_flops_per_s)
        kept = engine.memory.state_dtype(space, TORCH_TYPES[wide], state_dtype)
        model = replace(model, state_space=replace(space, state_dtype=kept))
    formats = replace(formats, mixture=model.experts is not None)
    told = {name: value for name, value in launch.items() if value is not None}
    memory, batching = engine.memory, msgspec.structs.replace(engine.batching, **told)
    if utilization is not None:
        memory = msgspec.structs.replace(memory, utilization=utilization)
    engine = msgspec.structs.replace(engine, memory=memory, batching=batching)
    return serving_job(model, on_host(engine, gpu), formats, server, efficiency)


def _scheme(
    scenario: Scenario, provenance: Provenance, gpu: Accelerator, model: ModelShape | None, engine: Engine
) -> Scheme:
    """Formats as a scheme or one by one, see `format_names`. Raises InputError for a scheme that cannot be."""
    values, peaks = scenario.values, gpu.peak_flops_per_s
    wide = sixteen_bit(peaks)
    if values.serve.scheme is not None:
        try:
            names = parse_scheme(provenance.resolve_default("serve.scheme", None), wide, peaks)
        except InputError as error:
            where = scenario.locate(("serve", "scheme"))
            raise InputError(Problem(one.message, where, one.hint) for one in error.problems) from None
        weights, activations, cache = (format_of(name) for name in names)
        return scheme(weights, activations, cache, peaks)
    precision = provenance.resolve_default("precision", wide) if values.precision is not None else wide
    published = published_format(scenario, model, "serve.weights") if model and values.precision is None else None
    serve = values.serve
    asked = serve.weights, serve.activations, serve.kv_cache
    chosen = format_names(engine, gpu.generation, peaks, precision, published, *asked)
    for key, name in chosen.items():
        provenance.resolve_default(f"serve.{key}", name)
    return scheme_of(engine, peaks, **chosen)


def format_names(
    engine: Engine, generation: str, peaks: Mapping[str, float], precision: str, published: str | None,
    weights: str | None = None, activations: str | None = None, cache: str | None = None,
) -> dict[str, str]:  # fmt: skip
    """Names of the formats as asked for, else of the published checkpoint, else of the precision.

    Activations follow weights that the accelerator multiplies, but for 8-bit integers, which stay weight-only, and
    4-bit floats, of which the engine says what they are multiplied with on that generation of accelerators. The
    cache is 16 bit, or fp8 where the engine's checkpoints of that format ask for it.
    """
    wide, plain = sixteen_bit(peaks), plain_format(precision)
    weights = weights or published or (plain.name if plain else wide)
    stored = format_of(engine.stores.get(weights, weights))
    multiplied = stored.name if stored.peak in peaks and stored.peak not in (INT8, INT4) else None
    if stored.peak == FP4:
        multiplied = engine.multiplied_with(stored, generation)
    narrow_cache = stored.name in engine.memory.fp8_cache_with and E4M3.peak in peaks
    return {
        "weights": weights,
        "activations": activations or multiplied or wide,
        "kv_cache": cache or (E4M3.name if narrow_cache else wide),
    }


def scheme_of(engine: Engine, peaks: Mapping[str, float], weights: str, activations: str, kv_cache: str) -> Scheme:
    """The formats of such names, as the engine stores them."""
    stored = engine.stores.get(weights, weights)
    return scheme(format_of(stored), format_of(activations), format_of(kv_cache), peaks)


def published_format(scenario: Scenario, model: ModelShape, key: str) -> str | None:
    """The format of the checkpoint: as the name of the model says where that is another than its profile has.

    key : that says what weights to take instead
    Raises InputError where the name says a format that is not known, and nobody says what to take instead.
    """
    told = _told(scenario, model)
    if told is None or attrgetter(key)(scenario.values) is not None:
        return model.checkpoint_format
    if told.format is None:
        near = f"{scenario.caller.setting(key, told.nearest.name)} comes near, or name the model without it"
        message = f"the name says that weights are in '{told.words}', a format whose size is not known"
        raise InputError(Problem(message, scenario.locate(("model",)), near))
    return (model.fp8_checkpoint or E4M3.name) if told.format is E4M3 else told.format.name


def _told(scenario: Scenario, model: ModelShape) -> Told | None:
    """What the user's name for the model says of its weights, where that is not what its profile has."""
    name, stored = scenario.values.model, model.checkpoint_format
    told = None if name == model.name or not isinstance(name, str) else told_by(name)
    bits = format_of(stored).bits if stored else WIDE_BITS
    return None if told is None or told.bits == bits else told


def _read_from_name(scenario: Scenario, model: ModelShape, found: Scheme) -> str:
    """What is said of weights whose format the name of the model alone gives: `weights in 4 bits (AWQ)`."""
    told, values = _told(scenario, model), scenario.values
    if told is None or values.precision or values.serve.weights or values.serve.scheme:
        return ""
    return f"weights in {found.weights.bits} bits ({told.words}), read from the name"


def _traffic(provenance: Provenance, model: ModelShape, method: Drafting | None, trace: Trace | None = None) -> Traffic:
    """What requests look like; lengths of a trace are its own."""
    lengths = {"input_tokens": input_tokens(model), "output_tokens": output_tokens(provenance.scenario, model)}
    lengths |= {"input_spread": 0.0, "output_spread": 0.0}
    if trace:
        lengths = trace.lengths
    origin = "trace" if trace else "default"
    found = {name: provenance.resolve_default(f"serve.{name}", value, origin) for name, value in lengths.items()}
    longest = {kind: _cap(provenance, kind, found[f"{kind}_tokens"]) for kind in ("input", "output")}
    return Traffic(
        inputs=found["input_tokens"],
        outputs=found["output_tokens"],
        input_spread=found["input_spread"],
        output_spread=found["output_spread"],
        longest_input=longest["input"],
        longest_output=longest["output"],
        prefix_hit_share=provenance.resolve_default("serve.prefix_hit_share", 0.0),
        **_drafts(provenance, method),
        documents=float(provenance.resolve_default("serve.documents", 1)) if not found["output_tokens"] else 1.0,
    )


def _drafts(provenance: Provenance, method: Drafting | None) -> dict[str, Any]:
    """Proposals of a step and how often they are kept, as stated or as published of the method."""
    serve = provenance.scenario.values.serve
    if method is not None:
        provenance.resolve_default("serve.speculative", method.name)
    elif serve.speculative is not None:  # switched off
        return {}
    drafts = provenance.resolve_default("serve.draft_tokens", method.tokens if method else 0)
    if not drafts:
        return {}
    width = provenance.resolve_default("serve.draft_width", 1) if serve.draft_width else 1
    depth = serve.draft_depth or max(drafts // width, 1)
    if serve.draft_depth:
        provenance.resolve_default("serve.draft_depth", depth)
    usual = branched(extended(method.acceptance, depth), width) if method else (0.0,)
    rate = provenance.resolve_default("serve.acceptance_rate", usual)
    computed = method is not None and serve.draft_cost is None
    cost = 0.0 if computed else provenance.resolve_default("serve.draft_cost", DEFAULT_DRAFT_COST)
    # A stated cost is that of a position, of which each has `drafts / depth` tokens.
    return {
        "draft_tokens": drafts,
        "acceptance_rate": rate,
        "draft_cost": cost * (depth / drafts),
        "draft_depth": depth if depth != drafts else None,
    }


def _cap(provenance: Provenance, kind: str, mean: float) -> float:
    """Tokens that no prompt or answer is above; infinite where nobody says. Raises InputError where the mean is."""
    scenario, key = provenance.scenario, f"serve.longest_{kind}_tokens"
    longest = attrgetter(key)(scenario.values)
    if longest is None:
        return math.inf
    if longest < mean:
        message = f"the mean of {mean:,.0f} tokens is above the longest, {longest:,}"
        hint = f"lower {scenario.caller.setting(f'serve.{kind}_tokens')}, or raise {scenario.caller.setting(key)}"
        raise InputError(Problem(message, scenario.locate(tuple(key.split("."))), hint))
    return float(provenance.resolve_default(key, longest))


def _sparse_attention(model: ModelShape, server: Server, engine: Engine, longest: float) -> Iterator[str]:
    """What becomes of queries that pick their keys where the engine has no kernels for them."""
    picks, kernels = model.indexer, engine.kernels
    if picks is None or model.compressed_attention or longest <= max(picks.top_k, picks.dense_tokens):
        return
    if kernels.picks(picks.kind, server.accelerator.generation):
        return
    if kernels.sparse_else[picks.kind] == "masks":
        yield f"{engine.name} works on all tokens, and masks those that queries of {model.name} do not pick"
    else:
        yield f"{engine.name} attends to all tokens, where queries of {model.name} were trained to pick {picks.top_k:,}"


def _warnings(
    model: ModelShape, server: Server, engine: Engine, traffic: Traffic, turns: Turns | None, efficiency: Efficiency
) -> Iterator[str]:
    longest = (turns.longest if turns else traffic.inputs) + traffic.outputs
    if model.max_positions and longest > model.max_positions:
        text = f"prompt and answer of {longest:,.0f} tokens are above the {model.max_positions:,} positions"
        yield f"{text} that {model.name} was trained for"
    yield from _sparse_attention(model, server, engine, longest)
    yield from assumptions(model, server)
    if engine.vendors and server.accelerator.vendor not in engine.vendors:
        yield f"{engine.name} runs on accelerators of {', '.join(engine.vendors)}, not on {server.accelerator.name}"
    yield from borrowed_laws(server.accelerator, efficiency)
