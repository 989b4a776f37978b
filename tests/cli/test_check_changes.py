"""`check --compare-to`: what a branch changes about its scenarios."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest

from xe_sizer.report.answers.check import change_in_words, change_remark
from xe_sizer.result.check import Change, Checked, Figures, changes, check_result, kind_of_change

from .conftest import Ran

Cli = Callable[..., Ran]
JOB = "model: llama-2-7b\ngpu: h100-sxm-80gb\ngpus: 8\njob: lora\ntrain: {steps: 10}\n"
PRICE = "cost: {price_per_gpu_hour: 2}\n"
CHAT = "model: llama-3.1-8b\ngpu: h100-sxm-80gb\ngpus: 1\nserve: {request_rate: RATE}\n"


@pytest.fixture
def before(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six scenarios, checked and then changed: slower, missing a limit, gone, new, as before, and now bad input."""
    monkeypatch.chdir(tmp_path)
    Path("jobs").mkdir()
    for name in ("slow", "missed", "gone", "kept", "typo"):
        Path(f"jobs/{name}.yaml").write_text(JOB + (PRICE if name == "slow" else "limits: {max_hours: 30}\n"))
    Path("jobs/chat.yaml").write_text(CHAT.replace("RATE", "1000"))
    assert cli("check", "jobs", "-o", "before.json").code == 1
    Path("jobs/slow.yaml").write_text(JOB.replace("steps: 10", "steps: 20") + PRICE)
    Path("jobs/missed.yaml").write_text(JOB + "limits: {max_hours: 1e-3}\n")
    Path("jobs/gone.yaml").rename("jobs/new.yaml")
    Path("jobs/typo.yaml").write_text(JOB.replace("model", "modle"))
    Path("jobs/chat.yaml").write_text(CHAT.replace("RATE", "1"))


def asked(cli: Cli, format_: str) -> Ran:
    return cli("check", "./jobs", "--compare-to", "before.json", "-f", format_)


KINDS = {
    "jobs/chat.yaml": "better",
    "jobs/kept.yaml": "same",
    "jobs/missed.yaml": "worse",
    "jobs/new.yaml": "new",
    "jobs/slow.yaml": "worse",
    "jobs/typo.yaml": "worse",
    "jobs/gone.yaml": "removed",
}


def test_every_scenario_before_and_after(cli: Cli, before: None) -> None:
    ran = asked(cli, "json")
    answer = json.loads(ran.out)
    found = {change["file"]: change for change in answer["changes"]}
    assert (ran.code, answer["compared_to"]) == (2, "before.json")
    assert {file: change["kind"] for file, change in found.items()} == KINDS
    slow = found["jobs/slow.yaml"]
    assert slow["after"]["total_s"] / slow["before"]["total_s"] == pytest.approx(2)
    assert slow["after"]["price"] == pytest.approx(slow["after"]["total_s"] / 3600 * 8 * 2)
    assert (slow["before"]["gpus"], slow["before"]["currency"]) == (8, "USD")
    assert found["jobs/missed.yaml"]["after"]["verdict"] == "misses limits"
    assert found["jobs/typo.yaml"]["after"] == {"verdict": "bad input"}
    assert (found["jobs/chat.yaml"]["before"]["verdict"], found["jobs/new.yaml"]["before"]) == ("overloaded", None)
    assert found["jobs/gone.yaml"]["after"] is None


def test_the_exit_code_is_that_of_the_scenarios(cli: Cli, before: None) -> None:
    assert cli("check", "jobs/slow.yaml", "--compare-to", "before.json").code == 0
    assert cli("check", "jobs/missed.yaml", "--compare-to", "before.json").code == 1


def test_table_and_markdown_show_what_moved(cli: Cli, before: None) -> None:
    lines = asked(cli, "table").out.splitlines()
    assert lines[0].endswith("; since before.json: 3 worse, 1 better, 1 new, 1 removed")
    start = lines.index("Changes since before.json")
    rows = {row.split()[0]: row for row in lines[start + 3 : start + 9]}
    assert [row.split()[1] for row in rows.values()] == ["worse", "worse", "worse", "better", "new", "removed"]
    assert "passes -> misses limits" in rows["missed.yaml"]
    assert "0.19 -> 0.38 USD" in rows["slow.yaml"]
    assert "passes -> bad input" in rows["typo.yaml"]
    assert lines[start + 9].startswith("1 scenario unchanged")
    assert "| missed.yaml | worse | passes -&gt; misses limits | 8 |" in asked(cli, "markdown").out


