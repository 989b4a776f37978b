"""Profiles that override what differs from a parent of their kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from xe_sizer.errors import InputError
from xe_sizer.profiles.finder import Finder, read_inherited
from xe_sizer.profiles.yaml_reader import load_yaml
from xe_sizer.software.release import split_release


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


@pytest.mark.parametrize(
    ("written", "name", "release"),
    [
        ("nemo@24.07", "nemo", "24.07"),
        ("NeMo 24.07", "NeMo", "24.07"),
        ("nemo-24.07", "nemo", "24.07"),
        ("transformers==4.36", "transformers", "4.36"),
        ("Megatron-LM v0.8", "Megatron-LM", "0.8"),
        ("hf-trainer@5", "hf-trainer", "5"),
        ("torchtitan @ 2024.12", "torchtitan", "2024.12"),
        ("nemo-2023", "nemo-2023", None),
        ("megatron-deepspeed-zero3", "megatron-deepspeed-zero3", None),
        ("FSDP2", "FSDP2", None),
        ("mine-1.2.yaml", "mine-1.2.yaml", None),
        ("nemo@new", "nemo@new", None),
    ],
)
def test_a_release_is_written_behind_the_name(written: str, name: str, release: str | None) -> None:
    assert split_release(written) == (name, release)


RELEASES = """
parent: root
a: 5
releases:
  - {before: "4.36", dated: "23.12", differs: {a: 4, b: {x: 9}}, source: its changelog}
  - {before: "5.0", dated: "2026.01", differs: {a: 3}, source: its changelog}
"""


@pytest.mark.parametrize(
    ("release", "a", "x"),
    [(None, 5, 1), ("5.0", 5, 1), ("4.57.1", 3, 1), ("4.36", 3, 1), ("4.9", 4, 9), ("2026.02", 5, 1), ("25.12", 3, 1),
     ("2023", 4, 9)],
)  # fmt: skip
def test_older_releases_did_otherwise_by_number_or_by_month(folder: Path, release: str | None, a: int, x: int) -> None:
    """4.9 is older than 4.36, and both are known by month too; what two rows say, the older one says."""
    own = folder / "stacks" / "own.yaml"
    own.write_text(RELEASES)
    found = read_inherited(load_yaml(own), "stack", Finder([folder]), release=release)
    assert (found["a"], found["b"]["x"]) == (a, x)  # type: ignore[index]


def test_a_parent_may_be_of_a_release(folder: Path) -> None:
    (folder / "stacks" / "released.yaml").write_text(RELEASES)
    found = read(folder, "parent: released@4.20\nc: [7]\n")
    assert (found["a"], found["b"], found["c"]) == (4, {"x": 9, "y": {"z": 2}}, [7])


@pytest.mark.parametrize(
    ("row", "line", "said"),
    [
        ('{before: "new", differs: {}, source: x}', 3, "numbers with points"),
        ('{before: "5.0", dated: "January", differs: {}, source: x}', 3, "numbers with points"),
        ('{before: "5.0", differs: {}}', 3, "source"),
        ('{before: "5.0", difers: {}, source: x}', 3, "difers"),
    ],
)
def test_mistakes_in_releases_are_named_with_their_place(folder: Path, row: str, line: int, said: str) -> None:
    with pytest.raises(InputError) as caught:
        read(folder, f"a: 1\nreleases:\n  - {row}\n")
    problem = next(problem for problem in caught.value.problems if said in str(problem))
    assert problem.location is not None
    assert problem.location.line == line
    assert problem.location.column
