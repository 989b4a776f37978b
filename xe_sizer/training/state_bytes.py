"""Storage per element of weights, gradients and optimizer states, at a job's precision and under its stack."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.frozen import frozen
from xe_sizer.units import FLOAT32

if TYPE_CHECKING:
    from xe_sizer.training.job import Job


@frozen
class StateBytes:
    """Storage per element at the job's precision [bytes].

    moments, optimizer : of a matrix, without and with the master copy
    vector_more, embedding_more : how much more moments of these take than those of a matrix
    gather, reduce : what data parallelism sends
    """

    weight: float
    gradient: float
    moments: float
    optimizer: float
    vector_more: float
    embedding_more: float
    frozen: float
    frozen_linear: float
    adapter_gradient: float
    adapter_optimizer: float
    gather: float
    reduce: float

    @classmethod
    def of(cls, job: Job) -> StateBytes:
        states = job.stack.states
        kept = job.optimizer.state
        moments, vector, embedding = (
            kind.bytes(states.moment_bytes) for kind in (kept.matrix, kept.vector, kept.embedding)
        )
        wide = job.element_bytes == FLOAT32
        upcast = job.method.quantised and states.quantised_upcast
        frozen = FLOAT32 if wide or upcast else states.frozen_bytes
        linear = frozen if job.method.frozen_linear_bytes is None else job.method.frozen_linear_bytes
        more = {"vector_more": vector - moments, "embedding_more": embedding - moments}
        if wide:
            return cls(
                weight=FLOAT32,
                gradient=FLOAT32,
                moments=moments,
                optimizer=moments,
                frozen=frozen,
                frozen_linear=linear,
                adapter_gradient=FLOAT32,
                adapter_optimizer=moments,
                gather=FLOAT32,
                reduce=FLOAT32,
                **more,
            )
        # Moments have the type of what they belong to, but float32 where there are master copies.
        adapter, weight = states.adapter_weight_bytes, states.trained_weight_bytes
        adapter_moments = moments if states.master_bytes else moments * adapter / weight
        adapter_master = states.master_bytes if adapter < FLOAT32 else 0.0
        return cls(
            weight=weight,
            gradient=states.gradient_bytes,
            moments=moments,
            optimizer=states.master_bytes + moments,
            frozen=frozen,
            frozen_linear=linear,
            adapter_gradient=max(adapter, states.gradient_bytes),
            adapter_optimizer=adapter_master + adapter_moments,
            gather=states.gather_bytes,
            reduce=states.reduce_bytes,
            **more,
        )
