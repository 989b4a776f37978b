"""What in a scenario may not go together: how rules find it, those that need keys alone, and those of all wings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from xe_sizer.errors import Problem
from xe_sizer.laws.device import BF16, FP16, supported_precisions
from xe_sizer.scenario.schema import LOADS, Section
from xe_sizer.software.speculation import NO_DRAFTS
from xe_sizer.software.stack import POOLS

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.laws.hardware import Server
    from xe_sizer.profiles.convert import Locate
    from xe_sizer.scenario.scenario import Scenario
    from xe_sizer.scenario.schema import ScenarioFile

TOLERANCE = 0.01  # figures of one data set may differ by rounding


class Keys:
    """Looks up dotted keys, in a scenario or in plain data that need not be one."""

    def __init__(self, values: ScenarioFile | Mapping[str, Any], locate: Locate) -> None:
        self.values = values
        self.locate = locate

    def value(self, key: str) -> Any:
        """What stands under a key, None where nothing does."""
        value: Any = self.values
        for part in key.split("."):
            if isinstance(value, Mapping):
                value = value.get(part)
            else:
                value = getattr(value, part) if isinstance(value, Section) else None
        return value

    def number(self, key: str) -> float | None:
        """A positive number under a key; None of anything else, which has its problem already."""
        return _positive(self.value(key))

    def has(self, key: str) -> bool:
        return self.value(key) is not None


def _positive(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if 0 < value < 1e30 else None


Found = Iterator[tuple[str, str, str | None]]  # dotted key, message, hint
Rule = Callable[[Keys], Found]
K = TypeVar("K", bound=Keys)


def conflicts(keys: K, rules: Iterable[Callable[[K], Found]]) -> list[Problem]:
    """Every contradiction that rules find, at the place of its key.

    Keys of a wrong type are passed over by the rules of keys alone, so that wrong types and contradictions can be
    reported together.
    """
    found = (each for rule in rules for each in rule(keys))
    return [Problem(message, keys.locate(tuple(key.split("."))), hint) for key, message, hint in found]


# Rules of two keys, which the table names.


def never_both(first: str, second: str, hint: str) -> Rule:
    """At most one of two keys may be given."""

    def rule(keys: Keys) -> Found:
        if keys.has(first) and keys.has(second):
            yield second, f"'{_last(first)}' and '{_last(second)}' are both given", hint

    return rule


def at_most(low: str, high: str, *, unless: str | None = None) -> Rule:
    """One number is no larger than another; `unless` has a key by which others judge both."""

    def rule(keys: Keys) -> Found:
        least, most = keys.number(low), keys.number(high)
        if least and most and least > most and not (unless and keys.number(unless)):
            yield low, f"'{_last(low)}' ({least:g}) is above '{_last(high)}' ({most:g})", None

    return rule


def needs(key: str, other: str, hint: str, *, shows_value: bool = False) -> Rule:
    """A key says nothing without another."""

    def rule(keys: Keys) -> Found:
        if keys.has(key) and not keys.has(other):
            value = f" {keys.value(key)}" if shows_value else ""
            yield key, f"'{_last(key)}'{value} needs '{_last(other)}'", hint

    return rule


def _last(key: str) -> str:
    return key.rpartition(".")[2]


# Rules that compute.


def ideal_is_all(keys: Keys) -> Found:
    """An ideal accelerator has no fractions of its peaks; a switch that is off says nothing."""
    for name in ("flops", "memory"):
        if keys.value("efficiency.ideal") is True and keys.has(f"efficiency.{name}"):
            hint = "ideal means 1 for both; remove one of them"
            yield f"efficiency.{name}", f"'ideal' and '{name}' are both given", hint


def sizes_multiply(keys: Keys) -> Found:
    """Tokens of a data set are samples times their mean."""
    tokens, samples, mean = (keys.number(f"data.{name}") for name in ("tokens", "samples", "mean_tokens"))
    if tokens and samples and mean and abs(samples * mean / tokens - 1) > TOLERANCE:
        product = f"'samples' x 'mean_tokens' is {samples * mean:.6g}"
        yield "data.tokens", f"'tokens' is {tokens:.6g}, but {product}", "give two of the three"


def histogram_counts(keys: Keys) -> Found:
    """A histogram has a count for each length, counts something, and has the mean that is given beside it."""
    lengths, counts = keys.value("data.histogram.lengths"), keys.value("data.histogram.counts")
    if not isinstance(lengths, list) or not isinstance(counts, list):
        return
    if len(lengths) != len(counts):
        message = f"the histogram has {len(lengths)} 'lengths' but {len(counts)} 'counts'"
        yield "data.histogram.counts", message, "give one count per length"
        return
    pairs = [(_positive(length) or 0.0, _positive(count) or 0.0) for length, count in zip(lengths, counts, strict=True)]
    total = sum(count for _, count in pairs)
    if not total:
        yield "data.histogram.counts", "the histogram counts no samples", None
        return
    stated, mean = keys.number("data.mean_tokens"), sum(length * count for length, count in pairs) / total
    if stated and abs(mean / stated - 1) > TOLERANCE:
        message = f"'mean_tokens' is {stated:g}, but the mean of the histogram is {mean:.6g}"
        yield "data.mean_tokens", message, "remove one of them"


def batch_divides(keys: Keys) -> Found:
    """A global batch is a multiple of its parts, and their product where all three are given."""
    whole = keys.number("train.global_batch")
    named = {"micro_batch": "train.micro_batch", "grad_accum": "train.grad_accum", "dp": "layout.dp"}
    parts = {name: size for name, key in named.items() if (size := keys.number(key))}
    if not whole or not parts:
        return
    micro = parts.get("micro_batch")
    if micro and whole % micro:
        parts = {"micro_batch": micro}
    step = math.prod(parts.values())
    if whole == step or (whole % step == 0 and len(parts) < len(named)):
        return
    product = " x ".join(f"'{name}'" for name in parts) + f" ({step:g})"
    hint = f"write {step:g}" if len(parts) == len(named) else _multiples(whole, step)
    if "grad_accum" in parts:
        hint = f"{hint}; 'grad_accum' is given at {keys.locate(('train', 'grad_accum'))}"
    is_no = "is not" if len(parts) == len(named) else "is not a multiple of"
    yield "train.global_batch", f"'global_batch' ({whole:g}) {is_no} {product}", hint


def gpus_divide(keys: Keys) -> Found:
    """GPUs that train are a multiple of the layout's degrees; a service may have GPUs of other kinds beside them."""
    degrees = {name: degree for name in ("tp", "pp", "cp", "dp") if (degree := keys.number(f"layout.{name}"))}
    gpus = keys.number("gpus")
    others = ("serve.prefill_replicas", "serve.expert_gpus")
    if not gpus or not degrees or any(keys.has(name) for name in others):
        return
    apart = sum(keys.number(f"{pool}.gpus") or 0 for pool in ("rollout", *POOLS))
    gpus, product = max(gpus - apart, 1), math.prod(degrees.values())
    if gpus % product:
        names = " x ".join(f"'{name}'" for name in degrees)
        yield "gpus", f"'gpus' ({gpus:g}) is not a multiple of {names} ({product:g})", _multiples(gpus, product)


