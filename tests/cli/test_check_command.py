"""`xe-sizer check`: many scenarios as a gate."""

import csv
import io
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Estimator, Ran

Cli = Callable[..., Ran]


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    (tmp_path / "deep").mkdir()
    (tmp_path / "a-good.yaml").write_text("model: m\njob: lora\n")
    (tmp_path / "deep" / "b-big.yaml").write_text("model: m\njob: sft\n")
    (tmp_path / "note.txt").write_text("no scenario")
    return tmp_path


def test_a_folder_means_all_yaml_files_below(cli: Cli, estimator: Estimator, jobs: Path) -> None:
    ran = cli("check", jobs, "--format", "json")
    answer = json.loads(ran.out)
    assert ran.code == 1
    assert [entry["file"] for entry in answer["scenarios"]] == [
        str(jobs / "a-good.yaml"),
        str(jobs / "deep" / "b-big.yaml"),
    ]
    assert answer["summary"]["failed"] == 1


def test_exit_codes(cli: Cli, estimator: Estimator, jobs: Path) -> None:
    good, big, bad = jobs / "a-good.yaml", jobs / "deep" / "b-big.yaml", jobs / "bad.yaml"
    bad.write_text("modle: m\n")
    assert cli("check", good).code == 0
    assert cli("check", good, big).code == 1
    assert cli("check", big, "--exit-zero").code == 0
    assert cli("check", big, bad, good, "--exit-zero").code == 2


def test_bad_input_does_not_stop_the_others(cli: Cli, estimator: Estimator, jobs: Path) -> None:
    bad = jobs / "bad.yaml"
    bad.write_text("model: m\ntrain: {steps: no}\nlayout: {tp: -1}\n")
    ran = cli("check", bad, jobs / "missing.yaml", jobs / "a-good.yaml")
    assert ran.code == 2
    assert ran.out.startswith("FAIL  3 scenarios: 1 passed, 0 failed, 2 with bad input")
    assert f"{bad}:2:" in ran.err
    assert f"{jobs / 'missing.yaml'}" in ran.err


