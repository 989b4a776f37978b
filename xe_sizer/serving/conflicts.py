"""What a scenario of inference asks that its model, its hardware or its engine cannot do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from xe_sizer.errors import InputError
from xe_sizer.laws.device import FP4, sixteen_bit
from xe_sizer.laws.hardware import find_slice
from xe_sizer.profiles.catalogue import default_engine, load_engine
from xe_sizer.profiles.finder import BUILT_IN
from xe_sizer.scenario.conflicts import (
    Asked,
    Found,
    indivisible,
    needs,
    of_model,
    of_one_memory,
    of_server,
    servers_are_owned,
    too_many_stages,
    unknown_precision,
)
from xe_sizer.serving.job import DEFAULT_INPUT_TOKENS, DEFAULT_OUTPUT_TOKENS, DEFAULT_TURN_TOKENS
from xe_sizer.software.adapter_targets import resolve_targets
from xe_sizer.software.dispatchers import DISPATCHERS
from xe_sizer.software.number_formats import E4M3, GGUF, format_of, narrow_formats
from xe_sizer.software.speculation import DRAFT_MODEL, EAGLE3, MEDUSA, METHODS, MTP, NO_DRAFTS, drafting_of

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape, SparseKind
    from xe_sizer.laws.hardware import Accelerator, Server
    from xe_sizer.scenario.scenario import Scenario
    from xe_sizer.software.engine import Engine
    from xe_sizer.software.number_formats import Scheme


class AskedService(Asked):
    """A scenario of inference and what its names stand for; None stands for what is not known."""

    def __init__(
        self, scenario: Scenario, model: ModelShape | None, server: Server | None, gpus: int | None,
        engine: Engine | None, scheme: Scheme | None,
    ) -> None:  # fmt: skip
        super().__init__(scenario, model, server, gpus)
        self.serve = scenario.values.serve
        self.engine = engine
        self.scheme = scheme


Rule = Callable[[AskedService], Found]


def of_engine(rule: Callable[[AskedService, Engine], Found]) -> Rule:
    """A rule of scenarios whose engine is known."""
    return lambda asked: rule(asked, asked.engine) if asked.engine is not None else iter(())


def precision_is_known(asked: AskedService, server: Server) -> Found:
    """A number format that the accelerator does not multiply."""
    instead = f"; {asked.setting('serve.weights')} keeps quantized weights on any GPU"
    return unknown_precision(asked, server, asked.scenario.values.precision, instead)


# What a name says of a model that writes no tokens; published: sentence-transformers' and the engines' lists of models.
RETURNS_STATES = re.compile(r"embed|rerank|reward|(^|[-/_])(bge|e5|gte)[-_]", re.IGNORECASE)


def output_tokens(scenario: Scenario, model: ModelShape) -> float:
    """Tokens of an answer as asked for; none by default of encoders, and of what the name says embeds or scores."""
    asked, name = scenario.values.serve.output_tokens, scenario.values.model
    if asked is not None:
        return asked
    states = model.bidirectional or (isinstance(name, str) and bool(RETURNS_STATES.search(name)))
    return 0.0 if states else DEFAULT_OUTPUT_TOKENS


def input_tokens(model: ModelShape) -> float:
    """Tokens of a prompt where nobody says it: no more than an encoder has positions for."""
    most = model.max_positions if model.bidirectional and model.max_positions else DEFAULT_INPUT_TOKENS
    return min(DEFAULT_INPUT_TOKENS, float(most))


def model_decodes(asked: Asked, model: ModelShape) -> Found:
    """Models that do not answer token by token after their prompt, which engines have other schedulers for."""
    if model.encoder_layers:
        hint = f"{asked.scenario.caller.call('estimate', asked.scenario.path, {}, ())!r} sizes its training"
        yield "model", f"{model.name} is an encoder-decoder, and inference is sized of decoders alone", hint


def encoders_write_nothing(asked: AskedService, model: ModelShape) -> Found:
    """Tokens of an encoder, which embeds and scores; models with an encoder and a decoder are not sized at all."""
    if not model.bidirectional:
        yield from model_decodes(asked, model)
    elif output_tokens(asked.scenario, model):
        hint = f"{asked.setting('serve.output_tokens', 0)}, or leave it out"
        yield "serve.output_tokens", f"{model.name} is an encoder and writes no tokens", hint


def encoders_stay_whole(asked: AskedService, engine: Engine) -> Found:
    """Encoders over GPUs in another way than by tensor ranks, and these where the engine has none.

    Source: vLLM and SGLang, models/bert.py: linear layers and embedding are split by tensor ranks, and there are no
    stages; Text Embeddings Inference and Infinity have a model whole on each GPU.
    """
    if asked.model is None or not asked.model.bidirectional:
        return
    for name in ("pp", "ep") if engine.pipelined else ("tp", "pp", "ep", "dp"):
        if _ranks(asked, name) > 1:
            message = f"encoders are sized without {name} in {engine.name} ({name} {_ranks(asked, name)})"
            yield f"layout.{name}", message, "leave it out: more GPUs are more replicas"


def _ranks(asked: AskedService, name: str) -> int:
    """Ranks that are asked for; 1 of experts that the model has none of, which `placement_divides` refuses."""
    dense = asked.model is not None and asked.model.experts is None
    return 1 if name == "ep" and dense else getattr(asked.layout, name) or 1


# Keys of answers, of the cache that they need, and of what the simulation of a test has none of.
OF_ANSWERS = (
    "output_spread", "longest_output_tokens", "turns", "turn_tokens", "tool_seconds", "draft_tokens", "acceptance_rate",
    "draft_cost", "kv_host_gib", "prefix_hit_share", "prefill_replicas", "fit", "cpu_layers",
)  # fmt: skip

# Keys of what drafts answers.
OF_DRAFTS = ("speculative", "draft_model")


def answers_have_tokens(asked: AskedService, model: ModelShape) -> Found:
    """What there is without output tokens alone, or with them alone."""
    serve, limits, outputs = asked.serve, asked.scenario.values.limits, output_tokens(asked.scenario, model)
    if 0.0 < outputs < 1.0:
        yield "serve.output_tokens", "an answer has at least one token", "0 is for embeddings and scores"
    if outputs:
        without = {"serve.documents": serve.documents, "limits.max_request_s": limits.max_request_s}
        hint = f"{asked.setting('serve.output_tokens', 0)} says so"
        for key in (key for key, value in without.items() if value is not None):
            yield key, f"'{key.rpartition('.')[2]}' is for embeddings and scores, without output tokens", hint
        return
    drafts = tuple(name for name in OF_DRAFTS if getattr(serve, name) not in (None, NO_DRAFTS))
    for name in (*filter(partial(getattr, serve), OF_ANSWERS), *drafts):
        hint = "leave it out" if model.bidirectional else "leave it out, or give output_tokens"
        yield f"serve.{name}", f"'{name}' needs output tokens, and there are none", hint
    for name in filter(partial(getattr, limits), ("max_ttft_s", "max_tpot_s")):
        hint = f"{asked.setting('limits.max_request_s')} limits the time of a request"
        yield f"limits.{name}", f"'{name}' needs output tokens, and there are none", hint
    for name in filter(partial(getattr, serve), ("requests", "trace")):
        message = f"a test ('{name}') is simulated for answers of at least one token"
        yield f"serve.{name}", message, "leave it out: the answer is of a load that goes on"


def model_sees(asked: AskedService, model: ModelShape) -> Found:
    """Images for a model that sees none, or a size of no images."""
    if asked.serve.images and model.vision is None:
        yield "serve.images", f"{model.name} takes no images, as far as its profile says", None
    elif asked.serve.image_size is not None and not asked.serve.images:
        yield "serve.image_size", "an image size needs a number of images", "add serve.images"


def placement_divides(asked: AskedService, model: ModelShape) -> Found:
    """A placement that the model cannot be spread over, with the copies of its experts."""
    return indivisible(model, "layout", asked.layout.tp, asked.layout.ep, asked.serve.redundant_experts or 0)


EXPERT_KEYS = ("dispatcher", "expert_skew", "redundant_experts", "two_batch_overlap", "expert_gpus")


def experts_are_there(asked: AskedService, model: ModelShape) -> Found:
    """Settings of experts for a model that has none."""
    for name in EXPERT_KEYS if model.experts is None else ():
        value = getattr(asked.serve, name)
        if value:
            message = f"{model.name} has no experts ({name} {str(value).lower()})"
            yield f"serve.{name}", message, "leave it out, or choose a mixture-of-experts model"


def engine_reaches_experts(asked: AskedService, engine: Engine) -> Found:
    """A dispatcher that the engine does not have, or has not in one instance for both prompts and decodes."""
    name = asked.serve.dispatcher
    if name is None:
        return
    has = engine.exchanges
    if name not in has.dispatchers:
        hint = f"it has {', '.join(has.dispatchers)}"
        yield "serve.dispatcher", f"{engine.name} has no dispatcher {name}", hint
    elif DISPATCHERS[name].by_phase and not has.by_phase and asked.serve.prefill_replicas is None:
        message = f"one instance of {engine.name} sends prompts and decodes alike, dispatcher {name} does not"
        alike = [other for other in has.dispatchers if other.startswith(f"{name}-")]
        hint = f"choose {' or '.join(alike)}, or prefill and decode apart: prefill_replicas"
        yield "serve.dispatcher", message, hint


def engine_balances_experts(asked: AskedService, engine: Engine) -> Found:
    """Copies of experts that the engine does not make."""
    if asked.serve.redundant_experts is not None and not engine.exchanges.redundant_experts:
        hint = "leave it out, or take an engine that does, such as vllm or sglang"
        yield "serve.redundant_experts", f"{engine.name} does not place experts by their load", hint


def halves_hide_exchanges(asked: AskedService, engine: Engine) -> Found:
    """Two halves of a batch that the engine does not compute apart, or whose exchanges cannot be hidden."""
    if not asked.serve.two_batch_overlap:
        return
    key, has = "serve.two_batch_overlap", engine.exchanges
    if not has.halves_from:
        yield (
            key,
            f"{engine.name} does not compute a batch in two halves",
            "leave it out, or take an engine that does, such as sglang",
        )
        return
    name = asked.serve.dispatcher or has.dispatcher
    if name in DISPATCHERS and not DISPATCHERS[name].overlaps:
        able = [other for other in has.dispatchers if DISPATCHERS[other].overlaps]
        yield key, f"nothing is computed while dispatcher {name} sends", f"add dispatcher {' or '.join(able)}"


def experts_go_apart(asked: AskedService, engine: Engine) -> Found:
    """GPUs that hold experts alone, where the engine has none, or beside what goes with none."""
    serve, key, layout = asked.serve, "serve.expert_gpus", asked.layout
    if serve.expert_gpus is None:
        return
    if not engine.exchanges.experts_apart:
        message = f"{engine.name} does not compute experts on GPUs of their own"
        yield key, message, "leave it out, or take an engine that does, such as vllm"
    others = ("dispatcher", "two_batch_overlap", "images", "adapters", "cpu_layers", "encode_replicas")
    for name in (*others, "speculative", "draft_model", "draft_tokens"):
        if getattr(serve, name) not in (None, 0, False, NO_DRAFTS):
            yield f"serve.{name}", f"'{name}' and 'expert_gpus' do not go together", "leave one of them out"
    if (layout.pp or 1) > 1:
        yield "layout.pp", f"'pp' {layout.pp} and 'expert_gpus' do not go together", "leave one of them out"
    if layout.ep is not None and layout.ep != serve.expert_gpus:
        hint = "leave ep out: it is the number of GPUs that hold experts"
        yield "layout.ep", f"'ep' {layout.ep} is not 'expert_gpus' ({serve.expert_gpus})", hint


def layers_are_whole(asked: AskedService, engine: Engine) -> Found:
    """Ranks that hold experts or serve sequences of their own, where the engine splits a model by its layers alone."""
    if engine.pipelined or (asked.model is not None and asked.model.bidirectional):
        return
    for name in ("ep", "dp"):
        size = _ranks(asked, name)
        if size > 1:
            message = f"{engine.name} splits a model over GPUs by its layers alone and has no {name} ({name} {size})"
            hint = "split its layers with pp, or take an engine that has it, such as vllm"
            yield f"layout.{name}", message, hint


def experts_divide(asked: AskedService, model: ModelShape) -> Found:
    """A number of GPUs that does not divide the experts with their copies."""
    gpus = asked.serve.expert_gpus
    if isinstance(gpus, int) and model.experts is not None:
        copies = asked.serve.redundant_experts or 0
        held = model.experts.count + copies
        if held % gpus:
            of = f"{model.experts.count} experts" + (f" and {copies} copies" if copies else "")
            divisors = [size for size in range(1, held + 1) if held % size == 0]
            near = sorted(sorted(divisors, key=lambda size: abs(size - gpus))[:2])
            hint = f"take {' or '.join(map(str, near))}"
            yield "serve.expert_gpus", f"{model.name} has {of}, which {gpus} GPUs do not divide", hint


def stages_have_layers(asked: AskedService, model: ModelShape) -> Found:
    """More pipeline stages than the model has layers."""
    return too_many_stages(model, "layout.pp", asked.layout.pp or 1, f"pp {asked.layout.pp}")


def gpus_hold_a_replica(asked: AskedService) -> Found:
    """Fewer GPUs than one replica has."""
    replica = (asked.layout.tp or 1) * (asked.layout.pp or 1) * (asked.layout.dp or 1)
    apart = asked.serve.expert_gpus or 0
    replica += apart if isinstance(apart, int) else 1
    if asked.gpus and asked.gpus < replica:
        beside = " + expert_gpus" if apart else ""
        yield "gpus", f"{asked.gpus} GPUs are fewer than tp x pp x dp{beside} ({replica})", None


def requests_fit_the_longest(asked: AskedService) -> Found:
    """A longest length that the mean request exceeds."""
    serve, longest = asked.serve, asked.serve.max_model_len
    outputs = DEFAULT_OUTPUT_TOKENS if asked.model is None else output_tokens(asked.scenario, asked.model)
    mean = (serve.input_tokens or DEFAULT_INPUT_TOKENS) + outputs
    grown = mean + ((serve.turns or 1) - 1) * ((serve.turn_tokens or DEFAULT_TURN_TOKENS) + outputs)
    if longest is not None and mean <= longest < grown:
        message = f"the last of {serve.turns} turns has {grown:,.0f} tokens, more than max_model_len ({longest:,})"
        yield "serve.turns", message, "give fewer turns, or fewer tokens per turn"
    if longest is not None and mean > longest:
        message = f"a prompt and its answer have {mean:,.0f} tokens on average, more than max_model_len ({longest:,})"
        yield "serve.max_model_len", message, None


def fit_is_open(asked: AskedService) -> Found:
    """What is asked beside a question that looks for it."""
    serve = asked.serve
    if serve.fit is None:
        return
    sought = ("input_tokens", "input_spread") if serve.fit == "context" else ("concurrency", "batch")
    others = ("request_rate", "users", "requests", "trace", "prefill_replicas", "images")
    for name in (*sought, *others):
        if getattr(serve, name):
            why = "is what it looks for" if name in sought else "does not go with it"
            hint = "leave one of them out" if name in sought else "give concurrency, or leave one of them out"
            yield f"serve.{name}", f"'{name}' {why}: fit {serve.fit}", hint


def hours_have_a_load(asked: AskedService) -> Found:
    """Hours of a day without a load that they are shares of."""
    serve = asked.serve
    if serve.hourly_load is None:
        return
    if not any(serve.hourly_load):
        yield "serve.hourly_load", "no hour has any load", None
    if all(load is None for load in (serve.request_rate, serve.concurrency, serve.users)) or serve.requests:
        message = "'hourly_load' needs the load of the hour with the most"
        yield "serve.hourly_load", message, "give a request_rate, concurrency or users"


def engine_takes_the_load(asked: AskedService, engine: Engine) -> Found:
    """Loads that an engine does not take which runs one batch after the other."""
    static = engine.batching.batching == "static" and engine.batching.answers
    decodes = asked.model is None or output_tokens(asked.scenario, asked.model)
    for load in ("request_rate", "concurrency", "users") if static and decodes else ():
        if asked.has(f"serve.{load}"):
            message = f"{engine.name} runs one batch from its start to its end and takes no {load}"
            yield f"serve.{load}", message, "give a batch, or an engine that batches continuously, such as vllm"


def engine_writes(asked: AskedService, engine: Engine) -> Found:
    """Answers of an engine that embeds and scores alone; those of encoders have a problem of their own."""
    model = asked.model
    if model is None or model.bidirectional or engine.batching.answers:
        return
    if output_tokens(asked.scenario, model):
        without, writer = asked.setting("serve.output_tokens", 0), asked.setting("serve.engine", default_engine())
        hint = f"{without} asks for none; {writer} writes them"
        yield "serve.engine", f"{engine.name} embeds and scores texts and writes no answers", hint


def prefill_goes_apart(asked: AskedService, engine: Engine) -> Found:
    """Replicas that only read prompts, where the engine has none, or beside what goes with none."""
    serve, key = asked.serve, "serve.prefill_replicas"
    if serve.prefill_replicas is None:
        return
    if not engine.batching.disaggregates:
        message = f"{engine.name} does not read prompts on replicas of their own"
        yield key, message, "take an engine that does, such as vllm, or leave it out"
    if serve.batch is not None:
        message = "a batch is one replica's and takes no 'prefill_replicas'"
        yield key, message, "give a request_rate, concurrency or users"
    if serve.requests is not None or serve.trace is not None:
        message = "a test of so many requests is not simulated on prefill and decode replicas"
        yield key, message, "leave out requests, or prefill_replicas"
    if serve.spare_replicas:
        message = "'spare_replicas' and 'prefill_replicas' do not go together"
        yield "serve.spare_replicas", message, "set a number of prefill_replicas above what the load needs"


def encoders_go_apart(asked: AskedService, engine: Engine) -> Found:
    """GPUs that only encode images, of requests without any, or where the engine has none."""
    serve, key = asked.serve, "serve.encode_replicas"
    if not serve.encode_replicas:
        return
    if not serve.images:
        yield (
            key,
            f"'encode_replicas' {serve.encode_replicas} needs images",
            "say how many images a prompt has: serve.images",
        )
    if not engine.batching.disaggregates:
        yield key, f"{engine.name} encodes no images on GPUs of their own", "take an engine that does, such as vllm"
    for name in ("batch", "requests", "trace", "spare_replicas", "turns"):
        if getattr(serve, name):
            yield key, f"'encode_replicas' and '{name}' do not go together", "leave one of them out"


def host_cache_is_kept(asked: AskedService, engine: Engine) -> Found:
    """A cache in host memory that the engine does not keep."""
    if engine.memory.host_cache == "none" and (asked.serve.kv_host_gib or 0) > 0:
        hint = "leave it out, or take an engine that keeps one"
        yield "serve.kv_host_gib", f"{engine.name} keeps no cache in host memory", hint


def host_is_apart(asked: AskedService, server: Server) -> Found:
    """A cache or layers on a host whose memory the GPU shares, which gains none."""
    for name in ("kv_host_gib", "cpu_layers"):
        if getattr(asked.serve, name) and not server.host_apart:
            yield f"serve.{name}", of_one_memory(server, f"'{name}'"), "leave it out"


def host_cache_is_used(asked: AskedService) -> Found:
    """A cache in host memory in which nothing is found, or on replicas of two kinds."""
    serve, key = asked.serve, "serve.kv_host_gib"
    if serve.kv_host_gib is None:
        return
    grows = (serve.turns or 1) > 1
    if serve.users is None and not grows:
        hint = "say how many people come back to their session, or how many turns a session has"
        yield key, "'kv_host_gib' needs 'users' or 'turns'", hint
    if not serve.prefix_hit_share and (not grows or serve.prefix_hit_share is not None):
        hint = "say which share of a prompt stood in the session before, 0.8 for example"
        yield key, "'kv_host_gib' needs 'prefix_hit_share'", hint
    if serve.prefill_replicas is not None:
        yield key, "'kv_host_gib' and 'prefill_replicas' do not go together", "leave one of them out"


def layers_go_to_the_cpu(asked: AskedService, engine: Engine) -> Found:
    """Layers on the CPU with an engine that computes none there, and more of them than there are."""
    layers = asked.serve.cpu_layers
    if not layers:
        return
    if not engine.memory.cpu_layers:
        hint = f"{asked.setting('serve.engine', default_engine(GGUF))} does"
        yield "serve.cpu_layers", f"{engine.name} computes no layers on the CPU (cpu_layers {layers})", hint
    elif asked.model is not None and isinstance(layers, int) and layers > asked.model.layers:
        yield "serve.cpu_layers", f"{asked.model.name} has {asked.model.layers} layers", "write auto, or fewer"


def tables_are_there(asked: AskedService, model: ModelShape) -> Found:
    """A place for tables of n-grams, of a model without any."""
    place = asked.serve.ngram_tables
    if place is not None and model.ngram_tables is None:
        yield "serve.ngram_tables", f"{model.name} has no tables of n-grams to keep on the {place}", "leave it out"


def states_are_set(asked: AskedService, engine: Engine) -> Found:
    """A type of recurrent states, of a model without any, or that the engine has no option for."""
    asked_for = asked.serve.state_dtype
    if asked_for is None or asked.model is None:
        return
    space = asked.model.state_space
    if space is None or not space.state_rows:
        yield "serve.state_dtype", f"{asked.model.name} has no recurrent states to keep in {asked_for}", "leave it out"
    elif space.kind not in engine.memory.set_states and engine.memory.state_dtype(space, "") != asked_for:
        message = f"{engine.name} has no option that keeps states of {space.kind} in {asked_for}"
        yield "serve.state_dtype", message, "leave it out"


def turns_are_alone(asked: AskedService) -> Found:
    """What says again what turns compute, and loads in which no session comes back."""
    serve = asked.serve
    if serve.turns is None:
        return
    for name in ("prefix_hit_share", "input_spread", "longest_input_tokens") if serve.turns > 1 else ():
        if getattr(serve, name):  # a prefix cache that is switched off finds 0
            hint = "the history of a session, and what of it is found, follow from turns: leave one of them out"
            yield f"serve.{name}", f"'turns' and '{name}' are both given", hint
    for name in ("batch", "requests", "trace", "fit", "prefill_replicas", "images") if serve.turns > 1 else ():
        if getattr(serve, name):
            hint = "give a request_rate, concurrency or users, or leave turns out"
            yield f"serve.{name}", f"'turns' does not go with '{name}'", hint


def only_experts_are_narrow(model: ModelShape, scheme: Scheme | None, key: str) -> Found:
    """A format that narrows experts alone, of a model without any. key : that names it"""
    if scheme and scheme.weights.experts_only and not model.experts:
        message = f"{scheme.weights.name} narrows experts alone, and {model.name} has none"
        yield key, message, "nvfp4, int4 or awq quantize every linear layer"


# Generations of accelerators as people who buy them say.
GENERATIONS = {"blackwell": "data-centre Blackwell (such as B200)", "blackwell-rtx": "RTX Blackwell"}


def _generations(names: Iterable[str]) -> str:
    return ", ".join(GENERATIONS.get(name, name.upper() if name.startswith("cdna") else name.title()) for name in names)


def _picking(kind: SparseKind, accelerator: Accelerator) -> tuple[str, ...]:
    """Engines that people serve with at scale and that have kernels of a kind of sparse attention on it."""
    engines = (each for each in map(load_engine, BUILT_IN.names("engine")) if each.batching.disaggregates)
    able = (each for each in engines if each.kernels.picks(kind, accelerator.generation))
    return tuple(each.name for each in able if not each.vendors or accelerator.vendor in each.vendors)


def _released(engine: Engine) -> str:
    return f"{engine.name} {engine.release}" if engine.release else engine.name


def queries_pick_keys(asked: Asked, engine: Engine, section: str = "serve") -> Found:
    """A model whose queries pick their keys, where the engine has no kernels for it on the accelerator.

    section : of the scenario that names the engine
    """
    model, server = asked.model, asked.server
    if model is None or server is None or not (model.indexer or model.compressed_attention):
        return
    kind, kernels = model.indexer.kind if model.indexer else "dsa", engine.kernels
    if kernels.picks(kind, server.accelerator.generation) or kernels.sparse_else[kind] != "refuses":
        return
    there = kernels.sparse_on[kind]
    here = f" on {server.accelerator.name}" if there else ""
    has = f"it has it on {_generations(there)}" if there else "newer releases of vllm and sglang have it"
    able = [asked.setting("serve.engine", name) for name in _picking(kind, server.accelerator)]
    others = f"; {' or '.join(able)} has it on {server.accelerator.name}" if able else ""
    dense = f"; {asked.setting('serve.engine', default_engine(GGUF))} attends to all tokens, on any GPU"
    hint = has + (others + dense) * (section == "serve")  # a trainer has engines of its own
    yield f"{section}.engine", f"{_released(engine)} has no sparse attention{here}, which {model.name} needs", hint


def engine_has_fp4(asked: Asked, engine: Engine, scheme: Scheme | None, section: str = "serve") -> Found:
    """Weights or a cache in 4-bit floats that the engine has no kernels for on the accelerator.

    section : of the scenario that names the formats
    """
    server = asked.server
    if scheme is None or server is None:
        return
    generation, gpu, name = server.accelerator.generation, server.accelerator.name, scheme.weights.name
    kernels = engine.fp4_kernels(scheme.weights)
    if scheme.weights.peak == FP4 and generation not in (kernels.generations if kernels else ()):
        there = f"it has on {_generations(kernels.generations)}; " if kernels else ""
        instead = narrow_formats(server.accelerator.peak_flops_per_s)[0].name
        hint = f"{there}take {asked.setting(f'{section}.weights', instead)}, or int4"
        yield f"{section}.weights", f"{_released(engine)} has no kernels for {name} on {gpu}", hint
    activations = asked.scenario.values.serve.activations if section == "serve" else None
    asked_for = format_of(activations) if activations else None
    if kernels and asked_for and asked_for.peak == FP4 and kernels.native.get(generation) != asked_for.name:
        with_ = kernels.native.get(generation) or sixteen_bit(server.accelerator.peak_flops_per_s)
        message = f"{engine.name} multiplies {name} with {with_} on {gpu}, not with {asked_for.name}"
        yield f"{section}.activations", message, f"leave it out, or write {with_}"
    cache, cached = scheme.cache, engine.fp4_kernels(scheme.cache)
    if cache.peak == FP4 and generation not in (cached.cache if cached else ()):
        hint = f"{asked.setting(f'{section}.kv_cache', E4M3.name)} is kept by more"
        yield f"{section}.kv_cache", f"{engine.name} keeps no cache in {cache.name} on {gpu}", hint


def engine_takes_adapters(asked: AskedService, engine: Engine) -> Found:
    """Adapters that the engine does not serve, or of a higher rank."""
    if asked.serve.adapters is None:
        return
    if engine.memory.adapters == "none":
        hint = "take an engine that does, such as vllm, or merge the one adapter into the weights"
        yield "serve.adapters", f"{engine.name} does not serve adapters beside the model", hint
    ranks = engine.memory.adapter_ranks
    if ranks and (asked.scenario.values.lora.rank or 0) > ranks[-1]:
        yield "lora.rank", f"{engine.name} takes adapters up to rank {ranks[-1]}", None


def _stated(asked: AskedService, key: str) -> bool:
    """Whether a key is given, rightly or not."""
    return asked.has(key) or key in asked.scenario.invalid_keys


def drafts_are_possible(asked: AskedService, model: ModelShape) -> Found:
    """A method of speculative decoding that the engine does not have, or that needs what the model has not."""
    serve, engine = asked.serve, asked.engine
    method = drafting_of(serve.speculative, serve.draft_model, serve.draft_tokens, model)
    if method is None:
        if serve.draft_tp is not None:
            yield "serve.draft_tp", "'draft_tp' without anything that drafts", "say what does, as --speculative eagle3"
        if serve.draft_tokens and serve.speculative is None and not _stated(asked, "serve.acceptance_rate"):
            hint = "the share of proposals that are kept, or the method (speculative), whose published share is taken"
            yield "serve.draft_tokens", "'draft_tokens' needs 'acceptance_rate'", hint
        return
    place = "serve.speculative" if serve.speculative else "serve.draft_model" if serve.draft_model else None
    if engine is not None and method not in engine.batching.drafts:
        known = ", ".join(engine.batching.drafts)
        has = f"it has {known}" if known else "it has no speculative decoding"
        yield place or "serve.draft_tokens", f"{engine.name} does not draft with {method}", has
    if method == MTP and not model.mtp_layers:
        message = f"'speculative: {MTP}' needs modules of the model, and the profile of {model.name} has none"
        yield "serve.speculative", message, f"draft with {EAGLE3} or {DRAFT_MODEL}, or set multi_token_prediction"
    if method == DRAFT_MODEL and serve.draft_model is None:
        hint = "name a small model with the same vocabulary, as --draft-model NAME"
        yield "serve.speculative", f"'speculative: {DRAFT_MODEL}' needs 'draft_model'", hint
    split = METHODS[method].own_weights
    if serve.draft_model is not None and (not split or method == MEDUSA):
        yield "serve.draft_model", f"'draft_model' and 'speculative: {method}' are both given", "remove one of them"
    yield from _drafting_ranks(asked, method)


def _drafting_ranks(asked: AskedService, method: str) -> Found:
    """Ranks of what drafts: one, or as many as the model has. Published: vLLM, config/speculative.py."""
    ranks, tp, key = asked.serve.draft_tp, asked.layout.tp, "serve.draft_tp"
    if ranks is not None and not METHODS[method].own_weights:
        yield key, f"'speculative: {method}' has no weights of its own to split by 'draft_tp'", "remove it"
    elif ranks not in (None, 1, tp):
        of_model = f"the tp of the model ({tp})" if tp else "the tp of the model, which is not given"
        instead = "" if tp else f", or add {asked.setting('layout.tp', ranks)}"
        yield key, f"'draft_tp' {ranks} is neither 1 nor {of_model}", f"leave it out, or write 1{instead}"


def model_has_targets(asked: AskedService, model: ModelShape) -> Found:
    """Adapters on projections that the model does not have."""
    if asked.serve.adapters is None or not asked.scenario.values.lora.targets:
        return
    try:
        resolve_targets(model, asked.scenario.values.lora.targets)
    except InputError as error:
        yield from (("lora.targets", problem.message, problem.hint) for problem in error.problems)


def slices_stand_alone(asked: AskedService, server: Server) -> Found:
    """A slice that the GPU has not, or what takes several accelerators that are linked."""
    name, gpu = asked.scenario.values.slice, server.accelerator
    if name is None:
        return
    if find_slice(gpu, name) is None:
        known = "".join(f"{each}, " for each in gpu.slices)
        hint = f"{known}time-slicing-N or mps-N, with N replicas on a GPU"
        yield "slice", f"{gpu.name} has no slice '{name}'", hint
    for key in ("tp", "pp", "dp"):
        if (getattr(asked.layout, key) or 1) > 1:
            yield f"layout.{key}", f"a replica on a slice has no {key}: slices are not linked", "leave one of them out"
    for key in ("prefill_replicas", "encode_replicas", "cpu_layers", "expert_gpus"):
        if getattr(asked.serve, key):
            yield f"serve.{key}", f"'{key}' and 'slice' do not go together", "leave one of them out"


_APART = "say how many replicas only read prompts, or auto"
RULES: tuple[Rule, ...] = (
    of_server(precision_is_known),
    of_server(servers_are_owned),
    of_server(slices_stand_alone),
    of_model(experts_are_there),
    of_model(placement_divides),
    of_model(encoders_write_nothing),
    of_engine(encoders_stay_whole),
    of_model(answers_have_tokens),
    of_model(model_sees),
    of_model(stages_have_layers),
    gpus_hold_a_replica,
    requests_fit_the_longest,
    fit_is_open,
    needs("serve.replica_start_s", "serve.hourly_load", "say how the load changes over the day"),
    hours_have_a_load,
    of_engine(engine_reaches_experts),
    of_engine(engine_balances_experts),
    of_engine(halves_hide_exchanges),
    of_engine(experts_go_apart),
    of_model(experts_divide),
    of_engine(layers_are_whole),
    needs("serve.micro_batches", "serve.expert_gpus", "say how many GPUs hold experts alone, or auto"),
    of_engine(engine_writes),
    of_engine(engine_takes_the_load),
    *(needs(f"serve.prefill_{size}", "serve.prefill_replicas", _APART) for size in ("tp", "pp", "ep", "dp")),
    of_engine(prefill_goes_apart),
    of_engine(encoders_go_apart),
    of_engine(layers_go_to_the_cpu),
    of_model(tables_are_there),
    of_engine(states_are_set),
    needs("serve.host_memory_gb_per_s", "serve.cpu_layers", "say how many layers, or auto"),
    of_engine(host_cache_is_kept),
    of_server(host_is_apart),
    needs("serve.turn_tokens", "serve.turns", "say how many turns a session has"),
    needs("serve.tool_seconds", "serve.turns", "say how many turns a session has"),
    turns_are_alone,
    host_cache_is_used,
    of_model(lambda asked, model: only_experts_are_narrow(model, asked.scheme, "serve.weights")),
    needs("serve.adapter_slots", "serve.adapters", "say how many adapters requests ask for"),
    of_engine(queries_pick_keys),
    of_engine(lambda asked, engine: engine_has_fp4(asked, engine, asked.scheme)),
    of_engine(engine_takes_adapters),
    of_model(drafts_are_possible),
    of_model(model_has_targets),
)
"""What model, hardware and engine rule out, in the order in which it is told."""
