"""Ranges of times where the kernels were measured on the user's own machine; expected numbers by hand."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

import xe_sizer
from xe_sizer.evidence.predict import timed
from xe_sizer.evidence.records import SHIPPED, read_records
from xe_sizer.laws.hardware import MeasuredHere
from xe_sizer.result.common import Basis, Bias
from xe_sizer.software.uncertainty import Uncertainty
from xe_sizer.training.uncertainty import KNOWN_MACHINE, of_measured_laws

BIAS = Bias(runs=9, publications=3, median=0.8, slowest=1.1, fastest=0.5)
PUBLISHED = Uncertainty(
    0.5, 3.0, "40 of 50 runs lie inside", True, basis=Basis(runs=50, publications=9, inside=40, bias=BIAS)
)
EXACT = MeasuredHere("2026-11-27", ("matmul.bf16",), 0.0)


def test_laws_without_error_leave_what_runs_on_a_known_machine_differ_by() -> None:
    found = of_measured_laws(PUBLISHED, EXACT, from_python=True)
    assert (found.low, found.high) == pytest.approx(KNOWN_MACHINE)
    assert found.evidence.startswith("kernels measured on your machine, 2026-11-27")


def test_stacks_that_are_not_like_those_runs_keep_the_published_range() -> None:
    found = of_measured_laws(PUBLISHED, EXACT, from_python=False)
    assert (found.low, found.high) == pytest.approx((0.5, 3.0))


def test_the_error_of_the_fit_widens_the_range() -> None:
    """ln 1.3 / sqrt(6) = 0.1071 beside ln 0.94 = -0.0619 and ln 1.63 = 0.4886."""
    found = of_measured_laws(PUBLISHED, replace(EXACT, p90_error=0.3), from_python=True)
    assert found.low == pytest.approx(math.exp(-math.hypot(0.0619, 0.1071)), rel=1e-3)
    assert found.high == pytest.approx(math.exp(math.hypot(0.4886, 0.1071)), rel=1e-3)


def test_a_published_range_that_is_narrower_stays() -> None:
    narrow = replace(PUBLISHED, low=0.97, high=1.2)
    found = of_measured_laws(narrow, EXACT, from_python=True)
    assert (found.low, found.high) == pytest.approx((0.97, 1.2))


def test_bias_of_other_machines_is_said_where_the_range_rests_on_them() -> None:
    python, graphs = (of_measured_laws(PUBLISHED, EXACT, from_python=one).basis for one in (True, False))
    assert python is not None
    assert graphs is not None
    assert (python.measured_on, python.bias) == ("2026-11-27", None)
    assert (graphs.measured_on, graphs.bias) == ("2026-11-27", BIAS)


def test_the_runs_on_a_known_machine_are_those_that_ship() -> None:
    """One in ten of them took less than the first times the prediction, one in ten more than the second."""
    records = read_records(SHIPPED / "measured.jsonl").records
    ratios = [prediction.measured / prediction.predicted for _, prediction in timed(records)]
    assert len(ratios) >= 40
    assert np.quantile(ratios, [0.1, 0.9]) == pytest.approx(KNOWN_MACHINE, abs=0.03)
    assert Path(xe_sizer.__file__).parent in SHIPPED.parents
