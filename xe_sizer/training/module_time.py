"""Kernels of one micro-batch by module of the model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.graph.inputs import GENERATOR
from xe_sizer.graph.vision import VISION
from xe_sizer.laws.operator_time import operator_times
from xe_sizer.training.encoder import encoding_of, operator_groups
from xe_sizer.training.generator import generation_of
from xe_sizer.training.layout import SELECTIVE
from xe_sizer.training.recomputation import recomputed_layers_share
from xe_sizer.training.stage_time import MicroBatch, StageShares

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array, IntArray
    from xe_sizer.training.job import Job, RankShapes
    from xe_sizer.training.layout import Layouts


def module_time(job: Job, layouts: Layouts, shapes: RankShapes, slowest: IntArray) -> dict[str, tuple[Array, Array]]:
    """Kernels of one micro-batch by module of the model.

    What is recomputed counts as backward, passes through frozen weights as forward.

        t = sum over the operators of a module of the share of the layers on the stage x law

    Parameters
    ----------
    job, layouts : the job, and layouts of shape (layout,)
    shapes : of the ranks
    slowest : the stage of each layout (0 first, 1 last, 2 middle), shape (layout,) [-]

    Returns
    -------
    dict of module -> (forward, backward), shape (layout,), seconds [s]

    Source: operator laws of the accelerator's profile.
    """
    stages, columns = StageShares.of(job, layouts), np.arange(len(layouts))
    shares = [part[slowest, columns] for part in (stages.layers, stages.embedding, stages.head)]
    none, whole = np.zeros(len(layouts)), recomputed_layers_share(job, layouts)
    modes = [(whole, layouts.recompute == SELECTIVE), (none, none), (none, none)]
    modules: dict[str, tuple[Array, Array]] = {}
    for module, frozen_s in _frozen_modules(job, layouts, shapes, slowest):
        forward, backward = modules.get(module, (np.zeros_like(frozen_s), np.zeros_like(frozen_s)))
        modules[module] = (forward + frozen_s, backward)
    groups = operator_groups(job, shapes.inputs)
    for on_stage, operators, (all_again, some_again) in zip(shares, groups, modes, strict=True):
        for time in operator_times(operators, job.device):
            forward, backward = modules.get(time.operator.module, (none, none))
            again = all_again + some_again * time.operator.again
            there, back = shapes.spread(time.forward_s), shapes.spread(time.backward_s)
            modules[time.operator.module] = (forward + on_stage * there, backward + on_stage * (back + again * there))
    return modules | _encoder_module(job, layouts, shares[1]) | _generator_module(job, layouts, shapes, shares[1])


def _encoder_module(job: Job, layouts: Layouts, on_stage: Array) -> dict[str, tuple[Array, Array]]:
    """The kernels of the image encoder, where there are images: its module, forward and backward, shape (layout,) [s].

    on_stage : whether the stage has the embedding
    """
    part = encoding_of(job, layouts)
    if part is None:
        return {}
    one = MicroBatch(part.job, part.layouts, part.shapes)
    backward = one.kernels_s[1][0] + one.recompute_s[0]
    return {VISION: (on_stage * one.kernels_s[0][0], on_stage * backward)}


def _generator_module(
    job: Job, layouts: Layouts, shapes: RankShapes, on_stage: Array
) -> dict[str, tuple[Array, Array]]:
    """The kernels of a generator of replaced tokens, where there is one, as of an encoder; shape (layout,) [s]."""
    part = generation_of(job, layouts)
    if part is None:
        return {}
    one = MicroBatch(part.job, part.layouts, part.shapes(shapes.spread(shapes.inputs.rank.sequence)))
    backward = one.kernels_s[1][0] + one.recompute_s[0]
    return {GENERATOR: (on_stage * one.kernels_s[0][0], on_stage * backward)}


def _frozen_modules(job: Job, layouts: Layouts, shapes: RankShapes, slowest: IntArray) -> Iterator[tuple[str, Array]]:
    """Module and time of each operator of the passes through frozen weights, shape (layout,) [s]."""
    for companion in job.method.passing:
        alone, seen = job.beside_shapes(companion, shapes, layouts)
        stages, columns = StageShares.of(alone, layouts), np.arange(len(layouts))
        shares = [part[slowest, columns] for part in (stages.layers, stages.embedding, stages.head)]
        for on_stage, operators in zip(shares, operator_groups(alone, seen.inputs), strict=True):
            for time in operator_times(operators, job.device):
                yield time.operator.module, companion.forwards * on_stage * seen.spread(time.forward_s)
