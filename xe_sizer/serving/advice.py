"""What to change about a service: what mends it, the nearest load and limits that it keeps, what makes it cheaper."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from xe_sizer.errors import InputError, attempt
from xe_sizer.laws.device import FP4
from xe_sizer.result.common import CERTAINTIES, DEFAULT_CONFIDENCE, SURE, certainty_of
from xe_sizer.scenario.read import AUTO, Change, changed, together
from xe_sizer.scenario.trials import MOST_ADVICE, Option, Remedy, Trials, advice_of
from xe_sizer.serving.estimate import ServingEstimate
from xe_sizer.serving.job import HIGHEST_LOAD
from xe_sizer.serving.memory import IMAGES
from xe_sizer.serving.resolve import resolve
from xe_sizer.serving.resolved import LATENCY_LIMITS
from xe_sizer.serving.search import what_fits
from xe_sizer.software.dispatchers import DISPATCHERS
from xe_sizer.software.number_formats import E4M3, GPTQ, narrow_formats
from xe_sizer.software.speculation import MTP, NO_DRAFTS
from xe_sizer.units import GIB, SIXTEEN_BIT, rounded, three_digits

if TYPE_CHECKING:
    from xe_sizer.profiles.catalogue import Registry
    from xe_sizer.result.common import Advice
    from xe_sizer.software.number_formats import Format

# Remedies: each proposes changes of one kind, the mildest first. Whether they help is tried below.
#
# Efforts order what a user would rather do: 1 a setting or a placement, 2 and 3 narrower formats, 4 more GPUs,
# 5 less load, 6 a wider limit.

HIGHEST_UTILIZATION = 0.95
NARROWER = 0.8  # a narrower format has at most this times the bytes
MOST_HALVINGS = 12
MORE_DRAFTS = 3  # chosen: as recipes of engines have it where latency counts
LOOSER = (1.25, 1.5, 2.0)
"""Times a limit that costs many GPUs, within which most users would rather widen it."""
CLOSE = 1.01  # high over low at which a search for the highest load ends
WIDER = (1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0)
SHORTER = (2, 4, 8, 16, 32)
SHORTEST = 256.0  # tokens of a prompt under which it is no longer what the user asked for


def memory_share(estimate: ServingEstimate, _: Registry | None = None) -> Iterator[Change]:
    """More of the card for the engine, or less where free memory was asked for."""
    engine, asked = estimate.resolved.job.engine.memory, estimate.resolved.limits.min_headroom_gib
    if estimate.grows or estimate.resolved.job.allocated is not None:
        return
    now, card = engine.utilization, estimate.memory.usable_bytes
    if not estimate.fits and now < HIGHEST_UTILIZATION:
        yield _share(now, HIGHEST_UTILIZATION)
    if estimate.fits and asked:
        pool = float(estimate.memory.pool_bytes[0])
        room = card - pool - sum(float(value[0]) for value in estimate.memory.fixed.values())
        base = pool / now if engine.utilization_of == "free" else card
        lower = math.floor(100.0 * (now - (asked * GIB - room) / base)) / 100.0
        if 0.0 < lower < now:
            yield _share(now, lower)


def _share(now: float, then: float) -> Change:
    return Change(
        f"gpu_memory_utilization {then:g} instead of {now:g}", {"serve.gpu_memory_utilization": then}, 1
    )  # fmt: skip


def shorter_sequences(estimate: ServingEstimate, _: Registry | None = None) -> Iterator[Change]:
    """The longest sequence that the cache holds and the model has positions for, where a longer one was asked for."""
    asked = estimate.resolved.scenario.values.serve.max_model_len if estimate.too_long else estimate.resolved.asked_len
    no_use = asked is None or estimate.grows or (estimate.fits and not estimate.too_long)
    held = 0 if asked is None or no_use else estimate.longest_held(asked)
    if asked is not None and held >= estimate.resolved.traffic.inputs + estimate.resolved.traffic.outputs:
        yield Change(f"max_model_len {held:,} instead of {asked:,}", {"serve.max_model_len": held}, 1)


def milliseconds(estimate: ServingEstimate, _: Registry | None = None) -> Iterator[Change]:
    """Limits on latency that look like milliseconds, read so."""
    limits = dict(estimate.resolved.unlikely_limits())
    if limits:
        words = " and ".join(f"{name} {limit:g}ms instead of {limit:g} s" for name, limit in limits.items())
        yield Change(words, {f"limits.{name}": f"{limit:g}ms" for name, limit in limits.items()}, 1)


def placement(estimate: ServingEstimate, _: Registry | None = None) -> Iterator[Change]:
    """The sizes that the user fixed left open."""
    resolved = estimate.resolved
    after = estimate.resized(fixed={}) if resolved.fixed else None
    if after is not None and (values := _sizes(estimate, after)):
        yield Change(f"another placement: {_words(values)}", values, 1)


def speculation(estimate: ServingEstimate, _: Registry | None = None) -> Iterator[Change]:
    """No drafts where there are some; else those of the modules that the model itself has, if the engine runs them."""
    job, drafts = estimate.resolved.job, estimate.resolved.traffic.draft_tokens
    if drafts:
        yield Change("no speculative decoding", {"serve.speculative": NO_DRAFTS}, 1)
    elif job.model.mtp_layers and MTP in job.engine.batching.drafts:
        words = "speculative decoding with the model's MTP modules"
        yield Change(words, {"serve.speculative": MTP}, 1)
        more = {"serve.speculative": MTP, "serve.draft_tokens": MORE_DRAFTS}
        yield Change(f"{words}, {MORE_DRAFTS} tokens a step", more, 1)


def images_apart(estimate: ServingEstimate, _: Registry | None = None) -> Iterator[Change]:
    """As many GPUs for images as the load needs; the encoder in every replica where one GPU cannot hold it."""
    asked, in_front = estimate.resolved.encode_replicas, estimate.choice.encoders
    if in_front is None:
        return
    if estimate.short == IMAGES:
        yield Change("the encoder of images in every replica", {"serve.encode_replicas": 0}, 1)
    elif asked != AUTO and in_front.utilisation >= HIGHEST_LOAD:
        yield Change("as many GPUs for images as the load needs", {"serve.encode_replicas": AUTO}, 4)


COPIES = 8  # chosen: experts to a copy, as DeepSeek-V3 is served (32 copies of 256)


def tokens_to_experts(estimate: ServingEstimate, _: Registry | None = None) -> Iterator[Change]:
    """A dispatcher for experts on many servers, alone or with copies of busy ones and halves that hide it."""
    resolved, experts = estimate.resolved, estimate.resolved.job.model.experts
    job, has, asked = resolved.job, resolved.job.engine.exchanges, resolved.scenario.values.serve
    if experts is None or estimate.gpus <= job.server.accelerators or asked.dispatcher is not None:
        return
    copies = experts.count // COPIES
    divides = (experts.count + copies) % resolved.fixed.get("ep", 1) == 0
    for name in has.dispatchers:
        row = DISPATCHERS[name]
        if not row.overlaps or (row.by_phase and not has.by_phase and resolved.prefill_replicas is None):
            continue
        values: dict[str, object] = {"serve.dispatcher": name}
        if has.redundant_experts and asked.redundant_experts is None and divides:
            values["serve.redundant_experts"] = copies
        if has.halves_from and asked.two_batch_overlap is None:
            yield Change(
                _words({**values, "serve.two_batch_overlap": "on"}), {**values, "serve.two_batch_overlap": True}, 1
            )
        yield Change(_words(values), values, 1)


def narrower_weights(estimate: ServingEstimate, _: Registry | None = None) -> Iterator[Change]:
    """8 bit, then 4 bit, in formats that the accelerator multiplies where there are such."""
    job = estimate.resolved.job
    gpu, now = job.server.accelerator, job.scheme.weights
    for offered in narrow_formats(gpu.peak_flops_per_s):
        lacks = offered.peak == FP4 and not job.engine.multiplied_with(offered, gpu.generation)
        narrow = GPTQ if lacks else offered
        if narrow.bits / 8.0 < NARROWER * now.element_bytes:
            words = f"{narrow.name} weights instead of {now.name}"
            yield Change(words, _formats(estimate, weights=narrow), 2 if narrow.bits == 8 else 3)


def narrower_cache(estimate: ServingEstimate, _: Registry | None = None) -> Iterator[Change]:
    now = estimate.resolved.job.scheme.cache
    if now.element_bytes >= SIXTEEN_BIT and estimate.resolved.job.answers:
        yield Change(f"{E4M3.name} KV cache instead of {now.name}", _formats(estimate, kv_cache=E4M3), 2)


def prefill_apart(estimate: ServingEstimate, _: Registry | None = None) -> Iterator[Change]:
    """Prompts read on replicas of their own, where nobody says where they are read."""
    resolved = estimate.resolved
    alone = resolved.load in (None, "batch") or resolved.spare_replicas or not resolved.job.answers
    if resolved.job.engine.batching.disaggregates and resolved.prefill_replicas is None and not alone:
        yield Change("prompts on replicas of their own", {"serve.prefill_replicas": "auto"}, 4)


def layers_on_the_cpu(estimate: ServingEstimate, registry: Registry | None = None) -> Iterator[Change]:
    """As few layers on the CPU as let the rest fit, where the engine computes some there and the GPUs are given."""
    resolved = estimate.resolved
    job = resolved.job
    if not (job.engine.memory.cpu_layers and job.server.host_apart) or resolved.gpus is None or estimate.fits:
        return
    assert registry is not None
    asked = changed(resolved.scenario, {"serve.cpu_layers": "auto"})
    found = attempt(resolve, asked, registry)
    if not isinstance(found, InputError) and found.job.cpu:
        layers, now = found.job.cpu.layers, job.cpu.layers if job.cpu else 0
        if layers > now:
            less = f" instead of {now}" if now else ""
            yield Change(f"{layers} of {job.model.layers} layers on the CPU{less}", {"serve.cpu_layers": layers}, 3)


def more_gpus(estimate: ServingEstimate, _: Registry | None = None) -> Iterator[Change]:
    """As many as the load needs with number and placement open."""
    after = estimate.resized(gpus=None, fixed={})
    if after is not None and after.gpus > estimate.gpus:
        values = {"gpus": after.gpus, **_sizes(estimate, after)}
        yield Change(f"{after.gpus} GPUs instead of {estimate.gpus}", values, 4)


def less_load(estimate: ServingEstimate, _: Registry | None = None) -> Iterator[Change]:
    """Find the highest load below that the service keeps, to a hundredth; formats, limits and GPUs stay."""
    load, asked = estimate.resolved.load, estimate.resolved.amount
    if load is None:
        return
    most = _highest(
        lambda amount: estimate.size(replace(estimate.resolved, amount=amount)).ok, asked, load != "request_rate"
    )
    if not most:
        return
    if load == "request_rate":
        words = f"{most:,.6g} request{'' if most == 1 else 's'}/s instead of {asked:,.6g}"
        yield Change(words, {"serve.request_rate": most}, 5)
    else:
        what = {"concurrency": "concurrent requests", "users": "users", "batch": "requests in a batch"}[load]
        yield Change(f"{most:,.0f} {what} instead of {asked:,.0f}", {f"serve.{load}": int(most)}, 5)


def _highest(keeps: Callable[[float], bool], asked: float, whole: bool) -> float:
    """The highest amount below `asked` that is kept, two or three digits of it; 0 where none is."""
    high = low = asked
    for _ in range(MOST_HALVINGS):
        low = max(_readable(low / 2.0, whole), 1.0 if whole else 0.0)
        if keeps(low) or low in (high, 0.0):
            break
        high = low
    if not keeps(low):
        return 0.0
    while high > CLOSE * low:
        middle = max(_readable((low * high) ** 0.5, whole), low + 1.0 if whole else 0.0)
        if not low < middle < high:
            break
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return low


def _readable(amount: float, whole: bool) -> float:
    return float(math.floor(amount)) if whole else rounded(amount, down=True)


def shorter_prompts(estimate: ServingEstimate, _: Registry | None = None) -> Iterator[Change]:
    inputs = estimate.resolved.traffic.inputs
    for part in SHORTER:
        if inputs / part >= SHORTEST:
            tokens = float(round(inputs / part))
            words = f"prompts of {tokens:,.0f} tokens instead of {inputs:,.0f}"
            yield Change(words, {"serve.input_tokens": tokens}, 5)


def wider_limits(estimate: ServingEstimate, _: Registry | None = None) -> Iterator[Change]:
    """Widen the limits on latency that are missed, step by step, and as far as the answer needs."""
    limits = estimate.resolved.limits
    reached_s = dict(zip(LATENCY_LIMITS, estimate.judged_s, strict=True))
    asked = {name: (getattr(limits, name), value) for name, value in reached_s.items()}
    broken = {name: (limit, value) for name, (limit, value) in asked.items() if limit is not None and value > limit}
    if not broken or (estimate.overloaded and estimate.resolved.gpus is not None):
        return
    reached = max(value / limit for limit, value in broken.values())
    for factor in sorted({*WIDER, *({reached} if math.isfinite(reached) else ())}):
        wider = {name: rounded(limit * factor, down=False) for name, (limit, _) in broken.items()}
        words = " and ".join(f"{name} {value:g} instead of {broken[name][0]:g}" for name, value in wider.items())
        yield Change(words, {f"limits.{name}": value for name, value in wider.items()}, 6)


def looser_limits(estimate: ServingEstimate, _: Registry | None = None) -> Iterator[Change]:
    """Each limit on latency that the service meets by little, a little wider."""
    limits = estimate.resolved.limits
    for name, value in zip(LATENCY_LIMITS, estimate.judged_s, strict=True):
        limit = getattr(limits, name)
        if limit is not None and LOOSER[-1] * value > limit >= value:
            for factor in LOOSER:
                wider = float(f"{limit * factor:.6g}")
                yield Change(f"{name} {wider:g} instead of {limit:g}", {f"limits.{name}": wider}, 6)


def same_certainty(estimate: ServingEstimate) -> Iterator[Change]:
    """Limits met as surely as now, where nobody says how surely."""
    probability = estimate.least_sure
    if estimate.confidence is None and probability is not None:
        asked = math.floor(100.0 * min(probability, 0.99)) / 100.0
        if asked > DEFAULT_CONFIDENCE:
            yield Change(f"limits as sure as now (confidence {asked:g})", {"limits.confidence": asked}, 1)


def _sizes(estimate: ServingEstimate, after: ServingEstimate) -> dict[str, object]:
    """The sizes that the user fixed and that have to change, as keys."""
    chosen = {name: int(getattr(after.placement, name)[0]) for name in estimate.resolved.fixed}
    return {f"layout.{name}": value for name, value in chosen.items() if estimate.resolved.fixed[name] != value}


def _words(values: dict[str, object]) -> str:
    return ", ".join(f"{key.rpartition('.')[2]} {value}" for key, value in values.items())


def _formats(estimate: ServingEstimate, **chosen: Format) -> dict[str, object]:
    """Keys that set some formats: one by one, or as the scheme that the user wrote."""
    job = estimate.resolved.job
    if estimate.resolved.scenario.values.serve.scheme is None:
        return {f"serve.{key}": one.name for key, one in chosen.items()}
    weights = chosen.get("weights", job.scheme.weights).bits
    multiplied = weights == 8 or job.scheme.activations.element_bytes < SIXTEEN_BIT
    cache = chosen.get("kv_cache", job.scheme.cache).bits
    return {"serve.scheme": f"w{weights}a{8 if multiplied and weights <= 8 else 16}k{cache}"}


TO_FIT = (
    Remedy(1, shorter_sequences),
    Remedy(1, memory_share), Remedy(2, narrower_weights), Remedy(2, narrower_cache), Remedy(1, placement),
    Remedy(1, images_apart), Remedy(3, layers_on_the_cpu), Remedy(4, more_gpus), Remedy(5, less_load),
    Remedy(5, shorter_prompts),
)  # fmt: skip
TO_MEET_LIMITS = (
    Remedy(1, shorter_sequences),
    Remedy(1, milliseconds), Remedy(1, placement), Remedy(1, tokens_to_experts), Remedy(1, memory_share),
    Remedy(1, speculation), Remedy(2, narrower_weights), Remedy(2, narrower_cache), Remedy(4, prefill_apart),
    Remedy(4, images_apart), Remedy(4, more_gpus), Remedy(5, less_load), Remedy(6, wider_limits),
)  # fmt: skip
TO_GAIN = (
    Remedy(1, placement), Remedy(1, tokens_to_experts), Remedy(1, speculation), Remedy(2, narrower_weights),
    Remedy(2, narrower_cache),
    Remedy(4, prefill_apart),
)  # fmt: skip


# The choice of remedies.

MOST_GAINS = 2
MUCH_FEWER = 0.5  # GPUs with a limit a little wider, against those with the limit as it was asked
WORTH_SAYING = 0.95  # GPUs for a unit of load, against those of the service as it was asked
Options = list[Option[ServingEstimate]]
Serving = Trials[ServingEstimate]


def advise(estimate: ServingEstimate, registry: Registry, most: int = MOST_ADVICE) -> tuple[Advice, ...]:
    """Up to five changes, the ones a user would rather make first; each was sized again.

    most : 1 for the first of them alone, which takes fewer trials, 0 for none
    """
    if not most:
        return ()
    trials = Trials(
        before=estimate,
        scenario=estimate.resolved.scenario,
        registry=registry,
        size=lambda scenario: estimate.size(resolve(scenario, registry)),
        mends=lambda one: one.ok,
    )
    gains = estimate.ok
    options = [*_gains(trials)[:MOST_GAINS], *_cheaper_limit(trials)] if gains else _mended(trials, most)
    return advice_of(trials, options[:most], "serve", lambda option: effect_words(estimate, option, gains))


def settle(estimate: ServingEstimate, _: Registry) -> tuple[str, ...]:
    """What would settle whether memory suffices: what shows it, and of what fits how little is left."""
    if not estimate.resolved.job.answers:
        return ("one step of the longest texts, as many as the engine takes, shows the peak",)
    if estimate.grows:
        return ("one batch of the longest answers shows the peak",)
    kept = "one request" if estimate.resolved.job.allocated is None else "the context"
    free = f"{three_digits(estimate.spare_bytes / GIB)} GiB free beside {kept}"
    shown = "the engine allocates its cache as it starts: a start shows it"
    return (free, shown) if estimate.fits else (shown,)


def _mended(trials: Serving, most: int) -> Options:
    """What turns the no into a yes, the mildest of each remedy; else what at least fits."""
    before, limits = trials.before, trials.before.resolved.limits
    if before.fits and limits.max_cost_per_million_tokens is not None and before.cost is None:
        return []  # nothing can be said about a price that nobody knows
    found: Options = []
    for remedy in TO_MEET_LIMITS if before.fits else TO_FIT:
        if len(found) < most:
            found += _first(trials, remedy)
    if not before.fits:
        found = [*_on_this_card(trials), *found][:most]
    if not before.fits and all("gpus" in option.change.values for option in found):
        found += _less_and_narrower(trials)
    return found or ([] if before.fits else list(_fitting(trials)))


def _on_this_card(trials: Serving) -> Options:
    """Layers on the CPU, which are slow, where the limits that are missed then are nobody's own."""
    changes = layers_on_the_cpu(trials.before, trials.registry)
    own = trials.before.resolved.scenario.values.limits
    kept = trials.kept(changes, lambda after: after.fits)
    slow = (one for one in kept if not one.after.ok)  # else it is among what mends
    return [one for one in slow if all(limit.ok or getattr(own, limit.name) is None for limit in one.after.limits)]


