"""Plain data to structs: every problem is found, worded for people and placed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec
import pytest
from msgspec import Meta

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.profiles.convert import convert, convert_what_is_right
from xe_sizer.profiles.yaml_reader import load_yaml


class Part(msgspec.Struct, frozen=True, kw_only=True, rename={"name_": "name"}):
    name_: str
    rate: Annotated[float, Meta(gt=0, lt=100)] = 1.0


class Whole(msgspec.Struct, frozen=True, kw_only=True):
    count: Annotated[int, Meta(ge=1, le=10, multiple_of=2, description="How many")]
    kind: Literal["ring", "tree"] = "ring"
    level: Literal[0, 1] | None = None
    size: int | str = 0
    code: Annotated[str, Meta(pattern="^[a-z]+$", max_length=3)] = "a"
    flag: bool = False
    parts: tuple[Part, ...] = ()
    named: dict[str, Part] = {}
    peaks: dict[Literal["bf16", "fp8"], Annotated[float, Meta(gt=0)]] = {}
    pair: tuple[int, int] | None = None
    words: Annotated[list[str], Meta(min_length=1)] = msgspec.field(default_factory=lambda: ["x"])

    def __post_init__(self) -> None:
        if self.pair and self.pair[0] > self.pair[1]:
            raise ValueError("the pair must ascend")


def located(path: tuple[str | int, ...], *, key: bool = False) -> Location:
    return Location("/".join(map(str, path)) + (" key" if key else ""))


def test_convert_builds_nested_structs() -> None:
    data = {
        "count": 4,
        "level": 1,
        "size": "big",
        "flag": True,
        "parts": [{"name": "a", "rate": 2}],
        "peaks": {"bf16": 989},
        "named": {"x": {"name": "b"}},
        "pair": [1, 2],
        "words": ["y"],
        "kind": "tree",
        "code": "abc",
    }
    whole = convert(data, Whole, located)
    assert whole == Whole(
        count=4, level=1, size="big", flag=True, parts=(Part(name_="a", rate=2.0),), peaks={"bf16": 989.0},
        named={"x": Part(name_="b")}, pair=(1, 2), words=["y"], kind="tree", code="abc",
    )  # fmt: skip
    assert type(whole.parts[0].rate) is float
    assert type(whole.peaks["bf16"]) is float


BAD_VALUES = [
    # (change to the good data, message, place, hint)
    ({"count": "four"}, "'count' must be a whole number, not 'four'", "count", None),
    ({"count": 8.0}, "'count' must be a whole number, not 8.0", "count", "write 8"),
    ({"count": True}, "'count' must be a whole number, not true", "count", None),
    ({"count": None}, "'count' must be a whole number, not empty", "count", None),
    (
        {"count": "1,000"},
        "'count' must be a whole number, not '1,000'",
        "count",
        "write 1000 without quotes or commas",
    ),
    ({"count": 0}, "'count' must be at least 1, not 0", "count", None),
    ({"count": 12}, "'count' must be at most 10, not 12", "count", None),
    ({"count": 3}, "'count' must be a multiple of 2, not 3", "count", None),
    ({"kind": "rign"}, "'kind' must be one of ring, tree, not 'rign'", "kind", "did you mean 'ring'?"),
    ({"level": True}, "'level' must be one of 0, 1, not true", "level", None),
    (
        {"size": 1.5},
        "'size' must be a whole number or text, not 1.5",
        "size",
        "put it in quotes to make it text",
    ),
    ({"code": "A"}, "'code' must match ^[a-z]+$, not 'A'", "code", None),
    ({"code": "abcd"}, "'code' must have at most 3 characters, not 4", "code", None),
    ({"code": 12}, "'code' must be text, not 12", "code", "put it in quotes to make it text"),
    ({"flag": 1}, "'flag' must be true or false, not 1", "flag", None),
    ({"parts": {"a": 1}}, "'parts' must be a list, not a group of keys", "parts", None),
    ({"parts": [{"name": "a"}, 3]}, "item 2 of 'parts' must be a group of keys, not 3", "parts/1", None),
    ({"parts": [{"rate": 1}]}, "missing key 'name' in item 1 of 'parts'", "parts/0 key", None),
    (
        {"parts": [{"name": "a", "rate": float("nan")}]},
        "'rate' must be a finite number, not nan",
        "parts/0/rate",
        None,
    ),
    (
        {"named": {"x": {"name": "a", "rate": 0}}},
        "'rate' must be greater than 0, not 0",
        "named/x/rate",
        None,
    ),
    (
        {"named": {"x": {"name": "a", "rate": 100.0}}},
        "'rate' must be less than 100, not 100",
        "named/x/rate",
        None,
    ),
    ({"named": [1]}, "'named' must be a group of keys, not a list", "named", None),
    ({"peaks": {"bf61": 1}}, "key 'bf61' must be one of bf16, fp8", "peaks/bf61 key", "did you mean 'bf16'?"),
    ({"peaks": {"bf16": "x" * 99}}, f"'bf16' must be a number, not '{'x' * 37}...'", "peaks/bf16", None),
    ({"pair": [1, 2, 3]}, "'pair' must have 2 items, not 3", "pair", None),
    ({"pair": [2, 1]}, "the pair must ascend", "", None),
    ({"words": []}, "'words' must not be empty", "words", None),
    ({"words": [1]}, "item 1 of 'words' must be text, not 1", "words/0", "put it in quotes to make it text"),
    ({"kinds": "ring"}, "unknown key 'kinds'", "kinds key", "did you mean 'kind'?"),
    ({"Kind": "ring"}, "unknown key 'Kind'", "Kind key", "did you mean 'kind'?"),
    (
        {"parts": [{"name": "a", "pair": 1}]},
        "unknown key 'pair' in item 1 of 'parts'",
        "parts/0/pair key",
        "'pair' belongs at the top level",
    ),
]


@pytest.mark.parametrize(("change", "message", "place", "hint"), BAD_VALUES)
def test_convert_words_problems_for_people(
    change: dict[str, object], message: str, place: str, hint: str | None
) -> None:
    with pytest.raises(InputError) as caught:
        convert({"count": 2, **change}, Whole, located)
    assert caught.value.problems == (Problem(message, Location(place), hint),)


def test_convert_reports_all_problems_in_file_order(tmp_path: Path) -> None:
    path = tmp_path / "in.yaml"
    path.write_text("zzz: 1\nkind: x\nparts:\n - {rate: -1}\n")
    document = load_yaml(path)
    with pytest.raises(InputError) as caught:
        convert(document.value, Whole, document.locate)
    found = [(problem.message, str(problem.location)) for problem in caught.value.problems]
    assert [(message, place.removeprefix(f"{path}:")) for message, place in found] == [
        ("unknown key 'zzz'", "1:1"),
        ("missing key 'count'", "1:1"),
        ("'kind' must be one of ring, tree, not 'x'", "2:7"),
        ("missing key 'name' in item 1 of 'parts'", "4:4"),
        ("'rate' must be greater than 0, not -1", "4:11"),
    ]  # fmt: skip


def test_the_description_of_a_missing_key_is_its_hint() -> None:
    with pytest.raises(InputError) as caught:
        convert({}, Whole, located)
    assert caught.value.problems == (Problem("missing key 'count'", Location(" key"), "How many"),)


def test_convert_takes_plain_containers() -> None:
    assert convert({"a": 1, "b": 2.5}, dict[str, float], located) == {"a": 1.0, "b": 2.5}
    assert convert([1, 2], list[int], located) == [1, 2]


def test_what_is_right_of_bad_data() -> None:
    data = {"count": 3, "flag": True, "size": 7, "kind": "rng", "knd": 1, "parts": [{"name": "a", "rate": 500}]}
    rest = convert_what_is_right(data, Whole, located)
    assert (rest.flag, rest.size) == (True, 7)
    assert (rest.count, rest.kind, rest.parts) == (None, "ring", (Part(name_="a"),))
    assert convert_what_is_right({"count": 4, "parts": [{"rate": 5}]}, Whole, located) == Whole(count=4)
