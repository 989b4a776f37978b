"""docs/architecture.md is what the imports are, and the imports go down."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "scripts"))
architecture = importlib.import_module("architecture")

WRITE = "imports or docstrings of packages changed. Write docs/architecture.md anew: python scripts/architecture.py"
FLOOR = {name: -index for index, floor in enumerate(architecture.floors()) for name in floor}


def test_the_page_is_what_the_imports_are() -> None:
    assert (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8") == architecture.page(), WRITE


def test_every_package_stands_on_a_floor() -> None:
    packages = {architecture.package_of(name) for name in architecture.modules()}
    assert packages - {"", architecture.ENTRY} == set(FLOOR)


@pytest.mark.parametrize("package", architecture.packages(), ids=lambda package: package.name)
def test_a_package_says_what_it_is_for(package: architecture.Package) -> None:
    assert package.about.endswith(".")
    assert package.modules >= 1


def test_imports_go_down() -> None:
    climbs = [edge for edge in architecture.edges() if FLOOR[edge[0]] < FLOOR[edge[1]]]
    assert climbs == []


def test_imports_in_functions_count_and_those_for_type_checkers_do_not() -> None:
    known = {"xe_sizer.a.one": Path("one"), "xe_sizer.b": Path("b"), "xe_sizer.b.two": Path("two")}
    tree = architecture.ast.parse(
        "import os\n"
        "from xe_sizer.b import two\n"
        "from xe_sizer.b.two import name\n"
        "if TYPE_CHECKING:\n    from xe_sizer.c import other\n"
        "def later():\n    from xe_sizer.b import thing\n"
    )
    assert sorted(architecture.find_imports(tree, known)) == ["xe_sizer.b", "xe_sizer.b.two", "xe_sizer.b.two"]