def _first(trials: Serving, remedy: Remedy[ServingEstimate]) -> Options:
    """The mildest of one remedy's changes with which the answer is yes."""
    kept = trials.kept(remedy.changes(trials.before, trials.registry))
    if remedy.changes is not wider_limits or trials.before.resolved.gpus is not None:
        return _one_of(kept)
    return sorted(kept, key=lambda option: option.after.gpus * _widening(trials.before, option.change))[:1]


def _widening(before: ServingEstimate, change: Change) -> float:
    """Times a limit that a change makes wider: a limit twice as wide is worth half of the GPUs [-]."""
    limits = {f"limits.{name}": getattr(before.resolved.limits, name) for name in LATENCY_LIMITS}
    return max(float(str(value)) / float(limits[key]) for key, value in change.values.items() if key in limits)


def _one_of(options: Iterable[Option[ServingEstimate]]) -> Options:
    first = next(iter(options), None)
    return [] if first is None else [first]


def _less_and_narrower(trials: Serving) -> Options:
    """What the GPUs that are there take with the narrowest weights and cache that they need."""
    formats = [*narrower_weights(trials.before), *narrower_cache(trials.before)]
    found: Options = []
    for change in (*formats, *([together(formats[-2:])] if len(formats) > 1 else ())):
        after = trials.estimate(change)
        if after is not None and after.fits:
            found += _one_of(trials.kept(together([change, fewer]) for fewer in less_load(after)))
    return sorted(found, key=lambda option: -option.after.requests_per_s)[:1]


