"""Reports at every width, and the first screen: what a person sees who does not read on."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Ran

Cli = Callable[..., Ran]
JOB = "--model llama-2-7b --server dell-xe9680-h100 --dataset alpaca --steps 10"
SCENARIO = "model: llama-2-7b\nserver: dell-xe9680-h100\ngpus: 8\ntrain: {steps: 10}\nlimits: {max_hours: 1}\n"
TOO_BIG = SCENARIO.replace("llama-2-7b", "llama-3.1-405b")
QUESTIONS = {
    "estimate": f"estimate {JOB} --gpus 8 --max-hours 2 --max-cost 500 --price-per-gpu-hour 2 --min-headroom-gib 2 "
    "--padding packed",
    "serve": "serve --model llama-3.1-8b --gpu h100-sxm-80gb --request-rate 5 --ttft 1 --tpot 0.05",
    "plan": f"plan {JOB} --max-gpus 32 --max-hours 1",
    "compare": f"compare {JOB} --gpus 16 job=lora job=qlora job=sft",
    "sensitivity": f"sensitivity {JOB} --gpus 8",
    "check": "check scenarios",
}
SAID: dict[tuple[int | None, str], list[str]] = {}  # by width and command: each is asked once
NO = {
    "estimate": "estimate --model llama-3.1-405b --gpu h100-sxm-80gb --gpus 8 --max-hours 1",
    "serve": "serve --model llama-3.1-405b --gpu h100-sxm-80gb --gpus 4 --ttft 1",
    "plan": "plan --model llama-3.1-405b --gpu rtx-4090 --max-gpus 8",
}


@pytest.fixture(autouse=True)
def _scenarios(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "scenarios" / "of-a-team-with-a-long-name"
    folder.mkdir(parents=True)
    for name in ("llama-2-7b-sft-8-gpus", "llama-2-7b-sft-8-gpus-again"):
        (folder / f"{name}.yaml").write_text(SCENARIO)
    (folder / "too-big.yaml").write_text(TOO_BIG)


@pytest.fixture
def at(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None, str], list[str]]:
    def run(columns: int | None, command: str) -> list[str]:
        if (columns, command) in SAID:
            return SAID[columns, command]
        monkeypatch.delenv("COLUMNS", raising=False)
        if columns is not None:
            monkeypatch.setenv("COLUMNS", str(columns))
        ran = cli(*shlex.split(command))
        assert ran.code in (0, 1), ran.err
        return SAID.setdefault((columns, command), ran.out.splitlines())

    return run


At = Callable[[int | None, str], list[str]]


@pytest.mark.parametrize("columns", [60, 80, 120])
@pytest.mark.parametrize("question", QUESTIONS)
def test_no_line_is_wider_than_asked_and_ranges_stay(at: At, question: str, columns: int) -> None:
    lines = at(columns, QUESTIONS[question])
    assert [line for line in lines if len(line) > columns] == []
    text = " ".join(" ".join(lines).split())
    assert "80 % range" in text
    whole = " ".join(" ".join(at(None, QUESTIONS[question])).split())
    for span in {" ".join(part) for part in zip(whole.split(), whole.split()[1:], whole.split()[2:], strict=False)}:
        words = span.split()
        if words[1] == "to" and words[0].lstrip("(")[:1].isdigit() and words[2][:1].isdigit():
            assert words[0].strip("();,") in text
            assert words[2].strip("();,") in text


@pytest.mark.parametrize("question", [name for name in QUESTIONS if name != "check"])
def test_the_first_screen_of_a_terminal_has_the_answer(at: At, question: str) -> None:
    screen = " ".join(" ".join(at(80, QUESTIONS[question])[:24]).split())
    for word in {
        "estimate": (
            "Time",
            "80 % range",
            "Cost",
            "GPU-hours",
            "USD",
            "GPUs",
            "Memory",
            "█",
            "max_cost 500 USD",
        ),
        "serve": ("Latency", "80 % range", "requests/s", "GPUs", "Memory", "█", "max_ttft_s 1.0 s", "met"),
        "plan": ("Time", "80 % range", "Cost", "GPUs", "Memory", "█", "max_hours 1 h", "Next", "xe-sizer estimate"),
        "compare": ("LoRA", "QLoRA", "SFT", "80 % range", "GPU-hours"),
        "sensitivity": ("Time", "80 % range", "Cost", "Memory", "Model size", "Data size"),
    }[question]:
        assert word in screen


def test_the_one_thing_to_change_stands_on_the_first_screen_with_its_command(at: At) -> None:
    lines = at(80, "estimate --model llama-2-70b --gpu h100-sxm-80gb --gpus 8")
    place = next(index for index, line in enumerate(lines) if line.startswith("Change "))
    assert any(line.strip().startswith("xe-sizer estimate --model llama-2-70b") for line in lines[place:24])


def test_without_a_width_a_pipe_gets_everything_on_one_line_each(at: At) -> None:
    assert max(map(len, at(None, QUESTIONS["plan"]))) > 140


@pytest.mark.parametrize("columns", ["0", "-5", "wide", ""])
def test_what_is_no_width_is_passed_over(cli: Cli, monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    whole = cli(*shlex.split(QUESTIONS["compare"])).out
    monkeypatch.setenv("COLUMNS", columns)
    assert cli(*shlex.split(QUESTIONS["compare"])).out == whole


def test_a_file_is_no_terminal(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    cli(*shlex.split(QUESTIONS["compare"]), "-o", "report.txt")
    assert max(map(len, (tmp_path / "report.txt").read_text().splitlines())) > 100


@pytest.mark.parametrize("columns", [None, 80, 120])
@pytest.mark.parametrize("question", [*QUESTIONS, *(f"no {name}" for name in NO)])
def test_a_brief_report_has_fourteen_lines_at_most(at: At, question: str, columns: int | None) -> None:
    command = NO[question.removeprefix("no ")] if question.startswith("no ") else QUESTIONS[question]
    lines = at(columns, f"{command} --brief")
    further = sum(limit in command for limit in ("--max-cost", "--min-headroom-gib"))  # each has a line of its own
    further += sum(line.startswith("  - ") for line in lines)  # what must be known of a yes
    assert 3 <= len(lines) <= 14 + further
    assert lines[0].split("  ")[0].isupper()
    assert "" not in lines


@pytest.mark.parametrize("format_", ["markdown", "html"])
def test_brief_in_other_formats(at: At, format_: str) -> None:
    brief, whole = (len(at(None, f"{QUESTIONS['estimate']} --format {format_}{more}")) for more in (" --brief", ""))
    assert brief < whole / 2
    text = "\n".join(at(None, f"{QUESTIONS['estimate']} --format {format_} --brief"))
    assert "80 % range" in text
    assert "Whole job" not in text


@pytest.mark.parametrize(
    ("more", "said"),
    [("--format json", "json always has everything"), ("--explain memory", "--explain asks for details")],
)
def test_brief_beside_what_has_everything_is_refused(cli: Cli, more: str, said: str) -> None:
    ran = cli(*shlex.split(f"{QUESTIONS['estimate']} --brief {more}"))
    assert ran.code == 2
    assert f"--brief: {said}" in ran.err
