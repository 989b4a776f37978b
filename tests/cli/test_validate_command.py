"""`xe-sizer validate` as users and scripts meet it."""

import csv
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from xe_sizer.evidence import predict
from xe_sizer.evidence.predict import validate
from xe_sizer.evidence.records import Record
from xe_sizer.result.accuracy import Accuracy

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


def test_without_a_file_the_shipped_evidence_is_predicted(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it; tests/evidence/test_validate.py predicts it."""
    given: list[Record] = []

    def first(records: Sequence[Record], *how: object) -> Accuracy:
        given.extend(records)
        return validate(records[:1])

    monkeypatch.setattr(predict, "validate", first)
    ran = cli("validate", "--only", "step_time", "--format", "json")
    assert (ran.code, ran.err) == (0, "")
    assert json.loads(ran.out)["records"]
    for shipped in ("dell-table-9-", "opt-alpaca-", "llama-pretraining-", "llmfoundry-", "aleph-", "mbridge-"):
        assert any(record.id.startswith(shipped) for record in given), shipped


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


def test_a_rate_past_capacity_without_requests_is_compared_by_its_throughput_alone(cli: Cli, tmp_path: Path) -> None:
    service = {
        "id": "rate", "job": "inference", "stack": "vllm", "framework": "vllm", "model": "llama-3.1-8b", "gpu": "b200",
        "gpus": 1, "tp": 1, "request_rate": 5000, "input_len": 1000, "output_len": 255.6, "max_output_len": 256,
        "statistic": "median", "measured": {"ttft_ms": 50000, "output_tokens_per_s": 9000},
    }  # fmt: skip
    path = tmp_path / "rate.jsonl"
    path.write_text(json.dumps(service))
    ran = cli("validate", path, "--format", "json")
    found, verdict = json.loads(ran.out)["records"]
    assert (found["quantity"], verdict["quantity"]) == ("throughput", "oom")
    assert "engine vllm@25.05: no release stated: of 2025-05, the first for blackwell" in found["assumed"]
    assert not any("spread" in text for text in found["assumed"])
    assert "note" not in ran.err


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


def peaks(cli: Cli, path: Path, *runs: dict[str, object]) -> list[float]:
    path.write_text("".join(f"{json.dumps(run)}\n" for run in runs))
    answer = json.loads(cli("validate", path, "--format", "json", "--only", "peak_memory").out)
    assert not answer["skipped"]
    return [one["ratio"] for one in answer["records"]]


# fms-acceleration scripts/benchmarks/refs/a100_80gb_granite.csv: PowerLM-3B in 4 bit, packed to 4,096 tokens. TRL
# itself prepares the baseline.
FMS: dict[str, object] = {
    "job": "qlora", "stack": "hf-trainer", "model": "powerlm-3b", "gpu": "a100-sxm-80gb", "gpus": 1, "gpus_per_node": 1,
    "precision": "bf16", "weights": "nf4", "seq_len": 4096, "attention": "flash", "recompute": "full",
    "optimizer": "adamw", "lora": {"rank": 16, "targets": "q_proj k_proj v_proj o_proj", "dropout": 0.1},
}  # fmt: skip


@pytest.mark.parametrize(
    ("how", "micro", "gib"),
    [("accelerated-peft-bnb", 4, 14.11), ("accelerated-peft-bnb", 8, 26.20), ("baseline-peft-bnb", 4, 16.93)],
)
def test_a_model_in_4_bit_is_prepared_as_its_framework_does(
    cli: Cli, tmp_path: Path, how: str, micro: int, gib: float
) -> None:
    run = FMS | {
        "id": how, "framework": f"fms-hf-tuning / HF SFTTrainer + fms-acceleration [{how}]", "source": {"title": "IBM"},
        "batch": {"micro": micro, "global": micro}, "measured": {"peak_memory_gib": gib, "memory_metric": "allocated"},
    }  # fmt: skip
    assert peaks(cli, tmp_path / "runs.jsonl", run) == [pytest.approx(1.0, abs=0.05)]


# Traced (docs/development/trace.md): one step of the first four layers, 8,192 tokens, beyond the window of all, of
# every second and of all but every sixth.
@pytest.mark.parametrize(
    ("model", "attention", "recompute", "gib"),
    [
        ("mistral-7b-v0.1", "eager", "none", 72.32), ("mistral-7b-v0.1", "sdpa", "full", 10.29),
        ("gemma-2-2b", "eager", "full", 32.95), ("gemma-3-1b", "sdpa", "none", 30.31),
    ],
)  # fmt: skip
def test_four_layers_of_a_windowed_model_hold_what_four_layers_do(
    cli: Cli, tmp_path: Path, model: str, attention: str, recompute: str, gib: float
) -> None:
    run = {
        "id": model, "job": "sft", "stack": "hf-bf16", "model": model, "shape": {"layers": 4}, "gpu": "h200", "gpus": 1,
        "precision": "bf16", "batch": {"micro": 1, "grad_accum": 1}, "seq_len": 8192, "attention": attention,
        "recompute": recompute, "optimizer": "adamw-fused", "source": {"title": "a trace"},
        "measured": {"peak_memory_gib": gib, "memory_metric": "allocated"},
    }  # fmt: skip
    assert peaks(cli, tmp_path / "runs.jsonl", run) == [pytest.approx(1.0, abs=0.05)]


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
