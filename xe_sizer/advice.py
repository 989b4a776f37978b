"""What to change: the smallest changes that mend a job, or a faster layout, each one estimated again."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, islice
from pathlib import Path

from xe_sizer.errors import InputError
from xe_sizer.profiles.registry import Registry
from xe_sizer.question import resolve
from xe_sizer.result import Advice
from xe_sizer.scenario.scenario import OPTIONS, Given, read_scenario
from xe_sizer.sizing import LARGEST_SEARCH, Priced, price
from xe_sizer.training.layout import OFFLOAD, RECOMPUTE
from xe_sizer.units import GIB, HOUR_S

MOST_ADVICE = 5
WORTH_SAYING = 0.05  # a faster layout is mentioned from this share of the time on
OPTION_OF = {key: option for option, key in OPTIONS.items()}
# A flag of ours takes the place of the user's flag that says the same in another way.
REPLACED_BY = {"server": "gpu", "nodes": "gpus"}
SHORTER = (2, 4, 8, 16)  # parts of the sequence length to try
# Accelerators to suggest instead, by growing memory; the first larger ones that are sold in the same form.
ROOM = 0.02  # no change is suggested that leaves less than this share of the card free
NOTICEABLY = 1.1  # a larger card has at least this times the memory
LARGER_GPUS = ("a100-sxm-80gb", "h100-sxm-80gb", "h200-sxm-141gb", "b200", "mi300x", "b300")


@dataclass(frozen=True, eq=False)
class Change:
    """Scenario keys to set and how to say so; `cost` orders what a user would rather do first."""

    words: str
    values: Mapping[str, object]
    cost: int


def _lighter_training(priced: Priced) -> Iterator[Change]:
    """Changes that keep model, method and hardware."""
    layouts, job = priced.layouts, priced.question.job
    micro = int(layouts.micro_batch[0])
    if micro > 1:
        for smaller in sorted({1, micro // 2}, reverse=True):
            if micro % smaller == 0:
                yield Change(f"micro-batch {smaller} instead of {micro}", {"train.micro_batch": smaller}, 1)
    recompute = int(layouts.recompute[0])
    for stronger in range(recompute + 1, len(RECOMPUTE)):
        yield Change(f"{RECOMPUTE[stronger]} recomputation", {"layout.recompute": RECOMPUTE[stronger]}, 2)
    zero = int(layouts.zero[0])
    if int(layouts.dp[0]) > 1:
        for stage in job.stack.supports.zero:
            if stage > zero and (stage < 2 or int(layouts.pp[0]) == 1):
                yield Change(f"ZeRO stage {stage}", {"layout.zero": stage}, 2)
    if job.optimizer == "adamw" and "adamw-8bit" in job.stack.states.moment_bytes:
        yield Change("8-bit AdamW", {"optimizer": "adamw-8bit"}, 3)
    for offload in job.stack.supports.offload[int(layouts.offload[0]) + 1 :]:
        values: dict[str, object] = {"layout.offload": offload}
        if offload == OFFLOAD[2] and int(layouts.dp[0]) > 1:
            values["layout.zero"] = 3
        yield Change(f"offload {offload} to the host", values, 4)


def _other_layouts(priced: Priced) -> Iterator[Change]:
    """More tensor or pipeline parallelism on the same GPUs, with the rest of the layout kept."""
    job, layouts = priced.question.job, priced.layouts
    tp, pp, gpus = int(layouts.tp[0]), int(layouts.pp[0]), priced.gpus
    if job.stack.supports.tensor_parallel and "tp" in priced.question.fixed:
        for wider in (2 * tp, 4 * tp, 8 * tp):
            if wider <= job.server.accelerators and job.model.heads % wider == 0 and gpus % (wider * pp) == 0:
                yield Change(f"tp {wider} instead of {tp}", {"layout.tp": wider}, 2)
    if job.stack.supports.pipeline_parallel and "pp" in priced.question.fixed:
        for deeper in (2 * pp, 4 * pp):
            if job.model.layers % deeper == 0 and gpus % (tp * deeper) == 0:
                yield Change(f"pp {deeper} instead of {pp}", {"layout.pp": deeper}, 3)


def _more_gpus(priced: Priced) -> Iterator[Change]:
    most = priced.question.given.values.limits.max_gpus
    minimum = priced.minimum
    if minimum is not None and minimum > priced.gpus and (most is None or minimum <= most):
        yield Change(f"{minimum} GPUs instead of {priced.gpus}", {"gpus": minimum}, 5)


def _larger_gpus(priced: Priced, registry: Registry) -> Iterator[Change]:
    gpu = priced.question.job.server.accelerator
    if priced.question.given.values.limits.max_cost is not None:
        return  # the price that the user gave is not that of another card
    for name in LARGER_GPUS:
        larger = registry.accelerator(name)
        if larger.memory_bytes > gpu.memory_bytes * NOTICEABLY:
            size = f"{larger.memory_bytes / GIB:.0f} GiB"
            yield Change(f"{name} ({size}) instead of {gpu.name}", {"gpu": name, "gpus": priced.gpus}, 6)


def _smaller_job(priced: Priced) -> Iterator[Change]:
    job = priced.question.job
    if job.method.name == "sft":
        yield Change("LoRA instead of full fine-tuning", {"job": "lora"}, 7)
        yield Change("QLoRA instead of full fine-tuning", {"job": "qlora"}, 8)
    if job.method.name == "lora":
        yield Change("QLoRA instead of LoRA", {"job": "qlora"}, 7)


def _shorter_sequences(priced: Priced) -> Iterator[Change]:
    whole = priced.question.job.seq_len
    for part in SHORTER:
        if whole // part >= 512:
            tokens = whole // part
            yield Change(f"sequences of {tokens:,} tokens instead of {whole:,}", {"train.seq_len": tokens}, 8)


def _kept(flags: Mapping[str, object], values: Mapping[str, object]) -> dict[str, object]:
    """The flags that stay beside the keys that are set."""
    return {key: value for key, value in flags.items() if value is not None and REPLACED_BY.get(key, key) not in values}


def changed(given: Given, values: Mapping[str, object]) -> Given:
    """The same question with some keys set as flags would set them. Raises InputError."""
    return read_scenario(given.path, {**_kept(given.flags, values), **values}, given.environment)


def command(given: Given, values: Mapping[str, object], folders: Iterable[Path] = ()) -> str:
    """The command line that asks the question with the keys set; `folders` hold the user's own profiles."""
    words = ["xe-sizer", "estimate"]
    if given.path is not None:
        words.append(str(given.path))
    asked = {**_kept(_from_environment(given), values), **_kept(given.flags, values), **values}
    for key, value in asked.items():
        option = f"--{OPTION_OF[key]}"
        if value is True:
            words.append(option)
        elif value is not False:
            words += [option, _text(value)]
    for folder in folders:
        words += ["--profiles", str(folder)]
    return shlex.join(words)


