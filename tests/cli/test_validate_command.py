"""`xe-sizer validate` as users and scripts meet it."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Ran

Cli = Callable[..., Ran]
RECORD = {
    "id": "mine",
    "job": "sft",
    "stack": "deepspeed",
    "model": "llama-2-7b",
    "gpu": "a100-sxm-80gb",
    "gpus": 8,
    "layout": {"zero": 2},
    "batch": {"micro": 1, "global": 64},
    "seq_len": 4096,
    "recompute": "full",
    "source": {"title": "my own runs"},
    "measured": {"samples_per_s": 4.0, "peak_memory_gib": 30.0, "memory_metric": "allocated"},
}


@pytest.fixture
def records(tmp_path: Path) -> Path:
    path = tmp_path / "runs.jsonl"
    other = RECORD | {"id": "other", "job": "rrhf"}
    path.write_text(f"{json.dumps(RECORD)}\n{json.dumps(other)}\n")
    return path


def test_json_is_the_contract(cli: Cli, records: Path) -> None:
    ran = cli("validate", records, "--format", "json")
    answer = json.loads(ran.out)
    assert ran.code == 0
    assert list(answer) == ["schema_version", "written", "records", "skipped", "summary"]
    first = answer["records"][0]
    assert {"id", "quantity", "measured", "predicted", "ratio", "low", "high", "assumed"} <= set(first)
    assert (first["id"], first["quantity"], first["measured"]) == ("mine", "step_time", 16.0)
    assert first["ratio"] == pytest.approx(first["predicted"] / first["measured"])
    assert answer["skipped"][0]["id"] == "other"
    names = {"group", "quantity", "n", "median_abs_error", "p90_abs_error", "bias", "interval_coverage", "oom"}
    names |= {"publications", "fixed_efficiency"}
    assert all(set(entry) == names for entry in answer["summary"])
    groups = {entry["group"] for entry in answer["summary"]}
    assert {"all", "stack:deepspeed", "job:sft", "gpu:a100-sxm-80gb", "source:my own runs"} <= groups


def test_without_a_file_the_shipped_evidence_is_predicted(cli: Cli) -> None:
    ran = cli("validate", "--only", "step_time", "--format", "json")
    assert ran.code == 0
    assert ran.err == ""
    found = json.loads(ran.out)
    ids = {record["id"] for record in found["records"]}
    for shipped in ("dell-table-9-", "opt-alpaca-", "llama-pretraining-", "llmfoundry-", "aleph-", "mbridge-"):
        assert any(name.startswith(shipped) for name in ids), shipped
    assert len({summary["group"] for summary in found["summary"] if summary["group"].startswith("source:")}) > 50


def test_the_table_says_what_was_assumed_and_skipped(cli: Cli, records: Path) -> None:
    out = cli("validate", records).out
    assert "precision bf16: default of the stack" in out
    assert "job 'rrhf': no equation, and none is near" in out


def test_only_one_quantity(cli: Cli, records: Path) -> None:
    answer = json.loads(cli("validate", records, "--format", "json", "--only", "peak_memory").out)
    assert {entry["quantity"] for entry in answer["records"]} == {"peak_memory"}
    assert {entry["quantity"] for entry in answer["summary"]} == {"peak_memory"}


def test_guessed_records_stand_apart(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    bare = {key: value for key, value in RECORD.items() if key not in ("seq_len", "batch")} | {"id": "bare"}
    path.write_text("\n".join(map(json.dumps, (RECORD, bare))))
    answer = json.loads(cli("validate", path, "--format", "json").out)
    assert {record["id"] for record in answer["records"] if record["guessed"]} == {"bare"}
    counts = {(entry["group"], entry["quantity"]): entry["n"] for entry in answer["summary"]}
    for quantity in ("step_time", "peak_memory", "oom"):
        assert counts["all", quantity] == counts["stack:deepspeed", quantity] == counts["guessed", quantity] == 1
    assert "2 records predicted, 0 skipped; " in (text := cli("validate", path).out)
    assert "1 record guessed, apart" in text


def test_csv_has_a_row_for_each_prediction_and_skipped_record(cli: Cli, records: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(cli("validate", records, "--format", "csv").out)))
    assert [row["quantity"] for row in rows] == ["step_time", "peak_memory", "oom", "skipped"]
    assert float(rows[0]["measured"]) == 16.0
    assert rows[2]["measured"] == "false"


def test_markdown_and_files(cli: Cli, records: Path, tmp_path: Path) -> None:
    target = tmp_path / "accuracy.md"
    ran = cli("validate", records, "--format", "markdown", "-o", target)
    assert (ran.code, ran.out) == (0, "")
    assert "| group | records |" in target.read_text()


def test_folders_are_read_whole(cli: Cli, records: Path) -> None:
    answer = json.loads(cli("validate", records.parent, "--format", "json").out)
    assert answer["records"][0]["id"] == "mine"


def test_unknown_keys_are_noted_beside_the_report(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(json.dumps(RECORD | {"seqlen": 4096}))
    ran = cli("validate", path, "--format", "csv")
    assert ran.code == 0
    assert "unknown key 'seqlen'" in ran.err


def test_bad_files_are_told_all_at_once(cli: Cli, tmp_path: Path) -> None:
    bad, worse = tmp_path / "a.jsonl", tmp_path / "b.yaml"
    bad.write_text('{"id": 1}\n')
    worse.write_text("- job: lora\n")
    ran = cli("validate", bad, worse, tmp_path / "missing.yaml")
    assert (ran.code, ran.out) == (2, "")
    for place in ("a.jsonl:1", "b.yaml:1:3", "missing.yaml: no such file"):
        assert place in ran.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--only", "speed"), "--only"),
        (("--worst", "many"), "--worst"),
        (("--format", "htm"), "--format"),
        (("--exit-zero",), "--exit-zero"),  # nothing is judged, so there is nothing to forgive
    ],
)
def test_wrong_options(cli: Cli, arguments: tuple[str, ...], words: str) -> None:
    ran = cli("validate", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert words in ran.err


def test_an_empty_folder_is_told(cli: Cli, tmp_path: Path) -> None:
    ran = cli("validate", tmp_path)
    assert ran.code == 2
    assert "no .yaml, .yml, .jsonl, .ndjson file in this folder" in ran.err


def test_a_layout_beyond_the_stack_is_predicted_with_that_stack_and_said(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    rows = [
        RECORD | {"id": stack, "stack": stack, "layout": {"tp": 2, "ep": 2}, "model": "mixtral-8x7b"}
        for stack in ("hf-trainer", "somebody's own")
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    answer = json.loads(cli("validate", path, "--format", "json").out)
    own, unknown = (one for one in answer["records"] if one["quantity"] == "step_time")
    assert "hf-trainer has no tp, ep: predicted as if it had" in own["assumed"]
    assert own["predicted"] != pytest.approx(unknown["predicted"], rel=0.01)
