"""Storage per element of weights, gradients and optimizer states, at a job's precision and under its stack."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from xe_sizer.frozen import frozen
from xe_sizer.training.learning_matrices import (
    adapter_matrices,
    base_matrices,
    mean_state_bytes,
    table_state_bytes,
)
from xe_sizer.units import FLOAT32

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array
    from xe_sizer.software.stack import States
    from xe_sizer.training.job import Job
    from xe_sizer.training.layout import Layouts

FULLY_SHARDED = 3  # defined: ZeRO stage


@frozen
class StateBytes:
    """Storage per element at the job's precision, one figure or one a layout [bytes].

    fresh_gradient : as the backward makes it, before it is added up or sharded
    moments, optimizer : of a matrix, without and with the master copy
    vector_more, embedding_more : how much more moments of these take than those of a matrix
    gather, reduce : what data parallelism sends
    """

    weight: float | Array
    gradient: float | Array
    fresh_gradient: float
    moments: float | Array
    optimizer: float | Array
    vector_more: float | Array
    embedding_more: float | Array
    frozen: float
    frozen_linear: float
    adapter_gradient: float | Array
    adapter_optimizer: float | Array
    gather: float
    reduce: float

    @classmethod
    def of(cls, job: Job, layouts: Layouts) -> StateBytes:
        """Storage under each layout, where the stack keeps shards wider than what is loaded.

            bytes = float32 throughout where ZeRO = 3 and the stack upcasts shards, else as loaded

        Parameters
        ----------
        job, layouts : the job, and layouts of shape (layout,)

        Returns
        -------
        StateBytes, figures or arrays of shape (layout,) [bytes]

        Source: accelerate 0.30, Accelerator.prepare_model ("Upcasted low precision parameters", FSDP), and
        fsdp2_prepare_model: what learns is float32 under mixed precision.
        """
        states = job.stack.states
        loaded = cls._as_kept(job, states)
        if not states.sharded_upcast or states.trained_weight_bytes >= FLOAT32:
            return loaded
        wide = dict.fromkeys(("trained_weight_bytes", "gradient_bytes", "moment_bytes"), float(FLOAT32))
        upcast = cls._as_kept(job, msgspec.structs.replace(states, **wide))
        sharded = np.asarray(layouts.zero == FULLY_SHARDED)
        same = ("fresh_gradient", "frozen", "frozen_linear", "gather", "reduce")
        names = [field.name for field in fields(cls) if field.name not in same]
        either = {name: np.where(sharded, getattr(upcast, name), getattr(loaded, name)) for name in names}
        return cls(**either, **{name: getattr(loaded, name) for name in same})

    @classmethod
    def _as_kept(cls, job: Job, states: States) -> StateBytes:
        """Storage where every layout keeps the same."""
        optimizer, model, size = job.optimizer, job.model, states.moment_bytes
        moments = mean_state_bytes(optimizer, base_matrices(job), size)
        embedding = table_state_bytes(optimizer, model.vocab, model.hidden, size)
        vector = optimizer.state.vector.bytes(size)
        wide = job.element_bytes == FLOAT32
        frozen = FLOAT32 if wide or job.upcasts else states.frozen_bytes
        linear = frozen if job.method.frozen_linear_bytes is None else job.method.frozen_linear_bytes
        common = {
            "moments": moments,
            "frozen": frozen,
            "frozen_linear": linear,
            "vector_more": vector - moments,
            "embedding_more": embedding - moments,
        }
        if wide:
            names = ("weight", "gradient", "fresh_gradient", "adapter_gradient", "gather", "reduce")
            in_float32 = dict.fromkeys(names, float(FLOAT32))
            of_adapters = mean_state_bytes(optimizer, adapter_matrices(job), size)
            return cls(optimizer=moments, adapter_optimizer=of_adapters, **in_float32, **common)
        # Moments have the type of what they belong to, but float32 where there are master copies.
        adapter, weight = states.adapter_weight_bytes, states.trained_weight_bytes
        adapter_size = size if job.master_bytes else size * adapter / weight
        adapter_moments = mean_state_bytes(optimizer, adapter_matrices(job), adapter_size)
        adapter_master = job.master_bytes if adapter < FLOAT32 else 0.0
        return cls(
            weight=weight,
            gradient=states.gradient_bytes,
            fresh_gradient=states.gradient_bytes,
            optimizer=job.master_bytes + moments,
            adapter_gradient=max(adapter, states.gradient_bytes),
            adapter_optimizer=adapter_master + adapter_moments,
            gather=states.gather_bytes,
            reduce=states.reduce_bytes,
            **common,
        )
