"""`xe-sizer profiles`: list, show, validate and schema."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from xe_sizer.cli.profiles import show_document
from xe_sizer.profiles.finder import BUILT_IN, KINDS
from xe_sizer.report.document import Options
from xe_sizer.report.terminal import render as render_document

from .conftest import Ran

Cli = Callable[..., Ran]
ROOT = Path(__file__).parents[2]


def test_list_one_kind(cli: Cli) -> None:
    ran = cli("profiles", "list", "gpu", "h100", "--format", "json")
    answer = json.loads(ran.out)
    h100 = next(entry for entry in answer["profiles"] if entry["name"] == "h100-sxm-80gb")
    assert answer["schema_version"] == 1
    assert all(entry["kind"] == "gpu" and "h100" in entry["name"] for entry in answer["profiles"])
    assert (h100["memory_bandwidth_gb_per_s"], h100["peak_tflops_bf16"]) == (3350, 989)


def test_a_part_of_a_name_searches_all_kinds(cli: Cli) -> None:
    rows = list(csv.DictReader(io.StringIO(cli("profiles", "list", "h100", "--format", "csv").out)))
    assert {row["kind"] for row in rows} == {"gpu", "server"}


def test_list_table_has_every_name(cli: Cli) -> None:
    out = cli("profiles", "list", "gpu").out
    assert all(file.stem in out for file in (ROOT / "gpu_profiles").glob("*.yaml"))


def test_nothing_found_is_an_error_with_a_suggestion(cli: Cli) -> None:
    ran = cli("profiles", "list", "gpu", "h100-sxm-80bg")
    assert ran.code == 2
    assert "'h100-sxm-80gb'" in ran.err


def test_show_tells_figures_and_their_sources(cli: Cli) -> None:
    out = cli("profiles", "show", "H100-SXM-80GB").out
    assert out.startswith("h100-sxm-80gb  gpu profile")
    line = next(line for line in out.splitlines() if line.startswith("laws.matmul.bf16.floor_us"))
    mark = line.split()[-1]
    assert mark.startswith("[")
    source = [line for line in out.splitlines() if line.startswith(f"{mark} ")]
    assert len(source) == 1
    assert "aiconfigurator" in source[0]


@pytest.mark.parametrize(
    ("kind", "file"),
    [
        ("gpu", "gpu_profiles/h100-sxm-80gb.yaml"),
        ("gpu", "gpu_profiles/mi300x.yaml"),
        ("server", "gpu_profiles/servers/dell-xe9680-h100.yaml"),
        ("model", "model_profiles/deepseek-v3.yaml"),
        ("stack", "xe_sizer/software/stacks/nemo.yaml"),
        ("engine", "xe_sizer/software/engines/vllm.yaml"),
        ("fabric", "gpu_profiles/fabrics/nvlink4.yaml"),
    ],
)
def test_show_says_each_source_once_and_fits_a_terminal(kind: str, file: str) -> None:
    text = render_document(show_document(kind, ROOT / file), Options(width=80))
    assert max(len(line) for line in text.splitlines()) <= 80
    marks = [line.split()[0] for line in text.splitlines() if line.startswith("[")]
    assert marks == [f"[{number}]" for number in range(1, len(marks) + 1)]
    assert all(text.count(mark) > 1 for mark in marks)


def test_a_server_without_a_network_shows_the_assumed_one_marked(cli: Cli) -> None:
    out = cli("profiles", "list", "server", "xe9680").out
    network = {line.split()[0]: line.split()[-3:] for line in out.splitlines() if line.startswith("dell-")}
    assert network["dell-xe9680-h100"] == ["8", "x", "400"]
    assert network["dell-xe9680-h200"] == ["8", "x", "400*"]
    assert "* assumed" in out
    rows = json.loads(cli("profiles", "list", "server", "xe9680", "--format", "json").out)["profiles"]
    assumed = {row["name"]: (row["scale_out_nics"], row["scale_out_assumed"]) for row in rows}
    assert (assumed["dell-xe9680-h100"], assumed["dell-xe9680-h200"]) == ((8, False), (8, True))


def test_the_ending_of_the_output_file_chooses_the_format(cli: Cli, tmp_path: Path) -> None:
    assert cli("profiles", "list", "gpu", "h100", "-o", tmp_path / "gpus.json").code == 0
    assert json.loads((tmp_path / "gpus.json").read_text())["schema_version"] == 1
    assert cli("profiles", "list", "gpu", "h100", "-o", tmp_path / "gpus.html").code == 0
    assert (tmp_path / "gpus.html").read_text().startswith("<!DOCTYPE html>")
    assert cli("profiles", "show", "llama-2-70b", "-o", tmp_path / "model.yaml").code == 0
    assert (tmp_path / "model.yaml").read_text() == (ROOT / "model_profiles" / "llama-2-70b.yaml").read_text()


def test_show_as_yaml_is_the_file(cli: Cli) -> None:
    file = ROOT / "model_profiles" / "llama-2-70b.yaml"
    assert cli("profiles", "show", "llama-2-70b", "--format", "yaml").out == file.read_text()
    assert json.loads(cli("profiles", "show", file, "--format", "json").out)["layers"] == 80


def test_show_an_unknown_name(cli: Cli) -> None:
    ran = cli("profiles", "show", "llama-2-70c")
    assert ran.code == 2
    assert "'llama-2-70b'" in ran.err


@pytest.mark.parametrize("name", ["foo", "csv", "junit"])
def test_show_names_the_formats_that_it_takes(cli: Cli, name: str) -> None:
    ran = cli("profiles", "show", "llama-2-70b", "--format", name)
    assert ran.code == 2
    assert "one of html, json, markdown, table, yaml" in ran.err
    for taken in ("html", "json", "markdown", "table", "yaml"):
        assert cli("profiles", "show", "llama-2-70b", "--format", taken).code == 0


def test_show_names_the_endings_that_it_takes(cli: Cli, tmp_path: Path) -> None:
    ran = cli("profiles", "show", "llama-2-70b", "-o", tmp_path / "model.csv")
    assert (ran.code, list(tmp_path.iterdir())) == (2, [])
    assert "known are .htm, .html, .json, .markdown, .md, .txt, .yaml, .yml;" in ran.err


def test_a_schema_is_written_to_json_only(cli: Cli, tmp_path: Path) -> None:
    ran = cli("profiles", "schema", "gpu", "-o", tmp_path / "gpu.pdf")
    assert (ran.code, list(tmp_path.iterdir())) == (2, [])
    assert "--output: a schema cannot have the ending '.pdf'" in ran.err
    for name in ("gpu.json", "gpu"):
        assert cli("profiles", "schema", "gpu", "-o", tmp_path / name).code == 0


def test_kinds_are_counted_in_the_plural(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "few.yaml").write_text("name: few\nsamples: 2\nmean_tokens: 3\nsource: {title: ours}\n")
    assert cli("profiles", "list", "few", "--profiles", tmp_path).out.startswith("PROFILES  1 data set\n")
    counts = {kind: len(BUILT_IN.names(kind)) for kind in ("gpu", "optimizer")}
    assert cli("profiles", "list", "gpu").out.startswith(f"PROFILES  {counts['gpu']} GPUs\n")
    assert cli("profiles", "list", "optimizer").out.startswith(f"PROFILES  {counts['optimizer']} optimizers\n")


def test_kinds_have_their_article(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("a: 1\n")
    told = cli("profiles", "validate", tmp_path / "x.yaml").err
    assert "; an optimizer has " in told
    assert "; an engine has " in told
    assert "; a server has " in told


def test_a_bad_file_is_told_and_the_others_are_listed(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "cyc.yaml").write_text("name: cyc\nparent: cyc\nhost_bytes: 3\n")
    ran = cli("profiles", "list", "optimizer", "--format", "json", "--profiles", tmp_path)
    assert ran.code == 0
    assert [row["name"] for row in json.loads(ran.out)["profiles"]] == list(BUILT_IN.names("optimizer"))
    assert ran.err.startswith(f"{tmp_path / 'cyc.yaml'}:2:9: 'parent' is 'cyc', which is this file itself\n")
    assert "did you mean" not in ran.err
    assert "note: files with problems are not listed" in ran.err
    alone = cli("profiles", "list", "cyc", "--profiles", tmp_path)
    assert (alone.code, alone.out) == (2, "")
    assert cli("profiles", "validate", tmp_path / "cyc.yaml", "--profiles", tmp_path).code == 2


def test_the_plural_of_a_kind_is_known(cli: Cli) -> None:
    ran = cli("profiles", "list", "gpus")
    assert ran.code == 2
    assert "did you mean 'gpu'?" in ran.err


@pytest.mark.parametrize("kind", KINDS)
def test_the_name_in_a_file_is_that_of_the_file(cli: Cli, tmp_path: Path, kind: str) -> None:
    name = BUILT_IN.names(kind)[0]
    text = BUILT_IN.path(kind, name).read_text()
    (tmp_path / "mine.yaml").write_text(text)
    ran = cli("profiles", "validate", tmp_path / "mine.yaml")
    assert ran.code == 2
    assert f": name is '{name}' but the file is 'mine.yaml'" in ran.err
    assert "hint: give both the same name" in ran.err
    (tmp_path / "mine.yaml").write_text(text.replace(f"name: {name}", "name: mine", 1))
    assert cli("profiles", "validate", tmp_path / "mine.yaml").code == 0


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("nope", "'xe-sizer profiles list' prints all"),
        ("h100-sxm-80bg", "did you mean 'h100-sxm-80gb'"),
        ("megatron-lmm", "did you mean 'megatron-lm'"),
        ("alpacca", "did you mean 'alpaca'"),
    ],
)
def test_show_suggests_what_people_ask_for(cli: Cli, name: str, hint: str) -> None:
    ran = cli("profiles", "show", name)
    assert ran.code == 2
    assert f"hint: {hint}" in ran.err


def test_validate_finds_every_problem_of_every_file(cli: Cli, tmp_path: Path) -> None:
    gpu = yaml.safe_load((ROOT / "gpu_profiles" / "l40s.yaml").read_text())
    good = tmp_path / "mine.yaml"
    good.write_text(yaml.safe_dump(gpu | {"name": "mine"}))
    bad = tmp_path / "bad.yaml"
    bad.write_text(yaml.safe_dump(gpu | {"name": "bad", "memory_gib": -1, "tdp": 3}, sort_keys=False))
    assert cli("profiles", "validate", good).out == "1 profile read, 0 with problems\n"
    ran = cli("profiles", "validate", good, bad, tmp_path / "none.yaml")
    assert ran.code == 2
    assert ran.out == "3 profiles read, 2 with problems\n"
    assert ran.err.count(f"{bad}:") == 2
    assert "'tdp_w'" in ran.err


def test_validate_refuses_what_is_no_profile(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("a: 1\n")
    assert "no profile of a known kind" in cli("profiles", "validate", file).err


def test_schema_of_nothing_known(cli: Cli) -> None:
    ran = cli("profiles", "schema", "scenaro")
    assert ran.code == 2
    assert "'scenario'" in ran.err


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_listed_shown_and_validated(cli: Cli, kind: str) -> None:
    rows = json.loads(cli("profiles", "list", kind, "--format", "json").out)["profiles"]
    assert [row["name"] for row in rows] == list(BUILT_IN.names(kind))
    name = rows[0]["name"]
    assert cli("profiles", "show", name).out.startswith(f"{name}  {kind} profile")
    assert cli("profiles", "validate", BUILT_IN.path(kind, name)).out == "1 profile read, 0 with problems\n"


def test_two_files_of_a_name_are_told(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "nemo.yaml").write_text("name: nemo\nparent: nemo\ndescribes: ours\nsource: ours\n")
    ran = cli("profiles", "list", "stack", "--profiles", tmp_path)
    assert ran.code == 0
    assert ran.err.startswith(f"note: stack 'nemo' is {tmp_path / 'nemo.yaml'}; ")
    assert ran.err.rstrip().endswith("stacks/nemo.yaml is not used")


def test_all_files_of_a_users_folder_are_validated(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("a: [\n")
    (tmp_path / "mine.yaml").write_text("samples: many\n")
    ran = cli("profiles", "validate", "all", "--profiles", tmp_path)
    assert ran.code == 2
    assert ran.out.endswith("profiles read, 2 with problems\n")
    assert f"{tmp_path / 'broken.yaml'}:" in ran.err
    assert f"{tmp_path / 'mine.yaml'}:1:10: 'samples' must be a whole number" in ran.err


def test_show_lists_what_older_releases_of_a_stack_did(cli: Cli) -> None:
    ran = cli("profiles", "show", "transformers 4.36")
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert next(line for line in lines if line.startswith("4.36 (23.12)")).split()[2:4] == [
        "kernels.attention",
        "eager",
    ]
    assert "hf-trainer@23.12" in ran.out
