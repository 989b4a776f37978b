"""Which placements a replica may have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from xe_sizer.serving.job import ServeJob
from xe_sizer.serving.placement import Placements

MOST_STAGES = 16
KEYS = ("tp", "pp", "ep", "dp")


def legal_placements(job: ServeJob, fixed: Mapping[str, int], most_gpus: int | None) -> Placements:
    """Every placement of a replica that the fixed sizes leave, smallest first; possibly none.

    Tensor parallel ranks divide the heads and share a node; pipelines continue where a node ends, or where the engine
    only cuts the layers. Experts are split with the tensor ranks, given out whole to them, or to ranks that each serve
    sequences of their own.
    """
    found = sorted(set(_candidates(job, fixed)), key=lambda sizes: (sizes[0] * sizes[1] * sizes[3], sizes))
    legal = [sizes for sizes in found if most_gpus is None or sizes[0] * sizes[1] * sizes[3] <= most_gpus]
    columns = list(zip(*legal, strict=True)) if legal else [()] * len(KEYS)
    return Placements.of(**dict(zip(KEYS, columns, strict=True)))


def _candidates(job: ServeJob, fixed: Mapping[str, int]) -> Iterator[tuple[int, int, int, int]]:
    node = job.server.accelerators
    for tp in _sizes(fixed.get("tp"), node if job.engine.pipelined else 1):
        if job.model.heads % tp:
            continue
        for pp in _sizes(fixed.get("pp"), MOST_STAGES):
            if pp > 1 and "pp" not in fixed and tp < node and job.engine.pipelined and node > 1:
                continue
            if pp > job.model.layers:
                continue
            for ep, dp in _expert_sizes(job, fixed, tp, node):
                yield tp, pp, ep, dp


def _expert_sizes(job: ServeJob, fixed: Mapping[str, int], tp: int, node: int) -> Iterator[tuple[int, int]]:
    experts = job.model.experts
    for dp in _sizes(fixed.get("dp"), node if experts and tp == 1 else 1):
        choices = {1, tp * dp} if experts else {1}
        for ep in {fixed["ep"]} if "ep" in fixed else choices:
            if (tp * dp) % ep == 0 and (not experts or experts.count % ep == 0):
                yield ep, dp


def _sizes(fixed: int | None, most: int) -> list[int]:
    """The fixed size, else powers of two up to the most."""
    if fixed is not None:
        return [fixed]
    return [2**power for power in range(max(most, 1).bit_length())]