def _fitting(trials: Serving) -> Iterator[Option[ServingEstimate]]:
    """Changes that fit and still miss a limit, the mildest of each remedy."""
    for remedy in TO_FIT:
        changes = remedy.changes(trials.before, trials.registry)
        yield from _one_of(trials.kept(changes, lambda after: after.fits))


def _gains(trials: Serving) -> Options:
    """Changes that serve the same with fewer GPUs, or more on the same."""
    changes: list[Change] = [change for remedy in TO_GAIN for change in remedy.changes(trials.before, trials.registry)]
    most = WORTH_SAYING * gpus_per_load(trials.before)
    better = [option for option in trials.kept(changes) if gpus_per_load(option.after) <= most]
    risky = [option.change for option in better if less_sure(trials.before, option.after)]
    safer = [
        together([change, *same_certainty(trials.before)]) for change in risky if any(same_certainty(trials.before))
    ]
    better += [option for option in trials.kept(safer) if gpus_per_load(option.after) <= most]
    return sorted(
        better,
        key=lambda option: (
            less_sure(trials.before, option.after), gpus_per_load(option.after), option.change.effort
        ),
    )  # fmt: skip


def _cheaper_limit(trials: Serving) -> Options:
    """The limit that costs most of the GPUs, as little wider as takes less than half of them."""
    before = trials.before
    if before.resolved.load in (None, "batch") or before.resolved.gpus is not None:
        return []
    kept = trials.kept(looser_limits(before))
    return _one_of(option for option in kept if option.after.gpus < MUCH_FEWER * before.gpus)


