"""Write docs/reference/stacks.md from the files of the stacks: python scripts/stacks.py

The page lists every stack with what it is and can do, and what older releases did otherwise; each links to its file,
which has the sources.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from xe_sizer.profiles.catalogue import load_stack
from xe_sizer.profiles.finder import BUILT_IN, releases
from xe_sizer.profiles.yaml_reader import load_yaml
from xe_sizer.software.stack import PARALLEL_WAYS, Stack

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "stacks.md"
FILES = "../../xe_sizer/software/stacks"
HEADER = """# Stacks

Written from the files of the stacks by `python scripts/stacks.py`.

A stack says what a training framework does: its kernels, the types of its weights and states, its launches, what it
overlaps, and what it does where nobody says otherwise. `--stack` takes the name of a stack, another name of it, a path
to a [file of your own](../adding.md), and a release: `nemo@24.07`, "NeMo 24.07", `transformers==4.36`. A release is the
framework's own number, or a month: `torchtitan@2024.12`. Without one it is the newest that is known.
`xe-sizer profiles show NAME` shows the figures that a stack's own file states, with their sources.

What you do otherwise than the framework by itself has a setting: `--weights-dtype`, `--recompute`, `--padding`,
`--loss`, `--attention`, `--fused-kernels`, `--lora-rank`, `--lora-targets`, `--quantiser` and the layout.

## What they are

A stack does what its parent does but for what its own file says. The file also names the files and functions of the
framework that say so; what no source says is called assumed.

| stack | also called | parent | what it is |
|---|---|---|---|
"""
DEFAULTS = """
## Defaults

What each does in its newest release where nobody says otherwise. Weights: the type that they are loaded in, where there
is a choice. ZeRO: stage with several GPUs (3 for FSDP), where one is usual. A dash: as memory needs, or as the layout
search finds.

| stack | weights | recomputes | ZeRO | padding | loss | attention | adapters |
|---|---|---|---|---|---|---|---|
"""
SUPPORTS = """
## What they can do

Parallel: tensor (tp), pipeline (pp), context (cp) and expert (ep) parallelism beside data parallelism.

| stack | parallel | ZeRO | offloads | pipelines |
|---|---|---|---|---|
"""
RELEASES = """
## Releases

What releases before the one that is named did otherwise; of what two rows say, the older one holds for releases before
both. The keys are those of the stack's file, which has the source of each.

| stack | before | was otherwise |
|---|---|---|
"""
KEYS = """
### Keys

| key | meaning |
|---|---|
"""
MEANINGS = {
    "boundaries": "how tensors pass from one pipeline stage to the next",
    "defaults": "what the stack does where nobody says otherwise; `zero`: stages among which a layout is searched",
    "gradients": "what sections are where gradients are kept in float32, or in the 16-bit type of the run (`half`)",
    "host": "time that Python takes to launch a kernel [us]",
    "kernels": "how parts of the model are computed: `eager` one operator after the other, `fused` in one kernel; "
    "`dispatch` of tokens to experts, for each expert or once for each place that holds some",
    "loads": "what `states` are where weights are loaded in a number format",
    "memory": "what stands beside the tensors, and what an update holds while it runs",
    "mixed_precision": "what `states` are with autocast and without it, whatever is loaded",
    "overlap": "share of each exchange that compute hides",
    "parent": "the stack of which all else is taken",
    "rollout": "how answers are written where a job learns from its own, and what waits in host memory meanwhile",
    "states": "bytes for each parameter, and where they are wider than what is loaded (`autocast`, `..._upcast`)",
    "supports": "what the stack can do",
}


def page() -> str:
    """The text of the page."""
    stacks = [load_stack(name) for name in BUILT_IN.names("stack")]
    keys = (_row(f"`{key}`", words) for key, words in MEANINGS.items())
    tables = (_tables(HEADER, _is, stacks), _tables(DEFAULTS, _defaults, stacks), _tables(SUPPORTS, _can, stacks))
    return "".join((*tables, RELEASES, *list_releases(), KEYS, *keys))


def _tables(header: str, row: Any, stacks: list[Stack]) -> str:
    return header + "".join(map(row, stacks))


def _row(*cells: object) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |\n"


def _is(stack: Stack) -> str:
    other = ", ".join(f"`{alias}`" for alias in stack.aliases)
    name = f"[`{stack.name}`]({FILES}/{stack.name}.yaml)"
    return _row(name, other, stack.parent or "", stack.describes)


def _defaults(stack: Stack) -> str:
    does, kernels = stack.defaults, stack.kernels
    words = (does.weights_dtype, _recomputes(stack), does.usual_zero, does.padding, kernels.loss, kernels.attention)
    adapters = f"rank {does.lora_rank} on {', '.join(does.lora_targets)}"
    return _row(f"`{stack.name}`", *("-" if word is None else word for word in words), adapters)


def _recomputes(stack: Stack) -> str | None:
    """What is recomputed, and what where the base model is quantised or layers are gathered."""
    does = stack.defaults
    kinds = (("quantised", does.quantised_recompute), ("ZeRO 3", does.sharded_recompute))
    special = [f"{kind}: {word}" for kind, word in kinds if word not in (None, does.recompute)]
    return "; ".join((does.recompute or "-", *special))


def _can(stack: Stack) -> str:
    can = stack.supports
    parallel = ", ".join(short for short, way in PARALLEL_WAYS.items() if getattr(can, way)) or "-"
    pipelines = ", ".join(can.schedules) if can.pipeline_parallel else "-"
    offloads = ", ".join(name for name in can.offload if name != "none") or "-"
    zero = ", ".join(map(str, can.zero)) if can.several_gpus else "one GPU"
    return _row(f"`{stack.name}`", parallel, zero, offloads, pipelines)


def list_releases() -> Iterator[str]:
    for name in BUILT_IN.names("stack"):
        for row in releases(load_yaml(BUILT_IN.path("stack", name))):
            release = f"{row.before} ({row.dated})" if row.dated else row.before
            yield _row(f"`{name}`", release, ", ".join(changes(row.differs)))


def changes(value: Any, path: str = "") -> Iterator[str]:
    """Keys and values of what a release does otherwise."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from changes(item, f"{path}.{key}" if path else str(key))
    else:
        text = "/".join(map(str, value)) if isinstance(value, list) else "none" if value is None else str(value)
        yield f"`{path}` {text.lower() if isinstance(value, bool) else text}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
