"""Profiles that override what differs from a parent of their kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from xe_sizer.errors import InputError
from xe_sizer.profiles.finder import Finder
from xe_sizer.profiles.inherited import read_inherited
from xe_sizer.profiles.source import load_yaml


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    stacks = tmp_path / "stacks"
    stacks.mkdir()
    (stacks / "root.yaml").write_text("a: 1\nb: {x: 1, y: {z: 2}}\nc: [1, 2]\n")
    (stacks / "child.yaml").write_text("parent: root\na: 2\nb: {y: {w: 3}}\n")
    return tmp_path


def read(folder: Path, text: str, name: str = "own") -> dict[str, object]:
    own = folder / "stacks" / f"{name}.yaml"
    own.write_text(text)
    return read_inherited(load_yaml(own), "stack", Finder([folder]))


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


def test_a_file_may_override_the_built_in_one_of_its_name(folder: Path) -> None:
    found = read(folder, "parent: generic\nuncertainty: 0.77\n", "generic")
    assert found["uncertainty"] == 0.77
    assert found["kernels"]


@pytest.mark.parametrize(("parent", "hint"), [("chidl", "child"), ("nothing-like-it", ", child, "), ("own", "")])
def test_an_unknown_parent_is_refused_with_its_place(folder: Path, parent: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        read(folder, f"a: 1\nparent: {parent}\n")
    problem = caught.value.problems[0]
    assert problem.location is not None
    assert problem.location.line == 2
    assert parent in problem.message
    assert hint in str(problem.hint)
