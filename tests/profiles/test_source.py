"""Strict YAML: every trap is an error with its place, and good input keeps its values and places."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.profiles import yaml_reader
from xe_sizer.profiles.text import parse_scalar, read_text
from xe_sizer.profiles.yaml_reader import Document, load_yaml


def write(folder: Path, content: str | bytes) -> Path:
    path = folder / "in.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def problems_of(path: Path) -> tuple[Problem, ...]:
    with pytest.raises(InputError) as caught:
        load_yaml(path)
    return caught.value.problems


BAD_FILES = [
    # (name, content, message starts with, line, column)
    ("empty", "", "the file is empty", 1, 1),
    ("only a comment", "# nothing\n", "the file is empty", 1, 1),
    ("empty document", "---\n", "the file is empty", 2, 1),
    ("list as root", "- a\n- b\n", "the file must hold keys and values, not a list", 1, 1),
    ("text as root", "hello\n", "the file must hold keys and values, not 'hello'", 1, 1),
    ("duplicate key", "a: 1\nb: 2\na: 3\n", "'a' is given twice; first at line 1, column 1", 3, 1),
    ("duplicate nested key", "s: {a: 1, a: 2}\n", "'a' is given twice; first at line 1, column 5", 1, 11),
    ("octal", "gpus: 017\n", "'017' has a leading zero", 1, 7),
    ("leading zero of a fraction", "x: 00.5\n", "'00.5' has a leading zero", 1, 4),
    ("base 60", "t: 1:30\n", "'1:30' is read in base 60", 1, 4),
    ("base 60 with seconds", "t: 1:30:05.5\n", "'1:30:05.5' is read in base 60", 1, 4),
    ("yes", "ideal: yes\n", "'yes' is a bool to some tools", 1, 8),
    ("Off", "ideal: Off\n", "'Off' is a bool to some tools", 1, 8),
    ("no as a key", "no: 1\n", "'no' is a bool to some tools", 1, 1),
    ("YAML infinity", "x: .inf\n", "'.inf' is not a finite number", 1, 4),
    ("negative infinity", "x: -.INF\n", "'-.INF' is not a finite number", 1, 4),
    ("plain inf", "x: inf\n", "'inf' is not a finite number", 1, 4),
    ("nan", "x: [1, .NaN]\n", "'.NaN' is not a finite number", 1, 8),
    ("overflow to infinity", "x: 1e999\n", "'1e999' is too large a number", 1, 4),
    ("huge whole number", f"x: {10**31}\n", f"'{10**31}' is too large a number", 1, 4),
    ("huge negative number", "x: -2e30\n", "'-2e30' is too large a number", 1, 4),
    ("underscores", "x: 1_000\n", "'1_000' has underscores", 1, 4),
    ("alias", "a: [1]\nb: *a\n", "aliases (*a) are not supported", 2, 4),
    ("anchor", "a: &x 1\n", "anchors (&x) are not supported", 1, 4),
    ("recursive alias", "a: &x [*x]\n", "anchors (&x) are not supported", 1, 4),
    ("python tag", "a: !!python/object/apply:os.system [ls]\n", "tags (tag:yaml.org,2002:python", 1, 4),
    ("standard tag", "a: !!str 1\n", "tags (tag:yaml.org,2002:str) are not supported", 1, 4),
    ("own tag", "a: !include x.yaml\n", "tags (!include) are not supported", 1, 4),
    ("undeclared tag handle", "a: !e!x 1\n", "tags (words that start with '!')", 1, 4),
    ("merge key", "a:\n  <<: {b: 1}\n", "merge keys (<<) are not supported", 2, 3),
    ("number as a key", "1: a\n", "a key must be text, not 1", 1, 1),
    ("bool as a key", "true: a\n", "a key must be text, not true", 1, 1),
    ("nothing as a key", "~: a\n", "a key must be text, not empty", 1, 1),
    ("list as a key", "? [a]\n: 1\n", "a key must be text, not a list", 1, 3),
    ("template braces", "model: {{name}}\n", "a key must be text, not a group of keys", 1, 9),
    ("two documents", "a: 1\n---\nb: 2\n", "a second document starts here", 2, 1),
    ("open list", "a: [1\nb: 2\n", "a list in [ ] is not closed", 2, 2),
    ("open group", "a: {b: 1\n", "a group in { } is not closed", 2, 1),
    ("open quote", "a: 'x\n", "a quoted text is not closed", 2, 1),
    ("unknown escape", 'a: "\\q"\n', "unknown escape after a backslash", 1, 5),
    ("two colons", "a: b: c\n", "a ':' is not expected here", 1, 5),
    ("tab as indentation", "a:\n\tb: 1\n", "a value cannot start with this character", 2, 1),
    ("at sign", "a: @x\n", "a value cannot start with this character", 1, 4),
    ("no colon", "a: 1\nb\n", "this line has no ':' after its key", 2, 1),
    ("bad indentation", "a:\n  b: 1\n c: 2\n", "the indentation does not match the lines above", 3, 2),
    ("bad list indentation", "a:\n - 1\n  - 2\n- 3\n", "the indentation does not match", 4, 1),
    ("5,000 open brackets", "a: " + "[" * 5000, "nested more than 50 levels deep", 1, 53),
    ("5,000 closed brackets", "[" * 5000 + "]" * 5000, "nested more than 50 levels deep", 1, 51),
    ("5,000 dashes", "- " * 5000, "nested more than 50 levels deep", 1, 101),
    ("5,000 braces", "{a: " * 5000, "nested more than 50 levels deep", 1, 201),
    ("UTF-16", "a: 1\n".encode("utf-16"), "the file is UTF-16 or UTF-32 text", 1, 1),
    ("UTF-32", "a: 1\n".encode("utf-32"), "the file is UTF-16 or UTF-32 text", 1, 1),
    ("UTF-16 without mark", "a: 1\n".encode("utf-16-le"), "this is a binary file, not text", 1, 2),
    ("binary", b"a: 1\nb: \x00\x01\x02", "this is a binary file, not text", 2, 4),
    ("Latin-1", "a: 1\nname: é\n".encode("latin-1"), "this byte is not valid UTF-8", 2, 7),
    ("control character", "a: 1\nb: x\x07\n", r"control character '\x07' in the text", 2, 5),
    ("YAML 2", "%YAML 2.0\n---\na: 1\n", "not valid YAML: found incompatible YAML document", 1, 1),
]


@pytest.mark.parametrize("loader", ["fastest", "pure Python"])
@pytest.mark.parametrize(("name", "content", "message", "line", "column"), BAD_FILES, ids=[c[0] for c in BAD_FILES])
def test_bad_file_is_refused_with_its_place(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    loader: str,
    name: str,
    content: str | bytes,
    message: str,
    line: int,
    column: int,
) -> None:
    if loader == "pure Python":
        monkeypatch.setattr(yaml_reader, "_LOADER", yaml.SafeLoader)
    path = write(tmp_path, content)
    problem = problems_of(path)[0]
    assert problem.message.startswith(message)
    assert problem.location is not None
    assert problem.location.name == str(path)
    assert problem.location.line == line
    if loader == "fastest" or name != "unknown escape":  # the two parsers differ by one character here
        assert problem.location.column == column


def test_every_problem_of_a_file_is_reported_at_once(tmp_path: Path) -> None:
    found = problems_of(write(tmp_path, "a: 017\nb: yes\na: 1\nc: *x\n1: 2\n"))
    assert [(problem.location.line, problem.location.column) for problem in found if problem.location] == [
        (1, 4), (2, 4), (3, 1), (4, 4), (5, 1),
    ]  # fmt: skip


def test_hints_say_what_to_write(tmp_path: Path) -> None:
    found = problems_of(write(tmp_path, "a: 017\nb: no\nc: 1_000.5\nd: [1\n"))
    assert [problem.hint for problem in found] == [
        "write 17; quote it if it is text",
        "write true or false; quote it if it is text",
        "write 1000.5; quote it if it is text",
        "it opens at line 4, column 4",
    ]


def test_alias_bomb_ends_early(tmp_path: Path) -> None:
    lines = ["a0: &a0 [lol, lol]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 30)]
    problems = problems_of(write(tmp_path, "\n".join(lines)))
    assert sum("anchors" in each.message for each in problems) == 20
    assert sum("aliases" in each.message for each in problems) == 20
    assert [each.message for each in problems if "more" in each.message] == [
        "and 270 more such problems",
        "and 10 more such problems",
    ]


def test_a_folder_is_refused(tmp_path: Path) -> None:
    (problem,) = problems_of(tmp_path)
    assert problem == Problem("this is a folder, not a file", Location(str(tmp_path)))


@pytest.mark.parametrize("name", ["missing.yaml", "../../../../missing/etc/passwd", "a/../b.yaml"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    (problem,) = problems_of(tmp_path / name)
    assert problem == Problem("no such file", Location(str(tmp_path / name)))


@pytest.mark.parametrize("name", ["a\0b.yaml", "x" * 5000 + ".yaml"])
def test_impossible_file_names_are_input_errors(tmp_path: Path, name: str) -> None:
    (problem,) = problems_of(tmp_path / name)
    assert problem.message.startswith("cannot read this file: ")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "a: 1\n")
    path.chmod(0)
    assert problems_of(path)[0].message == "no permission to read this file"


def test_too_large_a_file_is_refused(tmp_path: Path) -> None:
    assert load_yaml(write(tmp_path, "a: 1\n"), most_bytes=5).value == {"a": 1}
    with pytest.raises(InputError, match="the file is larger than"):
        load_yaml(write(tmp_path, "a: 12\n"), most_bytes=5)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8", 8), ("-3", -3), ("+3", 3), ("0", 0), ("-0", 0), ("1e9", 10**9), ("3.35e12", 3_350_000_000_000),
            ("1.5e0", 1.5), ("1e20", 1e20),
        ("12e-6", 12e-6), ("1.", 1.0), (".5", 0.5), ("0.5", 0.5), ("-1.5E+3", -1500), ("true", True),
        ("False", False), ("null", None), ("~", None), ("", None), ("8B", "8B"), ("0x10", "0x10"),
        ("2024-01-31", "2024-01-31"), ("1.2.3", "1.2.3"), ("none", "none"), ("1,000", "1,000"),
        ("-", "-"), (".", "."), ("e9", "e9"), ("llama-2-70b", "llama-2-70b"), ("a:30", "a:30"), ("_1", "_1"),
    ],
)  # fmt: skip
def test_scalars(text: str, value: object) -> None:
    parsed = parse_scalar(text)
    assert parsed == value
    assert type(parsed) is type(value)


def test_quoted_and_block_scalars_stay_text(tmp_path: Path) -> None:
    text = "a: '017'\nb: \"no\"\nc: '1e9'\nd: |\n  12\ne: >-\n  .inf\n'<<': '&x'\n"
    assert load_yaml(write(tmp_path, text)).value == {
        "a": "017", "b": "no", "c": "1e9", "d": "12\n", "e": ".inf", "<<": "&x",
    }  # fmt: skip


def test_locations_of_values_and_keys(tmp_path: Path) -> None:
    path = write(tmp_path, "\ufeffmodel: x\nlayout:\n  tp: 8\n  list: [1, é, 3]\nempty:\n")
    document = load_yaml(path)
    assert document.value == {"model": "x", "layout": {"tp": 8, "list": [1, "é", 3]}, "empty": None}

    def place(*keys: str | int, key: bool = False) -> tuple[int | None, int | None]:
        location = document.locate(keys, key=key)
        assert location.name == str(path)
        return location.line, location.column

    assert place("model") == (1, 8)
    assert place("layout", "tp") == (3, 7)
    assert place("layout", "tp", key=True) == (3, 3)
    assert place("layout", "list", 2) == (4, 16)
    assert place("layout", key=True) == (2, 1)
    assert place("layout", "unknown", "deeper", key=True) == (2, 1)
    assert place("unknown") == (1, 1)


def test_windows_line_ends(tmp_path: Path) -> None:
    document = load_yaml(write(tmp_path, b"a: 1\r\nb: two\r\n"))
    assert document.value == {"a": 1, "b": "two"}
    assert document.locate(("b",)).line == 2


def test_deep_but_allowed_nesting(tmp_path: Path) -> None:
    assert load_yaml(write(tmp_path, "a: " + "[" * 49 + "]" * 49)).value
    assert problems_of(write(tmp_path, "a: " + "[" * 50 + "]" * 50))


def test_read_text_returns_the_text(tmp_path: Path) -> None:
    assert read_text(write(tmp_path, "{\n é}")) == "{\n é}"


FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
SNIPPETS = st.lists(
    st.sampled_from(
        [
            *(
                "a: ",
                "b:",
                "- ",
                "? ",
                "[",
                "]",
                "{",
                "}",
                ",",
                "#",
                "\n",
                "\n  ",
                "\t",
                "'",
                '"',
                "|",
                ">",
                "\\",
            ),
            *("&x ", "*x", "!!int ", "!", "%YAML 1.1\n", "---\n", "...\n", "<<: ", "017", "no", "1e9"),
        ]
    )
).map("".join)


@FUZZ
@given(content=st.one_of(st.binary(max_size=200), st.text(max_size=200), SNIPPETS))
def test_anything_loads_or_is_an_input_error(tmp_path: Path, content: str | bytes) -> None:
    data = content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
    path = write(tmp_path, data)
    try:
        document = load_yaml(path)
    except InputError as error:
        places = {problem.location.name for problem in error.problems if problem.location}
    else:
        places = {document.locate(()).name}
    assert places == {str(path)}


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(-1e29, 1e29)
    | st.text("abc é:'#-", max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abcxyz", min_size=1, max_size=6), inner, max_size=3)
    ),
    max_leaves=12,
)


@FUZZ
@given(value=st.dictionaries(st.text("abcxyz", min_size=1, max_size=6), PLAIN, min_size=1, max_size=4))
def test_what_pyyaml_writes_is_read_back(tmp_path: Path, value: dict[str, object]) -> None:
    path = write(tmp_path, yaml.safe_dump(value, allow_unicode=True, default_flow_style=None, width=10_000))
    assert load_yaml(path).value == value


def test_locate_falls_back_to_the_file() -> None:
    assert Document(Path("x.yaml"), {}, lambda: ({}, {})).locate(("a", 1)) == Location("x.yaml")
