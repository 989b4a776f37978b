"""Sections of docs/reference/accuracy.md on inference."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import yaml
from accuracy_tables import counted, errors, in_short, not_explained, publications, reasons, verdicts, worst
from accuracy_text import FROZEN, percent, round_by_round, table
from held_out import BY_MODEL, record_held_out

from xe_sizer.evidence.records import Record
from xe_sizer.evidence.residuals import collect_serving_runs, left_out
from xe_sizer.evidence.statistics import GUESSED, summaries
from xe_sizer.result.accuracy import Accuracy, Prediction

QUANTITIES = {
    "ttft": "Time to the first token", "tpot": "Time per output token", "encoding": "Time of a request without answers",
    "throughput": "Throughput",
}  # fmt: skip
SHOWN = (GUESSED, "stack", "gpu")
MANY_MODELS = (*BY_MODEL, "SemiAnalysis InferenceX, experimental decode-position sweeps on 8x H200")
FAR_OFF = 0.3


def served(records: list[Record], accuracy: Accuracy) -> list[str]:
    """Sections on inference."""
    out = {record.id for record in records if record_held_out(record)}
    looked_at = [one for one in accuracy.records if one.id not in out]
    groups = summaries(looked_at)
    sections = ["## Inference", counted(records), *_origins(records)]
    for quantity, name in QUANTITIES.items():
        sections += [f"### {name} in short", in_short(accuracy.records, quantity, out)]
    for quantity, name in QUANTITIES.items():
        sections += [f"### {name}", errors(groups, quantity, SHOWN), publications(looked_at, quantity)]
    return [
        *sections,
        "### Tests of many models, by engine", *_by_engine(records, looked_at),
        "### Peak memory of a batch", errors(groups, "peak_memory", ("stack", "gpu", "source")),
        "### Does it fit?", verdicts(groups, (GUESSED, "stack", "job")),
        "### Not explained", not_explained(records),
        "### Largest errors", worst(Accuracy(records=tuple(looked_at)), tuple(QUANTITIES)),
        "### Not predicted", reasons(one for one in accuracy.skipped if one.id not in out),
    ]  # fmt: skip


def _origins(records: list[Record]) -> list[str]:
    """What the figures of inference rest on."""
    runs = [run for run in collect_serving_runs(records) if not run.guessed]
    ranges = []
    for quantity, name in QUANTITIES.items():
        mine = [run for run in runs if run.quantity == quantity]
        if not mine:
            continue
        alone = left_out(mine)
        inside, width = alone.coverage(), alone.median_width()
        ranges.append(f"{name.lower()} {inside:.0%}, half of them within a factor of {width:.2f}")
    return [
        (
            "- **Left out** and **looked at** are drawn as for training. Of a publication that stands for tests of "
            "many models, a third of the models is left out.\n"
            "- **Tests**: a record that keeps a number of requests in flight is simulated as the test that it was, "
            "with the requests that it states.\n"
            "- **Ranges** rest on how far the predictions of all publications were off. If each publication is judged "
            f"by the others alone, of the measured figures lie inside: {'; '.join(ranges)}."
        ),
        "### Left out, round by round",
        round_by_round(yaml.safe_load(FROZEN.read_text(encoding="utf-8")), "inference"),
    ]


def _by_engine(records: Iterable[Record], predictions: Sequence[Prediction]) -> list[str]:
    """Errors of publications that test many models, by engine and quantity, and how many runs are far off."""
    stacks = {one.id: one.stack or "unstated" for one in records if one.title in MANY_MODELS}
    rows = []
    for quantity in QUANTITIES:
        mine = [one for one in predictions if one.quantity == quantity and one.id in stacks and one.ratio]
        by_stack = {name: [one for one in mine if stacks[one.id] == name] for name in sorted(set(stacks.values()))}
        rows += [(quantity, name, *_errors(found)) for name, found in by_stack.items() if found]
    titles = " and ".join(sorted({one.title for one in records if one.title in MANY_MODELS}))
    return [
        f"Runs of {titles} weigh alike here. A run is `far off` where its error is over {FAR_OFF:.0%}.",
        table(("quantity", "engine", "runs", "median error", "90 % below", "bias", "far off"), rows),
    ]


def _errors(mine: Sequence[Prediction]) -> tuple[str, ...]:
    ratios = np.array([one.ratio or 0.0 for one in mine])
    size = np.abs(ratios - 1.0)
    middle, high, bias = np.quantile(size, 0.5), np.quantile(size, 0.9), np.quantile(ratios, 0.5) - 1.0
    far = int((size > FAR_OFF).sum())
    return str(len(mine)), percent(middle), percent(high), percent(bias, "+"), str(far)
