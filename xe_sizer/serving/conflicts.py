"""What a scenario of inference asks that its model, its hardware or its engine cannot do."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from xe_sizer.errors import InputError
from xe_sizer.profiles.catalogue import default_engine
from xe_sizer.scenario.conflicts import (
    Asked,
    Found,
    layout_divides,
    needs,
    of_model,
    of_server,
    servers_are_owned,
    too_many_stages,
    unknown_precision,
)
from xe_sizer.serving.job import DEFAULT_INPUT_TOKENS, DEFAULT_OUTPUT_TOKENS, DEFAULT_TURN_TOKENS
from xe_sizer.software.adapter_targets import resolve_targets
from xe_sizer.software.number_formats import GGUF
from xe_sizer.software.speculation import DRAFT_MODEL, EAGLE3, MTP, NGRAM, drafting_of

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.laws.hardware import Server
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


def model_decodes(asked: Asked, model: ModelShape) -> Found:
    """Models that do not answer token by token after their prompt, which engines have other schedulers for."""
    if model.bidirectional or model.encoder_layers:
        kind = "an encoder" if model.bidirectional else "an encoder-decoder"
        hint = f"{asked.scenario.caller.call('estimate', asked.scenario.path, {}, ())!r} sizes its training"
        yield "model", f"{model.name} is {kind}, and inference is sized of decoders alone", hint


def model_sees(asked: AskedService, model: ModelShape) -> Found:
    """Images for a model that sees none, or a size of no images."""
    if asked.serve.images and model.vision is None:
        yield "serve.images", f"{model.name} takes no images, as far as its profile says", None
    elif asked.serve.image_size is not None and not asked.serve.images:
        yield "serve.image_size", "an image size needs a number of images", "add serve.images"


def stages_have_layers(asked: AskedService, model: ModelShape) -> Found:
    """More pipeline stages than the model has layers."""
    return too_many_stages(model, "layout.pp", asked.layout.pp or 1, f"pp {asked.layout.pp}")


def gpus_hold_a_replica(asked: AskedService) -> Found:
    """Fewer GPUs than one replica has."""
    replica = (asked.layout.tp or 1) * (asked.layout.pp or 1) * (asked.layout.dp or 1)
    if asked.gpus and asked.gpus < replica:
        yield "gpus", f"{asked.gpus} GPUs are fewer than tp x pp x dp ({replica})", None


def requests_fit_the_longest(asked: AskedService) -> Found:
    """A longest length that the mean request exceeds."""
    serve, longest = asked.serve, asked.serve.max_model_len
    outputs = serve.output_tokens or DEFAULT_OUTPUT_TOKENS
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
    for load in ("request_rate", "concurrency", "users") if engine.batching.batching == "static" else ():
        if asked.has(f"serve.{load}"):
            message = f"{engine.name} runs one batch from its start to its end and takes no {load}"
            yield f"serve.{load}", message, "give a batch, or an engine that batches continuously, such as vllm"


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


def host_cache_is_kept(asked: AskedService, engine: Engine) -> Found:
    """A cache in host memory that the engine does not keep."""
    if engine.memory.host_cache == "none" and (asked.serve.kv_host_gib or 0) > 0:
        hint = "leave it out, or take an engine that keeps one"
        yield "serve.kv_host_gib", f"{engine.name} keeps no cache in host memory", hint


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
    if method in (MTP, NGRAM) and serve.draft_model is not None:
        yield "serve.draft_model", f"'draft_model' and 'speculative: {method}' are both given", "remove one of them"


def model_has_targets(asked: AskedService, model: ModelShape) -> Found:
    """Adapters on projections that the model does not have."""
    if asked.serve.adapters is None or not asked.scenario.values.lora.targets:
        return
    try:
        resolve_targets(model, asked.scenario.values.lora.targets)
    except InputError as error:
        yield from (("lora.targets", problem.message, problem.hint) for problem in error.problems)


_APART = "say how many replicas only read prompts, or auto"
RULES: tuple[Rule, ...] = (
    of_server(precision_is_known),
    of_server(servers_are_owned),
    of_model(layout_divides),
    of_model(model_decodes),
    of_model(model_sees),
    of_model(stages_have_layers),
    gpus_hold_a_replica,
    requests_fit_the_longest,
    fit_is_open,
    needs("serve.replica_start_s", "serve.hourly_load", "say how the load changes over the day"),
    hours_have_a_load,
    of_engine(engine_takes_the_load),
    *(needs(f"serve.prefill_{size}", "serve.prefill_replicas", _APART) for size in ("tp", "pp", "ep", "dp")),
    of_engine(prefill_goes_apart),
    of_engine(layers_go_to_the_cpu),
    needs("serve.host_memory_gb_per_s", "serve.cpu_layers", "say how many layers, or auto"),
    of_engine(host_cache_is_kept),
    needs("serve.turn_tokens", "serve.turns", "say how many turns a session has"),
    needs("serve.tool_seconds", "serve.turns", "say how many turns a session has"),
    turns_are_alone,
    host_cache_is_used,
    of_model(lambda asked, model: only_experts_are_narrow(model, asked.scheme, "serve.weights")),
    needs("serve.adapter_slots", "serve.adapters", "say how many adapters requests ask for"),
    of_engine(engine_takes_adapters),
    of_model(drafts_are_possible),
    of_model(model_has_targets),
)
"""What model, hardware and engine rule out, in the order in which it is told."""
