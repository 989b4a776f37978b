"""Write docs/reference/mixtures.md: layouts on which large mixtures were trained, and what is estimated of them.

python scripts/mixtures.py
"""

from __future__ import annotations

from pathlib import Path
from statistics import median

import msgspec

import xe_sizer.training.jobs  # noqa: F401  the names of jobs
from xe_sizer.profiles.catalogue import Registry
from xe_sizer.profiles.yaml_reader import load_yaml
from xe_sizer.report.format import number
from xe_sizer.result.training import Result
from xe_sizer.scenario.read import read_scenario
from xe_sizer.studies.estimate import estimate
from xe_sizer.units import GIB

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "mixtures.md"
FOLDER = "examples/mixtures"
HEADER = """# Large mixtures of experts as people train them

Written by `python scripts/mixtures.py` from the published figures in `scripts/mixtures.yaml`. Every row is a file in
`examples/mixtures` with the layout of its source; all of them ran.

```sh
xe-sizer estimate examples/mixtures/deepseek-v3-2048-h800.yaml
```

| run | parallelism | needed of usable GiB | peak, published | estimated | step, published | estimated | ratio |
|---|---|---|---|---|---|---|---|
"""
NOTES = """
Needed is the cautious peak that the verdict rests on; peaks are what PyTorch has allocated in GiB, as a run typically
shows. Half of the steps are within {half:.0%} of the published ones, half of the peaks within {peaks:.0%}.

What is not priced: the training of sparse attention's indexer, its loss, and deterministic kernels (GLM-5.2); what the
host adds to a step of a single micro-batch (Moonlight); layers that predict further tokens.

Benchmarks balance the routing by force (`expert_skew: 1` in the files). In a training it is uneven. The default is
the stack's, 1.1; give what the statistics of your router say. Tokens beyond a capacity are dropped; padding fills
every expert up to it:

```sh
xe-sizer estimate examples/mixtures/mixtral-8x22b-128-h100.yaml --expert-skew 1.4
xe-sizer estimate examples/mixtures/mixtral-8x22b-128-h100.yaml --expert-skew 1.4 --capacity-factor 1.25
xe-sizer estimate examples/mixtures/mixtral-8x22b-128-h100.yaml --capacity-factor 1.25 --pad-to-capacity
```
"""


class Run(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A published run: its file, seconds of a step and what they follow from, peaks, title and link of the source."""

    file: str
    run: str
    step_s: float
    source: tuple[str, str]
    derived: str = msgspec.field(name="from", default="")
    allocated_gib: float | None = None
    reserved_gib: float | None = None


def runs() -> tuple[Run, ...]:
    """All published runs, as the file lists them."""
    listed = load_yaml(Path(__file__).with_suffix(".yaml")).value
    return msgspec.convert(listed, dict[str, tuple[Run, ...]])["runs"]


def answer(run: Run) -> Result:
    """What is estimated for the run's layout."""
    return estimate(read_scenario(ROOT / FOLDER / f"{run.file}.yaml", {}, {}), Registry())


def page() -> str:
    """The page as it should be."""
    answers = [(run, answer(run)) for run in runs()]
    half = median(abs(result.time.step_s.expected / run.step_s - 1.0) for run, result in answers)
    peaks = median(
        abs(result.memory.allocated_bytes / GIB / run.allocated_gib - 1.0)
        for run, result in answers
        if run.allocated_gib
    )
    return f"{HEADER}{''.join(_row(run, result) for run, result in answers)}{NOTES.format(half=half, peaks=peaks)}"


def _row(run: Run, result: Result) -> str:
    layout, step_s = result.layout, result.time.step_s.expected
    degrees = {"tp": layout.tp, "pp": layout.pp, "vpp": layout.vpp, "cp": layout.cp, "ep": layout.ep}
    degrees["expert tp"] = layout.expert_tp or 1
    title, url = run.source
    published = f"{number(run.step_s)} s ([{title}]({url}){f'; {run.derived}' if run.derived else ''})"
    cells = (
        f"[{run.run}](../../{FOLDER}/{run.file}.yaml)",
        ", ".join(f"{name} {degree}" for name, degree in degrees.items() if degree > 1),
        f"{number(result.memory.peak_bytes / GIB)} of {number(result.memory.usable_bytes / GIB)}",
        number(run.allocated_gib) if run.allocated_gib else "", number(result.memory.allocated_bytes / GIB),
        published, f"{number(step_s)} s", f"{step_s / run.step_s:.2f}",
    )  # fmt: skip
    return f"| {' | '.join(cells)} |\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
