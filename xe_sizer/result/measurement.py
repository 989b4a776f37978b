"""What `measure` answers: laws of the machine at hand beside those of the catalogue, and a job that ran on it."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from xe_sizer.result.common import Answer, Struct


class MeasuredLaw(Struct, frozen=True):
    """One law, fitted. law : such as matmul.bf16; parameters : by the names that profiles give them

    before : the same of the law that it takes the place of; empty where the catalogue has none of its own
    slower : measured times over those by that law, the median [-]; None without one
    median_error, p90_error : on kernels that the fit had not seen [-]
    """

    law: str
    samples: int
    parameters: dict[str, float]
    median_error: float
    p90_error: float
    before: dict[str, float] = msgspec.field(default_factory=dict)
    slower: float | None = None


class MeasuredKernel(Struct, frozen=True):
    """One kernel at one size. flops_per_byte : of its operands, each moved once [FLOP/byte]

    law_s, before_s : by the fitted law, and by the one before it; None without one
    """

    law: str
    name: str
    seconds: float
    flops: float
    bytes: float
    law_s: float | None = None
    before_s: float | None = None

    @property
    def flops_per_byte(self) -> float:
        return self.flops / self.bytes if self.bytes else 0.0


class MeasuredJob(Struct, frozen=True):
    """A few steps of a job, beside what is said of them with the laws that were measured.

    record : id of the record that was written; file : where it stands
    layers, of_layers : that ran, and that the model has; peak_bytes : allocated
    step_s, steps : the median, and how many were timed
    predicted_s, low_s, high_s, predicted_peak_bytes : of the same job; None where it cannot be sized
    before_s : by the laws of the catalogue alone
    """

    record: str
    file: str
    model: str
    layers: int
    of_layers: int
    steps: int
    step_s: float
    peak_bytes: float | None = None
    reserved_bytes: float | None = None
    driver_bytes: float | None = None
    predicted_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    before_s: float | None = None
    predicted_peak_bytes: float | None = None
    out_of_memory: bool = False


class Measurement(Answer, frozen=True, kw_only=True):
    """Laws and rates of a device. profile, file : what was written, and where; inherits : whose laws hold beside them

    peaks_flops_per_s : by number format, of the catalogue; measured for a device that it does not name
    measured_peaks : whether they are; drift : how much longer kernels take in the last walk than in the first [-]
    launch_s, optimizer_step_s, copy_bytes_per_s, storage_bytes_per_s : None where they were not measured
    left_out : what was not measured, and why
    server : the profile of the node, with the network between nodes; None where that was not measured
    """

    question: ClassVar[str] = "measurement"

    device: str
    software: str
    host: str
    date: str
    conditions: str
    profile: str
    file: str
    inherits: str | None
    samples: int
    peaks_flops_per_s: dict[str, float]
    bandwidth_bytes_per_s: float
    measured_peaks: bool
    laws: tuple[MeasuredLaw, ...]
    kernels: tuple[MeasuredKernel, ...] = ()
    drift: float | None = None
    launch_s: float | None = None
    optimizer_step_s: float | None = None
    copy_bytes_per_s: float | None = None
    storage_bytes_per_s: float | None = None
    interrupted: bool = False
    left_out: tuple[str, ...] = ()
    job: MeasuredJob | None = None
    server: str | None = None

    @property
    def ok(self) -> bool:
        """Nothing is judged."""
        return True
