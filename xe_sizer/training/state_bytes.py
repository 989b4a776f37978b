"""Storage per element of weights, gradients and optimizer states, at a job's precision and under its stack."""

from __future__ import annotations

from xe_sizer.frozen import frozen
from xe_sizer.training.job import Job
from xe_sizer.units import FLOAT32


@frozen
class StateBytes:
    """Storage per element at the job's precision; `gather` and `reduce` are what data parallelism sends [bytes]."""

    weight: float
    gradient: float
    optimizer: float
    frozen: float
    frozen_linear: float
    adapter_gradient: float
    adapter_optimizer: float
    gather: float
    reduce: float

    @classmethod
    def of(cls, job: Job) -> StateBytes:
        states = job.stack.states
        moments = states.moment_bytes[job.optimizer]
        wide = job.element_bytes == FLOAT32
        upcast = job.method.quantised and states.quantised_upcast
        frozen = FLOAT32 if wide or upcast else states.frozen_bytes
        linear = frozen if job.method.frozen_linear_bytes is None else job.method.frozen_linear_bytes
        if wide:
            return cls(FLOAT32, FLOAT32, moments, frozen, linear, FLOAT32, moments, FLOAT32, FLOAT32)
        # Moments have the type of what they belong to, unless master copies make them float32.
        adapter, weight = states.adapter_weight_bytes, states.trained_weight_bytes
        adapter_moments = moments if states.master_bytes else moments * adapter / weight
        adapter_master = states.master_bytes if adapter < FLOAT32 else 0.0
        return cls(
            weight=weight,
            gradient=states.gradient_bytes,
            optimizer=states.master_bytes + moments,
            frozen=frozen,
            frozen_linear=linear,
            adapter_gradient=max(adapter, states.gradient_bytes),
            adapter_optimizer=adapter_master + adapter_moments,
            gather=states.gather_bytes,
            reduce=states.reduce_bytes,
        )
