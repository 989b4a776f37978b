"""A scenario of inference with everything resolved: engine, formats, traffic, load, and what the placement may be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from xe_sizer.errors import InputError, Problem
from xe_sizer.graph.vision import seen_image
from xe_sizer.graph.weights import adapted_weights
from xe_sizer.immutable import Immutable
from xe_sizer.laws.device import INT4, INT8, sixteen_bit
from xe_sizer.profiles.text import at_home
from xe_sizer.result import serving as result
from xe_sizer.scenario.provenance import (
    Provenance,
    assumptions,
    borrowed_laws,
    collect,
    efficiency_of,
    gpu_count,
    in_reading_order,
    indivisible,
    model_and_server,
    problem_at,
    relative,
    tariff_of,
    too_many_stages,
    unknown_precision,
    with_further,
)
from xe_sizer.scenario.schema import LOADS
from xe_sizer.serving.job import (
    DEFAULT_INPUT_TOKENS,
    DEFAULT_OUTPUT_TOKENS,
    Images,
    ServedAdapters,
    Traffic,
    serving_job,
)
from xe_sizer.serving.memory import HostCache
from xe_sizer.serving.resolved import ResolvedService
from xe_sizer.serving.step_time import Work, step_time, vision_encoder
from xe_sizer.software.adapter_targets import ALL_LINEAR, resolve_targets
from xe_sizer.software.engine import default_engine, load_engine
from xe_sizer.software.number_formats import E4M3, format_of, parse_scheme, plain_format, scheme, told_by
from xe_sizer.units import GIB, MICRO, SIXTEEN_BIT

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.laws.device import Efficiency
    from xe_sizer.laws.hardware import Accelerator, Server
    from xe_sizer.profiles.registry import Registry
    from xe_sizer.scenario.read import Given
    from xe_sizer.scenario.schema import LimitsSection, ScenarioFile
    from xe_sizer.serving.estimate import ServingEstimate
    from xe_sizer.serving.trace import Trace
    from xe_sizer.software.engine import Engine
    from xe_sizer.software.number_formats import Scheme, Told

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
    each = provenance.settle("serve.images", 0)
    if not each or model.vision is None:
        return None
    width, height = provenance.settle("serve.image_size", DEFAULT_IMAGE_SIZE).split("x")
    seen = seen_image(model.vision, int(width), int(height))
    return Images(each, seen, traffic.inputs + each * seen.tokens)


def with_images(traffic: Traffic, images: Images | None) -> Traffic:
    """Add the tokens of images to the prompts of the traffic, which all have as many; text alone varies in length."""
    if images is None:
        return traffic
    spread = traffic.input_spread * traffic.inputs / images.prompt_tokens
    return replace(traffic, inputs=images.prompt_tokens, input_spread=spread)


def loaded(model: ModelShape, given: Given) -> ModelShape:
    """Return the model as an engine loads it: without its encoder where it is told that there are no images.

    Source: vLLM's --limit-mm-per-prompt with image=0 (MultiModalConfig: --language-model-only).
    """
    return replace(model, vision=None) if given.values.serve.images == 0 else model


def images_in(estimate: ServingEstimate) -> result.Images | None:
    """Images of a prompt and what encoding them takes on the placement that was chosen; None where there are none."""
    job, placement = estimate.resolved.job, estimate.placement
    images = job.images
    if images is None:
        return None
    step = step_time(job, placement, Work(prefills=1.0, prefill_tokens=images.prompt_tokens))
    return result.Images(
        per_request=images.each,
        size=estimate.resolved.values["serve.image_size"],
        tokens_each=images.seen.tokens,
        tokens=images.each * images.seen.tokens,
        patches_each=images.seen.pieces * images.seen.patches,
        encoder_s=float(step.parts[vision_encoder.name][0]),
    )


def image_conflicts(given: Given, model: ModelShape) -> Iterator[Problem]:
    """Images for a model that sees none, or a size of no images."""
    serve = given.values.serve
    if serve.images and model.vision is None:
        yield problem_at(given, "serve.images", f"{model.name} takes no images, as far as its profile says")
    elif serve.image_size is not None and not serve.images:
        yield problem_at(given, "serve.image_size", "a size of images needs their number", "add serve.images")


# Conflicts: what the model, the hardware or the engine cannot do.


def conflicts(
    given: Given,
    model: ModelShape | None,
    server: Server | None,
    engine: Engine | None,
    scheme: Scheme | None,
    gpus: int | None,
) -> Iterator[Problem]:
    """Every conflict, each with the place of the key and, where there is one, what to write instead.

    None stands for what is not known: the checks that need it are left out.
    """
    layout = given.values.layout
    if server is not None:
        instead = f"; {given.caller.setting('serve.weights')} keeps quantized weights on any GPU"
        yield from unknown_precision(given, server, given.values.precision, instead)
    if model is not None:
        yield from indivisible(given, model)
        yield from _no_decoder(given, model)
        yield from image_conflicts(given, model)
        yield from too_many_stages(given, model, "layout.pp", layout.pp or 1, f"pp {layout.pp}")
    replica = (layout.tp or 1) * (layout.pp or 1) * (layout.dp or 1)
    if gpus and gpus < replica:
        yield problem_at(given, "gpus", f"{gpus} GPUs are fewer than tp x pp x dp ({replica})")
    yield from _length(given)
    yield from _fit(given)
    yield from _day(given)
    if engine is not None:
        yield from _loads(given, engine)
        yield from _prefill_apart(given, engine)
        yield from _host_cache(given, engine)
    if model and scheme and scheme.weights.experts_only and not model.experts:
        message = f"{scheme.weights.name} narrows experts alone, and {model.name} has none"
        yield problem_at(given, "serve.weights", message, "nvfp4, int4 or awq quantize every linear layer")


def _no_decoder(given: Given, model: ModelShape) -> Iterator[Problem]:
    """Models that do not answer token by token after their prompt, which engines have other schedulers for."""
    if model.bidirectional or model.encoder_layers:
        kind = "an encoder" if model.bidirectional else "an encoder-decoder"
        hint = f"{given.caller.call('estimate', given.path, {}, ())!r} sizes its training"
        yield problem_at(given, "model", f"{model.name} is {kind}, and inference is sized of decoders alone", hint)


def _day(given: Given) -> Iterator[Problem]:
    """Hours of a day without a load that they are shares of."""
    serve = given.values.serve
    if serve.hourly_load is None:
        if serve.replica_start_s is not None:
            message = "'replica_start_s' needs 'hourly_load'"
            yield problem_at(given, "serve.replica_start_s", message, "say how the load changes over the day")
        return
    if not any(serve.hourly_load):
        yield problem_at(given, "serve.hourly_load", "no hour has any load")
    if all(load is None for load in (serve.request_rate, serve.concurrency, serve.users)) or serve.requests:
        message = "'hourly_load' needs the load of the hour with the most"
        yield problem_at(given, "serve.hourly_load", message, "give a request_rate, concurrency or users")


def _fit(given: Given) -> Iterator[Problem]:
    """What is asked beside a question that looks for it."""
    serve = given.values.serve
    if serve.fit is None:
        return
    sought = ("input_tokens", "input_spread") if serve.fit == "context" else ("concurrency", "batch")
    others = ("request_rate", "users", "requests", "trace", "prefill_replicas", "images")
    for name in (*sought, *others):
        if getattr(serve, name):
            why = "is what it looks for" if name in sought else "does not go with it"
            hint = "leave one of them out" if name in sought else "give concurrency, or leave one of them out"
            yield problem_at(given, f"serve.{name}", f"'{name}' {why}: fit {serve.fit}", hint)


def _length(given: Given) -> Iterator[Problem]:
    """A longest length that the mean request exceeds."""
    serve = given.values.serve
    longest = serve.max_model_len
    mean = (serve.input_tokens or DEFAULT_INPUT_TOKENS) + (serve.output_tokens or DEFAULT_OUTPUT_TOKENS)
    if longest is not None and mean > longest:
        message = f"a prompt and its answer have {mean:,.0f} tokens on average, more than max_model_len ({longest:,})"
        yield problem_at(given, "serve.max_model_len", message)


def _loads(given: Given, engine: Engine) -> Iterator[Problem]:
    """Loads that the engine does not take."""
    if engine.batching.batching != "static":
        return
    for load in ("request_rate", "concurrency", "users"):
        if getattr(given.values.serve, load) is not None:
            message = f"{engine.name} runs one batch from its start to its end and takes no {load}"
            hint = "give a batch, or an engine that batches continuously, such as vllm"
            yield problem_at(given, f"serve.{load}", message, hint)


def _prefill_apart(given: Given, engine: Engine) -> Iterator[Problem]:
    """Replicas that only read prompts, where the engine has none, or beside what goes with none."""
    serve = given.values.serve
    if serve.prefill_replicas is None:
        for name in ("prefill_tp", "prefill_pp", "prefill_ep", "prefill_dp"):
            if getattr(serve, name) is not None:
                message = f"'{name}' needs 'prefill_replicas'"
                yield problem_at(given, f"serve.{name}", message, "say how many replicas only read prompts, or auto")
        return
    if not engine.batching.disaggregates:
        hint = "take an engine that does, such as vllm, or leave it out"
        message = f"{engine.name} does not read prompts on replicas of their own"
        yield problem_at(given, "serve.prefill_replicas", message, hint)
    if serve.batch is not None:
        message = "a batch is one replica's and takes no 'prefill_replicas'"
        yield problem_at(given, "serve.prefill_replicas", message, "give a request_rate, concurrency or users")
    if serve.requests is not None or serve.trace is not None:
        message = "a test of so many requests is not simulated on prefill and decode replicas"
        yield problem_at(given, "serve.prefill_replicas", message, "leave out requests, or prefill_replicas")
    if serve.spare_replicas:
        message = "'spare_replicas' and 'prefill_replicas' do not go together"
        hint = "set a number of prefill_replicas above what the load needs"
        yield problem_at(given, "serve.spare_replicas", message, hint)


def _host_cache(given: Given, engine: Engine) -> Iterator[Problem]:
    """What a cache in host memory needs: sessions that come back, something to find, and an engine that has one."""
    serve = given.values.serve
    if serve.kv_host_gib is None:
        return
    where = "serve.kv_host_gib"
    if engine.memory.host_cache == "none" and serve.kv_host_gib > 0:
        hint = "leave it out, or take an engine that keeps one"
        yield problem_at(given, where, f"{engine.name} keeps no cache in host memory", hint)
    if serve.users is None:
        yield problem_at(given, where, "'kv_host_gib' needs 'users'", "say how many people come back to their session")
    if not serve.prefix_hit_share:
        hint = "say which share of a prompt stood in the session before, 0.8 for example"
        yield problem_at(given, where, "'kv_host_gib' needs 'prefix_hit_share'", hint)
    if serve.prefill_replicas is not None:
        message = "'kv_host_gib' and 'prefill_replicas' do not go together"
        yield problem_at(given, where, message, "leave one of them out")


# LoRA adapters, as the scenario asks for them and as the engine allocates them.

DEFAULT_RANK = 16  # of vLLM (max_lora_rank), and of most published adapters


def served_adapters(
    given: Given, provenance: Provenance, model: ModelShape, engine: Engine, gpu: Accelerator
) -> ServedAdapters | None:
    """Build the adapters of the service; None where it has none. They are known to have no problems."""
    if given.values.serve.adapters is None:
        return None
    count = provenance.settle("serve.adapters", 1)
    rank = provenance.settle("lora.rank", DEFAULT_RANK)
    rank = next((allocated for allocated in engine.memory.adapter_ranks if allocated >= rank), rank)
    targets = tuple(provenance.settle("lora.targets", (ALL_LINEAR,)))
    held = provenance.settle("serve.adapter_slots", min(count, engine.batching.max_sequences))
    where = (ALL_LINEAR,) if engine.memory.adapters == "all" else targets
    names = (part for name in resolve_targets(model, where) for part in adapted_weights(name))
    kernels = max(engine.kernels.adapter_us * MICRO / gpu.laws.memory_bound_floor_s, 1.0)
    return ServedAdapters(count, min(held, count), dict.fromkeys(names, rank), SIXTEEN_BIT, kernels)


def adapter_problems(given: Given, model: ModelShape | None, engine: Engine | None) -> Iterator[Problem]:
    """What the model or the engine has against the adapters."""
    serve, lora = given.values.serve, given.values.lora
    if serve.adapters is None:
        if serve.adapter_slots is not None:
            message, hint = "'adapter_slots' needs 'adapters'", "say how many adapters requests ask for"
            yield problem_at(given, "serve.adapter_slots", message, hint)
        return
    if engine is not None and engine.memory.adapters == "none":
        hint = "take an engine that does, such as vllm, or merge the one adapter into the weights"
        yield problem_at(given, "serve.adapters", f"{engine.name} does not serve adapters beside the model", hint)
    ranks = engine.memory.adapter_ranks if engine is not None else ()
    if engine is not None and ranks and (lora.rank or 0) > ranks[-1]:
        yield problem_at(given, "lora.rank", f"{engine.name} takes adapters up to rank {ranks[-1]}")
    if model is not None and lora.targets:
        try:
            resolve_targets(model, lora.targets)
        except InputError as error:
            where = given.locate(("lora", "targets"))
            yield from (replace(problem, location=where) for problem in error.problems)


# The resolved scenario.

DEFAULT_PERCENTILE = 95.0
WIDE_BITS = 16  # of a weight of a checkpoint whose profile says no format
DEFAULT_DRAFT_COST = 0.05
DEFAULT_THINK_TIME_S = 30.0
"""Between an answer and the next request of its reader: assumed, a minute or less of reading and typing."""
PLACEMENT_KEYS = ("tp", "pp", "ep", "dp")
BATCHING_KEYS = ("max_sequences", "max_step_tokens")
ADMISSION_KEYS = ("scheduler_recv_interval", "batch_wait_iters")
"""Launch options of some engines, of which an answer says nothing where nobody sets them."""


class Objectives(Immutable, eq=True):
    """What a service must keep where the user does not say; None: nothing [s]."""

    max_ttft_s: float | None = None
    max_tpot_s: float | None = None


INTERACTIVE = Objectives(max_ttft_s=10.0, max_tpot_s=0.1)
"""An answer that begins within 10 s and is written no slower than people read, 10 tokens a second for each of them."""
BENCHMARK = Objectives()
"""A measurement keeps what it kept."""
JUDGED = frozenset({"request_rate", "concurrency", "users"})
"""Loads that somebody waits for. A batch, requests that come all at once, and a replica that takes all that it can are
tests of throughput."""


def resolve(given: Given, registry: Registry, objectives: Objectives = INTERACTIVE) -> ResolvedService:
    """Everything that sizing an inference service needs.

    objectives : limits on latency of a load for which the user gives none

    Raises
    ------
    InputError : every unknown name, and every contradiction with model, hardware or engine
    """
    problems: list[Problem] = []
    provenance = Provenance(given, registry)
    model, server = model_and_server(problems, given, registry, provenance)
    engine = collect(problems, _engine, given, registry, provenance, server)
    gpus = gpu_count(provenance, server)
    found = None
    if server:
        collect(problems, tariff_of, given, server, registry)
    if server and engine:
        found = collect(problems, _scheme, given, provenance, server.accelerator, model, engine)
    problems += conflicts(given, model, server, engine, found, gpus)
    problems += adapter_problems(given, model, engine)
    if problems or given.unread or not (model and server and engine and found):
        raise InputError(in_reading_order(problems, given))
    return _assembled(given, provenance, model, server, engine, found, gpus, objectives)


def with_further_problems(problems: Iterable[Problem], rest: Given, registry: Registry) -> list[Problem]:
    """The problems of a scenario's keys, and what names, model, hardware and engine have against the rest of it."""
    return with_further(problems, rest, resolve, registry)