def test_bad_input_names_its_file_once_and_says_why_in_the_note(
    cli: Cli, estimator: Estimator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.yaml").write_text("modle: m\n")
    lines = cli("check", "gone.yaml", "bad.yaml").out.splitlines()
    assert "- gone.yaml: no such file" in lines
    assert any(line.startswith("- bad.yaml:1:1: unknown key 'modle'") for line in lines)
    row = next(line for line in lines if line.startswith("gone.yaml "))
    assert row.split("   ")[-1].strip() == "no such file"


def test_a_file_named_twice_is_checked_once(cli: Cli, estimator: Estimator, jobs: Path) -> None:
    cli("check", jobs / "a-good.yaml", jobs)
    assert len(estimator.given) == 2


def test_the_ending_of_the_output_file_chooses_the_format(cli: Cli, estimator: Estimator, jobs: Path) -> None:
    assert cli("check", jobs / "a-good.yaml", "-o", jobs / "answer.xml").code == 0
    assert (jobs / "answer.xml").read_text().startswith("<?xml")
    assert cli("check", jobs / "a-good.yaml", "-o", jobs / "answer.csv").code == 0
    assert (jobs / "answer.csv").read_text().startswith("file,ok,verdict,note,fits,")


def test_a_job_that_does_not_fit_has_a_reason_and_no_time(cli: Cli, estimator: Estimator, jobs: Path) -> None:
    lines = cli("check", jobs).out.splitlines()
    good, big = (next(line for line in lines if f"{name}.yaml " in line).split() for name in ("a-good", "b-big"))
    assert good[-8:] == ["2.6", "h", "2.2", "to", "3.3", "h", "limits", "met"]
    assert big[-4:] == ["-", "80.0", "GiB", "missing"]


def test_all_problems_of_a_scenario_are_told_in_one_pass(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("model: llama-2-7b\nserver: dell-xe9680-h10\nlimits: {max_hours: -3}\nlayout: {pp: 5}\n")
    ran = cli("check", file)
    places = [line.split(": ")[0] for line in ran.err.splitlines() if not line.startswith("  hint")]
    assert places == [f"{file}:2:9", f"{file}:3:21", f"{file}:4:14"]


@pytest.fixture
def mixed(jobs: Path) -> Path:
    """Beside the jobs of training: a service that keeps its limits, and one that misses one."""
    head = "model: llama-3.1-8b\ngpu: h100-sxm-80gb\n"
    (jobs / "c-chat.yaml").write_text(f"{head}serve: {{request_rate: 2}}\nlimits: {{max_ttft_s: 1}}\n")
    (jobs / "d-slow.yaml").write_text(f"{head}job: inference\nserve: {{batch: 1}}\nlimits: {{max_tpot_s: 1e-6}}\n")
    return jobs


def test_services_are_checked_beside_training(cli: Cli, estimator: Estimator, mixed: Path) -> None:
    ran = cli("check", mixed, "--format", "json")
    answer = json.loads(ran.out)
    assert (ran.code, ran.err) == (1, "")
    assert answer["summary"] == {"total": 4, "passed": 2, "failed": 2, "invalid": 0}
    found = {Path(entry["file"]).stem: entry["result"] for entry in answer["scenarios"]}
    assert ["replicas" in found[name] for name in ("a-good", "b-big", "c-chat", "d-slow")] == [False, False, True, True]
    assert found["c-chat"]["verdict"]["limits"][0]["ok"] is True
    assert found["d-slow"]["verdict"]["reasons"][0]["code"] == "max_tpot_s"
    assert len(estimator.given) == 2


def test_services_in_the_table_and_in_junit(cli: Cli, estimator: Estimator, mixed: Path) -> None:
    lines = cli("check", mixed).out.splitlines()
    chat, slow = (next(line for line in lines if f"{name}.yaml " in line) for name in ("c-chat", "d-slow"))
    assert " FITS, SERVES " in chat
    assert re.search(r" per token   \S+ to \S+ ms   (limits met|max_\S+ met, likely .*)$", chat.rstrip())
    assert slow.rstrip().endswith("misses max_tpot_s (6.5 ms)")
    root = ET.fromstring(cli("check", mixed, "--format", "junit").out)
    failed = [case.get("name") for case in root.iter("testcase") if case.find("failure") is not None]
    assert sorted(failed) == ["fits", "limit max_tpot_s"]


def test_a_service_with_a_typo_is_bad_input(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("model: llama-3.1-8b\ngpu: h100-sxm-80gb\nserve: {reqest_rate: 5, engine: vlm}\n")
    ran = cli("check", file)
    assert ran.code == 2
    assert f"{file}:3:9: unknown key 'reqest_rate'" in ran.err
    assert f"{file}:3:33: unknown engine 'vlm'" in ran.err


def test_an_empty_folder_is_bad_input(cli: Cli, estimator: Estimator, tmp_path: Path) -> None:
    ran = cli("check", tmp_path)
    assert ran.code == 2
    assert "no scenario below this folder" in ran.err


def test_without_files_it_says_what_to_write(cli: Cli) -> None:
    ran = cli("check")
    assert ran.code == 2
    assert "xe-sizer check scenarios/*.yaml" in ran.err


def test_a_row_for_each_scenario(cli: Cli, estimator: Estimator, mixed: Path) -> None:
    (mixed / "e-bad.yaml").write_text("modle: m\n")
    rows = {Path(row["file"]).stem: row for row in csv.DictReader(io.StringIO(cli("check", mixed, "-f", "csv").out))}
    assert [rows[name]["ok"] for name in sorted(rows)] == ["true", "false", "true", "false", "false"]
    assert rows["a-good"]["verdict"] == "FITS"
    assert float(rows["a-good"]["total_s"]) == 9500.0
    assert (rows["b-big"]["total_s"], rows["b-big"]["note"]) == ("", "80.0 GiB missing")
    assert (rows["c-chat"]["total_s"], rows["c-chat"]["verdict"]) == ("", "FITS, SERVES")
    assert float(rows["c-chat"]["tpot_s"]) > 0
    assert (rows["e-bad"]["verdict"], rows["e-bad"]["gpus"]) == ("BAD INPUT", "")
    assert "unknown key 'modle'" in rows["e-bad"]["note"]


def test_limits_of_a_service_are_not_judged_for_training(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    lines = ["model: llama-3.1-8b", "gpu: h100-sxm-80gb", "gpus: 8", "job: sft", "limits: {max_ttft_s: 0.1}"]
    file.write_text("\n".join(lines))
    ran = cli("check", file)
    assert ran.code == 0
    assert "not judged: max_ttft_s" in ran.out
    assert "limits.max_ttft_s" in cli("estimate", file).out
    (annotation,) = cli("check", file, "-f", "github").out.splitlines()
    assert annotation.startswith("::warning ")
    assert "%0Anot judged: max_ttft_s (this kind of job has no such limit)" in annotation.replace("; ", "%0A")
    (suite,) = ET.fromstring(cli("check", file, "-f", "junit").out)
    (case,) = (case for case in suite.iter("testcase") if case.find("skipped") is not None)
    assert (case.get("name"), suite.get("skipped")) == ("limit max_ttft_s", "1")


def test_a_deadline_is_not_judged_for_a_service(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "chat.yaml"
    file.write_text("model: gpt2\ngpu: h100-sxm-80gb\ngpus: 1\nserve: {request_rate: 1}\nlimits: {max_hours: 4}\n")
    ran = cli("check", file)
    assert (ran.code, "; not judged: max_hours\n" in ran.out) == (0, True)
    assert cli("check", file, "-f", "github").out.startswith("::warning ")


FAILING = {
    "late": (
        (
            "model: llama-2-7b\ngpu: h100-sxm-80gb\ngpus: 8\njob: lora\ntrain: {steps: 10000}\n"
            "cost: {price_per_gpu_hour: 2, currency: EUR}\nlimits:\n  max_gpus: 8\n  max_cost: 3\n  max_hours: 0.25\n"
        ),
        (
            r"line=10,title=xe-sizer%3A fits%2C misses limits::.*: "
            r"misses max_hours \(limit 0.250 h, estimate (12\.\d h)\); max_cost \(limit 3 EUR, estimate \d+ EUR\): "
        ),
    ),
    "big": (
        "model: llama-3.1-70b\njob: sft\ngpu: rtx-4090\ngpus: 2\ntrain: {steps: 5}\nlimits: {max_hours: 1}\n",
        r"line=4,title=xe-sizer%3A does not fit::SFT of llama-3.1-70b on 2 x rtx-4090: needs (\d+ GiB) per GPU, ",
    ),
    "queue": (
        "model: llama-3.1-8b\ngpu: l40s\ngpus: 1\nserve:\n  input_tokens: 1000\n  concurrency: 3000\n",
        (
            r"line=6,title=xe-sizer%3A fits%2C queues::3,000 concurrent .*: "
            r"misses max_ttft_s \(limit 10.0 s, estimate (\S+ min)\)"
        ),
    ),
    "crowd": (
        "model: llama-3.1-8b\ngpu: l40s\ngpus: 1\nserve: {request_rate: 900}\nlimits: {max_tpot_s: 0.001}\n",
        (
            r"line=5,title=xe-sizer%3A fits%2C overloaded::900 requests/s .* are more than .*"
            r"misses max_ttft_s \(limit 10.0 s, estimate (unbounded)\); max_tpot_s \(limit 1.0 ms, estimate \S+ ms\)"
        ),
    ),
}


@pytest.mark.parametrize("name", FAILING)
def test_an_annotation_has_the_limit_the_value_their_unit_and_the_line(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """At the limit that is missed, the load that is too much, or the hardware that is too small."""
    monkeypatch.chdir(tmp_path)
    text, pattern = FAILING[name]
    Path("a.yaml").write_text(text)
    said = cli("check", "a.yaml", "-f", "github").out
    assert re.match(r"::error file=a\.yaml," + pattern, said)
    assert "max_hours is" not in said
    assert "estimate 0." not in said


def test_the_row_of_a_service_that_queues_has_the_limit_and_its_value(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text, pattern = FAILING["queue"]
    Path("a.yaml").write_text(text)
    match = re.search(pattern, cli("check", "a.yaml", "-f", "github").out)
    assert match
    lines = cli("check", "a.yaml").out.splitlines()
    assert f"misses max_ttft_s ({match[1]})" in next(line for line in lines if line.startswith("a.yaml "))
    assert f"wait in the queue; misses max_ttft_s (limit 10.0 s, estimate {match[1]})" in lines[3]


def test_a_doubtful_yes_says_so_in_the_title_of_its_annotation(cli: Cli, tmp_path: Path) -> None:
    job = tmp_path / "a.yaml"
    job.write_text("model: gpt2\ngpu: h100-sxm-80gb\ngpus: 1\ntrain: {steps: 900}\n")
    seconds = json.loads(cli("estimate", job, "-f", "json").out)["time"]["total_s"]["expected"]
    job.write_text(job.read_text() + f"limits: {{max_hours: {1.01 * seconds / 3600}}}\n")
    said = cli("check", job, "-f", "github").out
    assert ",line=5,title=xe-sizer%3A fits%2C unsure::" in said


def test_assumed_hardware_is_in_the_row_the_case_the_annotation_and_the_json(cli: Cli, tmp_path: Path) -> None:
    lora = (
        "base_model: meta-llama/Llama-3.1-8B\nadapter: lora\nmicro_batch_size: 1\nsequence_len: 2048\nmax_steps: 10\n"
    )
    (tmp_path / "axolotl.yml").write_text(lora)
    said = "hardware assumed, since the file names none: 8 x h100-sxm-80gb"
    ran = cli(
        "check", tmp_path, "-o", f"junit:{tmp_path / 'x.xml'}", "-o", f"github:{tmp_path / 'x.txt'}", "-f", "json"
    )
    assert ran.code == 0
    assert json.loads(ran.out)["scenarios"][0]["assumed"] == ["server"]
    assert said in (tmp_path / "x.xml").read_text()
    assert said in (tmp_path / "x.txt").read_text()
    table = cli("check", tmp_path).out
    assert re.search(r"^\S*axolotl.yml +FITS .*hardware assumed$", table, re.MULTILINE)
    assert f"axolotl.yml: {said}" in table
    (tmp_path / "own.yaml").write_text("model: llama-3.1-8b\ngpu: h100-sxm-80gb\njob: lora\ntrain: {steps: 10}\n")
    named = cli("check", tmp_path / "own.yaml", "-f", "json").out
    assert "assumed" not in json.loads(named)["scenarios"][0]
