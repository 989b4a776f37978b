"""Code knows no registered item by name: an item is added, renamed or taken away in its own file alone.

A name counts where it is a whole string in the code. Words that mean something else too are left out, each with what.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import get_args

import msgspec
import pytest

import xe_sizer
from xe_sizer.graph.operators import LOSSES
from xe_sizer.laws.device import PRECISIONS
from xe_sizer.profiles.finder import BUILT_IN, KINDS, default_name
from xe_sizer.profiles.yaml_reader import load_yaml
from xe_sizer.report.registry import format_names
from xe_sizer.scenario.options import OPTIONS
from xe_sizer.software.number_formats import FORMATS
from xe_sizer.software.speculation import METHODS as DRAFTINGS
from xe_sizer.software.stack import KernelChoice
from xe_sizer.training.adapters import ADAPTERS
from xe_sizer.training.methods import METHODS

PACKAGE = Path(xe_sizer.__file__).parent
NAMES: Mapping[str, Collection[str]] = {
    "method": METHODS,
    "adapter": ADAPTERS,
    "loss": LOSSES,
    "drafting": DRAFTINGS,
    "number format": {*FORMATS, *PRECISIONS},
    "report format": format_names(),
    **{kind: BUILT_IN.names(kind) for kind in KINDS},
}
# Where an item says what it is; the default of a report is said beside the list of its formats.
OWN = {
    "method": ("training/methods/", "training/adapters/"),  # some jobs are called as what learns
    "adapter": ("training/methods/", "training/adapters/"),
    "loss": ("graph/operators.py",),
    "drafting": ("software/speculation.py",),
    "number format": ("software/number_formats.py", "laws/device.py"),
    "report format": ("report/formats/", "report/registry.py"),
    "stack": ("software/stack.py",),  # DeepSpeed is also a backend, below other stacks
    "quantiser": ("software/number_formats.py",),  # some are called as what they make
}
SECTIONS = {key.partition(".")[0] for key in OPTIONS.values()}  # of a scenario: lora is one, and a method
KERNELS = {
    word for field in msgspec.structs.fields(KernelChoice) for word in get_args(field.type) if isinstance(word, str)
}  # of norms and attention: eager, flash and fused are words for these and for losses
ARCHITECTURES = {"gpt2", "flint"}  # Hugging Face calls an architecture as the model
NOTHING = {"none"}  # also no offloading, no recomputation, no padding
RECIPES = {"mxfp8"}  # also how training casts to 8 bit
OPTION_WORDS = {"dora"}  # of low-rank adapters, beside the kind of them
TRANSLATES = ("interop/",)  # words of other tools into those of scenarios, and back
MEANS_MORE = OPTION_WORDS | SECTIONS | KERNELS | ARCHITECTURES | NOTHING | RECIPES


@cache
def strings() -> tuple[tuple[str, str], ...]:
    """Every whole string in the package's code, with where it stands."""
    return tuple(found for file in sorted(PACKAGE.rglob("*.py")) for found in _strings_of(file))


def _strings_of(file: Path) -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value, f"{file.relative_to(PACKAGE).as_posix()}:{node.lineno}"


@pytest.mark.parametrize("kind", NAMES)
def test_no_name_of_an_item_stands_in_code_outside_its_own_file(kind: str) -> None:
    names = set(NAMES[kind]) - MEANS_MORE
    assert names
    elsewhere = (*OWN.get(kind, ()), *TRANSLATES)
    found = [(name, place) for name, place in strings() if name in names and not place.startswith(elsewhere)]
    assert found == []


def test_names_are_found_where_they_do_stand() -> None:
    """The search itself works: a method's name stands in its own file, and shared words stand elsewhere."""
    assert ("qlora", "training/adapters/low_rank.py") in {(name, place.partition(":")[0]) for name, place in strings()}
    assert {"lora", "gpt2", "eager", "flash", "fused"} <= MEANS_MORE


@pytest.mark.parametrize("kind", ["stack", "engine"])
def test_one_profile_of_a_kind_stands_for_it_where_none_is_named(kind: str) -> None:
    said = [name for name in BUILT_IN.names(kind) if load_yaml(BUILT_IN.path(kind, name)).value.get("default")]
    assert said == [default_name(kind)]