def _assembled(
    given: Given,
    provenance: Provenance,
    model: ModelShape,
    server: Server,
    engine: Engine,
    found: Scheme,
    gpus: int | None,
    objectives: Objectives,
) -> ResolvedService:
    values = given.values
    gpu = server.accelerator
    engine = engine.on_card(gpu.memory_bytes, gpu.generation).in_context(_longest(given, model))
    engine = _with_settings(engine, provenance)
    efficiency = efficiency_of(given)
    load = _load(given, engine)
    trace = _trace(given, provenance)
    traffic = _traffic(provenance, trace)
    images = build_images(provenance, model, traffic)
    traffic = with_images(traffic, images)
    adapters = served_adapters(given, provenance, model, engine, server.accelerator)
    if values.serve.max_model_len is not None or model.max_positions:
        provenance.settle("serve.max_model_len", model.max_positions)
    resolved = ResolvedService(
        given=given,
        job=replace(
            serving_job(loaded(model, given), engine, found, server, efficiency), images=images, adapters=adapters
        ),
        traffic=traffic,
        load=load,
        amount=trace.rate if trace else float(provenance.settle(f"serve.{load}", 1)) if load else 0.0,
        think_s=provenance.settle("serve.think_time_s", DEFAULT_THINK_TIME_S) if load == "users" else 0.0,
        requests=_requests(given, provenance, trace),
        arrivals=_arrivals(given, provenance),
        trace=trace,
        limits=_limits(provenance, objectives if load in JUDGED and not given.values.serve.fit else BENCHMARK),
        objective=values.serve.objective,
        **_replicas(values),
        gpus=gpus,
        percentile=provenance.settle("serve.percentile", DEFAULT_PERCENTILE),
        spare_replicas=provenance.settle("serve.spare_replicas", 0),
        tariff=tariff_of(given, server, provenance.finder),
        values=provenance.values,
        origin=provenance.origin,
        read_from_name=_read_from_name(given, model, found),
        warnings=tuple(_warnings(model, server, engine, traffic, efficiency)),
    )
    provenance.keep(("layout", "limits", "cost", "efficiency", "serve", *(("lora",) if values.serve.adapters else ())))
    return resolved


