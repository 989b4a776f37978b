"""An accelerator that is announced, and that nobody has measured: the report says so, and ranges are wider."""

import math

import pytest

import xe_sizer.training.jobs  # noqa: F401  the names of jobs
from xe_sizer.profiles.catalogue import Registry
from xe_sizer.result.common import Range
from xe_sizer.result.serving import Span
from xe_sizer.scenario.read import read_scenario
from xe_sizer.software.uncertainty import ANNOUNCED_ERROR, Uncertainty, of_announced
from xe_sizer.studies.estimate import estimate, serve

MEASURED, ANNOUNCED = "gb300", "vr200"


def test_errors_of_the_accelerator_and_of_the_software_add_up_as_squares() -> None:
    wide = of_announced(Uncertainty(0.8, 1.5, "as others", True, sure=(0.9, 1.2)))
    error = math.log(1.0 + ANNOUNCED_ERROR)
    assert wide.low == pytest.approx(math.exp(-math.hypot(math.log(0.8), error)))
    assert wide.high == pytest.approx(math.exp(math.hypot(math.log(1.5), error)))
    assert wide.evidence.endswith("nobody has measured; as others")
    assert wide.sure[0] < wide.low < wide.high < wide.sure[1]


def width(found: Range | Span | None) -> float:
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    return found.high / found.low


def test_steps_and_latencies_of_an_announced_accelerator_have_wider_ranges() -> None:
    def steps(gpu: str) -> tuple[float, tuple[str, ...]]:
        keys = {"model": "llama-3.1-8b", "gpu": gpu, "gpus": 8, "job": "sft"}
        answer = estimate(read_scenario(None, keys, {}), Registry())
        assert answer.time is not None
        return width(answer.time.step_s), tuple(answer.warnings)

    def tokens(gpu: str) -> float:
        keys = {"model": "llama-3.1-8b", "gpu": gpu, "gpus": 1, "job": "inference", "serve.concurrency": 8}
        latency = serve(read_scenario(None, keys, {}), Registry()).latency
        assert latency is not None
        return width(latency.tpot_s)

    (narrow, _), (wide, said) = steps(MEASURED), steps(ANNOUNCED)
    assert wide > 1.05 * narrow
    assert tokens(ANNOUNCED) > 1.05 * tokens(MEASURED)
    assert any("which nobody has measured" in one for one in said)
