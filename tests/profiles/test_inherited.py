"""Profiles that override what differs from a shipped parent."""

from __future__ import annotations

from pathlib import Path

import pytest

from xe_sizer.errors import InputError
from xe_sizer.profiles.inherited import find, read_inherited, shipped_names
from xe_sizer.profiles.source import load_yaml


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shipped = tmp_path / "shipped"
    shipped.mkdir()
    (shipped / "root.yaml").write_text("a: 1\nb: {x: 1, y: {z: 2}}\nc: [1, 2]\n")
    (shipped / "child.yaml").write_text("parent: root\na: 2\nb: {y: {w: 3}}\n")
    return shipped


def read(folder: Path, text: str) -> dict[str, object]:
    own = folder.parent / "own.yaml"
    own.write_text(text)
    return read_inherited(load_yaml(own), folder, "thing")


def test_names_are_the_files(folder: Path) -> None:
    assert shipped_names(folder) == ("child", "root")


def test_tables_merge_at_every_depth_and_lists_are_replaced(folder: Path) -> None:
    found = read(folder, "parent: child\nc: [3]\nb: {x: 7}\n")
    assert found == {"a": 2, "b": {"x": 7, "y": {"z": 2, "w": 3}}, "c": [3], "parent": "child"}


def test_a_table_takes_the_place_of_a_figure_and_the_reverse(folder: Path) -> None:
    assert read(folder, "parent: root\na: {x: 1}\nb: 5\n") == {"a": {"x": 1}, "b": 5, "c": [1, 2], "parent": "root"}


def test_without_a_parent_the_file_is_all(folder: Path) -> None:
    assert read(folder, "a: 9\n") == {"a": 9}


def test_reading_changes_no_parent(folder: Path) -> None:
    first = read(folder, "parent: child\n")
    read(folder, "parent: child\nb: {y: {z: 100}}\n")
    assert read(folder, "parent: child\n") == first


@pytest.mark.parametrize(("parent", "hint"), [("chidl", "child"), ("nothing-like-it", "known things: child, root")])
def test_a_parent_that_does_not_ship_is_refused_with_its_place(folder: Path, parent: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        read(folder, f"a: 1\nparent: {parent}\n")
    problem = caught.value.problems[0]
    assert problem.location is not None
    assert problem.location.line == 2
    assert parent in problem.message
    assert hint in str(problem.hint)


def test_paths_and_names_are_told_apart(folder: Path) -> None:
    own = folder.parent / "own.yaml"
    own.write_text("a: 1\n")
    assert find("child", folder, "thing") == folder / "child.yaml"
    assert find(str(own), folder, "thing") == own
    for name in ("own", str(folder.parent / "none.yaml"), "chil"):
        with pytest.raises(InputError):
            find(name, folder, "thing")