def _engine(given: Given, registry: Registry, provenance: Provenance, server: Server | None) -> Engine:
    """The engine that was named, else the stack where that is one, else the default for the format of the weights.

    Its port where it has one.
    """
    stack = given.values.stack and registry.called("engine", given.values.stack)
    default = stack if stack in registry.names("engine") else default_engine(_family(given))
    name = provenance.settle("serve.engine", default)
    where = partial(given.locate, ("serve", "engine"))
    engine = load_engine(relative(given, "serve.engine", name), where, registry)
    port = engine.ports.get(server.accelerator.vendor) if server else None
    if port is None:
        return engine
    return load_engine(port if "@" in port or not engine.release else f"{port}@{engine.release}", where, registry)


def _longest(given: Given, model: ModelShape) -> float:
    """Tokens of the longest sequence that the engine is to serve: as given, else what the model or the traffic has."""
    serve = given.values.serve
    asked = (serve.input_tokens or DEFAULT_INPUT_TOKENS) + (serve.output_tokens or DEFAULT_OUTPUT_TOKENS)
    return max(serve.max_model_len or model.max_positions or 0, asked)


def _family(given: Given) -> str:
    """Family of the weights' format where a scenario or the name of its model says it, else empty."""
    if given.values.serve.weights:
        return format_of(given.values.serve.weights).family
    name = given.values.model
    told = told_by(name) if isinstance(name, str) else None
    return told.format.family if told and told.format else ""