def test_an_annotation_for_what_got_worse_or_has_gone(cli: Cli, before: None) -> None:
    only, *lines = asked(cli, "github").out.splitlines()
    assert only.startswith("::warning file=jobs/chat.yaml,line=3,")
    assert "the only replica is in one server" in only
    starts = [line.split(",title=")[0] for line in lines]
    assert starts[:3] == ["::error file=jobs/missed.yaml,line=6", "::warning file=jobs/slow.yaml,line=5", starts[2]]
    assert starts[2].startswith("::error file=jobs/typo.yaml,line=1,col=1")
    assert lines[0].endswith(
        "%0Aworse: verdict passes -> misses limits; limit max_hours tightened from 30 h to 0.00100 h"
    )
    assert "::worse: time 43.0 -> 86.1 s, price 0.19 -> 0.38 USD" in lines[1]
    assert lines[3].startswith(
        "::notice title=xe-sizer%3A removed::jobs/gone.yaml is no longer checked; before: passes, GPUs 8, "
    )
    assert len(lines) == 4


def test_properties_in_junit(cli: Cli, before: None) -> None:
    suites = {suite.get("name"): suite for suite in ET.fromstring(asked(cli, "junit").out)}
    found = {each.get("name"): each.get("value") for each in suites["jobs/slow.yaml"].iter("property")}
    assert (found["change"], found["before.gpus"], found["after.verdict"]) == ("worse", "8", "passes")
    assert float(str(found["after.total_s"])) == pytest.approx(2 * float(str(found["before.total_s"])))
    assert {each.get("value") for each in suites["jobs/gone.yaml"].iter("property")} >= {"removed", "passes"}


def test_a_saved_comparison_is_rendered_again(cli: Cli, before: None) -> None:
    saved = asked(cli, "json").out
    Path("after.json").write_text(saved)
    assert cli("render", "after.json").out == asked(cli, "table").out


@pytest.mark.parametrize(
    ("text", "says"), [(None, "no such file"), ("{", "ends too early"), ('{"schema_version": 1}', "is missing")]
)
def test_what_it_is_compared_to_must_be_a_saved_check(cli: Cli, before: None, text: str | None, says: str) -> None:
    if text is not None:
        Path("x.json").write_text(text)
    ran = cli("check", "jobs", "--compare-to", "x.json")
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err
    cli("estimate", "jobs/kept.yaml", "-o", "y.json")
    ran = cli("check", "jobs", "--compare-to", "y.json")
    assert (ran.code, ran.err.startswith("y.json: this is a result of estimate, not of check")) == (2, True)


def test_what_costs_more_and_takes_less_is_mixed() -> None:
    old = Figures(verdict="passes", gpus=8, total_s=80.0)
    new = Figures(verdict="passes", gpus=16, total_s=60.0)
    change = Change(file="a.yaml", kind="mixed", before=old, after=new)
    assert change_in_words(change) == "mixed: GPUs 8 -> 16, time 80.0 -> 60.0 s"
    slower = Figures(verdict="passes", peak_bytes=40e9, total_s=100.0)
    assert kind_of_change(slower, Figures(verdict="passes", peak_bytes=30e9, total_s=143.0), relaxed=False) == "mixed"
    assert kind_of_change(slower, Figures(verdict="passes", peak_bytes=30e9, total_s=100.0), relaxed=False) == "better"
    refused = Figures(verdict="does not fit", gpus=8)
    assert kind_of_change(refused, Figures(verdict="passes", gpus=16, total_s=1.0), relaxed=False) == "mixed"
    assert kind_of_change(refused, Figures(verdict="passes", gpus=8, total_s=1.0), relaxed=False) == "better"
    remark = change_remark(change)
    assert remark is not None
    assert (remark.level, remark.title) == ("notice", "xe-sizer: changed")


def test_files_are_matched_however_they_are_written() -> None:
    bad = [Checked(file=name, ok=False) for name in ("./jobs//a.yaml", "jobs/a.yaml")]
    (change,) = changes(check_result((bad[0],)), check_result((bad[1],)))
    assert change.kind == "same"


