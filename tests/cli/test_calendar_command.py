"""`xe-sizer calendar`: train by night and serve by day on one cluster, answered by one command."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import yaml

from xe_sizer.report.answers.calendar import document
from xe_sizer.report.document import Options
from xe_sizer.report.registry import render
from xe_sizer.report.svg import Rect, drawn
from xe_sizer.result.calendar import CalendarResult

from .conftest import Ran

Cli = Callable[..., Ran]
EXAMPLES = Path(__file__).parents[2] / "examples" / "calendar"
PAGE = Path(__file__).parents[2] / "docs" / "calendar.md"
DAY_AND_NIGHT = EXAMPLES / "day-and-night.yaml"
SMALL = """server: dell-xe9680-h100
servers: 1
jobs:
  tune:
    scenario: {model: llama-3.2-1b, job: lora, train: {steps: 200, global_batch: 64, seq_len: 2048, padding: packed}}
    window: 20:00-08:00
    deadline: "08:00"
"""


def ask(cli: Cli, file: Path, *options: str, code: int = 0) -> Any:
    ran = cli("calendar", str(file), *options, "-f", "json")
    assert ran.code == code, ran.err
    return json.loads(ran.out)


def written(folder: Path, text: str) -> Path:
    file = folder / "cluster.yaml"
    file.write_text(text, encoding="utf-8")
    return file


# The mixed question of an architect: train by night, serve by day.


def test_train_by_night_and_serve_by_day_is_one_command(cli: Cli) -> None:
    """What took `serve --hourly-load`, a subtraction by hand and a `plan` with a guessed margin."""
    found = ask(cli, DAY_AND_NIGHT)
    jsonschema.validate(found, json.loads(cli("profiles", "schema", "calendar-result").out))
    (chat,) = found["services"]
    assert (chat["ok"], chat["short_hours"], chat["missed_hours"]) == (True, 0, 0)
    for job in found["jobs"]:
        assert job["ok"]
        assert job["finish"]["expected_s"] <= job["deadline_s"]
        for session in job["sessions"]:  # from 08:00 on, nights are the hours 12 to 24 of each day
            hours = (session["start_s"] / 3600 % 24, session["end_s"] / 3600 % 24 or 24)
            assert 12 <= hours[0] < hours[1] <= 24
    fewer = ask(cli, DAY_AND_NIGHT, "--servers", str(found["servers"] - 1), code=1)
    assert fewer["fewest_gpus"] == found["gpus"]
    text = cli("calendar", str(DAY_AND_NIGHT)).out
    assert text.startswith(f"FITS  1 service and 2 jobs on {found['servers']} servers")
    assert "the fewest that do; the services alone need" in text


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda file: file.stem)
def test_every_example_is_a_calendar_that_fits(cli: Cli, file: Path) -> None:
    assert cli("calendar", str(file)).code == 0
    schema = json.loads(cli("profiles", "schema", "calendar").out)
    jsonschema.validate(yaml.safe_load(file.read_text(encoding="utf-8")), schema)


def test_the_page_of_the_manual_shows_the_example_and_its_answer(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """XE_GOLDEN=write writes the answer anew."""
    monkeypatch.chdir(PAGE.parents[1])
    monkeypatch.setenv("COLUMNS", "118")
    page = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"```(?:yaml)?\n(.*?)```", page, re.DOTALL)
    shown = next(block for block in blocks if block.startswith("server:"))
    assert yaml.safe_load(shown) == yaml.safe_load(DAY_AND_NIGHT.read_text(encoding="utf-8"))
    answer = next(block for block in blocks if block.startswith("$ "))
    command = answer.splitlines()[0]
    printed = cli(*command.split()[2:]).out.partition("\n\nServices\n")[0].rstrip()
    found = f"{command}\n{printed}\n...\n"
    if os.environ.get("XE_GOLDEN") == "write":
        PAGE.write_text(page.replace(answer, found), encoding="utf-8")
        return
    assert answer == found


# Exit codes and options.


def test_a_deadline_that_is_missed_is_exit_code_1(cli: Cli, tmp_path: Path) -> None:
    late = written(tmp_path, SMALL.replace('deadline: "08:00"', "deadline_hours: 0.001"))
    ran = cli("calendar", str(late))
    assert ran.code == 1
    assert ran.out.startswith("MISSES DEADLINES  1 job on 1 server")
    assert "no number up to 64 servers does" in ran.out
    assert "deadline Mon 00:00 MISSED, unlikely (<1 %)" in ran.out
    assert cli("calendar", str(late), "--exit-zero").code == 0


def test_a_service_that_is_short_is_exit_code_1(cli: Cli) -> None:
    ran = cli("calendar", str(DAY_AND_NIGHT), "--servers", "1")
    assert ran.code == 1
    assert ran.out.startswith("TOO FEW GPUS")
    assert re.search(r"chat: 4 to 20 GPUs: [\d.]+ h with fewer GPUs than it needs", ran.out)


def test_confidence_and_servers_are_options(cli: Cli, tmp_path: Path) -> None:
    small = written(tmp_path, SMALL)
    found = ask(cli, small, "--servers", "4", "--confidence", "90%")
    assert (found["servers"], found["confidence"], found["fewest_gpus"]) == (4, 0.9, 8)
    for options in (("--servers", "none"), ("--confidence", "2")):
        ran = cli("calendar", str(small), *options)
        assert ran.code == 2
        assert ran.err.startswith(options[0])


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ("window:", "windwo:", "cluster.yaml:6:5: unknown key 'windwo' in 'tune'\n  hint: did you mean 'window'?"),
        ("20:00-08:00", "evenings", "cluster.yaml:6:13: 'evenings' is no window"),
        ('"08:00"', "08:00", "cluster.yaml:7:15: '08:00' is read in base 60 by some tools"),
        ("llama-3.2-1b", "llama-9", "cluster.yaml:5:23: unknown model 'llama-9'"),
        ("xe9680-h100", "xe9680-h10", "cluster.yaml:1:9: unknown server 'dell-xe9680-h10'\n  hint: did you mean"),
        ("steps: 200", "step: 200", "unknown key 'step' in 'train'\n  hint: did you mean 'steps'"),
    ],
)
def test_bad_input_is_told_at_its_place(cli: Cli, tmp_path: Path, was: str, now: str, said: str) -> None:
    ran = cli("calendar", str(written(tmp_path, SMALL.replace(was, now))))
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


def test_a_file_of_another_tool_is_a_job(cli: Cli, tmp_path: Path) -> None:
    """It states no GPUs: their number is open, and its hardware is the cluster's."""
    (tmp_path / "axolotl.yml").write_text(
        "base_model: meta-llama/Llama-3.2-1B\nadapter: lora\nlora_r: 16\nsequence_len: 2048\nsample_packing: true\n"
        "micro_batch_size: 2\ngradient_accumulation_steps: 4\nmax_steps: 300\nbf16: true\n",
        encoding="utf-8",
    )
    text = "server: dell-xe9680-h100\njobs:\n  theirs: {scenario: axolotl.yml}\n"
    text += "  mine: {scenario: {extends: axolotl.yml, train: {steps: 600}}}\n"
    ran = cli("calendar", str(written(tmp_path, text)), "-f", "json")
    assert ran.code == 0, ran.err
    assert "axolotl.yml is read as a file of" in ran.err
    theirs, mine = json.loads(ran.out)["jobs"]
    assert [one["scenario"]["train"]["steps"] for one in (theirs, mine)] == [300, 600]
    assert theirs["min_gpus"] < theirs["max_gpus"] == 8 * json.loads(ran.out)["servers"]
    assert {one["scenario"]["server"] for one in (theirs, mine)} == {"dell-xe9680-h100"}


