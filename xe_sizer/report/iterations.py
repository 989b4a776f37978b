"""Iterations of reinforcement learning in words and tables: their answers, their phases, the GPUs at work in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from xe_sizer.report.document import Column, Point, Table
from xe_sizer.report.format import clean, count, duration, gib, number, percent, plural, whole
from xe_sizer.report.plan_words import layout_words

if TYPE_CHECKING:
    from xe_sizer.result.training import Iteration, Phase, Pool, Result

BOTH = "trainer and rollout"  # name of a pool that does both in turn
LITTLE = 0.01  # share of an iteration under which the first screen does not name a phase
WAIT_NOTE = "wait: share of an iteration spent waiting for the other GPUs"
WAITS = 0.05  # share of GPU time that is worth a word of the first screen


def round_noun(scenario: Mapping[str, Any]) -> str:
    """What the run counts: an iteration of reinforcement learning, or an optimizer step."""
    return "iteration" if scenario.get("rollout") else "step"


def iteration_points(result: Result) -> Iterator[Point]:
    """What an iteration spends its time on, its answers, and who writes them; nothing of other jobs."""
    one = result.iteration
    if one is None:
        return
    if result.verdict.fits:
        yield Point("Iteration", ", ".join(_shares(result)))
    yield Point("Answers", _answers(one), spare=2)
    yield Point("Rollout", _rollout(one, result.pools))


def _shares(result: Result) -> Iterator[str]:
    """The phases, the longest first; those that others hide stand behind."""
    for phase in sorted(result.phases, key=lambda phase: -phase.seconds):
        if phase.hidden:
            yield f"{clean(phase.name)} {duration(phase.seconds)} meanwhile"
        elif phase.share >= LITTLE:
            yield f"{clean(phase.name)} {duration(phase.seconds)} ({percent(phase.share)})"


def _answers(one: Iteration) -> str:
    each = f" ({plural(round(one.prompts), 'prompt')} x {one.group})" if one.group > 1 else ""
    longest = f"the longest about {count(round(one.longest_tokens))}"
    cut = f", {percent(one.cut_share)} cut at {count(one.max_output_tokens)}" if one.cut_share >= LITTLE else ""
    trained = "" if one.trained_answers == one.answers else f", {count(round(one.trained_answers))} trained on"
    tokens = f"{count(round(one.output_tokens))} tokens each in the mean"
    return f"{count(round(one.answers))} per iteration{each}{trained}; {tokens}, {longest}{cut}"


def _rollout(one: Iteration, pools: tuple[Pool, ...]) -> str:
    """Which GPUs write the answers, how, and what waits."""
    writer = writing_pool(pools)
    if writer is None:
        return "none"
    engine = f"{clean(writer.engine)} in {plural(writer.replicas, 'replica')} of {_sizes(writer)}"
    where = "in turn with training" if one.colocated else f"on {plural(writer.gpus, 'GPU')} of its own"
    late = f", answers up to {plural(one.max_staleness, 'iteration')} old" if one.asynchronous else ""
    waiting = f"; GPUs wait {percent(one.idle_share)} of the time" if one.idle_share >= WAITS else ""
    return f"{engine}, {where}{late}; {number(one.output_tokens_per_s)} tokens/s{waiting}"


def _sizes(pool: Pool) -> str:
    """The parallel sizes of a replica."""
    sizes = [f"{name} {size}" for name, size in (("tp", pool.tp), ("pp", pool.pp), ("ep", pool.ep)) if size > 1]
    return ", ".join(sizes) or "one GPU"


def iteration_tables(result: Result) -> Iterator[Table]:
    """The phases, and the pools where GPUs do different work; nothing of other jobs."""
    if result.phases and result.verdict.fits:
        yield _phases_table(result)
    if len(result.pools) > 1:
        yield _pools_table(result.pools)


def _phases_table(result: Result) -> Table:
    rows = [
        (
            clean(one.name),
            duration(one.seconds),
            _share(one),
            whole(one.gpus),
            gib(one.peak_bytes),
            clean(one.bound).rpartition(": ")[2],
        )
        for one in result.phases
    ]
    peak = gib(max(one.peak_bytes for one in result.phases))
    rows.append(("iteration", duration(result.time.step_s.expected), "100 %", whole(result.gpus.count), peak, ""))
    columns = (
        Column("phase"),
        Column("time", True),
        Column("share", True),
        Column("GPUs", True),
        Column("GiB per GPU", True),
        Column("mostly", spare=1),
    )
    hidden = any(one.hidden for one in result.phases)
    note = "meanwhile: beside the longer work of the other GPUs, so that it adds nothing" if hidden else ""
    shares = (*(one.share for one in result.phases), None)
    return Table("Phases of an iteration", columns, tuple(rows), shares=shares, totals=1, note=note)


def _share(phase: Phase) -> str:
    return "meanwhile" if phase.hidden else percent(phase.share)


def _pools_table(pools: tuple[Pool, ...]) -> Table:
    rows = tuple(
        (clean(one.name), whole(one.gpus), gib(one.peak_bytes), percent(one.idle_share), pool_words(one))
        for one in pools
    )
    columns = (
        Column("GPUs that"),
        Column("GPUs", True),
        Column("GiB per GPU", True),
        Column("wait", True),
        Column("layout", least=24),
    )
    names = {"trainer": "train", "rollout": "write answers"}
    told = tuple((names.get(row[0], row[0]), *row[1:]) for row in rows)
    return Table("Split of the GPUs", columns, told, note=WAIT_NOTE)


def pool_words(pool: Pool) -> str:
    """What one GPU pool runs, in a few words."""
    if pool.layout is not None:
        return layout_words(pool.layout)
    return f"{plural(pool.replicas, 'replica')} of {_sizes(pool)}, {clean(pool.engine)}"


def writing_pool(pools: tuple[Pool, ...]) -> Pool | None:
    """The GPUs that write answers; None of other jobs."""
    return next((pool for pool in pools if pool.replicas), None)


def split_words(pools: tuple[Pool, ...]) -> str:
    """How a plan splits its GPUs: `24 train, 8 write (8 replicas of one GPU)`, or `in turn, ...`; else empty."""
    writer = writing_pool(pools)
    if writer is None:
        return ""
    replicas = f"{plural(writer.replicas, 'replica')} of {_sizes(writer)}"
    if writer.name == BOTH:
        return f"in turn, {replicas}"
    trainer = sum(pool.gpus for pool in pools if not pool.replicas)
    return f"{trainer:,} train, {writer.gpus:,} write ({replicas})"


def iteration_rows(result: Result) -> Iterator[tuple[str, str, str]]:
    """Rows of the whole job about answers; nothing of other jobs."""
    one = result.iteration
    if one is None:
        return
    steps = plural(one.optimizer_steps, "optimizer step")
    yield "answers per iteration", count(round(one.answers)), f"{plural(round(one.prompts), 'prompt')}, {steps}"
    cut = f"{percent(one.cut_share)} cut at {count(one.max_output_tokens)} tokens" if one.cut_share else ""
    yield "tokens of an answer", number(one.output_tokens), cut
    if result.verdict.fits:
        yield "output tokens per second", number(one.output_tokens_per_s), "of all replicas, while answers are written"
        yield "GPU time spent waiting", percent(one.idle_share), "for the longest answers or the other GPUs"