def test_a_pass_that_becomes_unsure_is_worse(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    asked = ("--model", "gpt2", "--gpu", "h100-sxm-80gb", "--steps", "9", "--stack", "nemo")
    hours = json.loads(cli("estimate", *asked, "-f", "json").out)
    expected_h = hours["time"]["total_s"]["expected"] / 3600
    job = "model: gpt2\ngpu: h100-sxm-80gb\nstack: nemo\ntrain: {{steps: 9}}\nlimits: {{max_hours: {:.9f}}}\n"
    Path("a.yaml").write_text(job.format(100 * expected_h))
    assert cli("check", "a.yaml", "-o", "before.json").code == 0
    Path("a.yaml").write_text(job.format(1.01 * expected_h))
    ran = cli("check", "a.yaml", "--compare-to", "before.json", "-f", "json")
    (change,) = json.loads(ran.out)["changes"]
    assert (ran.code, change["kind"]) == (0, "worse")
    assert (change["before"]["verdict"], change["before"]["certainty"]) == ("passes", "sure")
    assert (change["after"]["verdict"], change["after"]["certainty"]) == ("passes, unsure", "unsure")


def compared(cli: Cli, before: str, after: str, format_: str = "json", *more: str) -> str:
    """What `check` says of one scenario against what it was."""
    Path("a.yaml").write_text(before)
    cli("check", "a.yaml", "-o", "before.json", *more)
    Path("a.yaml").write_text(after)
    return cli("check", "a.yaml", "--compare-to", "before.json", "-f", format_).out


def test_a_relaxed_limit_is_no_improvement(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    long = JOB.replace("10}", "200000}") + "stack: nemo\n"
    strict, lax = (f"{long}limits: {{max_hours: {hours}}}\n" for hours in (24, 480))
    (change,) = json.loads(compared(cli, strict, lax))["changes"]
    assert (change["before"]["verdict"], change["after"]["verdict"]) == ("misses limits", "passes")
    moved = {"key": "limits.max_hours", "before": 24.0, "after": 480.0, "relaxed": True}
    assert (change["kind"], change["scenario"]) == ("mixed", [moved])
    says = "verdict misses limits -> passes; limit max_hours relaxed from 24 h to 480 h (20.0 d)"
    annotation = f"::warning file=a.yaml,line=7,title=xe-sizer%3A limit relaxed::mixed: {says}\n"
    assert compared(cli, strict, lax, "github") == annotation
    assert "limit max_hours relaxed from 24 h to 480 h (20.0 d)" in compared(cli, strict, lax, "table")
    assert 'name="scenario.limits.max_hours" value="24 -&gt; 480"' in compared(cli, strict, lax, "junit")


@pytest.mark.parametrize(
    ("before", "after", "words", "kind"),
    [
        ("max_hours: 30", "min_headroom_gib: 2", "limit max_hours removed (was 30 h); ", "mixed"),
        ("min_headroom_gib: 4", "min_headroom_gib: 2", "min_headroom_gib relaxed from 4 GiB to 2 GiB", "mixed"),
        ("confidence: 0.8", "confidence: 0.6", "limit confidence relaxed from 0.8 to 0.6", "mixed"),
        ("max_hours: 30", "max_hours: 20", "limit max_hours tightened from 30 h to 20 h", "same"),
        ("max_hours: 30", "max_hours: 30, max_gpus: 8", "limit max_gpus added (8)", "same"),
    ],
)
def test_limits_that_changed_are_named(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, after: str, words: str, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    old, new = (f"{JOB}limits: {{{limits}}}\n" for limits in (before, after))
    assert json.loads(compared(cli, old, new))["changes"][0]["kind"] == kind
    table = compared(cli, old, new, "table")
    assert words in table
    assert "0 scenarios unchanged" in table


def test_what_changed_in_the_scenario_is_named(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = JOB.replace("steps: 10", "steps: 10, micro_batch: 1")
    after = JOB.replace("steps: 10", "steps: 3000, seq_len: 2048")
    line = compared(cli, before, after, "github")
    for words in ("train.steps 10 -> 3,000", "train.micro_batch 1 -> not given", "train.seq_len not given -> 2,048"):
        assert words in line
    assert "model" not in line
    line = compared(
        cli,
        JOB + "lora: {targets: [qkv]}\n",
        JOB.replace("steps: 10", "steps: 20") + "lora: {targets: [qkv, o]}\n",
        "github",
    )
    assert "lora.targets [qkv] -> " in line


def test_a_comparison_that_was_saved_before_keys_were_named_is_still_read(
    cli: Cli, before: None, tmp_path: Path
) -> None:
    saved = json.loads(asked(cli, "json").out)
    for change in saved["changes"]:
        del change["scenario"]
    Path("old.json").write_text(json.dumps(saved))
    assert cli("render", "old.json").out.startswith("FAIL  6 scenarios: ")


def test_a_scenario_with_a_list_is_unchanged_where_nobody_changed_it(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    same = f"{JOB}lora: {{targets: [qkv, o]}}\n"
    assert json.loads(compared(cli, same, same))["changes"][0].get("scenario", []) == []
    assert "1 scenario unchanged" in compared(cli, same, same, "table")