def _text(value: object) -> str:
    """A value as a flag takes it."""
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def _from_environment(given: Given) -> dict[str, object]:
    """Values that came from XE_SIZER_* variables: the printed command says them itself."""
    found = {}
    for key, origin in given.origin.items():
        if origin == "env":
            value: object = given.values
            for part in key.split("."):
                value = getattr(value, part)
            found[key] = value
    return found


def _priced(given: Given, change: Change, registry: Registry) -> Priced | None:
    """The changed question priced; None where the change is not legal."""
    try:
        return price(resolve(changed(given, change.values), registry), look_for_minimum=False)
    except InputError:
        return None


def _meets(priced: Priced) -> bool:
    limits = priced.question.given.values.limits
    hours, rate = priced.total_s / HOUR_S, priced.question.price_per_gpu_hour
    in_time = limits.max_hours is None or hours <= limits.max_hours
    in_budget = limits.max_cost is None or (rate is not None and hours * priced.gpus * rate <= limits.max_cost)
    in_number = limits.max_gpus is None or priced.gpus <= limits.max_gpus
    return priced.choice.fits and in_time and in_budget and in_number


def _effect(before: Priced, after: Priced) -> str:
    peak, usable = after.peak_bytes / GIB, after.usable_bytes / GIB
    words = f"{peak:.1f} of {usable:.1f} GiB per GPU"
    if before.question.gpus is None and after.gpus != before.gpus:
        words += f" on {after.gpus} instead of {before.gpus}"
    words += f", {_hours(after)} h"
    return f"{words} instead of {_hours(before)} h" if before.fits else words


def _hours(priced: Priced) -> str:
    hours = priced.total_s / HOUR_S
    return f"{hours:,.0f}" if hours >= 100 else f"{hours:.3g}"


