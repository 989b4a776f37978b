"""What is advised works: every printed command, run as it stands, answers yes."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import Ran

Cli = Callable[..., Ran]
SERVER = "--server dell-xe9680-h100"
H100 = "--gpu h100-sxm-80gb"

# Jobs that do not fit, with the layout fixed or open, on large and small cards, with every method and stack.
TOO_BIG = {
    "sft 70b": f"--model llama-2-70b {SERVER} --gpus 8 --job sft --stack nemo --offload none",
    "sft 7b on one": f"--model llama-2-7b {H100} --gpus 1",
    "sft 8b on gaming cards": "--model llama-3.1-8b --gpu rtx-4090 --gpus 8 --stack deepspeed --zero 1",
    "lora 70b on one": "--model llama-2-70b --gpu a100-sxm-80gb --gpus 1 --job lora --stack hf-trainer --zero 0",
    "lora 13b on l4": "--model llama-2-13b --gpu l4 --gpus 1 --job lora --stack hf-trainer",
    "qlora 70b on a gaming card": "--model llama-2-70b --gpu rtx-4090 --gpus 1 --job qlora --stack hf-trainer",
    "pretrain without stages": (
        "--model gpt3-175b --gpu a100-sxm-80gb --gpus 64 --job pretrain --stack megatron-lm --tp 8 --pp 1 "
        "--tokens 3e11 --global-batch 1536 --seq-len 2048"
    ),
    "large micro-batch": (
        f"--model mistral-7b-v0.1 {H100} --gpus 8 --stack hf-trainer --zero 3 --recompute none --micro-batch 32 "
        "--global-batch 512 --seq-len 8192"
    ),
    "no model parallelism": "--model qwen2.5-32b --server dell-xe9680-h200 --gpus 8 --tp 1 --pp 1 --stack megatron-lm",
    "experts": f"--model mixtral-8x7b {H100} --gpus 8 --stack megatron-lm --tp 2 --ep 4",
    "latent attention": f"--model deepseek-v3 {SERVER} --gpus 16 --job lora --offload none",
    "eager attention": (
        f"--model opt-30b {SERVER} --gpus 8 --stack hf-trainer --attention eager --zero 3 --recompute none "
        "--micro-batch 4 --seq-len 512 --global-batch 256"
    ),
    "gaudi": "--model llama-3.1-70b --server dell-xe9680-gaudi3 --gpus 8 --stack deepspeed --offload none",
    "long sequences": f"--model llama-3.1-8b {H100} --gpus 8 --seq-len 131072 --stack hf-trainer --zero 3",
    "volta": "--model gpt-neox-20b --server lambda-gpu_8x_v100 --gpus 8 --stack deepspeed --zero 2",
    "p-tuning": "--model falcon-40b --gpu a10 --gpus 4 --job p-tuning --stack nemo",
    "offloaded already": (
        "--model llama-2-70b --gpu a800-sxm-80gb --gpus 8 --stack deepspeed --zero 3 --offload params "
        "--micro-batch 16 --recompute none"
    ),
    "turing": "--model phi-3-mini-4k --gpu t4 --gpus 1 --stack hf-trainer",
    "float32": (
        "--model bloom-7b1 --gpu a100-sxm-40gb --gpus 8 --precision fp32 --stack hf-trainer --zero 0 --seq-len 1024"
    ),
    "405b": "--model llama-3.1-405b --server dell-xe9680l-b200 --gpus 8 --job sft --stack nemo",
    "qlora of long sequences": (
        "--model gemma-2-27b --gpu l40s --gpus 2 --job qlora --stack hf-trainer --micro-batch 8 --seq-len 8192"
    ),
    "at most one server": f"--model llama-2-70b {SERVER} --job sft --max-gpus 8 --offload none",
    "at most four": f"--model qwen2.5-72b {H100} --max-gpus 4 --job sft --stack hf-trainer",
    "two nodes": (
        f"--model llama-3.1-70b {SERVER} --nodes 2 --job sft --stack megatron-lm --seq-len 8192 --offload none"
    ),
}
# Jobs that fit and miss a limit.
MISSES = {
    "hours of sft": f"--model llama-2-13b {SERVER} --gpus 8 --stack nemo --steps 5000 --max-hours 8",
    "hours of lora": (
        f"--model llama-2-70b {SERVER} --gpus 8 --job lora --stack nemo --tp 8 --pp 1 --dataset dell-design-guide "
        "--steps 1000 --max-hours 3"
    ),
    "hours of pre-training": (
        "--model llama-7b --gpu a100-sxm-80gb --gpus 512 --job pretrain --stack megatron-lm --tokens 1e12 "
        "--global-batch 2048 --seq-len 2048 --max-hours 50"
    ),
    "hours with few GPUs": f"--model llama-2-13b {SERVER} --max-gpus 16 --gpus 8 --steps 1000 --max-hours 2",
    "price": (
        f"--model llama-3.1-8b {H100} --gpus 16 --samples 50000 --mean-tokens 500 --epochs 3 "
        "--price-per-gpu-hour 3 --max-cost 5"
    ),
    "price with a slow layout": (
        "--model qwen2.5-14b --gpu a100-sxm-80gb --gpus 8 --job lora --samples 20000 --mean-tokens 800 "
        "--price-per-gpu-hour 2 --max-cost 3 --tp 8"
    ),
    "headroom": f"--model llama-2-7b {H100} --gpus 8 --tp 1 --pp 1 --zero 1 --min-headroom-gib 40",
    "headroom of lora": (
        "--model llama-2-13b --gpu a100-sxm-40gb --gpus 4 --job lora --min-headroom-gib 20 --stack hf-trainer --zero 0"
    ),
    "hours and headroom": (
        "--model llama-3.1-8b --gpu l40s --gpus 8 --stack deepspeed --max-hours 1 --min-headroom-gib 5 "
        "--samples 40000 --mean-tokens 400"
    ),
}
# Jobs that one remedy mends, the flags of that remedy, and whether it is what a user would rather do first.
REMEDIES = {
    "chunked loss": (
        (
            f"--model llama-3.2-1b {H100} --gpus 1 --stack hf-trainer --recompute full --micro-batch 6 "
            "--global-batch 48 --seq-len 8192"
        ),
        "--loss fused",
        True,
    ),
    "earlier reduction": (
        (
            f"--model opt-13b {H100} --gpus 8 --stack hf-trainer --zero 3 --micro-batch 4 --global-batch 256 "
            "--seq-len 1536 --padding packed --recompute none --attention sdpa --loss fused"
        ),
        "--reduce-every-micro-batch",
        True,
    ),
    "micro-batch": (
        (
            f"--model llama-2-7b {H100} --gpus 8 --stack deepspeed --zero 3 --recompute none --micro-batch 8 "
            "--loss fused --seq-len 4096"
        ),
        "--micro-batch 2",
        True,
    ),
    "recomputation": (
        (
            f"--model llama-2-7b {H100} --gpus 8 --stack hf-trainer --zero 3 --recompute none --micro-batch 1 "
            "--seq-len 12288 --loss fused --weights-dtype fp32"
        ),
        "--recompute full",
        True,
    ),
    "ZeRO": (
        "--model llama-3.1-8b --gpu a100-sxm-40gb --gpus 8 --stack deepspeed --zero 1 --loss fused --seq-len 2048",
        "--zero 2",
        True,
    ),
    "tensor parallel": (
        (
            f"--model llama-2-13b {SERVER} --gpus 8 --stack megatron-lm --tp 1 --pp 1 --dp 8 --recompute full "
            "--micro-batch 1"
        ),
        "--tp 2 --dp 4",
        False,
    ),
    "pipeline stages": (
        (
            "--model gpt3-175b --gpu a100-sxm-80gb --gpus 64 --job pretrain --stack megatron-lm --tp 8 --pp 1 "
            "--tokens 3e11 --global-batch 1536 --seq-len 2048"
        ),
        "--pp 8",
        False,
    ),
    "8-bit optimizer": (
        (
            "--model llama-3.1-8b --gpu a100-sxm-40gb --gpus 4 --stack deepspeed --zero 3 --recompute full "
            "--micro-batch 1 --seq-len 4096"
        ),
        "--optimizer adamw-8bit",
        True,
    ),
    "offload of the optimizer": (
        "--model llama-2-13b --gpu a100-sxm-80gb --gpus 1 --stack nemo --recompute full --micro-batch 1",
        "--offload optimizer",
        True,
    ),
    "offload of parameters": (
        "--model llama-3.1-8b --gpu rtx-4090 --gpus 8 --stack deepspeed --zero 1 --seq-len 4096",
        "--offload params --zero 3",
        True,
    ),
    "more GPUs": (f"--model llama-2-7b {H100} --gpus 1 --seq-len 4096", "--gpus 2", False),
    "a larger GPU": (f"--model llama-2-7b {H100} --gpus 1 --seq-len 4096", "--gpu h200-sxm-141gb", False),
    "LoRA": (f"--model llama-2-7b {H100} --gpus 1", "--job lora", False),
    "QLoRA": ("--model llama-2-13b --gpu l4 --gpus 1 --job lora --stack hf-trainer", "--job qlora", False),
    "shorter sequences": (
        f"--model llama-3.1-8b {H100} --gpus 8 --seq-len 131072 --stack hf-trainer --zero 3",
        "--seq-len 16384",
        False,
    ),
}
# Jobs whose offloaded states are too much for the server's own memory, and a remedy that mends that.
TOO_BIG_FOR_THE_HOST = {
    "more nodes": (
        f"--model llama-3.1-405b {SERVER} --gpus 8 --stack deepspeed --zero 3 --offload params --seq-len 4096",
        "--gpus 32",
    ),
    "less offload": (
        "--model llama-2-70b --server aws-p4d.24xlarge --gpus 8 --stack deepspeed --zero 3 --offload params",
        "--offload optimizer",
    ),
    "ZeRO": (
        (
            "--model qwen2.5-1.5b --server aws-g5.12xlarge --gpus 4 --stack hf-bf16 --zero 0 --offload optimizer "
            "--host-memory-gib 50"
        ),
        "--zero 3",
    ),
}
FAILING = {
    **TOO_BIG,
    **MISSES,
    **{f"remedy {name}": command for name, (command, *_) in REMEDIES.items()},
    **{f"host {name}": command for name, (command, _) in TOO_BIG_FOR_THE_HOST.items()},
}
TIGHT = (
    f"--model llama-2-7b {H100} --gpus 8 --stack deepspeed --zero 2 --micro-batch 2 --recompute none --bucket-gib 0.5"
)


ASKED: dict[str, Ran] = {}


def ask(cli: Cli, command: str) -> tuple[int, dict[str, Any]]:
    """What a command of options alone answers; it is asked once."""
    if command not in ASKED:
        ASKED[command] = cli("estimate", *shlex.split(command), "--format", "json")
    ran = ASKED[command]
    assert ran.err == ""
    return ran.code, json.loads(ran.out)


def options_of(command: str) -> dict[str, str]:
    """Option and value pairs of a command line, without the program's name; a flag without a value is 'true'."""
    options: dict[str, str] = {}
    for word in shlex.split(command)[command.startswith("xe-sizer estimate") * 2 :]:
        if word.startswith("--"):
            options[word] = "true"
        else:
            options[list(options)[-1]] = word
    return options


