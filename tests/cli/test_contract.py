"""What scripts rely on: names and schema of the JSON, sums, origins, exit codes, the same answer twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from .conftest import Ran

Cli = Callable[..., Ran]
EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = (
    "lora-llama-2-70b.yaml",
    "qlora-llama-3.1-8b.yaml",
    "sft-llama-3.1-8b.yaml",
    "dell-table-9/llama-2-7b-p-tuning-8-gpus.yaml",
    "dell-table-9/llama-2-70b-sft-8-gpus.yaml",
    "opt-alpaca/opt-30b.yaml",
    "llama-pretraining/llama-65b.yaml",
    "three-platforms/rtx-4090-7b-zero-3-offload.yaml",
)
RANGE = {"low", "expected", "high"}
# Names that may gain neighbours within version 1 and may never go.
CONTRACT: dict[str, set[str]] = {
    "": {
        "schema_version", "tool_version", "scenario", "verdict", "gpus", "layout", "memory", "time", "data", "cost",
        "advice", "warnings", "sources",
    },
    "scenario": {"origin"},
    "verdict": {
        "fits", "meets_limits", "margin", "reasons", "limits", "fit_probability", "fit_certainty", "confidence",
    },
    "verdict.reasons": {"code", "message", "fix"},
    "verdict.limits": {"name", "limit", "value", "ok", "probability", "certainty", "low", "high"},
    "gpus": {"count", "nodes", "gpus_per_node", "minimum_that_fits"},
    "layout": {"tp", "pp", "vpp", "cp", "ep", "dp", "zero", "micro_batch", "grad_accum", "recompute", "offload"},
    "memory": {
        "peak_bytes", "usable_bytes", "headroom_bytes", "phase", "components", "host_bytes", "host_available_bytes",
        "allocated_bytes", "reserved_bytes", "device_bytes", "error_share", "moments",
    },
    "memory.moments": {"name", "bytes"},
    "memory.components": {"name", "bytes", "formula", "source"},
    "time": {
        "step_s", "components", "modules", "steps", "total_s", "tokens_per_s_per_gpu", "samples_per_s", "mfu", "hfu",
        "bound",
    },
    "time.step_s": RANGE,
    "time.total_s": RANGE,
    "time.components": {"name", "seconds", "share"},
    "time.modules": {"name", "forward_s", "backward_s"},
    "data": {"samples", "real_tokens", "processed_tokens", "padding_share", "sequence_tokens"},
    "cost": {"gpu_hours", "energy_kwh", "price"},
    "cost.gpu_hours": RANGE,
    "cost.price": {"currency", *RANGE},
    "advice": {"change", "effect", "command"},
}  # fmt: skip


def at(answer: dict[str, Any], path: str) -> list[Any]:
    """What stands at a dotted path; each entry of a list, nothing for null."""
    found: list[Any] = [answer]
    for part in path.split(".") if path else ():
        found = [item[part] for item in found]
        found = [item for each in found for item in (each if isinstance(each, list) else [each])]
    return [item for item in found if item is not None]


def answer_of(cli: Cli, *arguments: object) -> tuple[int, dict[str, Any]]:
    ran = cli("estimate", *arguments, "--format", "json")
    assert ran.err == ""
    return ran.code, json.loads(ran.out)


@pytest.fixture(scope="module")
def answers() -> dict[str, dict[str, Any]]:
    return {}


@pytest.fixture(params=FILES)
def answer(request: pytest.FixtureRequest, cli: Cli, answers: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The answer to an example, with a price and a limit so that no part of the contract is empty."""
    if request.param not in answers:
        flags = ("--price-per-gpu-hour", "2.5", "--max-hours", "0.01")
        code, answers[request.param] = answer_of(cli, EXAMPLES / request.param, *flags)
        assert code == 1
    return answers[request.param]


@pytest.mark.parametrize("path", CONTRACT)
def test_names_of_the_contract(answer: dict[str, Any], path: str) -> None:
    found = at(answer, path)
    assert found or path == "advice"
    assert all(set(item) >= CONTRACT[path] for item in found)


def test_schema_ships_and_describes_the_answer(cli: Cli, answer: dict[str, Any]) -> None:
    schema = json.loads(cli("profiles", "schema", "result").out)
    jsonschema.Draft7Validator.check_schema(schema)
    jsonschema.validate(answer, schema)
    assert answer["schema_version"] == 1
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**answer, "gpus": {"count": "eight"}}, schema)


def test_components_sum_to_the_whole(answer: dict[str, Any]) -> None:
    memory, time = answer["memory"], answer["time"]
    assert sum(part["bytes"] for part in memory["components"]) == pytest.approx(memory["peak_bytes"], rel=1e-9)
    assert memory["headroom_bytes"] == pytest.approx(memory["usable_bytes"] - memory["peak_bytes"], abs=1)
    assert sum(part["seconds"] for part in time["components"]) == pytest.approx(time["step_s"]["expected"], rel=1e-9)
    assert sum(part["share"] for part in time["components"]) == pytest.approx(1, rel=1e-9)


