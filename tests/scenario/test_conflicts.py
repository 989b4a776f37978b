"""The table of keys that may not go together."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from xe_sizer.errors import Location
from xe_sizer.scenario.conflicts import RULES, Keys, conflicts, needs, never_both
from xe_sizer.scenario.provenance import with_values
from xe_sizer.scenario.schema import KEYS, ScenarioFile


def test_rules_ask_for_keys_that_scenarios_have() -> None:
    asked: set[str] = set()

    def value(key: str) -> Any:
        asked.add(key.replace("histogram.lengths", "histogram").replace("histogram.counts", "histogram"))
        return 3

    scenario: Any = SimpleNamespace(value=value, number=value, has=value, locate=lambda path: path)
    named = {key for rule in RULES for key, _, _ in rule(scenario)}
    assert asked | named <= set(KEYS)
    assert len(asked) > 40


@pytest.mark.parametrize("as_read", [True, False])
def test_rules_look_up_keys_in_a_file_and_in_what_was_read_of_it(as_read: bool) -> None:
    read = with_values(ScenarioFile(model="m"), {"layout.vpp": 2, "gpu": "x", "server": "y"})
    values: Any = read if as_read else {"model": "m", "layout": {"vpp": 2}, "gpu": "x", "server": "y", "train": "wrong"}
    keys = Keys(values, lambda path, *, key=False: Location(".".join(map(str, path))))
    lonely = needs("train.steps", "gpus", "")  # of a section that is no section, or has nothing
    rules = (needs("layout.vpp", "layout.pp", "say pp"), never_both("gpu", "server", "one"), lonely)
    assert [str(problem) for problem in conflicts(keys, rules)] == [
        "layout.vpp: 'vpp' needs 'pp'\n  hint: say pp",
        "server: 'gpu' and 'server' are both given\n  hint: one",
    ]