def _multiples(value: float, step: float) -> str | None:
    below = value // step * step
    return f"the nearest are {below:g} and {below + step:g}" if below else f"the smallest is {step:g}"


def chunks_have_stages(keys: Keys) -> Found:
    """Chunks of pipeline stages need a pipeline."""
    vpp = keys.number("layout.vpp")
    if vpp and vpp > 1 and keys.number("layout.pp") == 1:
        yield "layout.vpp", f"'vpp' ({vpp:g}) needs 'pp' of at least 2", "vpp divides the stages of a pipeline"


def one_load(keys: Keys) -> Found:
    """Of the loads of a service the first that is given counts."""
    first, *others = [name for name in LOADS if keys.has(f"serve.{name}")] or [""]
    hint = f"a load is one of {', '.join(LOADS[:-1])} and {LOADS[-1]}"
    for other in others:
        yield f"serve.{other}", f"'{first}' and '{other}' are both given", hint


def drafts_are_accepted(keys: Keys) -> Found:
    """Speculative decoding proposes tokens, of which a share is accepted; 0 tokens are none.

    How many, and how many of them are accepted, is known of a method; of a model that is named, of one that drafts.
    """
    proposes, off = keys.number("serve.draft_tokens"), keys.value("serve.speculative") == NO_DRAFTS
    by_method = keys.has("serve.speculative") or keys.has("serve.draft_model")
    if off:  # a switch: what else is said of drafts waits until they are on again
        return
    tokens = keys.value("serve.draft_tokens")
    nothing = (tokens == 0 and not isinstance(tokens, bool)) or (tokens is None and not by_method)
    for name in ("acceptance_rate", "draft_cost", "draft_width", "draft_depth"):
        if keys.has(f"serve.{name}") and nothing:
            hint = "say how many tokens speculative decoding proposes per step"
            yield f"serve.{name}", f"'{name}' needs 'draft_tokens'", hint
    if by_method and tokens == 0:
        hint = f"leave draft_tokens out, or write speculative: {NO_DRAFTS}"
        yield "serve.draft_tokens", "speculative decoding proposes at least 1 token", hint
    depth = keys.number("serve.draft_depth")
    if proposes and depth and depth > proposes:
        yield "serve.draft_depth", f"'draft_depth' ({depth:g}) is more than 'draft_tokens' ({proposes:g})", None


