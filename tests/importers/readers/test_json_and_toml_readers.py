"""JSON and TOML files of other tools, with the line of each key."""

from __future__ import annotations

import json
import math
import time
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xe_sizer.errors import InputError
from xe_sizer.interop.readers.documents import flat, read_json, read_toml
from xe_sizer.profiles.text import read_text
from xe_sizer.profiles.yaml_reader import documents_of

JSON = Path("ds.json")
TOML = Path("job.toml")


def test_json_as_people_write_it() -> None:
    text = """{ // why
  "bf16": {"enabled": "auto",},
  # more
  'zero_optimization': {stage: 3, "buckets": [1, 2e8, 5E8,], /* x
  */ "offload": None},
  "path": "a//b#c", "max": Infinity, "none": NaN
}"""
    document = read_json(JSON, text)
    assert isinstance(document.value, dict)
    assert math.isnan(document.value.pop("none"))
    assert document.value == {
        "bf16": {"enabled": "auto"},
        "zero_optimization": {"stage": 3, "buckets": [1, 200_000_000, 500_000_000], "offload": None},
        "path": "a//b#c",
        "max": math.inf,
    }
    assert str(document.locate(("zero_optimization", "stage"))) == "ds.json:4:32"
    assert str(document.locate(("zero_optimization", "offload"), key=True)) == "ds.json:5:6"
    assert str(document.locate(("zero_optimization", "buckets", 1))) == "ds.json:4:50"
    assert str(document.notes[0]) == "ds.json:1:3: comments are left out"


@pytest.mark.parametrize(
    "text", ['"\\ud83d\\ude00"', "[]", "{}", '{"a": {}}', "-1.5e-3", "true", '"\\/"', '\ufeff{"a": 1}']
)
def test_plain_json_is_read_as_json(text: str) -> None:
    assert read_json(JSON, text).value == json.loads(text.removeprefix("\ufeff"))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=20,
    )
)
def test_what_json_writes_is_read_back(value: object) -> None:
    assert read_json(JSON, json.dumps(value, indent=2)).value == value
    assert read_json(JSON, json.dumps(value, ensure_ascii=False)).value == value


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"a": 1', "1:1"), ('{"a" 1}', "1:6"), ('{"a": 1\n "b": 2}', "2:2"), ("[1, 2}", "1:6"), ("", "1:1"),
        ('{"a": }', "1:7"), ('{"a"}', "1:5"), ('{"a": "x}', "1:7"), ('{"a": "\\q"}', "1:7"),
        ("1 2", "1:3"), ("]", "1:1"),
    ],
)  # fmt: skip
def test_broken_json_names_its_place(text: str, place: str) -> None:
    with pytest.raises(InputError, match=f"ds.json:{place}: "):
        read_json(JSON, text)


TABLES = '''title = "x"  # [no]
[a.b]
c = [1,
 2] # ]
d = """
[x]
e = 3
"""
  [[l]]
n = 1
[[l]]
"q r" = 2
x.y = {z = "}"}
[l.m]
k = true
'''


def test_toml_keys_have_their_lines() -> None:
    document = read_toml(TOML, TABLES)
    assert document.value == tomllib.loads(TABLES)
    assert {key: str(where) for key, (_, where) in flat(document).items()} == {
        "title": "job.toml:1:9", "a.b.c": "job.toml:3:5", "a.b.d": "job.toml:5:5", "l.0.n": "job.toml:10:5",
        "l.1.q r": "job.toml:12:9", "l.1.x.y.z": "job.toml:13:7", "l.1.m.k": "job.toml:15:5",
    }  # fmt: skip
    assert str(document.locate(("l", 1, "q r"), key=True)) == "job.toml:12:1"
    assert read_toml(TOML, TABLES.replace("\n", "\r\n")).value == document.value


@pytest.mark.parametrize(
    ("text", "place"), [("a = \n", ":1:5"), ("a = 1\na = 2\n", ":2:6"), ("[a", ""), ("a = [1", "")]
)
def test_broken_toml_names_its_place(text: str, place: str) -> None:
    with pytest.raises(InputError, match=f"job.toml{place}: not valid TOML"):
        read_toml(TOML, text)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "{" * 100_000, '{"a":' * 100_000, "a = " + "[" * 100_000, "1," * 300_000]
)
def test_bombs_are_refused_at_once(text: str) -> None:
    start = time.perf_counter()
    for read in (read_json, read_toml):
        with pytest.raises(InputError):
            read(Path("x"), text)
    assert time.perf_counter() - start < 10


def test_a_list_of_many_values_is_refused() -> None:
    with pytest.raises(InputError, match="more than 200,000 values"):
        read_json(JSON, f"[{'1,' * 300_000}1]")


def test_binary_and_huge_files_are_refused(tmp_path: Path) -> None:
    binary, huge = tmp_path / "b", tmp_path / "h"
    binary.write_bytes(b"\x00\x01")
    with huge.open("wb") as stream:
        stream.truncate(100_000_000)
    for path in (binary, huge, tmp_path):
        with pytest.raises(InputError):
            read_text(path)


def test_groups_in_lists_have_their_number_and_plain_lists_stay() -> None:
    (document,) = documents_of(Path("x.yml"), "a: {b: [1, [2]], c: [{d: 1}, 2], e: {}, f: []}\n")
    assert {key: value for key, (value, _) in flat(document).items()} == {
        "a.b": [1, [2]], "a.c.0.d": 1, "a.c.1": 2, "a.e": {}, "a.f": []
    }  # fmt: skip
    assert flat(documents_of(Path("x.yml"), "just text")[0]) == {}
