"""What a scenario asks that its model, its hardware or its engine cannot do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from xe_sizer.scenario.provenance import indivisible, problem_at, too_many_stages, unknown_precision
from xe_sizer.serving.images import image_conflicts
from xe_sizer.serving.traffic import DEFAULT_INPUT_TOKENS, DEFAULT_OUTPUT_TOKENS

if TYPE_CHECKING:
    from xe_sizer.errors import Problem
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.laws.hardware import Server
    from xe_sizer.scenario.read import Given
    from xe_sizer.software.engine import Engine
    from xe_sizer.software.number_formats import Scheme


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