def _load(given: Given, engine: Engine) -> str | None:
    """The load that is given; else a batch where an engine runs one after the other, or one request is to be fast."""
    asked = next((name for name in LOADS if getattr(given.values.serve, name) is not None), None)
    if given.values.serve.trace is not None:
        return "request_rate"
    alone = engine.batching.batching == "static" or given.values.serve.objective == "latency"
    if asked is None and alone and not _is_test(given):
        return "batch"
    return asked or ("concurrency" if given.values.serve.fit else None)


def _is_test(given: Given) -> bool:
    """Whether so many requests are asked for, and measured until the last is answered."""
    return given.values.serve.requests is not None or given.values.serve.trace is not None


def _requests(given: Given, provenance: Provenance, trace: Trace | None) -> int | None:
    """Requests of a test: those of the trace, where nobody says how many of them."""
    if not _is_test(given):
        return None
    return int(provenance.settle("serve.requests", len(trace.inputs) if trace else None, "trace"))


def _arrivals(given: Given, provenance: Provenance) -> str:
    """How the requests of a test come at a rate."""
    at_rate = given.values.serve.requests is not None and given.values.serve.request_rate is not None
    return str(provenance.settle("serve.arrivals", "poisson")) if at_rate else "poisson"


def _trace(given: Given, provenance: Provenance) -> Trace | None:
    """The requests to replay, no more of them than a test is to have."""
    if given.values.serve.trace is None:
        return None
    from xe_sizer.serving.trace import load_trace

    path = relative(given, "serve.trace", str(provenance.settle("serve.trace", None)))
    trace = load_trace(at_home(path), given.locate(("serve", "trace")))
    asked, held = given.values.serve.requests, len(trace.inputs)
    if asked is not None and asked > held:
        hint = "leave requests out, and all of the trace are replayed"
        raise InputError(Problem(f"the trace has {held:,} requests", given.locate(("serve", "requests")), hint))
    return trace.first(asked or held)