def rented_or_owned(keys: Keys) -> Found:
    """Hardware is rented by the hour or owned: one price holds for all of it, or each for what it names."""
    rent, capex = keys.value("cost.price_per_gpu_hour"), keys.value("cost.capex_per_server")
    hint = "an hour is rented or owned: remove one of them"
    named = sorted(rent.keys() & capex.keys()) if isinstance(rent, Mapping) and isinstance(capex, Mapping) else []
    for name in named:
        yield "cost.capex_per_server", f"'{name}' has a price by the hour and one to buy", hint
    if rent is not None and capex is not None and not (isinstance(rent, Mapping) or isinstance(capex, Mapping)):
        yield "cost.capex_per_server", "'price_per_gpu_hour' and 'capex_per_server' are both given", hint


_REQUESTS = "the requests of a test come at a rate, at a concurrency, or all at once"
_TEST = "a test is simulated on replicas that do both; remove one of them"
_TRACE = "a trace has the times and lengths of its requests"
_SCHEME = "a scheme names all three formats; remove it, or write its formats as weights, activations and kv_cache"
RULES: tuple[Rule, ...] = (
    never_both("server", "gpu", "a server names its GPU; remove one of them"),
    never_both("train.steps", "train.epochs", "remove one of them"),
    never_both("data.profile", "data.file", "remove one of them"),
    ideal_is_all,
    at_most("gpus", "limits.max_gpus"),
    at_most("data.mean_tokens", "data.max_tokens"),
    at_most("data.min_tokens", "data.mean_tokens"),
    at_most("data.chosen_tokens", "data.max_tokens"),
    at_most("data.rejected_tokens", "data.max_tokens"),
    at_most("data.min_tokens", "data.max_tokens", unless="data.mean_tokens"),
    sizes_multiply,
    histogram_counts,
    batch_divides,
    gpus_divide,
    chunks_have_stages,
    rented_or_owned,
    needs("cost.pue", "cost.kwh_price", "say what a kWh costs"),
    one_load,
    needs("serve.think_time_s", "serve.users", "say how many people ask and think"),
    never_both("serve.batch", "serve.requests", _REQUESTS),
    never_both("serve.users", "serve.requests", _REQUESTS),
    never_both("serve.prefill_replicas", "serve.requests", _TEST),
    never_both("serve.prefill_replicas", "serve.trace", _TEST),
    *(never_both(f"serve.{load}", "serve.trace", _TRACE) for load in LOADS),
    never_both("serve.arrivals", "serve.trace", _TRACE),
    never_both("serve.input_tokens", "serve.trace", _TRACE),
    never_both("serve.output_tokens", "serve.trace", _TRACE),
    never_both("serve.input_spread", "serve.trace", _TRACE),
    never_both("serve.output_spread", "serve.trace", _TRACE),
    never_both("serve.longest_input_tokens", "serve.trace", _TRACE),
    never_both("serve.longest_output_tokens", "serve.trace", _TRACE),
    needs("serve.arrivals", "serve.request_rate", "say requests per second", shows_value=True),
    needs("serve.arrivals", "serve.requests", "say how many requests the test has", shows_value=True),
    never_both("serve.scheme", "serve.weights", _SCHEME),
    never_both("serve.scheme", "serve.activations", _SCHEME),
    never_both("serve.scheme", "serve.kv_cache", _SCHEME),
    drafts_are_accepted,
)
"""What may go together, in the order in which it is told. What model, hardware or software rule out is each wing's."""


