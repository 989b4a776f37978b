"""What stops training between its steps, as a user asks for it: checkpoints, evaluations, failures."""

from __future__ import annotations

from xe_sizer.frozen import frozen


@frozen
class Pauses:
    """Pauses of a run; none of them by default.

    checkpoint_every, evaluate_every : steps from one to the next; None: never
    asynchronous : whether storage is written from host memory while training goes on
    write_bytes_per_s : what storage takes from all nodes together; None: a rate for each node that is chosen
    evaluated_samples : samples of one evaluation [-]
    failures_per_gpu_day : that stop the whole job [1/day]
    """

    checkpoint_every: int | None = None
    asynchronous: bool = False
    write_bytes_per_s: float | None = None
    evaluate_every: int | None = None
    evaluated_samples: float = 0.0
    failures_per_gpu_day: float = 0.0

    @property
    def any(self) -> bool:
        """Whether the run takes longer than its steps."""
        return bool(self.checkpoint_every or self.evaluate_every or self.failures_per_gpu_day)


NO_PAUSES = Pauses()
