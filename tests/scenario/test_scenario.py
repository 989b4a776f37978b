"""Scenarios: bad input is refused with its place, good input is merged with the right precedence."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import xe_sizer.training.jobs  # noqa: F401  makes the methods known to scenarios
from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.profiles.yaml_reader import load_yaml
from xe_sizer.scenario.options import OPTIONS, variable_name
from xe_sizer.scenario.read import read_scenario
from xe_sizer.scenario.scenario import serves
from xe_sizer.scenario.schema import ScenarioFile, job_names, scenario_json_schema

FULL = """\
model: llama-2-70b
server: dell-xe9680-h100
gpus: 16
job: lora
stack: nemo
data:  {samples: 12012, mean_tokens: 114.5, max_tokens: 8588}
train: {steps: 1000, global_batch: 128, micro_batch: 1, seq_len: 4096, padding: longest-in-global-batch}
layout: {tp: 8, pp: 1}
lora: {rank: 32, targets: [qkv]}
limits: {max_hours: 24, max_cost: 5000, min_headroom_gib: 2, max_gpus: 64}
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "job.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def problems_of(path: Path | None, flags: dict[str, object] | None = None, **environment: str) -> tuple[Problem, ...]:
    with pytest.raises(InputError) as caught:
        read_scenario(path, flags or {}, environment)
    return caught.value.problems


