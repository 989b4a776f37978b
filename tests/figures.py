"""Figures of the equations that are kept to ten digits, so that a change of one is seen and made on purpose.

The files under tests/golden/figures are written anew with XE_GOLDEN=write (CONTRIBUTING.md), without -n.
What a figure should be stands in the tests by hand, in the frozen answers (docs/development/freeze.md) and in the
trace; these say that none has moved.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import numpy as np

FOLDER = Path(__file__).parent / "golden" / "figures"
DIGITS = 10


def numbers(value: object) -> Iterator[float]:
    """Every number of a record, of the arrays and tuples in it, in their order; words are left out."""
    if isinstance(value, bool | int | float | np.generic):
        yield float(value)
    elif isinstance(value, np.ndarray):
        yield from (float(number) for number in np.ravel(value))
    elif isinstance(value, tuple | list):
        for item in value:
            yield from numbers(item)
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from numbers(getattr(value, name))


def row(*values: object) -> str:
    return " ".join(f"{number:.{DIGITS}g}" for value in values for number in numbers(value))


def cases(group: str) -> set[str]:
    return set(json.loads((FOLDER / f"{group}.json").read_text(encoding="utf-8")))


def check(group: str, case: str, found: Mapping[str, str]) -> None:
    """Compare rows of numbers with those that are kept of the case, or keep them."""
    path = FOLDER / f"{group}.json"
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if os.environ.get("XE_GOLDEN") == "write":
        kept[case] = dict(found)
        text = json.dumps(dict(sorted(kept.items())), indent=1)
        path.write_text(text + "\n", encoding="utf-8")
        return
    assert case in kept, f"no figures are kept of {case}: XE_GOLDEN=write"
    assert list(found) == list(kept[case])
    for name, numbers_found in found.items():
        ours, theirs = (np.array(text.split(), dtype=float) for text in (numbers_found, kept[case][name]))
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, err_msg=f"{case}: {name}")
