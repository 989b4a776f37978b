"""Every command that answers takes every format, also one that nobody had thought of, and what it saved is rendered."""

from __future__ import annotations

import csv
import io
import json
import shlex
import textwrap
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from xe_sizer.report import formats
from xe_sizer.report.answers import reporters
from xe_sizer.report.registry import format_names, known_endings, known_format

from .conftest import FIXTURES, Ran

Cli = Callable[..., Ran]
JOB = "--model llama-2-7b --gpu h100-sxm-80gb --job lora --dataset alpaca --steps 10"
RECORD = {
    "id": "mine", "job": "sft", "model": "llama-2-7b", "stack": "deepspeed", "gpu": "a100-sxm-80gb", "gpus": 8,
    "layout": {"zero": 2}, "batch": {"micro": 1, "global": 64}, "seq_len": 4096, "recompute": "full",
    "source": {"title": "my own runs"}, "measured": {"samples_per_s": 4.0},
}  # fmt: skip
QUESTIONS = {
    "estimate": f"estimate {JOB} --gpus 8",
    "serve": "serve --model llama-2-7b --gpu h100-sxm-80gb --concurrency 4",
    "plan": f"plan {JOB} --max-gpus 4",
    "scaling": f"plan {JOB} --max-gpus 4 --scaling strong",
    "sweep": f"plan {JOB} --grid gpus=2,4 --jobs 1",
    "compare": f"compare {JOB} gpus=4 gpus=8",
    "sensitivity": f"sensitivity {JOB} --gpus 8",
    "models": "models --gpu l4 --part gpt2",
    "calendar": "calendar cluster.yaml",
    "check": "check job.yaml chat.yaml bad.yaml",
    "validate": "validate record.jsonl",
    "profiles": "profiles list gpu h100",
    "measurement": f"render {FIXTURES / 'studies' / 'measurement.json'}",
    "data": "data samples.jsonl",
}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that the questions name."""
    monkeypatch.chdir(tmp_path)
    head = "model: llama-2-7b\ngpu: h100-sxm-80gb\n"
    Path("job.yaml").write_text(f"{head}gpus: 8\njob: lora\ntrain: {{steps: 10}}\nlimits: {{max_hours: 1e-9}}\n")
    Path("chat.yaml").write_text(f"{head}serve: {{concurrency: 4}}\n")
    Path("cluster.yaml").write_text(
        "gpu: h100-sxm-80gb\njobs: {night: {scenario: {extends: job.yaml}, deadline_hours: 9}}\n"
    )
    Path("bad.yaml").write_text(f"{head}modle: x\n")
    Path("samples.jsonl").write_text('{"text": "one two three"}\n{"text": "four"}\n')
    Path("record.jsonl").write_text(json.dumps(RECORD))
    return tmp_path


def asked(cli: Cli, question: str, *options: str) -> Ran:
    return cli(*shlex.split(QUESTIONS[question]), *options)


@pytest.fixture(scope="module")
def answers() -> dict[tuple[str, str], Ran]:
    """What was answered to a question in a format."""
    return {}


@pytest.fixture
def answer(cli: Cli, files: Path, answers: dict[tuple[str, str], Ran]) -> Callable[[str, str], Ran]:
    def answer(question: str, name: str) -> Ran:
        if (question, name) not in answers:
            answers[question, name] = asked(cli, question, "--format", name)
        return answers[question, name]

    return answer


Answer = Callable[[str, str], Ran]


def test_there_is_a_question_for_every_kind_of_answer() -> None:
    assert {each.ANSWER.question for each in reporters()} == set(QUESTIONS)


@pytest.mark.parametrize("name", format_names())
@pytest.mark.parametrize("question", QUESTIONS)
def test_every_question_in_every_format(answer: Answer, question: str, name: str) -> None:
    ran = answer(question, name)
    assert ran.code == (2 if question == "check" else 0)
    silent = name == "github" and question == "estimate"  # a plain yes is worth no annotation
    assert ran.out[-1:] == ("" if silent else "\n")
    assert "error" not in ran.err
    if name == "json":
        assert next(iter(json.loads(ran.out))) == "schema_version"
    elif name == "csv":
        rows = list(csv.reader(io.StringIO(ran.out)))
        assert len(rows) > 1
        assert {len(row) for row in rows} == {len(rows[0])}
        assert len(set(rows[0])) == len(rows[0])
    elif name == "junit":
        root = ET.fromstring(ran.out)
        assert int(root.get("tests", "0")) == len(list(root.iter("testcase"))) > 0
        assert int(root.get("failures", "0")) + int(root.get("errors", "0")) == (2 if question == "check" else 0)
    elif name == "github":
        assert all(line.startswith(("::notice ", "::warning ", "::error ")) for line in ran.out.splitlines())
    elif name == "html":
        assert ran.out.startswith("<!DOCTYPE html>")


@pytest.mark.parametrize("question", QUESTIONS)
def test_what_a_command_saved_is_rendered_as_it_would_have_answered(cli: Cli, answer: Answer, question: str) -> None:
    saved = answer(question, "json")
    Path("saved.json").write_text(saved.out)
    for name in format_names():
        rendered = cli("render", "saved.json", "-f", name)
        assert rendered.code == saved.code
        if known_format(name).details and question != "plan":  # whose search is timed
            assert rendered.out == answer(question, name).out


DROPPED = '''
"""As many lines as the report has blocks."""

SHOWS = "document"
ENDINGS = (".blocks",)


def render(content, options):
    return f"{content.verdict} in {len(content.blocks)} blocks\\n"
'''


@pytest.fixture
def dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    folder = tmp_path / "dropped"
    folder.mkdir()
    (folder / "blocks.py").write_text(textwrap.dedent(DROPPED))
    monkeypatch.setattr(formats, "__path__", [*formats.__path__, str(folder)])
    yield
    import sys

    sys.modules.pop("xe_sizer.report.formats.blocks", None)


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_format_that_is_dropped_in_is_taken_by_every_command(
    cli: Cli, files: Path, dropped: None, question: str
) -> None:
    asked(cli, question, "-o", "answer.blocks")
    assert (files / "answer.blocks").read_text().endswith(" blocks\n")


def test_a_format_that_is_dropped_in_is_taken_by_name(cli: Cli, files: Path, dropped: None) -> None:
    assert asked(cli, "profiles", "--format", "blocks").out.endswith(" blocks\n")


def test_a_dropped_in_format_is_offered_and_shows_details(cli: Cli, dropped: None) -> None:
    words = " ".join(cli("plan", "--help").out.replace("│", " ").split())
    assert "blocks, csv" in words
    assert ".blocks" in known_endings()
    assert known_format("blocks").details


def test_verdicts_alone_need_no_details() -> None:
    assert {name for name in format_names() if not known_format(name).details} == {"github", "gitlab", "junit", "sarif"}
    assert {name for name in format_names() if known_format(name).whole} == {"json"}


@pytest.mark.parametrize("question", QUESTIONS)
def test_an_unknown_ending_names_the_known_ones(cli: Cli, files: Path, question: str) -> None:
    ran = asked(cli, question, "-o", "answer.pdf")
    assert (ran.code, ran.out) == (2, "")
    assert "no format has the ending '.pdf'" in ran.err
    assert all(ending in ran.err for ending in known_endings())
    assert not (files / "answer.pdf").exists()


def test_the_ending_chooses_the_format(cli: Cli, answer: Answer) -> None:
    """Of any command, as the test of a format that is dropped in shows."""
    Path("saved.json").write_text(answer("estimate", "json").out)
    for file, start in (("a.json", "{"), ("a.md", "### "), ("A.HTML", "<!DOCTYPE"), ("a.xml", "<?xml")):
        cli("render", "saved.json", "-o", file)
        assert Path(file).read_text().startswith(start)
    cli("render", "saved.json", "-o", "a.pdf", "--format", "json")
    assert Path("a.pdf").read_text().startswith("{")


def test_a_file_that_cannot_be_written(cli: Cli, files: Path) -> None:
    for question in QUESTIONS:
        ran = asked(cli, question, "-o", "none/answer.md")
        assert ran.code == 2
        assert "cannot write" in ran.err


def test_a_plan_fails_as_one_case_and_candidates_do_not(cli: Cli, files: Path) -> None:
    out = asked(cli, "plan", "--max-hours", "1e-9", "--format", "junit").out
    root = ET.fromstring(out)
    failed = [case.get("name") for case in root.iter("testcase") if case.find("failure") is not None]
    skipped = [case.get("name") for case in root.iter("testcase") if case.find("skipped") is not None]
    assert failed[:2] == ["plan", "limit max_hours"]
    assert skipped
    assert all("x h100-sxm-80gb" in str(name) for name in skipped)


def test_each_alternative_is_a_suite_and_each_step_of_a_factor_a_case(answer: Answer) -> None:
    root = ET.fromstring(answer("compare", "junit").out)
    assert [suite.get("name") for suite in root] == ["gpus=4", "gpus=8"]
    found = json.loads(answer("sensitivity", "json").out)
    steps = [f"{factor['name']}: {effect['step']}" for factor in found["factors"] for effect in factor["effects"]]
    root = ET.fromstring(answer("sensitivity", "junit").out)
    assert [case.get("name") for case in root.iter("testcase")] == ["as asked", *steps]


def test_rows_hold_the_figures_of_the_answer(answer: Answer) -> None:
    found = json.loads(answer("compare", "json").out)
    rows = list(csv.DictReader(io.StringIO(answer("compare", "csv").out)))
    for row, one in zip(rows, found["alternatives"], strict=True):
        result = one["result"]
        assert row["alternative"] == one["name"]
        assert float(row["total_s"]) == result["time"]["total_s"]["expected"]
        assert float(row["peak_bytes"]) == result["memory"]["peak_bytes"]
        assert row["fits"] == "true"
    points = json.loads(answer("scaling", "json").out)["points"]
    rows = list(csv.DictReader(io.StringIO(answer("scaling", "csv").out)))
    assert [(int(row["gpus"]), float(row["step_s"])) for row in rows] == [(p["gpus"], p["step_s"]) for p in points]