BAD_LINES = [
    # (line 2 of a scenario whose line 1 is "model: m", message, column, hint)
    ("modle: x", "unknown key 'modle'", 1, "did you mean 'model' or 'nodes'?"),
    ("tp: 8", "unknown key 'tp'", 1, "'tp' belongs under layout: or under rollout:"),
    ("micro-batch: 8", "unknown key 'micro-batch'", 1, "'micro_batch' belongs under train:"),
    ("layout: {tpp: 8}", "unknown key 'tpp' in 'layout'", 10, "did you mean 'tp' or 'pp' or 'vpp'?"),
    ("layout: {gpus: 8}", "unknown key 'gpus' in 'layout'", 10, "'gpus' belongs at the top level or under rollout:"),
    ("limits: {Max_Hours: 8}", "unknown key 'Max_Hours' in 'limits'", 10, "did you mean 'max_hours'?"),
    ("layout: {tp: four}", "'tp' must be a whole number, not 'four'", 14, None),
    ("layout: {tp: 8.0}", "'tp' must be a whole number, not 8.0", 14, "write 8"),
    ("layout: {tp: true}", "'tp' must be a whole number, not true", 14, None),
    ("layout: {tp: '8'}", "'tp' must be a whole number, not '8'", 14, "write 8 without quotes"),
    ("layout: {tp: [8]}", "'tp' must be a whole number, not a list", 14, None),
    ("layout: {tp: 0}", "'tp' must be at least 1, not 0", 14, None),
    ("layout: {zero: 4}", "'zero' must be one of 0, 1, 2, 3, not 4", 16, None),
    ("layout: 8", "'layout' must be a group of keys, not 8", 9, None),
    ("layout: [tp, 8]", "'layout' must be a group of keys, not a list", 9, None),
    ("layout: {sequence_parallel: 1}", "'sequence_parallel' must be true or false, not 1", 29, None),
    ("gpus: -4", "'gpus' must be at least 1, not -4", 7, None),
    ("gpus: 4000000", "'gpus' must be at most 1000000, not 4000000", 7, None),
    ("gpus: 10.0", "'gpus' must be a whole number, not 10.0", 7, "write 10"),
    ("gpus: 16 cards", "'gpus' must be a whole number, not '16 cards'", 7, None),
    ("job: qlra", f"'job' must be one of {', '.join(job_names())}, not 'qlra'", 6,
     "did you mean 'qlora' or 'lora'?"),
    ("precision: 16", "'precision' must be one of fp32, tf32, bf16, fp16, fp8, fp4, int8, not 16", 12, None),
    ("server: 9680", "'server' must be text, not 9680", 9, "put it in quotes to make it text"),
    ("server: ''", "'server' must not be empty", 9, None),
    ('server: "a\\0b"', r"'server' must have no control characters, not 'a\x00b'", 9, None),
    ("data: {mean_tokens: -3}", "'mean_tokens' must be greater than 0, not -3", 21, None),
    ("data: {samples: '12,01'}", "'samples' must be a whole number, not '12,01'", 17,
     "write 12.01 without quotes or commas"),
    ("data: {tokens: 2e18}", "'tokens' must be at most 1e+18, not 2e+18", 16, None),
    ("data: {mean_tokens: 90, max_tokens: 80}", "'mean_tokens' (90) is above 'max_tokens' (80)", 21, None),
    ("data: {mean_tokens: 5, min_tokens: 6}", "'min_tokens' (6) is above 'mean_tokens' (5)", 36, None),
    ("data: {max_tokens: 5, min_tokens: 6}", "'min_tokens' (6) is above 'max_tokens' (5)", 35, None),
    ("data: {samples: 10, mean_tokens: 5, tokens: 51}",
     "'tokens' is 51, but 'samples' x 'mean_tokens' is 50", 45,
     "give two of the three"),
    ("data: {histogram: {lengths: [1]}}", "missing key 'counts' in 'histogram'", 8, "Samples in each bin"),
    ("data: {histogram: {lengths: [1, 2], counts: [1]}}", "the histogram has 2 'lengths' but 1 'counts'", 45,
     "give one count per length"),
    ("data: {histogram: {lengths: [1, 2], counts: [1, -1]}}",
     "item 2 of 'counts' must be at least 0, not -1", 49,
     None),
    ("data: {histogram: {lengths: [1], counts: [0]}}", "the histogram counts no samples", 42, None),
    ("data: {mean_tokens: 9, histogram: {lengths: [1, 3], counts: [1, 1]}}",
     "'mean_tokens' is 9, but the mean of the histogram is 2", 21, "remove one of them"),
    ("train: {steps: 10, epochs: 2}", "'steps' and 'epochs' are both given", 28, "remove one of them"),
    ("train: {global_batch: 7, micro_batch: 2}",
     "'global_batch' (7) is not a multiple of 'micro_batch' (2)", 23,
     "the nearest are 6 and 8"),
    ("{train: 1", "this line has no ':' after its key", 1, "write 'key: value'"),
    ("train: {padding: longest}", ("'padding' must be one of packed, longest-in-micro-batch, "
     "longest-in-global-batch, to-seq-len, grouped-by-length, none, not 'longest'"), 18,
     "did you mean 'longest-in-micro-batch' or 'longest-in-global-batch'?"),
    ("lora: {rank: 0}", "'rank' must be at least 1, not 0", 14, None),
    ("lora: {targets: []}", "'targets' must not be empty", 17, None),
    ("lora: {targets: [qkv, 1]}", "item 2 of 'targets' must be text, not 1", 23,
     "put it in quotes to make it text"),
    ("limits: {max_hours: 0}", "'max_hours' must be greater than 0, not 0", 21, None),
    ("limits: {min_headroom_gib: -1}", "'min_headroom_gib' must be at least 0, not -1", 28, None),
    ("cost: {currency: usd}", "'currency' must be three capital letters such as USD, not 'usd'", 18, None),
    ("efficiency: {flops: 45}", "'flops' must be at most 1, not 45", 21, None),
    ("efficiency: {ideal: true, flops: 0.5}", "'ideal' and 'flops' are both given", 34,
     "ideal means 1 for both; remove one of them"),
    ("limits: {max_hours: 017}", "'017' has a leading zero", 21, "write 17; quote it if it is text"),
    ("limits: {max_hours: 1:30}", "'1:30' is read in base 60 by some tools", 21,
     "write one number; quote it if it is text"),
    ("limits: {max_cost: .inf}", "'.inf' is not a finite number", 20,
     "leave the key out; quote it if it is text"),
    ("efficiency: {ideal: yes}", "'yes' is a bool to some tools and text to others", 21,
     "write true or false; quote it if it is text"),
    ("model: n", "'model' is given twice; first at line 1, column 1", 1, "remove one of them"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message", "column", "hint"), BAD_LINES, ids=[case[0] for case in BAD_LINES])
def test_bad_scenario(tmp_path: Path, text: str, message: str, column: int, hint: str | None) -> None:
    path = write(tmp_path, f"model: m\n{text}\n")
    assert problems_of(path) == (Problem(message, Location(str(path), 2, column), hint),)


BAD_PAIRS = [
    # (two or more lines after "model: m", message, line, column)
    ("server: a\ngpu: b", "'server' and 'gpu' are both given", 3, 6),
    ("gpus: 12\nlayout: {tp: 8}", "'gpus' (12) is not a multiple of 'tp' (8)", 2, 7),
    ("layout: {tp: 2, pp: 2, dp: 3}\ngpus: 4",
     "'gpus' (4) is not a multiple of 'tp' x 'pp' x 'dp' (12)", 3, 7),
    ("layout: {pp: 1,\n  vpp: 2}", "'vpp' (2) needs 'pp' of at least 2", 3, 8),
    ("gpus: 16\nlimits: {max_gpus: 8}", "'gpus' (16) is above 'max_gpus' (8)", 2, 7),
    ("layout: {dp: 4}\ntrain: {global_batch: 6}", "'global_batch' (6) is not a multiple of 'dp' (4)", 3, 23),
    ("layout: {dp: 4}\ntrain: {global_batch: 6, micro_batch: 2}",
     "'global_batch' (6) is not a multiple of 'micro_batch' x 'dp' (8)", 3, 23),
    ("serve: {request_rate: 5,\n  batch: 8}", "'request_rate' and 'batch' are both given", 3, 10),
    ("serve: {kv_cache: fp8, scheme: w8a8k8}", "'scheme' and 'kv_cache' are both given", 2, 19),
    ("serve: {acceptance_rate: 0.7}", "'acceptance_rate' needs 'draft_tokens'", 2, 26),
    ("serve: {draft_tokens: 0, draft_cost: 0.1}", "'draft_cost' needs 'draft_tokens'", 2, 38),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message", "line", "column"), BAD_PAIRS)
def test_keys_that_contradict_each_other(tmp_path: Path, text: str, message: str, line: int, column: int) -> None:
    path = write(tmp_path, f"model: m\n{text}\n")
    (problem,) = problems_of(path)
    assert (problem.message, problem.location) == (message, Location(str(path), line, column))


def test_wrong_types_and_contradictions_are_reported_together_in_file_order(tmp_path: Path) -> None:
    path = write(tmp_path, "gpu: a\nserver: b\ndata: {mean_tokens: 9, max_tokens: 8, samples: x}\nzzz: 1\n")
    assert [problem.message for problem in problems_of(path, XE_SIZER_TPP="1")] == [
        "unknown environment variable",
        "missing key 'model'",
        "'server' and 'gpu' are both given",
        "'mean_tokens' (9) is above 'max_tokens' (8)",
        "'samples' must be a whole number, not 'x'",
        "unknown key 'zzz'",
    ]


def test_the_full_example_is_read(tmp_path: Path) -> None:
    read = read_scenario(write(tmp_path, FULL), {}, {"HOME": "/"})
    values = read.values
    assert (values.model, values.server, values.gpus, values.job) == (
        "llama-2-70b",
        "dell-xe9680-h100",
        16,
        "lora",
    )
    assert (values.data.samples, values.data.mean_tokens, values.data.max_tokens) == (12012, 114.5, 8588)
    assert (values.layout.tp, values.layout.pp, values.layout.cp) == (8, 1, None)
    assert values.lora.targets == ("qkv",)
    assert values.limits.max_hours == 24.0
    assert read.folder == tmp_path
    assert set(read.origin.values()) == {"file"}
    assert read.locate(("layout", "tp")) == Location(str(tmp_path / "job.yaml"), 8, 14)


def test_empty_keys_and_sections_count_as_not_given(tmp_path: Path) -> None:
    read = read_scenario(write(tmp_path, "model: m\nlayout:\ngpus:\ntrain: {steps: }\n"), {}, {})
    assert read.values == ScenarioFile(model="m")
    assert dict(read.origin) == {"model": "file"}


def test_a_histogram_is_read(tmp_path: Path) -> None:
    path = write(tmp_path, "model: m\ndata: {mean_tokens: 2, histogram: {lengths: [1, 3], counts: [5, 5]}}\n")
    histogram = read_scenario(path, {}, {}).values.data.histogram
    assert histogram is not None
    assert (histogram.lengths, histogram.counts) == ((1, 3), (5.0, 5.0))


def test_consistent_tokens_samples_and_mean_are_accepted(tmp_path: Path) -> None:
    path = write(tmp_path, "model: m\ndata: {samples: 12012, mean_tokens: 114.5, tokens: 1.375e6}\n")
    assert read_scenario(path, {}, {}).values.data.tokens == 1.375e6


def test_flag_wins_over_variable_over_file(tmp_path: Path) -> None:
    path = write(tmp_path, "model: m\nlayout: {tp: 1, pp: 1, cp: 1}\n")
    read = read_scenario(path, {"layout.tp": 4, "layout.pp": None}, {"XE_SIZER_TP": "2", "XE_SIZER_PP": "2"})
    assert (read.values.layout.tp, read.values.layout.pp, read.values.layout.cp) == (4, 2, 1)
    assert dict(read.origin) == {
        "model": "file",
        "layout.tp": "flag",
        "layout.pp": "env",
        "layout.cp": "file",
    }
    assert str(read.locate(("layout", "tp"))) == "--tp"
    assert str(read.locate(("layout", "pp"))) == "XE_SIZER_PP"
    assert str(read.locate(("layout", "cp"))) == f"{path}:2:28"


def test_flags_alone_are_enough() -> None:
    read = read_scenario(None, {"model": "m", "lora.targets": "qkv, proj", "efficiency.ideal": True}, {})
    assert read.values.lora.targets == ("qkv", "proj")
    assert read.values.efficiency.ideal is True
    assert read.folder is None
    assert set(read.origin.values()) == {"flag"}


def test_variables_alone_are_enough() -> None:
    environment = {
        "XE_SIZER_MODEL": "8", "XE_SIZER_MICRO_BATCH": " 2 ", "XE_SIZER_TOKENS": "15e12",
        "XE_SIZER_ZERO": "3", "XE_SIZER_IDEAL": "true", "XE_SIZER_LORA_TARGETS": "qkv,proj",
        "XE_SIZER_JOB": "lora", "XE_SIZER_PP": "",
        "XE_SIZER_PROFILES": "/profiles", "PATH": "/bin",
    }  # fmt: skip
    values = read_scenario(None, {}, environment).values
    assert values.model == "8"  # a text key stays text
    assert (values.train.micro_batch, values.data.tokens, values.layout.zero) == (2, 15e12, 3)
    assert (values.efficiency.ideal, values.lora.targets, values.job) == (True, ("qkv", "proj"), "lora")
    assert values.layout.pp is None


@pytest.mark.parametrize(
    ("text", "flags", "environment", "kept", "dropped"),
    [
        ("server: a", {"gpu": "b"}, {}, "gpu", "server"),
        ("gpu: a", {"server": "b"}, {}, "server", "gpu"),
        ("gpu: a", {}, {"XE_SIZER_SERVER": "b"}, "server", "gpu"),
        ("{}", {"gpu": "a"}, {"XE_SIZER_SERVER": "b"}, "gpu", "server"),
        ("nodes: 2", {"gpus": 8}, {}, "gpus", "nodes"),
        ("gpus: 8", {"nodes": 2}, {}, "nodes", "gpus"),
        ("train: {epochs: 3}", {"train.steps": 5}, {}, "train.steps", "train.epochs"),
        ("train: {steps: 3}", {}, {"XE_SIZER_EPOCHS": "2"}, "train.epochs", "train.steps"),
        ("data: {mean_tokens: 5}", {"data.profile": "alpaca"}, {}, "data.profile", "data.mean_tokens"),
        ("data: {histogram: {lengths: [1], counts: [1]}}", {"data.mean_tokens": 9}, {}, "data.mean_tokens",
         "data.histogram"),
        ("efficiency: {flops: 0.5}", {"efficiency.ideal": True}, {}, "efficiency.ideal", "efficiency.flops"),
        ("efficiency: {ideal: true}", {"efficiency.flops": 0.5}, {}, "efficiency.flops", "efficiency.ideal"),
        ("data: {samples: 2, mean_tokens: 5, tokens: 10}", {"data.samples": 4}, {}, "data.samples",
         "data.tokens"),
        ("data: {samples: 2, mean_tokens: 5}", {"data.tokens": 4}, {}, "data.tokens", "data.samples"),
        ("serve: {request_rate: 3}", {"serve.batch": 8}, {}, "serve.batch", "serve.request_rate"),
        ("serve: {weights: fp8}", {}, {"XE_SIZER_SCHEME": "w4a16"}, "serve.scheme", "serve.weights"),
    ],
)  # fmt: skip
def test_a_flag_replaces_what_says_the_same_in_another_way(
    tmp_path: Path, text: str, flags: dict[str, object], environment: dict[str, str], kept: str, dropped: str
) -> None:
    body = "" if text == "{}" else f"{text}\n"
    read = read_scenario(write(tmp_path, f"model: m\n{body}"), flags, environment)
    assert read.origin[kept] != "file"
    assert dropped not in read.origin
    assert _at(read.values, kept) is not None
    assert _at(read.values, dropped) is None


def test_a_switch_that_is_off_replaces_nothing(tmp_path: Path) -> None:
    path = write(tmp_path, "model: m\nefficiency: {flops: 0.5}\n")
    assert read_scenario(path, {"efficiency.ideal": False}, {}).values.efficiency.flops == 0.5


def test_two_flags_of_one_kind_contradict_each_other() -> None:
    (problem,) = problems_of(None, {"model": "m", "server": "a", "gpu": "b"})
    assert str(problem.location) == "--gpu"


def test_relative_paths_start_where_they_were_written(tmp_path: Path) -> None:
    path = write(tmp_path, "model: ./m.yaml\nserver: ./s.yaml\n")
    read = read_scenario(path, {"server": "./t.yaml"}, {})
    assert read.folder_for("model") == tmp_path
    assert read.folder_for("server") is None


def test_problems_of_flags_and_variables_name_them() -> None:
    environment = {
        "XE_SIZER_MICRO_BATCH": "017",
        "XE_SIZER_TPP": "1",
        "XE_SIZER_PP": "four",
        "XE_SIZER_SEQ_LEN": "nan",
    }
    found = problems_of(
        None, {"layout.dp": 0, "limits.max_hours": float("nan"), "lora.targets": "qkv,,x"}, **environment
    )
    assert {str(problem.location): (problem.message, problem.hint) for problem in found} == {
        "XE_SIZER_MICRO_BATCH": ("'017' has a leading zero", "write 17"),
        "XE_SIZER_SEQ_LEN": ("'nan' is not a finite number", "leave the key out"),
        "XE_SIZER_TPP": (
            "unknown environment variable",
            "did you mean 'XE_SIZER_TP' or 'XE_SIZER_PP' or 'XE_SIZER_VPP'?",
        ),
        "XE_SIZER_PP": ("'pp' must be a whole number, not 'four'", None),
        "--dp": ("'dp' must be at least 1, not 0", None),
        "--max-hours": ("'max_hours' must be a finite number, not nan", None),
        "--lora-targets": ("item 2 of 'targets' must not be empty", None),
        "command line": (
            "missing key 'model'",
            "Model by name, path or Hub id, e.g. llama-3.1-8b",
        ),
    }


def test_a_flag_into_a_broken_section_reports_the_section(tmp_path: Path) -> None:
    path = write(tmp_path, "model: m\nlayout: 8\n")
    assert [str(problem.location) for problem in problems_of(path, {"layout.tp": 4})] == [f"{path}:2:9"]


def test_a_missing_file_and_an_unknown_variable_are_reported_together(tmp_path: Path) -> None:
    found = problems_of(tmp_path / "none.yaml", {}, XE_SIZER_X="1")
    assert [problem.message for problem in found] == ["no such file", "unknown environment variable"]


def test_every_option_has_a_key_in_the_scenario_file() -> None:
    for option, key in OPTIONS.items():
        _at(ScenarioFile(model="m"), key)
        assert variable_name(option).removeprefix("XE_SIZER_").replace("_", "-").lower() == option


def test_the_json_schema_accepts_what_is_read_and_refuses_typos(tmp_path: Path) -> None:
    schema = scenario_json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    assert validator.is_valid(load_yaml(write(tmp_path, FULL)).value)
    assert not validator.is_valid({"model": "m", "gpuss": 1})
    assert not validator.is_valid({"model": "m", "layout": {"tp": 0}})
    assert not validator.is_valid({})


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    samples=st.integers(1, 10**9), mean=st.floats(1, 1e6), tp=st.sampled_from([1, 2, 4, 8]),
    nodes=st.integers(1, 9),
    epochs=st.none() | st.floats(0.1, 100), rank=st.none() | st.integers(1, 512),
)  # fmt: skip
def test_a_scenario_survives_being_written_and_read(
    tmp_path: Path, samples: int, mean: float, tp: int, nodes: int, epochs: float | None, rank: int | None
) -> None:
    flags = {
        "model": "m", "data.samples": samples, "data.mean_tokens": mean, "layout.tp": tp, "nodes": nodes,
        "train.epochs": epochs, "lora.rank": rank,
    }  # fmt: skip
    first = read_scenario(None, flags, {}).values
    path = tmp_path / "written.yaml"
    path.write_bytes(msgspec.yaml.encode(first))
    assert read_scenario(path, {}, {}).values == first


def _at(values: object, dotted: str) -> object:
    for part in dotted.split("."):
        values = getattr(values, part)
    return values


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("job: inference", True),
        ("serve: {engine: vllm}", True),
        ("serve: {engine: vllm}\njob: inference", True),
        ("serve: {engine: vllm}\njob: lora", False),
        ("limits: {max_ttft_s: 1}", False),
        ("gpus: 8", False),
    ],
)
def test_a_scenario_that_asks_for_inference(tmp_path: Path, text: str, asked: bool) -> None:
    assert serves(read_scenario(write(tmp_path, f"model: m\n{text}\n"), {}, {})) is asked


def test_a_variable_alone_makes_no_scenario_one_of_inference(tmp_path: Path) -> None:
    assert not serves(read_scenario(write(tmp_path, "model: m\n"), {}, {"XE_SIZER_ENGINE": "vllm"}))
