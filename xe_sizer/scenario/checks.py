"""Contradictions inside one scenario, found without knowing the hardware or the model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from xe_sizer.errors import Problem
from xe_sizer.scenario.serve_section import LOADS

if TYPE_CHECKING:
    from xe_sizer.profiles.convert import Locate

TOLERANCE = 0.01  # figures of one data set may differ by rounding


def contradictions(merged: Mapping[str, Any], locate: Locate) -> list[Problem]:
    """Every contradiction between the keys of a scenario.

    `merged` is plain data that need not be valid: keys of a wrong type are passed over here, so that wrong
    types and contradictions can be reported together.
    """
    scenario = _Numbers(merged)
    found = [
        *_exclusive(scenario),
        *_lengths(scenario),
        *_histogram(scenario),
        *_batches(scenario, locate),
        *_layout(scenario),
        *_serving(scenario),
    ]
    return [Problem(message, locate(tuple(key.split("."))), hint) for key, message, hint in found]


_Contradiction = tuple[str, str, str | None]  # dotted key, message, hint


class _Numbers:
    """Looks up dotted keys in plain data that may have any form."""

    def __init__(self, merged: Mapping[str, Any]) -> None:
        self.merged = merged

    def raw(self, key: str) -> Any:
        value: Any = self.merged
        for part in key.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value

    def __call__(self, key: str) -> float | None:
        return _number(self.raw(key))


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if 0 < value < 1e30 else None


def _exclusive(scenario: _Numbers) -> Iterator[_Contradiction]:
    yield from _both(scenario, "server", "gpu", "a server names its GPU; remove one of them")
    yield from _both(scenario, "train.steps", "train.epochs", "remove one of them")
    yield from _both(scenario, "data.profile", "data.file", "remove one of them")
    if scenario.raw("efficiency.ideal") is True:
        for name in ("flops", "memory"):
            hint = "ideal means 1 for both; remove one of them"
            yield from _both(scenario, "efficiency.ideal", f"efficiency.{name}", hint)
    gpus, most = scenario("gpus"), scenario("limits.max_gpus")
    if gpus and most and gpus > most:
        yield "gpus", f"'gpus' ({gpus:g}) is above 'max_gpus' ({most:g})", None


def _both(scenario: _Numbers, first: str, second: str, hint: str) -> Iterator[_Contradiction]:
    """Two keys of which at most one may be given."""
    if scenario.raw(first) is not None and scenario.raw(second) is not None:
        names = (key.rpartition(".")[2] for key in (first, second))
        yield second, "'{}' and '{}' are both given".format(*names), hint


def _tests(scenario: _Numbers) -> Iterator[_Contradiction]:
    """Loads and lengths that a test of so many requests, or a trace, cannot have."""
    for load in ("serve.batch", "serve.users"):
        hint = "the requests of a test come at a rate, at a concurrency, or all at once"
        yield from _both(scenario, load, "serve.requests", hint)
    for key in ("requests", "trace"):
        hint = "a test is simulated on replicas that do both; remove one of them"
        yield from _both(scenario, "serve.prefill_replicas", f"serve.{key}", hint)
    for key in (*LOADS, "arrivals", "input_tokens", "output_tokens", "input_spread", "output_spread"):
        yield from _both(scenario, f"serve.{key}", "serve.trace", "a trace has the times and lengths of its requests")
    arrivals = scenario.raw("serve.arrivals")
    if arrivals is not None:
        for key, hint in (("request_rate", "requests per second"), ("requests", "how many requests the test has")):
            if scenario.raw(f"serve.{key}") is None:
                yield "serve.arrivals", f"'arrivals' {arrivals} needs '{key}'", f"say {hint}"


def _serving(scenario: _Numbers) -> Iterator[_Contradiction]:
    loads = [f"serve.{name}" for name in LOADS]
    given = [key for key in loads if scenario.raw(key) is not None]
    for further in given[1:]:
        yield from _both(scenario, given[0], further, f"a load is one of {', '.join(LOADS[:-1])} and {LOADS[-1]}")
    if scenario.raw("serve.think_time_s") is not None and scenario.raw("serve.users") is None:
        yield "serve.think_time_s", "'think_time_s' needs 'users'", "say how many people ask and think"
    yield from _tests(scenario)
    for name in ("weights", "activations", "kv_cache"):
        hint = "a scheme names all three formats; remove it, or write its formats as weights, activations and kv_cache"
        yield from _both(scenario, "serve.scheme", f"serve.{name}", hint)
    for name in ("acceptance_rate", "draft_cost"):
        if scenario.raw(f"serve.{name}") is not None and not scenario("serve.draft_tokens"):
            yield (
                f"serve.{name}",
                f"'{name}' needs 'draft_tokens'",
                "say how many tokens speculative decoding proposes per step",
            )
    if scenario("serve.draft_tokens") and scenario.raw("serve.acceptance_rate") is None:
        yield (
            "serve.draft_tokens",
            "'draft_tokens' needs 'acceptance_rate'",
            "the share of proposals that are kept",
        )


def _lengths(scenario: _Numbers) -> Iterator[_Contradiction]:
    least, mean, most = (scenario(f"data.{name}_tokens") for name in ("min", "mean", "max"))
    if mean and most and mean > most:
        yield "data.mean_tokens", f"'mean_tokens' ({mean:g}) is above 'max_tokens' ({most:g})", None
    if least and mean and least > mean:
        yield "data.min_tokens", f"'min_tokens' ({least:g}) is above 'mean_tokens' ({mean:g})", None
    for name in ("chosen", "rejected"):
        answer = scenario(f"data.{name}_tokens")
        if answer and most and answer > most:
            yield f"data.{name}_tokens", f"'{name}_tokens' ({answer:g}) is above 'max_tokens' ({most:g})", None
    if least and most and not mean and least > most:
        yield "data.min_tokens", f"'min_tokens' ({least:g}) is above 'max_tokens' ({most:g})", None
    tokens, samples = scenario("data.tokens"), scenario("data.samples")
    if tokens and samples and mean and abs(samples * mean / tokens - 1) > TOLERANCE:
        product = f"'samples' x 'mean_tokens' is {samples * mean:.6g}"
        yield "data.tokens", f"'tokens' is {tokens:.6g}, but {product}", "give two of the three"


def _histogram(scenario: _Numbers) -> Iterator[_Contradiction]:
    lengths, counts = scenario.raw("data.histogram.lengths"), scenario.raw("data.histogram.counts")
    if not isinstance(lengths, list) or not isinstance(counts, list):
        return
    if len(lengths) != len(counts):
        message = f"the histogram has {len(lengths)} 'lengths' but {len(counts)} 'counts'"
        yield "data.histogram.counts", message, "give one count per length"
        return
    pairs = [(_number(length) or 0.0, _number(count) or 0.0) for length, count in zip(lengths, counts, strict=True)]
    total = sum(count for _, count in pairs)
    if not total:
        yield "data.histogram.counts", "the histogram counts no samples", None
        return
    stated, mean = scenario("data.mean_tokens"), sum(length * count for length, count in pairs) / total
    if stated and abs(mean / stated - 1) > TOLERANCE:
        message = f"'mean_tokens' is {stated:g}, but the mean of the histogram is {mean:.6g}"
        yield "data.mean_tokens", message, "remove one of them"


def _batches(scenario: _Numbers, locate: Locate) -> Iterator[_Contradiction]:
    """A global batch that is no multiple of its parts, or not their product where all three are given."""
    whole = scenario("train.global_batch")
    keys = {"micro_batch": "train.micro_batch", "grad_accum": "train.grad_accum", "dp": "layout.dp"}
    parts = {name: size for name, key in keys.items() if (size := scenario(key))}
    if not whole or not parts:
        return
    micro = parts.get("micro_batch")
    if micro and whole % micro:
        parts = {"micro_batch": micro}
    step = math.prod(parts.values())
    if whole == step or (whole % step == 0 and len(parts) < len(keys)):
        return
    product = " x ".join(f"'{name}'" for name in parts) + f" ({step:g})"
    hint = f"write {step:g}" if len(parts) == len(keys) else _multiples(whole, step)
    if "grad_accum" in parts:
        hint = f"{hint}; 'grad_accum' is given at {locate(('train', 'grad_accum'))}"
    is_no = "is not" if len(parts) == len(keys) else "is not a multiple of"
    yield "train.global_batch", f"'global_batch' ({whole:g}) {is_no} {product}", hint


def _layout(scenario: _Numbers) -> Iterator[_Contradiction]:
    degrees = {name: scenario(f"layout.{name}") for name in ("tp", "pp", "cp", "dp")}
    given = {name: degree for name, degree in degrees.items() if degree}
    product = 1.0
    for degree in given.values():
        product *= degree
    gpus = scenario("gpus") if scenario.raw("serve.prefill_replicas") is None else None  # those are of another size
    if gpus:
        gpus = max(gpus - (scenario("rollout.gpus") or 0), 1)  # the rest of them trains
    if gpus and given and gpus % product:
        names = " x ".join(f"'{name}'" for name in given)
        yield (
            "gpus",
            f"'gpus' ({gpus:g}) is not a multiple of {names} ({product:g})",
            _multiples(gpus, product),
        )
    vpp = scenario("layout.vpp")
    if vpp and vpp > 1 and degrees["pp"] == 1:
        yield (
            "layout.vpp",
            f"'vpp' ({vpp:g}) needs 'pp' of at least 2",
            "vpp divides the stages of a pipeline",
        )


def _multiples(value: float, step: float) -> str | None:
    below = value // step * step
    return f"the nearest are {below:g} and {below + step:g}" if below else f"the smallest is {step:g}"