def test_what_nobody_said_of_a_job_is_said(cli: Cli, tmp_path: Path) -> None:
    text = "server: dell-xe9680-h100\njobs:\n  a: {scenario: {model: llama-3.2-1b, job: lora, stack: trl}}\n"
    out = cli("calendar", str(written(tmp_path, text))).out
    assert "a: times are for 1,000 steps, assumed: no data was given" in out
    assert re.search(r"Published runs with the trl stack took|No published run with trl", out)


# Reports.


def test_the_picture_has_a_bar_for_every_session(cli: Cli) -> None:
    found = ask(cli, DAY_AND_NIGHT)
    answer = msgspec.convert(found, CalendarResult)
    (picture,) = document(answer, Options()).pictures
    says = [shape.says for shape in drawn(picture).shapes if isinstance(shape, Rect) and shape.says]
    for job in answer.jobs:
        for each in job.sessions:
            start, end = answer.moment(each.start_s), answer.moment(each.end_s)
            assert f"{start} to {end}: {each.gpus} GPUs" in says


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_report_is_no_wider_than_the_terminal(cli: Cli, width: int) -> None:
    answer = msgspec.convert(ask(cli, DAY_AND_NIGHT), CalendarResult)
    lines = render(answer, "table", Options(width=width)).splitlines()
    assert max(map(len, lines)) <= width
    assert any(set(line.strip()) <= {"█", "░", " "} and line.strip() for line in lines)
