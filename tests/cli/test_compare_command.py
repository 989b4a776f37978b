"""`compare` as users run it, on real jobs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

from .conftest import Ran
from .questions import JOB, ask

Cli = Callable[..., Ran]
SERVED = "--model llama-3.1-8b --gpu h100-sxm-80gb --gpus 1 --input-tokens 512 --output-tokens 128"


def test_compare_shows_what_differs(cli: Cli, tmp_path: Path) -> None:
    saved = tmp_path / "before.json"
    saved.write_text(cli("estimate", *shlex.split(JOB), "--gpus", "8", "--format", "json").out)
    scenario = tmp_path / "job.yaml"
    scenario.write_text(
        "model: llama-2-7b\nserver: dell-xe9680-h200\ngpus: 8\njob: sft\ntrain: {seq_len: 2048, steps: 100}\n"
    )
    answer = ask(cli, f"compare {JOB} {saved} {scenario} gpus=16,stack=nemo")
    jsonschema.validate(answer, json.loads(cli("profiles", "schema", "comparison").out))
    assert [one["name"] for one in answer["alternatives"]] == ["before", "job", "gpus=16,stack=nemo"]
    assert answer["alternatives"][2]["result"]["gpus"]["count"] == 16
    spreads = [max(part["total_s"]) - min(part["total_s"]) for part in answer["differences"]]
    assert spreads == sorted(spreads, reverse=True)


def test_compare_holds_the_gpus_equal(cli: Cli) -> None:
    """Severity A: SFT on 32 GPUs was called faster than QLoRA on one."""
    job = "compare --model llama-3.1-70b --server dell-xe9680-h100 --stack nemo --seq-len 4096 --steps 100"
    alone = [
        ask(cli, f"estimate {job.removeprefix('compare ')} --job {name}")["gpus"]["count"] for name in ("sft", "lora")
    ]
    assert alone[0] > alone[1]
    answer = ask(cli, f"{job} job=sft job=lora")
    assert {one["result"]["gpus"]["count"] for one in answer["alternatives"]} == {max(alone)}
    named = ask(cli, f"{job} job=sft,gpus=64 job=lora")
    assert {one["result"]["gpus"]["count"] for one in named["alternatives"]} == {64}
    assert f"on {max(alone)} GPUs each; " in cli(*shlex.split(f"{job} job=sft job=lora")).out


def test_compare_says_that_the_gpus_are_unequal(cli: Cli) -> None:
    out = cli(*shlex.split(f"compare {JOB} gpus=8 gpus=32")).out.splitlines()[0]
    assert "on unequal GPUs; gpus=8 takes the fewest GPU-hours, " in out
    assert "; gpus=32 is the fastest, " in out
    assert out.count("GPU-hours") == 3  # the words, and those of both


def test_compare_of_a_missing_file_says_so(cli: Cli) -> None:
    ran = cli("compare", "nosuch.yaml")
    assert (ran.code, ran.out) == (2, "")
    assert "nosuch.yaml: no such file" in ran.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("job.json", "name at least two alternatives"),
        ("gpus=8 gpu", "'gpu' is not an alternative"),
        ("gpus=8 stak=nemo", "'stak=nemo' is not an alternative"),
        ("gpus=8 nowhere.json", "nowhere.json: no such file"),
    ],
)
def test_compare_refuses(cli: Cli, arguments: str, message: str) -> None:
    ran = cli(*shlex.split(f"compare {JOB} {arguments}"))
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err


def test_compare_takes_saved_services_and_no_saved_plan(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "answer.json"
    cli("serve", *shlex.split(SERVED), "--batch", "1", "-o", file)
    assert cli("compare", file, file).code == 0
    cli("plan", *shlex.split(JOB), "--max-gpus", "8", "-o", file)
    ran = cli("compare", file, file)
    assert (ran.code, "this is a result of plan" in ran.err) == (2, True)


def test_the_job_of_the_options_is_kept_as_that_of_a_file_is(cli: Cli, tmp_path: Path) -> None:
    """Where an alternative changes an option that was given, and none comes to the same job."""
    job = "--model llama-2-7b --server dell-xe9680-h100 --gpus 8 --dataset alpaca --steps 10"

    def jobs(words: str) -> list[str]:
        return [one["result"]["scenario"]["job"] for one in ask(cli, f"compare {words}")["alternatives"]]

    file = tmp_path / "job.yaml"
    file.write_text("model: llama-2-7b\nserver: dell-xe9680-h100\ngpus: 8\njob: sft\n"
                    "data: {profile: alpaca}\ntrain: {steps: 10}\n")  # fmt: skip
    assert jobs(f"{job} --job sft job=lora job=qlora") == jobs(f"{file} job=lora job=qlora") == ["sft", "lora", "qlora"]
    assert jobs(f"{job} --job sft job=sft job=lora") == ["sft", "lora"]
    assert jobs(f"{job} job=lora job=qlora") == ["lora", "qlora"]


def test_alternatives_that_offload_to_an_unknown_host_are_named(cli: Cli) -> None:
    """With the memory of the host that the estimate says to order; the host of one of them is known."""
    job = "--model llama-3.1-70b --job sft --gpus 8 --dataset alpaca --steps 10 --offload optimizer"
    answer = cli(*shlex.split(f"compare {job} server=dell-xe9680-h100 server=nvidia-dgx-h100")).out
    words = " ".join(answer[answer.index("Warnings") :].split())
    told = "nvidia-dgx-h100: host memory of nvidia-dgx-h100 unknown: offloading needs 1,056 GiB per node"
    assert told in words
    assert "host memory of dell-xe9680-h100 unknown" not in words


def test_a_file_without_hardware_is_what_alternatives_that_name_it_change(cli: Cli, tmp_path: Path) -> None:
    """The file alone could not run; it is an alternative again where one of the changes leaves the hardware open."""
    job = tmp_path / "job.yaml"
    job.write_text("model: llama-3.1-8b\njob: lora\ngpus: 8\ntrain: {steps: 100}\n")
    servers = ["aws-p5.48xlarge", "aws-p5e.48xlarge"]
    ran = cli("compare", job, *(f"server={name}" for name in servers), "--format", "json")
    answer = json.loads(ran.out)
    assert [one["result"]["scenario"]["server"] for one in answer["alternatives"]] == servers
    assert "prices of different kinds do not compare: capacity-block, on-demand" in answer["warnings"]
    shown = cli("compare", job, *(f"server={name}" for name in servers)).out
    assert "capacity-block, all regions, 2026-08-01" in shown
    refused = cli("compare", job, f"server={servers[0]}", "gpus=16")
    assert (refused.code, "no hardware named" in refused.err) == (2, True)