def _tried(priced: Priced, changes: Iterable[Change], registry: Registry) -> Iterator[tuple[Change, Priced]]:
    """Those of the changes that make the job fit and meet its limits."""
    for change in changes:
        after = _priced(priced.question.given, change, registry)
        if after is not None and _meets(after) and after.peak_bytes <= after.usable_bytes * (1.0 - ROOM):
            yield change, after


def _pairs(changes: list[Change]) -> Iterator[Change]:
    for first, second in combinations(changes, 2):
        if not set(first.values) & set(second.values):
            words = f"{first.words} and {second.words}"
            yield Change(words, {**first.values, **second.values}, first.cost + second.cost)


def _first(found: Iterator[tuple[Change, Priced]]) -> Iterator[tuple[Change, Priced]]:
    return islice(found, 1)


def _made_to_fit(priced: Priced, registry: Registry) -> list[tuple[Change, Priced]]:
    """Changes that bring memory down: single light ones, else pairs of them; hardware; a smaller job."""
    light = [*_lighter_training(priced), *_other_layouts(priced)]
    larger = list(_larger_gpus(priced, registry))
    found = list(_tried(priced, light, registry)) or list(_tried(priced, _pairs(light), registry))
    found += _tried(priced, _more_gpus(priced), registry)
    found += _first(_tried(priced, larger, registry))
    found += _tried(priced, _smaller_job(priced), registry)
    found += _first(_tried(priced, _shorter_sequences(priced), registry))
    return found or list(_first(_tried(priced, _pairs([*larger, *light, *_smaller_job(priced)]), registry)))


def _made_to_meet_limits(priced: Priced, registry: Registry) -> Iterator[tuple[Change, Priced]]:
    """Changes of time and price: other GPU counts, other GPUs, a smaller job."""
    most = priced.question.given.values.limits.max_gpus or LARGEST_SEARCH
    counts = [
        count for count in (priced.gpus // 2, 2 * priced.gpus, 4 * priced.gpus, 8 * priced.gpus) if 0 < count <= most
    ]
    other_counts = [Change(f"{count} GPUs instead of {priced.gpus}", {"gpus": count}, 5) for count in counts]
    yield from (option for option in _faster(priced) if _meets(option[1]))
    yield from _tried(priced, other_counts, registry)
    yield from _first(_tried(priced, _larger_gpus(priced, registry), registry))
    yield from _tried(priced, _smaller_job(priced), registry)
    yield from _first(_tried(priced, _shorter_sequences(priced), registry))


def _faster(priced: Priced) -> Iterator[tuple[Change, Priced]]:
    """Leaving the layout open, where that is faster than what the user fixed."""
    question = priced.question
    try:
        after = price(question.without_layout(), look_for_minimum=False)
    except InputError:  # the search's own choices may not divide a count that the user's do
        return
    if after.fits and after.total_s < priced.total_s * (1.0 - WORTH_SAYING):
        chosen = {name: int(getattr(after.layouts, name)[0]) for name in question.fixed}
        values = {_key(name): _value(name, value) for name, value in chosen.items() if question.fixed[name] != value}
        words = ", ".join(f"{key.rpartition('.')[2].replace('_', '-')} {value}" for key, value in values.items())
        if values and all(key in OPTION_OF for key in values):
            yield Change(f"a faster layout: {words}", values, 1), after


def _key(name: str) -> str:
    return "train.micro_batch" if name == "micro_batch" else f"layout.{name}"


def _value(name: str, code: int) -> object:
    return RECOMPUTE[code] if name == "recompute" else OFFLOAD[code] if name == "offload" else code


def advise(priced: Priced, registry: Registry) -> tuple[Advice, ...]:
    """Up to five changes, the ones a user would rather make first, then the faster; each was estimated."""
    given = priced.question.given
    if _meets(priced):
        options = list(_faster(priced)) if priced.question.fixed else []
    elif not priced.choice.fits:
        options = _made_to_fit(priced, registry)
    elif given.values.limits.max_cost is not None and priced.question.price_per_gpu_hour is None:
        options = []  # nothing can be said about a price that nobody knows
    else:
        options = list(_made_to_meet_limits(priced, registry))
    options.sort(key=lambda option: (option[0].cost, option[1].gpus, option[1].total_s))
    return tuple(
        Advice(
            change=change.words,
            effect=_effect(priced, after),
            command=command(given, change.values, registry.user_folders),
        )
        for change, after in options[:MOST_ADVICE]
    )
