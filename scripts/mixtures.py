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
Needed is the cautious peak that the verdict rests on; peaks are what PyTorch has allocated in GiB, or the card holds,
as a run typically shows. Half of the steps are within {half:.0%} of the published ones, half of the peaks within
{peaks:.0%}. The 199.5 GiB of DeepSeek-V3 in 16 bit are 36.4 of weights and gradients, 32.1 of optimizer states and 131
of activations, of a stage of 16 layers with experts; 36.6, 32.2 and 121 are estimated of the second stage.

What is not priced:

- Python around every layer. Megatron-LM starts the kernels of a layer with experts in 12 to 20 ms, both directions
  together, whatever its size (its functional tests on H100). That is hidden where a micro-batch computes for longer, or
  in CUDA graphs. Moonlight's step is 27 layers of 17 ms, of which the GPU computes 7. GLM-5.2 takes about 40 ms a layer
  and micro-batch with 1,024 and with 2,048 tokens a GPU, adapters or not, since every layer runs again.
- Training sparse attention's indexer, its loss, and deterministic kernels (GLM-5.2, another 50 ms a layer). Its peak
  is that of a run that resumed from a checkpoint.
- Layers that predict further tokens where one runs several times (Nemotron 3).

Overlapped exchanges of experts across nodes stay hidden by a share that was fitted to Qwen3-30B with HybridEP and the
overlapping run of Qwen3-235B (0.45 of what hides on NVLink). Runs that it was not fitted to: Qwen3-30B with NCCL's
all-to-all -5 % (31.3 s; without overlap -4 % of 41.3 s), DeepSeek-V3 on 1,024 H100 +4 %, Qwen3-235B in
[Megatron-Core's report](https://arxiv.org/abs/2603.07685) +13 % of 15.4 s. Each alone would say 0.38 to 0.71. The
exchanges themselves, of HybridEP and NCCL on 8 to 64 GB200 or H100, are within 6 % of that report in the median
(table 7), at most 18 % away.

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
    """A published run: its file, seconds of a step and what they follow from, peaks, title and link of the source.

    device_gib : peak of the whole card, where that alone was published
    """

    file: str
    run: str
    source: tuple[str, str]
    step_s: float | None = None
    derived: str = msgspec.field(name="from", default="")
    allocated_gib: float | None = None
    reserved_gib: float | None = None
    device_gib: float | None = None


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
    half = median(abs(result.time.step_s.expected / run.step_s - 1.0) for run, result in answers if run.step_s)
    compared = [peaks(run, result) for run, result in answers]
    close = median(abs(estimated / published - 1.0) for published, estimated in compared if published)
    return f"{HEADER}{''.join(_row(run, result) for run, result in answers)}{NOTES.format(half=half, peaks=close)}"


def peaks(run: Run, result: Result) -> tuple[float | None, float]:
    """Published and estimated peak in the same metric [GiB]: what is allocated, or what the card holds."""
    memory = result.memory
    if run.device_gib:
        return run.device_gib, memory.device_bytes / GIB
    return run.allocated_gib, memory.allocated_bytes / GIB


def _row(run: Run, result: Result) -> str:
    layout, step_s = result.layout, result.time.step_s.expected
    degrees = {"tp": layout.tp, "pp": layout.pp, "vpp": layout.vpp, "cp": layout.cp, "ep": layout.ep}
    degrees["expert tp"] = layout.expert_tp or 1
    title, url = run.source
    link = f"[{title}]({url}){f'; {run.derived}' if run.derived else ''}"
    peak, estimated = peaks(run, result)
    metric = " on the card" if run.device_gib else ""
    cells = (
        f"[{run.run}](../../{FOLDER}/{run.file}.yaml)",
        ", ".join(f"{name} {degree}" for name, degree in degrees.items() if degree > 1),
        f"{number(result.memory.peak_bytes / GIB)} of {number(result.memory.usable_bytes / GIB)}",
        f"{number(peak)}{metric}" if peak else "", f"{number(estimated)}{metric}",
        f"{number(run.step_s)} s ({link})" if run.step_s else link, f"{number(step_s)} s",
        f"{step_s / run.step_s:.2f}" if run.step_s else "",
    )  # fmt: skip
    return f"| {' | '.join(cells)} |\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
