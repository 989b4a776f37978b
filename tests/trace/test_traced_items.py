"""What the whole trace covers: every way of training that it names stands on two families of models at least."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("peft")

from tests.trace.compare import ledger_of
from tests.trace.items import Item, items
from tests.trace.matrix import Case
from tests.trace.objectives import OBJECTIVES

ITEMS = list(items())


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: f"{item.kind} {item.name}")
def test_two_families_trace_it(item: Item) -> None:
    assert len({case.family for case in item.cases}) >= 2
    first = item.cases[0]
    assert not isinstance(first, Case) or ledger_of(first).total_bytes.min() > 0


def test_every_objective_is_among_them() -> None:
    traced = {(case.job, case.framework) for item in ITEMS for case in item.cases if isinstance(case, Case)}
    assert set(OBJECTIVES) <= traced
