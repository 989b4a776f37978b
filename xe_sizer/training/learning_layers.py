"""Jobs in which only some of a model's layers learn, the last ones or a few at a time: what learns, what runs back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.frozen import frozen
from xe_sizer.training.stages import stages_of

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array
    from xe_sizer.training.job import Job
    from xe_sizer.training.layout import Layouts
    from xe_sizer.training.sharding import Census


@frozen
class LearningLayers:
    """How much of a model learns where not all of it does.

    count : layers that learn in a step; None: all, with embedding and head, which else are frozen [-]
    kept : layers at the end above which autograd keeps what it needs, where it is known which; None: all [-]
    share : of the layers' weight gradients that are computed; reach : of the layers that the backward passes [-]
    """

    count: int | None = None
    share: float = 1.0
    reach: float = 1.0
    kept: int | None = None

    @property
    def ends(self) -> float:
        """1 where embedding and head learn with the layers, else 0."""
        return float(self.count is None)

    @classmethod
    def of(cls, layers: int, last: int | None, block: int) -> LearningLayers:
        """The layers that learn of a model's.

            reach = n / L                       the last n of L layers
            reach = (L + n) / 2 L               any n that follow each other, on average over all places

        Parameters
        ----------
        layers : L of the model [-]
        last : n at the end that learn, where a scenario says so [-]
        block : n that an optimizer lets learn at a time; 0: all [-]

        Returns
        -------
        LearningLayers

        Source: autograd stops below the first weight that learns; BAdam (arXiv:2404.02827), block_optim.py.
        """
        count = min(last or block or layers, layers)
        if last is None and not block:
            return cls()
        reach = count / layers if last is not None else (layers + count) / (2.0 * layers)
        return cls(count, count / layers, reach, count if last is not None else None)


def learning_elements(job: Job, layouts: Layouts, held: Census) -> tuple[Array, Array]:
    """Learning base elements of a rank before ZeRO, dense and of experts.

        dense, experts = those of all layers and ends, or of as many of the fullest layers as learn on the stage

    Parameters
    ----------
    job, layouts : what learns, and layouts of shape (layout,)
    held : elements of a rank before sharding

    Returns
    -------
    (dense, experts), each of shape (stage, layout) [-]

    Source: definition.
    """
    base, count = float(job.method.learning.base), job.learning_layers.count
    if count is None:
        return (held.linear + held.other) * base + held.parts_learning, held.experts * base
    here = base * np.minimum(count, stages_of(job.model.layers, job.split, layouts).at_ends)
    return held.layer * here + held.parts_learning, held.layer_experts * here
