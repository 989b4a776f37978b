"""Write the tables of residuals from measured runs: python scripts/build_residuals.py [--seen-only] [--shown] FILE...

Records of training fill xe_sizer/software/residuals/training.json and training-seen.json, those of inference
serving.json and serving-seen.json: the quantiles that ranges are made of, and how the runs fared in the ranges as they
are. With --seen-only the quantiles stay. training-memory.json gets the quantiles of measured over predicted peaks of
memory, and how likely a run ends for want of it. With --shown the publications that are held out (held_out.py) have no
part, so that its figures are of runs that no range has seen.

Prints, by stratum, how many runs lie inside a range in which their own source had no part, and how wide it is; and what
the three words on memory come to where each publication is judged by the others.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from held_out import record_held_out, words_on_memory
from msgspec.structs import asdict

from xe_sizer.evidence.calibrate import MemoryFits, Peak, collect_peaks, fit_spread, said_to_fit
from xe_sizer.evidence.calibrate import left_out as chances_left_out
from xe_sizer.evidence.records import read_records
from xe_sizer.evidence.residuals import (
    Run,
    collect_runs,
    collect_serving_runs,
    coverage,
    left_out,
    observed,
    residual_table,
)
from xe_sizer.result.common import memory_word
from xe_sizer.serving import uncertainty as serving
from xe_sizer.software.uncertainty import published
from xe_sizer.training import uncertainty as training

LEAST_RUNS = 31  # a stratum of fewer is not told apart


def write(rows: Iterable[Mapping[str, object]], path: Path) -> None:
    path.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n", encoding="utf-8")


def write_quantiles(runs: Sequence[Run], path: Path) -> None:
    write((
        {
            "quantity": quantity, "conditions": conditions, "runs": found.runs, "publications": found.publications,
            "low": round(found.low, 4), "high": round(found.high, 4),
        }
        for (quantity, conditions), found in sorted(residual_table(runs).items())
    ), path)  # fmt: skip


def write_seen(runs: Sequence[Run], path: Path) -> None:
    table = {group: asdict(found) for group, found in sorted(observed(runs).items())}
    rounded = {group: {name: round(value, 3) for name, value in row.items()} for group, row in table.items()}
    write(({"stack": stack, "kind": kind, **row} for (stack, kind), row in rounded.items()), path)


def write_peaks(peaks: Sequence[Peak]) -> None:
    spread, runs, sources = fit_spread(peaks)
    ends = {name: round(getattr(spread, name), 3) for name in ("low", "middle", "high")}
    chance = {name: round(value, 3) for name, value in asdict(MemoryFits(peaks).best).items()}
    table = {"runs": runs, "sources": sources, **ends, "out_of_memory": chance}
    training.PEAKS.write_text(json.dumps(table) + "\n", encoding="utf-8")


def strata(runs: Sequence[Run]) -> Iterator[tuple[str, list[int]]]:
    """Places of all runs of a quantity, and of those under each set of conditions that enough of them have."""
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for place, run in enumerate(runs):
        groups[run.quantity, ""].append(place)
        groups[run.quantity, ", ".join(run.conditions)].append(place)
    yield from ((" ".join(name), groups[name]) for name in sorted(groups) if len(groups[name]) >= LEAST_RUNS)


def tell(runs: Sequence[Run]) -> None:
    """Print coverage and width of every stratum, publications weighted alike; a source is judged by the others."""
    alone = left_out(runs)
    for name, places in strata(runs):
        members = [runs[place] for place in places]
        inside, width = alone.coverage(places), alone.median_width(places)
        shares = f"{coverage(members):5.1%} inside, {inside:5.1%} without their source at a median width of {width:.2f}"
        print(f"{len(members):5} runs {len({run.source for run in members}):3} publications  {shares}  {name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--seen-only", action="store_true", help="leave the quantiles as they are")
    parser.add_argument("--shown", action="store_true", help="without the publications that are held out")
    asked = parser.parse_args()
    records = [record for file in asked.files for record in read_records(file).records]
    if asked.shown:
        records = [record for record in records if not record_held_out(record)]
    trained = [record for record in records if not record.serves]
    served = [record for record in records if record.serves]
    for of_wing, runs_of_wing, tables in ((trained, collect_runs, training), (served, collect_serving_runs, serving)):
        runs = runs_of_wing(of_wing)
        if not runs:
            continue
        if not asked.seen_only:
            write_quantiles(runs, tables.TABLE)
            published.cache_clear()
            runs = runs_of_wing(of_wing)  # once more, in the ranges as they are now
        write_seen(runs, tables.SEEN)
        tell(runs)
        if of_wing is trained and not asked.seen_only:
            peaks = list(collect_peaks(of_wing))
            write_peaks(peaks)
            told(peaks)


def told(peaks: Sequence[Peak]) -> None:
    """Print what the three words come to, each publication judged by the others, known lengths apart."""
    chances = chances_left_out(peaks)
    for name, mine in (("all", peaks), ("known", [peak for peak in peaks if not peak.guessed])):
        known = [peak for peak in mine if peak.fits is not None]
        said = [
            (peak.source, memory_word(said_to_fit(peak, chances), peak.said_to_fit), bool(peak.fits)) for peak in known
        ]
        print(f"memory, {name}: {words_on_memory(said)}")


if __name__ == "__main__":
    main()