# What a scenario asks of its model and hardware that they cannot do, whichever wing answers it.


class Asked(Keys):
    """A scenario and what its names stand for; None stands for what is not known, and rules of it are left out."""

    def __init__(self, scenario: Scenario, model: ModelShape | None, server: Server | None, gpus: int | None) -> None:
        super().__init__(scenario.values, scenario.locate)
        self.scenario = scenario
        self.layout = scenario.values.layout
        self.model = model
        self.server = server
        self.gpus = gpus
        self.setting = scenario.caller.setting


A = TypeVar("A", bound=Asked)


def of_model(rule: Callable[[A, ModelShape], Found]) -> Callable[[A], Found]:
    """A rule of scenarios whose model is known."""
    return lambda asked: rule(asked, asked.model) if asked.model is not None else iter(())


def of_server(rule: Callable[[A, Server], Found]) -> Callable[[A], Found]:
    """A rule of scenarios whose server is known."""
    return lambda asked: rule(asked, asked.server) if asked.server is not None else iter(())


def unknown_precision(asked: Asked, server: Server, precision: str | None, instead: str = "") -> Found:
    """A number format that the accelerator does not multiply; `instead` goes on with the hint."""
    known = supported_precisions(server.accelerator)
    if precision is not None and precision not in known:
        has = f"it has {', '.join(known)}{instead}"
        narrow = f"write {asked.setting('precision', FP16)}; " if precision == BF16 and FP16 in known else ""
        yield "precision", f"{server.accelerator.name} has no {precision}", f"{narrow}{has}"


def of_one_memory(server: Server, what: str) -> str:
    """What is told of something that would go to the host, where the accelerator's memory is the host's."""
    return f"{what} moves nothing away: the memory of {server.accelerator.name} is the host's"


def servers_are_owned(asked: Asked, server: Server) -> Found:
    """Years, utilisation and staff are of servers that are owned, whose price somebody says."""
    if asked.has("cost.capex_per_server") or server.capex is not None:
        return
    for name in ("years", "utilisation", "staff_share"):
        if asked.has(f"cost.{name}"):
            hint = f"say what a server costs to buy: {asked.setting('cost.capex_per_server')}"
            yield f"cost.{name}", f"'{name}' needs 'capex_per_server'", hint


def layout_divides(asked: Asked, model: ModelShape) -> Found:
    """A layout that the model cannot be spread over."""
    return indivisible(model, "layout", asked.layout.tp, asked.layout.ep)


def indivisible(model: ModelShape, section: str, tp: int | None, ep: int | None, redundant_experts: int = 0) -> Found:
    """Heads that tensor parallelism does not divide, and experts with their copies that expert parallelism does not."""
    if tp and model.heads % tp:
        yield f"{section}.tp", f"tp {tp} does not divide the {model.heads} heads of {model.name}", None
    if ep and ep > 1 and model.experts is None:
        message = f"{model.name} has no experts to spread over ep {ep} GPUs"
        yield f"{section}.ep", message, "leave ep out, or choose a mixture-of-experts model"
    elif ep and model.experts is not None and (model.experts.count + redundant_experts) % ep:
        beside = f" and their {redundant_experts} copies" if redundant_experts else ""
        message = f"ep {ep} does not divide the {model.experts.count} experts of {model.name}{beside}"
        yield f"{section}.ep", message, None


def too_many_stages(model: ModelShape, key: str, stages: int, words: str, ends: Sequence[str] = ()) -> Found:
    """More pipeline stages, or chunks of them, than the model has layers, and ends that take a layer's place."""
    most = model.most_stages + len(ends)
    if model.shared_blocks and stages > 1:
        yield key, f"{words}, but layers of {model.name} have weights in common, which are on every GPU", "leave it out"
    elif stages > most:
        beside = f", with {' and '.join(ends)} {most}" if ends else ""
        yield key, f"{words} is more than the {model.layers} layers of {model.name}{beside}", None