def test_figures_agree_with_each_other(answer: dict[str, Any]) -> None:
    time, layout, gpus, cost = answer["time"], answer["layout"], answer["gpus"], answer["cost"]
    total_s = time["total_s"]["expected"]
    assert total_s == pytest.approx(time["step_s"]["expected"] * time["steps"])
    assert cost["gpu_hours"]["expected"] == pytest.approx(total_s / 3600 * gpus["count"])
    assert cost["price"]["expected"] == pytest.approx(2.5 * cost["gpu_hours"]["expected"])
    assert layout["tp"] * layout["pp"] * layout["cp"] * layout["dp"] == gpus["count"]
    batch = layout["micro_batch"] * layout["grad_accum"] * layout["dp"]
    assert batch == answer["scenario"]["train"]["global_batch"]
    assert time["samples_per_s"] == pytest.approx(batch / time["step_s"]["expected"])
    rate = time["tokens_per_s_per_gpu"] * gpus["count"] * total_s
    assert rate == pytest.approx(answer["data"]["processed_tokens"])
    assert answer["data"]["real_tokens"] <= answer["data"]["processed_tokens"] * (1 + 1e-9)


def test_ranges_are_ordered_and_shares_are_shares(answer: dict[str, Any]) -> None:
    for path in ("time.step_s", "time.total_s", "cost.gpu_hours", "cost.price"):
        (span,) = at(answer, path)
        assert 0 < span["low"] < span["expected"] < span["high"]
    assert 0 < answer["time"]["mfu"] <= answer["time"]["hfu"] < 1
    assert 0 <= answer["data"]["padding_share"] < 1


def test_the_verdict_agrees_with_the_figures(answer: dict[str, Any]) -> None:
    verdict, memory = answer["verdict"], answer["memory"]
    available = memory["host_available_bytes"]
    host_fits = available is None or memory["host_bytes"] <= available
    assert verdict["fits"] is (memory["headroom_bytes"] >= 0 and host_fits)
    assert verdict["meets_limits"] is all(limit["ok"] for limit in verdict["limits"])
    assert bool(verdict["reasons"]) is not (verdict["fits"] and verdict["meets_limits"])


def test_the_margin_agrees_with_the_figures(answer: dict[str, Any]) -> None:
    memory = answer["memory"]
    headroom, error = memory["headroom_bytes"], memory["error_share"] * memory["peak_bytes"]
    little = headroom < error or (memory["host_bytes"] > 4 * 2**30 and memory["host_available_bytes"] is None)
    assert answer["verdict"]["margin"] == ("over" if headroom < 0 else "tight" if little else "headroom")
    assert 0 <= memory["error_share"] < 1


def test_memory_over_the_step_and_on_the_instruments(answer: dict[str, Any]) -> None:
    memory = answer["memory"]
    moments = {moment["name"]: moment["bytes"] for moment in memory["moments"]}
    assert moments[memory["phase"]] == max(moments.values()) == pytest.approx(memory["peak_bytes"], rel=1e-9)
    assert next(iter(moments)) == "end of forward"
    assert list(moments)[-1] == "optimizer step"
    shown = [memory[name] for name in ("allocated_bytes", "reserved_bytes", "device_bytes")]
    assert 0 < shown[0] < shown[1] < shown[2] <= memory["peak_bytes"] + memory["cached_bytes"]


def test_every_key_of_the_file_is_marked_as_from_the_file(cli: Cli) -> None:
    _, answer = answer_of(cli, EXAMPLES / "lora-llama-2-70b.yaml")
    origin = answer["scenario"]["origin"]
    given = (
        "model", "server", "gpus", "job", "stack", "data.profile", "train.steps", "train.global_batch",
        "train.micro_batch", "train.seq_len", "layout.tp", "layout.pp", "lora.rank", "lora.targets",
    )  # fmt: skip
    assert {origin[key] for key in given} == {"file"}
    assert {origin[key] for key in ("precision", "optimizer", "attention", "train.padding")} == {"stack"}


def test_every_marked_key_has_a_value(answer: dict[str, Any]) -> None:
    assert answer["scenario"]["origin"]
    for key, origin in answer["scenario"]["origin"].items():
        assert origin in {"flag", "env", "file", "stack", "default"}
        assert at(answer["scenario"], key), key


