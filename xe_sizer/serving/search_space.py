"""Which placements a replica may have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from xe_sizer.serving.job import ReplicaLayouts

if TYPE_CHECKING:
    from xe_sizer.serving.job import ServingJob

STAGES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)
WIDEST = 320  # published: the widest group of experts that is served, the decodes of DeepSeek-V3 (arXiv:2412.19437)
MORE_STAGES = (1, 2, 4)  # times the fewest that fit: what a deeper pipeline gains is looked at no further
KEYS = ("tp", "pp", "ep", "dp", "expert_gpus")


def legal_placements(job: ServingJob, fixed: Mapping[str, int], most_gpus: int | None) -> ReplicaLayouts:
    """Every placement of a replica that the fixed sizes leave, smallest first; possibly none.

    Tensor parallel ranks divide the heads and share a node. A pipeline goes on where more of them are not possible: at
    the end of a node, or on GPUs that are not whole nodes where twice the ranks in half the stages come to another
    number. Experts are split with the tensor ranks, given out whole to them, or to ranks that each serve sequences of
    their own; or to GPUs that hold nothing else, beside those of attention.
    """
    candidates = _apart if job.expert_gpus != 0 else _candidates
    found = sorted(set(candidates(job, fixed, most_gpus)), key=lambda sizes: (_gpus(sizes), sizes))
    legal = [sizes for sizes in found if most_gpus is None or _gpus(sizes) <= most_gpus]
    columns = list(zip(*legal, strict=True)) if legal else [()] * len(KEYS)
    return ReplicaLayouts.of(**dict(zip(KEYS, columns, strict=True)))


def worthwhile(placements: ReplicaLayouts, fitting: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Of each split of a layer the fewest stages that fit, twice and four times as many; the most where none fits."""
    splits = np.stack([placements.tp, placements.ep, placements.dp, placements.expert_gpus])
    _, split = np.unique(splits, axis=1, return_inverse=True)
    fewest, most = np.full(len(placements), np.inf), np.zeros(len(placements))
    np.minimum.at(fewest, split, np.where(fitting, placements.pp, np.inf))
    np.maximum.at(most, split, placements.pp)
    deeper = np.isin(placements.pp / fewest[split], MORE_STAGES)
    return np.asarray(np.where(np.isfinite(fewest[split]), deeper, placements.pp == most[split]))


def _gpus(sizes: tuple[int, ...]) -> int:
    tp, pp, _, dp, expert_gpus = sizes
    return tp * pp * dp + expert_gpus


def _apart(job: ServingJob, fixed: Mapping[str, int], most_gpus: int | None) -> Iterator[tuple[int, ...]]:
    """Groups of attention, and GPUs that hold experts alone, as many as divide these with their copies."""
    assert job.model.experts is not None
    node, held = job.server.accelerators, job.model.experts.count + (job.redundant_experts or 0)
    most = WIDEST if most_gpus is None else most_gpus - 1
    wider = range(2 * node, min(most, WIDEST) + 1, node)
    asked = job.expert_gpus or fixed.get("ep")
    for expert_gpus in (*_sizes(asked, node), *(wider if asked is None else ())):
        for tp in _sizes(fixed.get("tp"), node):
            for dp in (*_sizes(fixed.get("dp"), node), *(wider if "dp" not in fixed and tp == 1 else ())):
                legal = held % expert_gpus == 0 and job.model.heads % tp == 0
                if legal and fixed.get("ep", expert_gpus) == expert_gpus and fixed.get("pp", 1) == 1:
                    yield tp, 1, expert_gpus, dp, expert_gpus


def _candidates(job: ServingJob, fixed: Mapping[str, int], most_gpus: int | None) -> Iterator[tuple[int, ...]]:
    if job.server.part is not None:  # slices are not linked
        yield 1, 1, 1, 1, 0
        return
    node = job.server.accelerators
    odd = most_gpus is not None and most_gpus % node != 0
    for tp in _sizes(fixed.get("tp"), node if job.engine.pipelined else 1):
        if job.model.heads % tp:
            continue
        for pp in _stages(job, fixed):
            for ep, dp in _expert_sizes(job, fixed, tp, most_gpus):
                wider = job.engine.pipelined and not fixed and 2 * tp * dp <= node and job.model.heads % (2 * tp) == 0
                if pp == 1 or not wider or (odd and pp % 2):
                    yield tp, pp, ep, dp, 0


def _stages(job: ServingJob, fixed: Mapping[str, int]) -> list[int]:
    """Stages of a pipeline that the model has layers for; encoders run in one."""
    sizes = [fixed["pp"]] if "pp" in fixed else [1] if job.model.bidirectional else STAGES
    return [pp for pp in sizes if pp <= job.model.most_stages]


def _expert_sizes(
    job: ServingJob, fixed: Mapping[str, int], tp: int, most_gpus: int | None
) -> Iterator[tuple[int, int]]:
    node = job.server.accelerators
    # Other engines split a model by its layers alone; encoders have whole layers, or share them by tensor ranks.
    experts = job.model.experts if job.engine.pipelined and not job.model.bidirectional else None
    held = experts.count + (job.redundant_experts or 0) if experts else 1
    # Groups of several nodes where tokens go to their experts alone; where all go to all, they would cross the network.
    spread = job.dispatcher.prompts.dispatch != "to-all" or fixed.get("ep", 1) > node
    groups = _sizes(fixed.get("dp"), node if experts and tp == 1 else 1)
    if "dp" not in fixed and spread and experts and tp == 1:
        widest = min(most_gpus or WIDEST, WIDEST, held)
        groups += [size for size in range(2 * node, widest + 1, node) if held % size == 0 or "ep" in fixed]
    for dp in groups:
        # Ranks that serve sequences of their own hold whole experts where nobody says otherwise.
        choices = {fixed["ep"]} if "ep" in fixed else {tp * dp} if dp > 1 else {1, tp}
        for ep in choices if experts else {1}:
            if tp * dp % ep == 0 and held % ep == 0:
                yield ep, dp


def _sizes(fixed: int | None, most: int) -> list[int]:
    """The fixed size, else powers of two up to the most."""
    if fixed is not None:
        return [fixed]
    return [2**power for power in range(max(most, 1).bit_length())]