def _replicas(values: ScenarioFile) -> dict[str, Any]:
    """What is asked of replicas: sizes of their placement, of those that only read prompts too, and what they hold."""
    serve, layout = values.serve, values.layout
    sizes = {key: (getattr(layout, key), getattr(serve, f"prefill_{key}")) for key in PLACEMENT_KEYS}
    host_cache = None
    if serve.kv_host_gib is not None:
        host_cache = HostCache(serve.kv_host_gib * GIB, serve.prefix_hit_share or 0.0)
    return {
        "fixed": {key: size for key, (size, _) in sizes.items() if size is not None},
        "prefill_fixed": {key: size for key, (_, size) in sizes.items() if size is not None},
        "prefill_replicas": serve.prefill_replicas,
        "host_cache": host_cache,
        "fit": serve.fit,
    }


def _limits(provenance: Provenance, objectives: Objectives) -> LimitsSection:
    """The user's limits, with the objectives for those on latency that are not given."""
    limits: LimitsSection = provenance.given.values.limits
    for name, objective in msgspec.structs.asdict(limits).items():
        default = getattr(objectives, name, None)
        if objective is None and default is not None:
            limits = msgspec.structs.replace(limits, **{name: provenance.settle(f"limits.{name}", default)})
    return limits


def _with_settings(engine: Engine, provenance: Provenance) -> Engine:
    """The engine with the limits, the launch options and the share of memory that the user gave."""
    share = provenance.settle("serve.gpu_memory_utilization", engine.memory.utilization, "stack")
    settings = {
        name: provenance.settle(f"serve.{name}", getattr(engine.batching, name), "stack") for name in BATCHING_KEYS
    }
    given = provenance.given.values.serve
    settings |= {name: value for name in ADMISSION_KEYS if (value := getattr(given, name)) is not None}
    return msgspec.structs.replace(
        engine,
        memory=msgspec.structs.replace(engine.memory, utilization=share),
        batching=msgspec.structs.replace(engine.batching, **settings),
    )