def with_flags(result: dict[str, Any], flags: str) -> list[dict[str, str]]:
    """The pieces of advice whose command sets all of the flags to these values."""
    wanted = options_of(flags).items()
    return [advice for advice in result["advice"] if wanted <= options_of(advice["command"]).items()]


def follow(cli: Cli, advice: dict[str, str]) -> int:
    """Exit code of an advised command, run as it is printed."""
    program, *words = shlex.split(advice["command"])
    assert program == "xe-sizer"
    assert advice["change"]
    assert advice["effect"]
    return cli(*words, "--format", "csv").code


@pytest.mark.parametrize("command", FAILING.values(), ids=FAILING)
def test_every_advised_command_answers_yes(cli: Cli, command: str) -> None:
    code, result = ask(cli, command)
    assert code == 1
    assert result["advice"]
    assert {follow(cli, advice) for advice in result["advice"]} == {0}
    assert result["verdict"]["reasons"][0]["fix"] == result["advice"][0]["change"]


def test_there_are_failing_jobs_of_every_kind() -> None:
    assert len(TOO_BIG) >= 20
    assert len(FAILING) >= 30


def test_advice_keeps_file_variables_profiles_and_odd_names(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "my profiles"
    folder.mkdir()
    shipped = Path(__file__).parents[2] / "gpu_profiles" / "h100-sxm-80gb.yaml"
    (folder / "my-h100.yaml").write_text(shipped.read_text().replace("name: h100-sxm-80gb", "name: my-h100"))
    file = tmp_path / "it's a job.yaml"
    file.write_text("model: llama-2-13b\ngpu: my-h100\ngpus: 2\ntrain: {steps: 10}\n")
    monkeypatch.setenv("XE_SIZER_STACK", "hf-trainer")
    monkeypatch.setenv("XE_SIZER_PROFILES", str(folder))
    code, result = ask(cli, f"{shlex.quote(str(file))} --mean-tokens 1234.56789 --max-tokens 4096")
    assert code == 1
    monkeypatch.delenv("XE_SIZER_STACK")
    monkeypatch.delenv("XE_SIZER_PROFILES")
    for advice in result["advice"]:
        assert "--stack hf-trainer" in advice["command"]
        assert "--mean-tokens 1234.56789" in advice["command"]
        assert follow(cli, advice) == 0


def test_no_other_card_is_advised_against_a_price(cli: Cli) -> None:
    """The price that the user gave is that of the card that the user named."""
    _, result = ask(cli, MISSES["price"])
    assert result["advice"]
    assert not any("--gpu b" in advice["command"] or "h200" in advice["command"] for advice in result["advice"])


def test_without_a_price_the_reason_says_what_to_give(cli: Cli) -> None:
    code, result = ask(cli, f"--model llama-2-7b {H100} --gpus 8 --max-cost 5")
    assert code == 1
    assert "--price-per-gpu-hour" in result["verdict"]["reasons"][0]["fix"]


def test_a_faster_layout_is_advised_to_a_job_that_fits(cli: Cli) -> None:
    code, result = ask(cli, f"--model llama-2-7b {H100} --gpus 8 --tp 8 --stack megatron-lm")
    assert code == 0
    (advice,) = result["advice"]
    _, faster = ask(cli, shlex.join(shlex.split(advice["command"])[2:]))
    assert faster["time"]["total_s"]["expected"] < result["time"]["total_s"]["expected"]


def test_a_count_that_only_the_given_layout_divides_gets_no_advice_and_no_error(cli: Cli) -> None:
    code, _ = ask(cli, f"--model llama-2-7b {H100} --gpus 24 --cp 3 --seq-len 6144")
    assert code == 0


@pytest.mark.parametrize(("command", "flags", "is_first"), REMEDIES.values(), ids=REMEDIES)
def test_every_remedy_is_advised_where_it_mends(cli: Cli, command: str, flags: str, is_first: bool) -> None:
    _, result = ask(cli, command)
    found = with_flags(result, flags)
    assert found
    assert is_first <= (result["advice"][0] in found)


@pytest.mark.parametrize("name", ["chunked loss", "tensor parallel", "offload of the optimizer", "more GPUs"])
def test_the_effect_is_what_the_command_answers(cli: Cli, name: str) -> None:
    """Memory, and the price in time against the job as it was asked, from two runs of the command line."""
    command, flags, _ = REMEDIES[name]
    _, before = ask(cli, command)
    advice = with_flags(before, flags)[0]
    _, after = ask(cli, shlex.join(shlex.split(advice["command"])[2:]))
    memory, ratio = after["memory"], total_s(after) / total_s(before)
    assert f"{memory['peak_bytes'] / 2**30:.1f} of {memory['usable_bytes'] / 2**30:.1f} GiB" in advice["effect"]
    stated = re.search(r"\(([+-]\d+) % time", advice["effect"])
    assert bool(stated) == before["verdict"]["fits"]  # nothing is saved of the time of what cannot run
    if stated:
        assert int(stated[1]) == pytest.approx(100 * (ratio - 1), abs=0.51)


def total_s(result: dict[str, Any]) -> float:
    return float(result["time"]["total_s"]["expected"])


@pytest.mark.parametrize(("command", "flags"), TOO_BIG_FOR_THE_HOST.values(), ids=TOO_BIG_FOR_THE_HOST)
def test_a_host_that_is_too_small_gets_advice_of_its_own(cli: Cli, command: str, flags: str) -> None:
    code, result = ask(cli, command)
    assert code == 1
    assert [reason["code"] for reason in result["verdict"]["reasons"]] == ["out-of-host-memory"]
    assert with_flags(result, flags)[0] == result["advice"][0]
    _, after = ask(cli, shlex.join(shlex.split(result["advice"][0]["command"])[2:]))
    assert 0 < after["memory"]["host_bytes"] <= after["memory"]["host_available_bytes"]
    assert not any("--gpu" in options_of(a["command"]) and "--offload" in a["command"] for a in result["advice"])


def test_a_tight_job_gets_one_or_two_ways_to_headroom(cli: Cli) -> None:
    code, result = ask(cli, TIGHT)
    assert (code, result["verdict"]["margin"]) == (0, "tight")
    assert 1 <= len(result["advice"]) <= 2
    for advice in result["advice"]:
        _, after = ask(cli, shlex.join(shlex.split(advice["command"])[2:]))
        assert after["verdict"]["margin"] == "headroom"
        assert after["memory"]["headroom_bytes"] > result["memory"]["headroom_bytes"]


def test_remedies_that_only_together_mend_are_advised_together(cli: Cli) -> None:
    _, result = ask(cli, TOO_BIG["qlora of long sequences"])
    both = with_flags(result, "--loss fused --micro-batch 1")
    assert both
    for name, value in (("--loss", "fused"), ("--micro-batch", "1")):
        code, _ = ask(cli, f"{TOO_BIG['qlora of long sequences']} {name} {value}")
        assert code == 1


def test_no_advice_is_given_twice_and_other_training_comes_last(cli: Cli) -> None:
    for name, job in (("float32", "lora"), ("two nodes", "lora"), ("lora 13b on l4", "qlora")):
        _, result = ask(cli, TOO_BIG[name])
        commands = [advice["command"] for advice in result["advice"]]
        assert len(set(commands)) == len(commands)
        assert options_of(commands[-1])["--job"] == job


def test_weights_in_4_bit_are_not_sent_to_the_host(cli: Cli) -> None:
    _, result = ask(cli, TOO_BIG["qlora 70b on a gaming card"])
    assert result["advice"]
    assert not with_flags(result, "--offload params")


def test_an_offloaded_optimizer_stays_32_bit(cli: Cli) -> None:
    _, result = ask(cli, TOO_BIG_FOR_THE_HOST["less offload"][0])
    assert not with_flags(result, "--optimizer adamw-8bit")


def test_states_come_back_from_the_host_where_offloading_is_too_slow(cli: Cli) -> None:
    command = f"--model llama-2-7b {H100} --gpus 8 --stack deepspeed --zero 3 --offload params --steps 1000"
    _, result = ask(cli, f"{command} --max-hours 2")
    assert with_flags(result, "--offload none")[0] == result["advice"][0]
    assert follow(cli, result["advice"][0]) == 0


@pytest.mark.parametrize("stack", ["hf-trainer", "megatron-lm"])
def test_the_loss_is_a_choice_with_the_stack_s_as_default(cli: Cli, stack: str) -> None:
    """Bytes alive around the loss: a chunked kernel holds less than any that makes float32 logits."""
    command = f"--model llama-3.2-1b {H100} --gpus 1 --stack {stack} --recompute full --micro-batch 4 --seq-len 8192"
    _, default = ask(cli, command)
    assert default["scenario"]["origin"]["loss"] == "stack"
    peaks = {}
    for loss in ("eager", "vocab-parallel", "fused"):
        _, result = ask(cli, f"{command} --loss {loss}")
        assert result["scenario"]["loss"] == loss
        assert result["scenario"]["origin"]["loss"] == "flag"
        peaks[loss] = result["memory"]["peak_bytes"]
    assert peaks["fused"] < peaks["vocab-parallel"] < peaks["eager"]
    assert default["memory"]["peak_bytes"] == peaks[default["scenario"]["loss"]]


def test_a_switch_is_advised_as_a_switch(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "sp.yaml"
    file.write_text(
        "{model: llama-3.1-405b, gpu: l4, job: p-tuning, stack: torchtitan, precision: fp8, "
        "data: {profile: dell-design-guide}, train: {global_batch: 1, micro_batch: 1, seq_len: 512}, "
        "layout: {pp: 2, sequence_parallel: false, recompute: none, offload: none}}\n"
    )
    _, result = ask(cli, str(file))
    switched = [advice for advice in result["advice"] if "--sequence-parallel" in advice["command"]]
    assert switched
    assert "--sequence-parallel 1" not in switched[0]["command"]
    assert {follow(cli, advice) for advice in switched} == {0}
