"""Every kind of adapter in peft: what a training step holds, and how many parameters learn, against real modules."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
peft = pytest.importorskip("peft")

from tests.trace.adapters import KINDS  # noqa: E402
from tests.trace.compare import job_of, ledger_of, predicted_bytes  # noqa: E402
from tests.trace.matrix import Case  # noqa: E402
from tests.trace.training import Traced, trace  # noqa: E402
from xe_sizer.evidence.names import plain  # noqa: E402
from xe_sizer.training.adapters import ADAPTERS  # noqa: E402

MEDIAN_ERROR = 0.01
WORST_ERROR = 0.04
FAMILIES = ("llama-3", "qwen3")
RANK_NUMBERS = 8  # of AdaLoRA in peft 0.21: one for each of eight weights, which nothing updates


# PyTorch 2.13 crashes after fake tensors of many adapters in one process: `python -m tests.trace.table` traces all.
TRACED = ("dora", "ia3", "oft", "prefix-tuning")


def cases() -> list[Case]:
    """Both families, every second kind with recomputation in one and without it in the other."""
    return [
        Case(family, "full", batch=2, length=1024, layers=4, adapter=kind, recompute=_recomputes(kind, place + order))
        for place, family in enumerate(FAMILIES)
        for order, kind in enumerate(TRACED)
    ]


def _recomputes(kind: str, number: int) -> bool:
    """Every second one; peft refuses keys and values that learn with recomputation."""
    return number % 2 == 0 and kind not in ("prefix-tuning", "cartridge")


@cache
def traced(case: Case) -> Traced:
    return trace(case)


def error_of(case: Case) -> float:
    return predicted_bytes(ledger_of(case)) / traced(case).worst.peak_bytes - 1.0


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_what_a_step_holds_and_what_learns(case: Case) -> None:
    assert abs(error_of(case)) <= WORST_ERROR
    if KINDS[case.adapter].by_layer:
        return
    job = job_of(case)
    further = RANK_NUMBERS if case.adapter == "adalora" else 0
    assert job.method.trainable_parameters(job.model) + further == traced(case).adapters


def test_the_median_error() -> None:
    assert np.median([abs(error_of(case)) for case in cases()]) <= MEDIAN_ERROR


def test_every_type_of_peft_has_a_kind() -> None:
    """But for networks beside the model (Shadow) and mixtures of adapters that were trained before (X-LoRA)."""
    known = {plain(name) for kind in ADAPTERS.values() for name in (kind.name, *kind.aliases)}
    types = {plain(str(each.value)) for each in peft.PeftType}
    assert types - known == {"cpt", "shadow", "xlora"}
    assert "context-prompt-tuning" in known  # CPT, which also stands for continued pre-training
