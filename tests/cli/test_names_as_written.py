"""Names, words and units as people write them, through the command line."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Ran

Cli = Callable[..., Ran]


def estimated(cli: Cli, *arguments: object) -> dict:
    ran = cli("estimate", *arguments, "--format", "json")
    assert ran.code in (0, 1), ran.err
    return json.loads(ran.out)


def test_a_repository_and_the_name_of_nvidia_smi_are_read_and_said_once(cli: Cli) -> None:
    ran = cli(
        "estimate", "--model", "meta-llama/Llama-3.1-8B-Instruct", "--gpu", "NVIDIA GeForce RTX 4090", "--gpus", 2,
        "--job", "lora", "--stack", "transformers", "--optimizer", "paged_adamw_8bit", "--format", "json",
    )  # fmt: skip
    assert ran.err.splitlines() == [
        "note: meta-llama/Llama-3.1-8B-Instruct is read as llama-3.1-8b",
        "note: NVIDIA GeForce RTX 4090 is read as rtx-4090",
        "note: transformers is read as hf-trainer",
        "note: paged_adamw_8bit is read as paged-adamw-8bit",
    ]
    answer = json.loads(ran.out)
    named = {"model": "llama-3.1-8b", "gpu": "rtx-4090", "stack": "hf-trainer", "optimizer": "paged-adamw-8bit"}
    assert {key: answer["scenario"][key] for key in named} == named
    assert answer["scenario"]["written_as"]["model"] == "meta-llama/Llama-3.1-8B-Instruct"
    assert not any("read as" in warning for warning in answer["warnings"])


def test_a_name_gives_the_answer_of_the_profile_that_it_is_read_as(cli: Cli) -> None:
    written = estimated(cli, "--model", "NousResearch/Llama-2-7b-chat-hf", "--server", "p5.48xlarge", "--gpus", 8)
    own = estimated(cli, "--model", "llama-2-7b", "--server", "aws-p5.48xlarge", "--gpus", 8)
    assert written["scenario"].pop("written_as") == {
        "model": "NousResearch/Llama-2-7b-chat-hf",
        "server": "p5.48xlarge",
    }
    assert written["time"] == own["time"]
    assert written["memory"] == own["memory"]


@pytest.mark.parametrize(
    ("option", "name", "candidates"),
    [
        ("--gpu", "V100", ("'v100-sxm-16gb' (16 GiB)", "'v100-pcie-32gb' (32 GiB)")),
        ("--server", "XE9680", ("'dell-xe9680-h100' (8 x h100-sxm-80gb)", "'dell-xe9680-mi300x' (8 x mi300x)")),
    ],
)
def test_several_are_an_error_that_lists_them(cli: Cli, option: str, name: str, candidates: tuple[str, ...]) -> None:
    ran = cli("estimate", "--model", "llama-2-7b", option, name)
    assert ran.code == 2
    assert ran.err.startswith(f"{option}: '{name}' matches several")
    for each in candidates:
        assert each in ran.err


@pytest.mark.parametrize(
    ("option", "name", "profile"), [("--gpu", "H100", "h100-sxm-80gb"), ("--server", "H100", "dell-xe9680-h100")]
)
def test_the_commonest_is_taken_and_said(cli: Cli, option: str, name: str, profile: str) -> None:
    ran = cli("estimate", "--model", "gpt2", option, name, "--brief")
    assert (ran.code, ran.err) == (0, f"note: {name} is read as {profile}\n")


def test_training_on_what_shares_its_memory_with_the_cpu_is_refused_in_one_sentence(cli: Cli) -> None:
    ran = cli("estimate", "--model", "gpt2", "--gpu", "M3 Max")
    assert ran.code == 2
    assert ran.err == (
        "--gpu: apple-m3-max is sized for serving alone: no published training run shows how fast it is\n"
        "  hint: xe-sizer serve, or another GPU\n"
    )


def test_a_repository_in_a_file_is_no_path_of_its_folder_unless_it_lies_there(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("model: meta-llama/Llama-2-7b-hf\ngpu: RTX 4090\n", encoding="utf-8")
    assert estimated(cli, file)["scenario"]["model"] == "llama-2-7b"
    folder = tmp_path / "meta-llama" / "Llama-2-7b-hf"
    folder.mkdir(parents=True)
    assert f"{folder} is read as llama-2-7b" in cli("estimate", file).err
    (folder / "config.json").write_text("{}", encoding="utf-8")
    ran = cli("estimate", file)
    assert ran.code == 2
    assert "config.json" in ran.err


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("meta-llama/Meta-Llama-3.1-70B", "llama-3.1-70b  model profile"),
        ("RTX 4090", "rtx-4090  gpu profile"),
        ("XE9680 H100", "dell-xe9680-h100  server profile"),
        ("peft", "hf-trainer  stack profile"),
    ],
)
def test_profiles_show_takes_what_options_take(cli: Cli, name: str, shown: str) -> None:
    ran = cli("profiles", "show", name)
    assert (ran.code, ran.out.splitlines()[0][: len(shown)]) == (0, shown)


def test_hardware_of_a_plan_is_named_alike(cli: Cli) -> None:
    ran = cli(
        "plan", "--model", "llama-2-7b", "--job", "lora", "--gpu", "NVIDIA L40S", "--among", "RTX 6000 Ada",
        "--max-gpus", 2, "--format", "json",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert {each["gpu"] for each in json.loads(ran.out)["candidates"]} == {"l40s", "rtx-6000-ada"}


def test_words_and_units_of_flags_and_files_are_read_and_said(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("model: llama-2-7b\ngpu: rtx-4090\njob: QLoRA\nlimits: {max_hours: 2d}\n", encoding="utf-8")
    ran = cli(
        "estimate", file, "--seq-len", "4k", "--samples", "1e4", "--mean-tokens", "300", "--epochs", 1,
        "--zero", "fsdp", "--gpus", 2, "--stack", "PEFT", "--format", "json",
    )  # fmt: skip
    assert ran.code in (0, 1), ran.err
    answer = json.loads(ran.out)
    scenario, limits = answer["scenario"], answer["verdict"]["limits"]
    assert (scenario["job"], scenario["train"]["seq_len"], scenario["data"]["samples"]) == ("qlora", 4096, 10_000)
    assert answer["layout"]["zero"] == 3
    assert [limit["limit"] for limit in limits if limit["name"] == "max_hours"] == [48.0]
    assert sorted(ran.err.splitlines()) == [
        "note: --seq-len: 4k is read as 4096",
        "note: --zero: fsdp is read as 3",
        f"note: {file}:4:21: 2d is read as 48",
        "note: PEFT is read as hf-trainer",
    ]


@pytest.mark.parametrize(("written", "meant"), [("30k", 30720), ("32k", 32768)])
def test_lengths_count_in_1024_whatever_the_number(cli: Cli, written: str, meant: int) -> None:
    ran = cli("serve", "--model", "llama-3.1-8b", "--gpu", "l40s", "--input-tokens", written, "--format", "json")
    assert json.loads(ran.out)["scenario"]["serve"]["input_tokens"] == meant
    assert f"note: --input-tokens: {written} is read as {meant}" in ran.err


def test_memory_of_two_readings_is_bad_input_with_both(cli: Cli) -> None:
    ran = cli("estimate", "--model", "llama-2-7b", "--gpu", "rtx-4090", "--min-headroom-gib", "2G")
    told = "--min-headroom-gib: '2G' may be 2 (GiB) or 1.86265 (GB)\n  hint: write the number out\n"
    assert (ran.code, ran.err) == (2, told)


@pytest.mark.parametrize(
    ("words", "ideal", "sequence_parallel"),
    [
        (["--ideal", "true", "--sequence-parallel", "yes"], True, True),
        (["--ideal=on", "--sequence-parallel=false"], True, False),
        (["--ideal", "no", "--no-sequence-parallel"], None, False),
    ],
)
def test_switches_may_have_a_value(cli: Cli, words: list[str], ideal: bool | None, sequence_parallel: bool) -> None:
    answer = estimated(cli, "--model", "llama-2-7b", "--gpu", "h200-sxm-141gb", "--gpus", 2, "--tp", 2, *words)
    assert answer["scenario"].get("efficiency", {}).get("ideal") is ideal
    assert answer["layout"]["sequence_parallel"] is sequence_parallel