def less_sure(before: ServingEstimate, after: ServingEstimate) -> bool:
    """Whether a limit is less sure after a change than the least sure one before, unless it is sure all the same."""
    now, then = before.least_sure, after.least_sure
    if before.confidence is not None or now is None or then is None:
        return False
    return then < min(now, CERTAINTIES[SURE])


def gpus_per_load(estimate: ServingEstimate) -> float:
    """GPUs for a unit of the load that is asked, or for a request per second that can be taken."""
    if estimate.resolved.fit is not None:
        return estimate.gpus / what_fits(estimate)[0]
    if estimate.resolved.load not in (None, "batch") and estimate.resolved.gpus is None:
        return estimate.gpus / estimate.resolved.amount
    rate = estimate.most_per_s if estimate.resolved.load == "request_rate" else 0.0
    return estimate.gpus / max(rate or estimate.requests_per_s, 1e-12)


def effect_words(before: ServingEstimate, option: Option[ServingEstimate], gains: bool) -> str:
    """GPUs, latencies at the percentile of the limits, what is taken against before, and what is still missed."""
    after = option.after
    replicas, size_ = after.replicas, int(after.placement.gpus[0])
    words = f"{replicas} replica{'s' if replicas > 1 else ''} of {size_} GPU{'s' if size_ > 1 else ''}"
    if prefills := after.choice.prefills:
        words = f"{prefills.replicas} prefill of {prefills.placement.gpus[0]} + {replicas} decode of {size_} GPUs"
    if before.fits and after.gpus != before.gpus and "gpus" not in option.change.values:
        words = f"{after.gpus} instead of {before.gpus} GPUs ({words})"
    if gains and before.resolved.fit is not None:
        most, unit = what_fits(after)
        return f"{most:,.0f} instead of {what_fits(before)[0]:,.0f} {unit} ({words})"
    first = "to the first token (TTFT)" if after.resolved.job.answers else "a request"
    words += f", {time_words(after.ttft_s)} {first}"
    words += f", {time_words(after.tpot_s)} per token (TPOT)" if after.tpot_s else ""
    if after.resolved.load == "request_rate":
        words += f", up to {rounded(after.most_per_s, down=True):g} requests/s"
        words += f" instead of {rounded(before.most_per_s, down=True):g}" if gains else ""
    elif not after.resolved.job.answers:
        words += f", {after.taken_per_s:,.6g} requests/s"
    else:
        words += f", {after.taken_per_s * after.resolved.traffic.outputs:,.0f} output tokens/s in all"
        more = gains and after.gpus == before.gpus
        words += f" instead of {before.requests_per_s * before.resolved.traffic.outputs:,.0f}" if more else ""
    words += price_words(before, after) if gains else ""
    words += certainty_words(before, after)
    missed = [limit.name for limit in after.limits if not limit.ok]
    return f"{words}; still misses {', '.join(missed)}" if missed else words


