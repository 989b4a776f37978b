"""docs/reference/constants.md says where every constant comes from, and a constant that does not say it is found."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "scripts"))
provenance = importlib.import_module("provenance")
constants = importlib.import_module("constants")

WRITE = "docs/reference/constants.md is not what comments and profiles say. Write it anew: python scripts/provenance.py"
STACKS = sorted((ROOT / "xe_sizer" / "software" / "stacks").glob("*.yaml"))


def test_every_constant_says_where_it_comes_from() -> None:
    assert provenance.silent() == []


def test_the_page_is_what_they_say() -> None:
    assert (ROOT / "docs" / "reference" / "constants.md").read_text(encoding="utf-8") == provenance.page(), WRITE


@pytest.mark.parametrize("file", STACKS, ids=lambda file: file.stem)
def test_a_stack_has_no_origin_of_a_figure_that_it_does_not_state(file: Path) -> None:
    assert provenance.dead_origins(yaml.safe_load(file.read_text(encoding="utf-8"))) == []


def test_a_silent_factor_of_a_stack_is_found() -> None:
    stack: dict[str, Any] = {
        "name": "made-up",
        "host": {"forward_launch_us": 9, "step_overhead_ms": 1},
        "overlap": {"pipeline": 0.5},
        "memory": {"context_gib": {"typical": 1, "cautious": 2}},
        "expert_imbalance": 1.2,
        "backends": {"its": {"overlap": {"sharding": 0.2}, "states": {"master_bytes": 4}}, "other": None},
        "origins": {
            "host": "assumed",
            "host.step_overhead_ms": "measured: by a stop watch",
            "memory": "somebody said so",
        },
        "releases": [
            {"before": "2.0", "differs": {"overlap": {"pipeline": 0}}, "source": "its changelog"},
            {"before": "1.0", "differs": {"efficiency": {"matmul": 0.5}}},
        ],
    }
    found = {row.place.removeprefix("made-up "): row.origin for row in provenance.of_stack(stack)}
    assert found == {
        "host.forward_launch_us": "assumed",
        "host.step_overhead_ms": "measured",
        "overlap.pipeline": "",
        "memory.context_gib": "",
        "expert_imbalance": "",
        "backends.its.overlap.sharding": "",
        "before 2.0 overlap.pipeline": "published",
        "before 1.0 efficiency.matmul": "",
    }
    assert provenance.dead_origins(stack | {"origins": {"host": "assumed", "overlap.sharding": "assumed"}}) == [
        "overlap.sharding"
    ]


def test_a_silent_constant_of_an_equation_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    source = 'SAID = 2.0  # counted: twice\nUNSAID = 3.0  # times as much\nBARE = 4.0\nMADE = sum([1.0])\nNAME = "x"\n'
    monkeypatch.setattr(constants.inspect, "getsource", lambda _: source)
    rows = [
        provenance.equation_row(one, "training.step")
        for one in constants.constants(ModuleType("made_up"))
        if provenance.plain_number(one.value)
    ]
    assert [(row.place, row.silent) for row in rows] == [
        ("training.step SAID", False),
        ("training.step UNSAID", True),
        ("training.step BARE", True),
    ]
    of_graph = provenance.equation_row(constants.Constant("PASSES", "2.0", "reads and writes"), "graph.mlp")
    assert of_graph.origin == "counted"


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("21296 matrix products timed by aiconfigurator, refitted.", "measured"),
        (
            "timed by aiconfigurator. Sustained: 0.92 of it, fitted to published runs of tuned stacks",
            "fitted, measured",
        ),
        ("About half of FlashAttention-2, as on the A100; assumed.", "assumed"),
        ("FlashAttention-3 (arXiv 2407.08608), 0.5 to 0.56", "published"),
        ("a good guess", ""),
    ],
)
def test_the_source_of_a_law_says_what_it_rests_on(text: str, origin: str) -> None:
    assert provenance.origins_of_law(text) == origin
