"""The generator of a job that learns to tell replaced tokens: its part of a step, as a job of its own (ELECTRA)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from xe_sizer.graph.inputs import GENERATOR
from xe_sizer.graph.transformer import head_operators, layer_operators
from xe_sizer.immutable import Immutable
from xe_sizer.training.activations import needed_flops
from xe_sizer.training.adapters import ALL_WEIGHTS

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array
    from xe_sizer.training.job import Job, RankShapes
    from xe_sizer.training.layout import Layouts


class Generation(Immutable):
    """The generator's part of a job: the job and its layouts."""

    job: Job
    layouts: Layouts

    def shapes(self, tokens_per_sequence: Array) -> RankShapes:
        """What its ranks see of sequences of so many tokens, of shape (layout,)."""
        return self.job.rank_shapes(self.layouts, tokens_per_sequence)


def generation_of(job: Job, layouts: Layouts) -> Generation | None:
    """The generator's part of a job under each layout; None where nothing replaces tokens.

        sequences = those of the model,  pp = 1

    It runs on the first stage of a pipeline, and learns whole.

    Parameters
    ----------
    job, layouts : the job, and layouts of shape (layout,)

    Returns
    -------
    Generation or None

    Source: arXiv:2003.10555, section 3; google-research/electra run_pretraining.py, PretrainingModel.
    """
    model = job.model.generator_model
    if model is None or not any(part.name == GENERATOR for part in job.method.parts):
        return None
    alone = replace(
        job, model=model, method=replace(job.method, trained=ALL_WEIGHTS), trainable_layers=None,
        recompute_layers=None, first_stage_layers=None, last_stage_layers=None, stage_layers=(),
    )  # fmt: skip
    one = np.ones_like(layouts.tp)
    return Generation(alone, replace(layouts, pp=one, vpp=one))


def generator_flops(job: Job, layouts: Layouts, tokens_per_sequence: Array) -> Array:
    """FLOPs of the generator for one micro-batch, forward and backward.

        F = those of its layers and of its head on the masked tokens

    Parameters
    ----------
    job, layouts : the job, and layouts of shape (layout,)
    tokens_per_sequence : shape (layout,) [-]

    Returns
    -------
    ndarray of float, shape (layout,) [FLOP], 0 where there is no generator

    Source: model FLOPs as in PaLM (arXiv:2204.02311, appendix B), for what training needs.
    """
    part = generation_of(job, layouts)
    if part is None:
        return np.zeros(len(layouts))
    shapes = part.shapes(tokens_per_sequence)
    operators = (*layer_operators(shapes.inputs), *head_operators(shapes.inputs))
    return shapes.spread(np.broadcast_to(needed_flops(operators), shapes.inputs.rank.tp.shape))