def _scheme(given: Given, provenance: Provenance, gpu: Accelerator, model: ModelShape | None, engine: Engine) -> Scheme:
    """Formats as given, else the published checkpoint's; activations follow weights that the accelerator multiplies.

    The cache is 16 bit, or fp8 where the engine's checkpoints of that format ask for it.

    Raises InputError for a precision or scheme that cannot be.
    """
    values, peaks = given.values, gpu.peak_flops_per_s
    wide = sixteen_bit(peaks)
    if values.serve.scheme is not None:
        try:
            names = parse_scheme(provenance.settle("serve.scheme", None), wide, peaks)
        except InputError as error:
            where = given.locate(("serve", "scheme"))
            raise InputError(Problem(one.message, where, one.hint) for one in error.problems) from None
        weights, activations, cache = (format_of(name) for name in names)
        return scheme(weights, activations, cache, peaks)
    precision = provenance.settle("precision", wide) if values.precision is not None else wide
    plain = plain_format(precision)
    published = _published(given, model) if model and values.precision is None else None
    asked = provenance.settle("serve.weights", published or (plain.name if plain else wide))
    weights = format_of(engine.stores.get(asked, asked))
    # The weights' own format where the accelerator multiplies it; integers stay weight-only.
    multiplied = weights.peak in peaks and weights.peak not in (INT8, INT4)
    activations = format_of(provenance.settle("serve.activations", weights.name if multiplied else wide))
    narrow_cache = weights.name in engine.memory.fp8_cache_with and E4M3.peak in peaks
    cache = format_of(provenance.settle("serve.kv_cache", E4M3.name if narrow_cache else wide))
    return scheme(weights, activations, cache, peaks)