def test_flag_wins_over_variable_over_file(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("model: llama-2-7b\ngpu: h100-sxm-80gb\ngpus: 8\nlayout: {tp: 8, pp: 1, zero: 0}\n")
    monkeypatch.setenv("XE_SIZER_TP", "4")
    monkeypatch.setenv("XE_SIZER_PP", "2")
    _, answer = answer_of(cli, file, "--tp", "2", "--max-hours", "100")
    origin = answer["scenario"]["origin"]
    assert [origin[f"layout.{name}"] for name in ("tp", "pp", "zero")] == ["flag", "env", "file"]
    assert [answer["layout"][name] for name in ("tp", "pp", "zero")] == [2, 2, 0]
    assert answer["scenario"]["layout"] == {"tp": 2, "pp": 2, "zero": 0}
    assert (origin["limits.max_hours"], origin["gpus"], origin["stack"]) == ("flag", "file", "default")


def test_a_flag_takes_the_place_of_what_says_the_same(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("model: llama-2-7b\nserver: dell-xe9680-h100\nnodes: 2\ntrain: {epochs: 3}\ndata: {samples: 100}\n")
    _, answer = answer_of(cli, file, "--gpu", "b200", "--gpus", "8", "--steps", "7")
    origin = answer["scenario"]["origin"]
    assert (answer["scenario"]["gpu"], answer["gpus"]["count"], answer["time"]["steps"]) == ("b200", 8, 7)
    assert not {"server", "nodes", "train.epochs"} & set(origin)


YES = ("--model", "llama-2-7b", "--gpu", "h100-sxm-80gb", "--gpus", "8")
NO = ("--model", "llama-2-70b", "--gpu", "h100-sxm-80gb", "--gpus", "8")


@pytest.mark.parametrize(
    ("arguments", "code", "fits", "meets"),
    [
        (YES, 0, True, True),
        (NO, 1, False, True),
        ((*NO, "--exit-zero"), 0, False, True),
        ((*YES, "--max-hours", "0.1"), 1, True, False),
        ((*YES, "--max-hours", "0.1", "--exit-zero"), 0, True, False),
        ((*YES, "--max-hours", "1000"), 0, True, True),
        ((*YES, "--min-headroom-gib", "70"), 1, True, False),
        ((*YES, "--price-per-gpu-hour", "1", "--max-cost", "0.01"), 1, True, False),
    ],
    ids=lambda value: " ".join(value[6:]) or value[1] if isinstance(value, tuple) else "",
)
def test_exit_codes(cli: Cli, arguments: tuple[str, ...], code: int, fits: bool, meets: bool) -> None:
    found, answer = answer_of(cli, *arguments)
    assert (found, answer["verdict"]["fits"], answer["verdict"]["meets_limits"]) == (code, fits, meets)


def test_the_speed_of_light_is_a_bound_without_a_range(cli: Cli) -> None:
    _, answer = answer_of(cli, *YES, "--gpu", "b300", "--ideal")
    step_s = answer["time"]["step_s"]
    assert step_s["low"] == step_s["expected"] == step_s["high"]
    assert not any("laws" in text for text in (*answer["warnings"], answer["time"]["evidence"]))


@pytest.mark.parametrize(
    ("flags", "parameters"),
    [
        (("--job", "sft"), 6_738_415_616),
        (("--job", "lora", "--lora-rank", "8", "--lora-targets", "q,v"), 4_194_304),  # as peft counts them
    ],
)
def test_trainable_parameters_are_counted(cli: Cli, flags: tuple[str, ...], parameters: int) -> None:
    _, answer = answer_of(cli, *YES, *flags)
    assert answer["memory"]["trainable_parameters"] == parameters


def test_exit_zero_forgives_no_bad_input(cli: Cli) -> None:
    assert cli("estimate", *YES, "--tp", "3", "--exit-zero").code == 2


@pytest.mark.parametrize("format_", ["json", "table", "markdown", "html", "csv", "junit", "github"])
def test_two_runs_say_the_same(cli: Cli, format_: str) -> None:
    first, second = (cli("estimate", *NO, "--format", format_) for _ in range(2))
    assert first == second
    assert first.out


def test_a_saved_answer_renders_to_what_estimate_prints(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "answer.json"
    cli("estimate", *NO, "--format", "json", "-o", file)
    for format_ in ("table", "markdown", "csv", "html", "json"):
        direct, rendered = cli("estimate", *NO, "-f", format_), cli("render", file, "-f", format_)
        assert rendered.out == direct.out


def test_losses_explain_the_distance_to_the_speed_of_light(cli: Cli) -> None:
    """The ideal step is what `--ideal` prices for the same layout; the losses are the difference."""
    command = "estimate --model llama-2-70b --server dell-xe9680-h100 --gpus 16 --job sft --stack nemo --steps 10 "
    command += "--tp 8 --pp 2 --micro-batch 1 --recompute full --format json"
    time = json.loads(cli(*command.split()).out)["time"]
    ideal = json.loads(cli(*command.split(), "--ideal").out)["time"]
    assert time["ideal_step_s"] == pytest.approx(ideal["step_s"]["expected"], rel=1e-9)
    lost = time["step_s"]["expected"] - time["ideal_step_s"]
    assert sum(loss["seconds"] for loss in time["losses"]) == pytest.approx(lost, rel=1e-9)
    assert ideal["ideal_step_s"] is None
