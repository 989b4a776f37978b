"""What ZeRO-3 keeps gathered beyond what it does by itself: the settings of DeepSpeed's parameter coordinator."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.graph.inputs import model_adapters
from xe_sizer.graph.operators import as_array
from xe_sizer.graph.weights import embedding_weights, head_weights, layer_weights
from xe_sizer.immutable import Immutable
from xe_sizer.training.job import OWN

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array
    from xe_sizer.graph.weights import Weight
    from xe_sizer.training.job import Job
    from xe_sizer.training.layout import Layouts, Stages
    from xe_sizer.training.model_states import ParameterCounts


class Gathered(Immutable):
    """Elements that a rank has gathered beyond what DeepSpeed's own settings gather, of shape (stage, layout) [-].

    ahead : of the next modules, while layers run; kept : of the last layers between forward and backward, less than
    nothing where fewer are; whole : of tensors that are never sharded; hides : 1 where gathers run ahead of the modules
    that need them, else 0, of shape (layout,); adapters : as `whole`, of those that learn beside frozen weights
    """

    ahead: Array
    kept: Array
    whole: Array
    adapters: Array
    hides: Array


def gathered_beyond(job: Job, layouts: Layouts, held: ParameterCounts, stages: Stages, recomputed: Array) -> Gathered:
    """What the job's settings of ZeRO-3 keep gathered more, or less, than DeepSpeed's own.

        ahead = min(prefetched, max(live - module, 0))
        kept = min(reuse / passes, all)          passes = 2, and 1 for layers that run again
        whole = sum of tensors of at most so many elements
        each less the same with DeepSpeed's own settings

    A module's gather starts when it is reached; behind it those of the next ones, as far as both limits let them. The
    trace runs through forward and backward, so that the weights d before the end of the forward are needed again after
    2 d; what is recomputed comes once more in between. Nothing but the prefetch is bound by the live limit, which does
    not count what is whole. What is whole no pass gathers; the small tensors that DeepSpeed's own settings keep whole
    are counted as sharded.

    Parameters
    ----------
    job, layouts : the job, and layouts of shape (layout,)
    held : elements of a rank before sharding
    stages : layers of each
    recomputed : share of a stage's layers that run again as a whole, shape (layout,) [-]

    Returns
    -------
    Gathered, shape (stage, layout) [-]; zeros where the settings are DeepSpeed's own

    Source: DeepSpeed runtime/zero/partitioned_param_coordinator.py, fetch_sub_module and __params_to_release;
    parameter_offload.py, mark_persistent_parameters; stage3.py, step, which shards everything, and _post_step, which
    gathers what is whole once.
    """
    told, none = job.gathering, np.zeros_like(held.base)
    if told == OWN:
        return Gathered(none, none, none, none, np.ones(len(layouts)))
    size = max(told.whole, OWN.whole)
    whole = _elements_up_to(job, layouts, stages, size) - _elements_up_to(job, layouts, stages, OWN.whole)
    adapters = _adapters_up_to(job, layouts, stages, size) - _adapters_up_to(job, layouts, stages, OWN.whole)
    passes = 2.0 + recomputed
    ahead, own_ahead = (np.minimum(one.ahead, np.maximum(one.live - held.largest, 0.0)) for one in (told, OWN))
    kept, own_kept = (np.minimum(one.reuse / passes, held.base) for one in (told, OWN))
    return Gathered(ahead - own_ahead, kept - own_kept, whole, adapters, (ahead > 0).all(axis=0).astype(float))


def _elements_up_to(job: Job, layouts: Layouts, stages: Stages, size: float) -> Array:
    """Elements of tensors of at most `size` of them, as a rank has them before ZeRO, shape (stage, layout) [-]."""
    model = job.model
    a_layer = sum(
        layers / model.layers * _small(layer_weights(model, kind), layouts, size) for kind, layers in model.layer_kinds
    )
    ends = _small((*embedding_weights(model), *head_weights(model)), layouts, size)
    return np.asarray(stages.at_ends * a_layer + ends)


def _small(weights: Iterable[Weight], layouts: Layouts, size: float) -> Array:
    """Elements of those matrices and biases that have at most `size` on a rank, each, shape (layout,) [-]."""
    tp, experts, total = as_array(layouts.tp), as_array(layouts.ep * layouts.expert_ranks), np.zeros(len(layouts))
    for weight in weights:
        for matrix, bias in ((weight.matrix_elements, 0.0), (0.0, weight.bias_elements)):
            one = weight.on_rank(matrix, bias, tp, np.ones_like(tp)) / weight.copies
            total = total + np.where(one <= size, weight.on_rank(matrix, bias, tp, experts), 0.0)
    return total


def _adapters_up_to(job: Job, layouts: Layouts, stages: Stages, size: float) -> Array:
    """Elements of the layers' adapters whose tensors have at most `size`, on average, shape (stage, layout) [-]."""
    model, forms = job.model, job.method.learning.adapters
    tp, experts, total = as_array(layouts.tp), as_array(layouts.ep * layouts.expert_ranks), np.zeros(len(layouts))
    for layers, adapter in model_adapters(model, forms):
        held = adapter.on_rank(tp, experts)
        one = held / max(adapter.form.tensors, 1.0)
        total = total + np.where(one <= size, layers / model.layers * held, 0.0)
    return np.asarray(stages.at_ends * total)
