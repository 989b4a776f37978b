"""One run, several reports: `-o` may be repeated, and stdout has what no file has."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Estimator, Ran

Cli = Callable[..., Ran]
JOB = ("estimate", "--model", "m")
TABLE, ANNOTATION, MARKDOWN, XML = "FITS  ", "::", "### ", "<?xml"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def starts(name: str) -> str:
    return Path(name).read_text()[:5]


def test_several_files_and_a_table_beside(cli: Cli, estimator: Estimator) -> None:
    ran = cli(*JOB, "-o", "a.xml", "-o", "a.json", "-o", "a.md")
    assert (ran.code, len(estimator.given)) == (0, 1)
    assert ran.out.startswith(TABLE)
    assert (starts("a.xml"), starts("a.md")[:4]) == (XML, MARKDOWN)
    assert json.loads(Path("a.json").read_text())["schema_version"] == 1


@pytest.mark.parametrize(
    ("options", "out"),
    [
        (["-o", "a.xml"], TABLE),
        (["-o", "a.xml", "-f", "markdown"], MARKDOWN),
        (["-o", "a.xml", "-f", "junit"], ""),
        (["-o", "a.txt"], ""),
        (["-o", "a"], ""),
        (["-o", "a", "-f", "markdown"], ""),
        (["-o", "a.xml", "-o", "-"], TABLE),
        (["-o", "a.xml", "-o", "-", "-f", "junit"], XML),
        (["-o", "markdown:a.txt"], TABLE),
        (["-o", "a.xml", "-o", "markdown:-"], MARKDOWN),
    ],
)
def test_stdout_has_what_no_file_has(cli: Cli, estimator: Estimator, options: list[str], out: str) -> None:
    assert cli(*JOB, *options).out[: len(out) or None] == out


def test_a_word_before_the_file_says_the_format(cli: Cli, estimator: Estimator) -> None:
    cli(*JOB, "-o", "markdown:summary", "-o", "csv:a.json", "-o", "./junit:x.md")
    assert (starts("summary")[:4], starts("a.json")) == (MARKDOWN, "secti")
    assert starts("junit:x.md")[:4] == MARKDOWN


def test_none_is_replaced_where_one_cannot_be_written(cli: Cli, estimator: Estimator) -> None:
    Path("a.json").write_text("old")
    ran = cli(*JOB, "-o", "a.json", "-o", "none/a.xml")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "none/a.xml: cannot write: No such file or directory\n"
    assert Path("a.json").read_text() == "old"
    assert [path.name for path in Path().iterdir()] == ["a.json"]


@pytest.mark.parametrize("names", [("a.json", "./a.json"), ("-", "markdown:-")])
def test_a_file_that_is_named_twice_is_refused(cli: Cli, estimator: Estimator, names: tuple[str, str]) -> None:
    ran = cli(*JOB, "-o", names[0], "-o", names[1])
    assert (ran.code, ran.out, estimator.given) == (2, "", [])
    assert "is named twice" in ran.err


def test_an_ending_that_no_format_has_is_refused(cli: Cli, estimator: Estimator) -> None:
    ran = cli(*JOB, "-o", "a.json", "-o", "a.pdf")
    assert (ran.code, estimator.given) == (2, [])
    assert ".csv, .htm, .html, .json, .markdown, .md, .sarif, .txt, .xml" in ran.err
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("markdown:", "the name of the file behind 'markdown:' is empty"),
        ("json: ", "the name of the file behind 'json:' is empty"),
        ("", "the name of the file is empty"),
        (".json", "'.json' is an ending without a name"),
        ("reports/.XML", "'reports/.XML' is an ending without a name"),
    ],
)
def test_a_file_without_a_name_is_refused(
    cli: Cli, estimator: Estimator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, says: str
) -> None:
    """As where a variable of the shell is not set; nothing is computed, and nothing written."""
    monkeypatch.chdir(tmp_path)
    ran = cli("estimate", "--model", "m", "-o", "answer.json", "-o", name)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"--output: {says}\n")
    assert (estimator.given, list(tmp_path.iterdir())) == ([], [])


def test_links_that_go_in_a_circle_are_no_file(cli: Cli, estimator: Estimator) -> None:
    Path("a").symlink_to("b")
    Path("b").symlink_to("a")
    ran = cli(*JOB, "-o", "a", "-f", "json")
    assert (ran.code, ran.err) == (2, "a: cannot write: Too many levels of symbolic links\n")
    assert all(Path(name).is_symlink() for name in ("a", "b"))


def test_a_link_stays_a_link(cli: Cli, estimator: Estimator) -> None:
    Path("link").symlink_to("file")
    assert cli(*JOB, "-o", "link", "-f", "json").code == 0
    assert Path("link").is_symlink()
    assert json.loads(Path("file").read_text())["schema_version"] == 1


@pytest.mark.parametrize("command", [("profiles", "schema", "gpu"), ("profiles", "show", "llama-2-7b")])
def test_commands_with_one_text_write_one_file(cli: Cli, command: tuple[str, ...]) -> None:
    ran = cli(*command, "-o", "a.json", "-o", "b.json")
    assert (ran.code, list(Path().iterdir())) == (2, [])
    assert "this command writes one file" in ran.err