def _published(given: Given, model: ModelShape) -> str | None:
    """The format of the checkpoint: as the name of the model says where that is another than its profile has.

    Raises InputError where the name says a format that is not known, and nobody says what to take instead.
    """
    told = _told(given, model)
    if told is None or given.values.serve.weights is not None:
        return model.checkpoint_format
    if told.format is None:
        near = f"{given.caller.setting('serve.weights', told.nearest.name)} comes near, or name the model without it"
        message = f"the name says that weights are in '{told.words}', a format whose size is not known"
        raise InputError(Problem(message, given.locate(("model",)), near))
    return (model.fp8_checkpoint or E4M3.name) if told.format is E4M3 else told.format.name


def _told(given: Given, model: ModelShape) -> Told | None:
    """What the user's name for the model says of its weights, where that is not what its profile has."""
    name, stored = given.values.model, model.checkpoint_format
    told = None if name == model.name or not isinstance(name, str) else told_by(name)
    bits = format_of(stored).bits if stored else WIDE_BITS
    return None if told is None or told.bits == bits else told


def _read_from_name(given: Given, model: ModelShape, found: Scheme) -> str:
    """What is said of weights whose format the name of the model alone gives: `weights in 4 bits (AWQ)`."""
    told, values = _told(given, model), given.values
    if told is None or values.precision or values.serve.weights or values.serve.scheme:
        return ""
    return f"weights in {found.weights.bits} bits ({told.words}), read from the name"


def _traffic(provenance: Provenance, trace: Trace | None = None) -> Traffic:
    """What requests look like; lengths of a trace are its own."""
    drafts = provenance.settle("serve.draft_tokens", 0)
    lengths = {"input_tokens": DEFAULT_INPUT_TOKENS, "output_tokens": DEFAULT_OUTPUT_TOKENS}
    lengths |= {"input_spread": 0.0, "output_spread": 0.0}
    if trace:
        lengths = trace.lengths
    origin = "trace" if trace else "default"
    found = {name: provenance.settle(f"serve.{name}", value, origin) for name, value in lengths.items()}
    return Traffic(
        inputs=found["input_tokens"],
        outputs=found["output_tokens"],
        input_spread=found["input_spread"],
        output_spread=found["output_spread"],
        prefix_hit_share=provenance.settle("serve.prefix_hit_share", 0.0),
        draft_tokens=drafts,
        acceptance_rate=provenance.settle("serve.acceptance_rate", 0.0) if drafts else 0.0,
        draft_cost=provenance.settle("serve.draft_cost", DEFAULT_DRAFT_COST) if drafts else 0.0,
    )


def _warnings(
    model: ModelShape, server: Server, engine: Engine, traffic: Traffic, efficiency: Efficiency
) -> Iterator[str]:
    longest = traffic.inputs + traffic.outputs
    if model.max_positions and longest > model.max_positions:
        text = f"prompt and answer of {longest:,.0f} tokens are above the {model.max_positions:,} positions"
        yield f"{text} that {model.name} was trained for"
    yield from assumptions(model, server)
    if engine.vendors and server.accelerator.vendor not in engine.vendors:
        yield f"{engine.name} runs on accelerators of {', '.join(engine.vendors)}, not on {server.accelerator.name}"
    yield from borrowed_laws(server.accelerator, efficiency)
