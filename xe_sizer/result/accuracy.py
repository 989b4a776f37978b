"""How predictions compare with measurements: the JSON contract of `validate`, frozen."""

from __future__ import annotations

from typing import ClassVar

from xe_sizer.result.common import SCHEMA_VERSION, Answer, Struct

QUANTITIES = ("step_time", "phase_time", "ttft", "tpot", "encoding", "throughput", "peak_memory", "oom")


class Prediction(Struct, frozen=True, kw_only=True):
    """One quantity of one record. Times in seconds, memory in bytes, `oom` true or false.

    `ratio` is predicted / measured; `low` and `high` are the predicted range, None where there is none.
    `assumed` says in words what the record left open. `groups` are the summary groups that it counts in. `guessed`:
    what decides the quantity is not in the record, so that it counts apart. `at_peak_s` : of a time of training, what
    the FLOPs of its parameters would take at the peak of all GPUs [s]. `fit_probability` : of a verdict, that memory
    suffices [-], and `memory` its word: fits, tight or does-not-fit.
    """

    id: str
    quantity: str
    measured: float | bool
    predicted: float | bool
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    assumed: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    guessed: bool = False
    at_peak_s: float | None = None
    fit_probability: float | None = None
    memory: str = ""

    @property
    def source(self) -> str:
        """Title of the publication that the record is from."""
        return next((group.removeprefix("source:") for group in self.groups if group.startswith("source:")), "")


class Skipped(Struct, frozen=True, kw_only=True):
    """A record, or one quantity of it, that has no prediction, and why."""

    id: str
    reason: str


class Confusion(Struct, frozen=True, kw_only=True):
    """Out-of-memory verdicts: `false_fit` is predicted to fit but did not, `false_oom` the other way round.

    By the word for memory: `said_to_fit`, of which `failed` went out of memory; `said_not_to_fit`, of which `ran` did;
    the others are tight.
    """

    true_fit: int = 0
    true_oom: int = 0
    false_fit: int = 0
    false_oom: int = 0
    said_to_fit: int = 0
    failed: int = 0
    said_not_to_fit: int = 0
    ran: int = 0


class FixedEfficiency(Struct, frozen=True, kw_only=True):
    """The rule that a step takes its FLOPs at a fixed share of the peak, on the runs of a group.

    `efficiency` is the share that gives the least median error on these very runs; `gain` its median error less that
    of the predictions: positive where the predictions are better [-].
    """

    efficiency: float
    median_abs_error: float
    p90_abs_error: float
    gain: float


class Summary(Struct, frozen=True, kw_only=True):
    """One quantity in one group.

    The error of a record is predicted / measured - 1: `median_abs_error` and `p90_abs_error` are quantiles of
    its absolute value, `bias` is its median; `interval_coverage` the share of measurements inside the predicted
    range. All None for `oom`, which has counts instead. Publications weigh alike, except in the group `all`; records
    of which something decisive is guessed are in the group `guessed` alone. `fixed_efficiency` is what a rule without a
    model makes of the same times of training.
    """

    group: str
    quantity: str
    n: int
    median_abs_error: float | None = None
    p90_abs_error: float | None = None
    bias: float | None = None
    interval_coverage: float | None = None
    oom: Confusion | None = None
    publications: int = 0
    fixed_efficiency: FixedEfficiency | None = None


class Accuracy(Answer, frozen=True, kw_only=True):
    """Everything that `validate` reports."""

    question: ClassVar[str] = "validate"

    schema_version: int = SCHEMA_VERSION
    records: tuple[Prediction, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    summary: tuple[Summary, ...] = ()

    @property
    def ok(self) -> bool:
        """Predictions are shown, not judged."""
        return True