def price_words(before: ServingEstimate, after: ServingEstimate) -> str:
    """What an hour costs instead of before: `; 12.00 instead of 24.00 USD an hour`; empty where no price is known.

    Servers that are sold whole may stay the same on fewer GPUs; electricity alone differs then.
    """
    if before.cost is None or after.cost is None:
        return ""
    tariff = after.resolved.tariff
    same = tariff.sold_together > 1 and after.billed_gpus == before.billed_gpus
    if round(before.cost, 2) == round(after.cost, 2):
        return f"; {'the same servers at ' if same else ''}the same price"
    servers = " for the same servers" if same else ""
    return f"; {after.cost:,.2f} instead of {before.cost:,.2f} {tariff.currency} an hour{servers}"


def certainty_words(before: ServingEstimate, after: ServingEstimate) -> str:
    """How sure the least sure limit on latency is met, where it is not sure: `; met, unsure: 50 %, now 65 %`."""
    then, now = after.least_sure, before.least_sure
    if then is None or not after.keeps_limits or certainty_of(then) == SURE:
        return ""
    known = f", now {100 * now:.0f} %" if before.ok and now is not None else ""
    return f"; met, {certainty_of(then)}: {100 * then:.0f} %{known}"


def time_words(seconds: float) -> str:
    """A latency as people read it; where more arrives than is taken, nothing bounds it."""
    if math.isinf(seconds):
        return "unbounded time"
    return f"{three_digits(1e3 * seconds)} ms" if seconds < 0.9995 else f"{three_digits(seconds)} s"
