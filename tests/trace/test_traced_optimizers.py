"""The memory ledger against real optimizers under the counter, on two families of models."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("peft")

from tests.trace.compare import ledger_of, predicted_bytes  # noqa: E402
from tests.trace.matrix import Case  # noqa: E402
from tests.trace.training import Traced, trace  # noqa: E402

MEDIAN_ERROR = 0.01
WORST_ERROR = 0.04
OWN = ("sgd", "plain-sgd", "adagrad", "rmsprop", "muon", "adafactor")  # of PyTorch and transformers
OTHERS = (
    "galore-adamw", "galore-adamw-layerwise", "galore-adafactor", "galore-adafactor-layerwise", "apollo",
    "apollo-layerwise", "schedule-free-adamw", "soap", "came", "adopt", "lomo",
)  # fmt: skip
SHORT = {"batch": 2, "length": 512, "layers": 2}
# An embedding beside the head, in 16 bit; and one table for both.
CASES = [Case(family, optimizer=name, **SHORT) for name in (*OWN, *OTHERS) for family in ("llama", "qwen3")]
CASES += [Case("llama", optimizer=name, dtype="autocast", **SHORT) for name in ("adafactor", "galore-adamw", "muon")]

LAST_LAYERS = [
    Case(family, layers=4, batch=2, length=512, trainable_layers=count)
    for family in ("llama", "qwen3")
    for count in (1, 2, 3)
]


@cache
def traced(case: Case) -> Traced:
    try:
        return trace(case)
    except ImportError as missing:
        pytest.skip(f"{missing.name} is not installed")


def error_of(case: Case) -> float:
    """Relative error of the ledger's peak of live tensors."""
    return predicted_bytes(ledger_of(case)) / traced(case).worst.peak_bytes - 1.0


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_peak_with_an_optimizer(case: Case) -> None:
    assert abs(error_of(case)) <= WORST_ERROR


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_states_of_an_optimizer(case: Case) -> None:
    """Within a rounding of each tensor, and the step counts that some keep."""
    states = float(np.max(ledger_of(case).components["optimizer states"]))
    assert states == pytest.approx(traced(case).states_bytes, rel=2e-3, abs=2**20)


def test_the_median_error_of_optimizers() -> None:
    """Of PyTorch's and transformers' own, which are always there."""
    errors = [abs(error_of(case)) for case in CASES if case.optimizer in OWN]
    assert np.median(errors) <= MEDIAN_ERROR


@pytest.mark.parametrize("case", LAST_LAYERS, ids=lambda case: f"{case.name}/{case.trainable_layers}")
def test_the_peak_where_the_last_layers_learn(case: Case) -> None:
    assert abs(error_of(case)) <= WORST_ERROR
