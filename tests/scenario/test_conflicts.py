"""The table of keys that may not go together."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from xe_sizer.scenario.conflicts import RULES
from xe_sizer.scenario.schema import KEYS


def test_rules_ask_for_keys_that_scenarios_have() -> None:
    asked: set[str] = set()

    def value(key: str) -> Any:
        asked.add(key.replace("histogram.lengths", "histogram").replace("histogram.counts", "histogram"))
        return 3

    scenario: Any = SimpleNamespace(value=value, number=value, has=value, locate=lambda path: path)
    named = {key for rule in RULES for key, _, _ in rule(scenario)}
    assert asked | named <= set(KEYS)
    assert len(asked) > 40
