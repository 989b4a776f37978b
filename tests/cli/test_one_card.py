"""The owner of one card or two: what a stack on one GPU does there, host memory, and what is chosen for offloading."""

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
DATA = "--samples 10000 --mean-tokens 500 --epochs 1 --global-batch 16"
QLORA_32B = f"--model qwen2.5-32b --job qlora {DATA}"


def ask(cli: Cli, command: str, question: str = "estimate") -> tuple[int, dict[str, Any]]:
    ran = cli(question, *shlex.split(command), "--format", "json")
    return ran.code, json.loads(ran.out)


@pytest.mark.parametrize("question", ["estimate", "plan"])
def test_a_stack_on_one_gpu_is_refused_on_two(cli: Cli, question: str) -> None:
    """It shares nothing out, so that ZeRO 3 over two cards would be an answer about another program."""
    ran = cli(question, *shlex.split(f"{QLORA_32B} --gpu rtx-3090 --gpus 2 --stack unsloth --seq-len 2048"))
    assert (ran.code, ran.out) == (2, "")
    assert "--gpus: unsloth trains on one GPU" in ran.err
    assert "for several use --stack hf-trainer" in ran.err


def test_so_it_is_by_a_number_of_nodes_and_by_replicas(cli: Cli) -> None:
    asked = f"{QLORA_32B} --stack unsloth --seq-len 2048"
    assert (
        "--nodes: unsloth trains on" in cli(*shlex.split(f"estimate {asked} --server dell-xe9680-h100 --nodes 1")).err
    )
    assert "--dp: unsloth trains on" in cli(*shlex.split(f"estimate {asked} --gpu rtx-3090 --dp 2")).err


def test_copies_of_a_stack_on_one_gpu_hold_the_whole_job(cli: Cli) -> None:
    asked = f"{QLORA_32B} --gpu rtx-3090 --stack unsloth --seq-len 2048 --micro-batch 1"
    (_, one), (_, two) = (ask(cli, f"{asked} --gpus 1"), ask(cli, f"{asked} --gpus 2 --zero 0"))
    weights = [next(p for p in r["memory"]["components"] if p["name"] == "weights")["bytes"] for r in (one, two)]
    assert weights[0] == weights[1]


OFFLOADED = (
    f"--model llama-2-7b --gpu rtx-4090 --gpus 1 --job sft --stack hf-bf16 --seq-len 1024 {DATA} --offload params"
)
# 16-bit weights and two 16-bit moments, and gradients as the optimizer on the host holds them, in 32 bit.
NEEDED_GIB = 6.738e9 * (2 + 4 + 4) / 2**30


@pytest.mark.parametrize(("gib", "code", "margin"), [(64, 1, "over"), (80, 0, "headroom")])
def test_the_system_keeps_some_of_the_host(cli: Cli, gib: int, code: int, margin: str) -> None:
    """62.8 GiB are offloaded: with 4 for the system that is more than 64."""
    found, result = ask(cli, f"{OFFLOADED} --host-memory-gib {gib}")
    memory = result["memory"]
    assert memory["host_bytes"] / 2**30 == pytest.approx(NEEDED_GIB, rel=0.01)
    assert memory["host_reserve_bytes"] == 4 * 2**30
    assert (found, result["verdict"]["margin"]) == (code, margin)
    shown = cli("estimate", *shlex.split(f"{OFFLOADED} --host-memory-gib {gib} --brief")).out
    (line,) = (line for line in shown.splitlines() if line.startswith("Host memory"))
    assert f"62.8 + 4 for the system (assumed) of {gib}.0 GiB per node" in line
    assert ("tight" in line) == (margin == "tight")
    (card,) = (line for line in shown.splitlines() if line.startswith("Memory"))
    assert "tight" not in card


def test_host_memory_is_shown_only_where_something_is_kept_there(cli: Cli) -> None:
    """Pages of an optimizer are: two moments of a byte for each of 6.74 G weights, 12.55 GiB, and their scales."""
    kept = OFFLOADED.replace("--offload params", "--optimizer")
    paged, plain = (
        cli("estimate", *shlex.split(f"{kept} {name} --offload none --host-memory-gib 64 --brief")).out
        for name in ("paged-adamw-8bit", "adamw-8bit")
    )
    assert "Host memory  12.7 + 4 for the system (assumed) of 64.0 GiB per node, 47.3 GiB free" in paged
    assert "Host memory" not in plain


def test_offloading_chooses_the_stage_that_fits(cli: Cli) -> None:
    """From stage 2 on gradients go to the host with the optimizer: 14.2 GiB of 16-bit weights stay."""
    asked = (
        f"--model qwen2.5-7b --gpu rtx-4090 --gpus 1 --job sft --stack deepspeed --seq-len 1024 {DATA} "
        "--offload optimizer --host-memory-gib 128 --micro-batch 1"
    )
    code, result = ask(cli, asked)
    assert (code, result["verdict"]["fits"]) == (0, True)
    assert result["layout"]["zero"] >= 2
    assert result["memory"]["peak_bytes"] / 2**30 == pytest.approx(18.4, abs=0.1)
    ran = cli("estimate", *shlex.split(f"{asked} --zero 0"))
    assert ran.code == 2
    assert "--zero: deepspeed offloads from ZeRO stage 1 on" in ran.err


@pytest.mark.parametrize(
    ("model", "hint"),
    [
        ("gemma 4", "'gemma-4-12b', 'gemma-4-26b-a4b', 'gemma-4-31b', 'gemma-4-e2b' or 'gemma-4-e4b'"),
        ("Llama 3.1", "'llama-3.1-8b', 'llama-3.1-70b' or 'llama-3.1-405b'"),
    ],
)
def test_a_family_of_several_sizes_is_listed_by_size(cli: Cli, model: str, hint: str) -> None:
    ran = cli("estimate", "--model", model, "--gpu", "rtx-4090", "--gpus", 1, "--job", "qlora")
    assert (ran.code, ran.out) == (2, "")
    assert f"'{model}' matches several models" in ran.err
    assert f"write {hint}\n" in ran.err


@pytest.mark.parametrize("gpu", ["2x 3090", "2 x RTX 3090", "rtx-3090 x2"])
def test_a_number_of_cards_in_their_name_gets_the_option_for_it(cli: Cli, gpu: str) -> None:
    ran = cli("estimate", "--model", "llama-3.1-8b", "--gpu", gpu, "--job", "qlora")
    assert ran.code == 2
    assert "write rtx-3090; the number is a value of its own: gpus: 2 (--gpus 2)" in ran.err


@pytest.mark.parametrize(("said", "gib"), [("64GB", 64), ("64GiB", 64), ("64g", 64), ("2TB", 2048), ("64", 64)])
def test_memory_modules_are_sold_in_powers_of_two(cli: Cli, said: str, gib: int) -> None:
    _, result = ask(cli, f"{OFFLOADED} --host-memory-gib {said}")
    assert result["memory"]["host_available_bytes"] == gib * 2**30


@pytest.mark.parametrize(
    ("counts", "share"), [([90, 10], "10 %"), ([985, 15], "1.5 %"), ([9999, 1], "less than 0.1 %")]
)
def test_how_many_samples_are_cut_is_said(cli: Cli, tmp_path: Path, counts: list[int], share: str) -> None:
    histogram = f"{{lengths: [100, 1000], counts: {counts}}}"
    file = tmp_path / "job.yaml"
    file.write_text(
        "model: llama-3.1-8b\ngpu: rtx-4090\ngpus: 1\njob: qlora\n"
        f"train: {{seq_len: 512}}\ndata: {{histogram: {histogram}}}\n"
    )
    _, result = ask(cli, str(file))
    said = f"samples longer than 512 tokens ({share} of them, the longest has 1,000) are cut: "
    assert any(warning.startswith(said) for warning in result["warnings"])


def test_the_fewest_that_fit_keep_the_layout_that_was_given(cli: Cli) -> None:
    asked = "estimate --model llama-3.1-8b --gpu rtx-4090 --gpus 1 --job sft --seq-len 8192 --brief"
    assert "; the fewest that fit: 8" in cli(*shlex.split(asked)).out
    assert "; the fewest that fit with this tp/pp: " in cli(*shlex.split(f"{asked} --tp 1 --pp 1")).out


def changes(result: dict[str, Any]) -> list[str]:
    return [advice["change"] for advice in result["advice"]]


def test_a_lighter_variant_of_the_stack_comes_before_another_card(cli: Cli) -> None:
    """70B of 4-bit weights and 16-bit embeddings, where autocast holds them in 32 bit: one A6000 of 48 GB does."""
    asked = "--model llama-3.1-70b --gpu rtx-a6000 --gpus 1 --job qlora --seq-len 2048"
    code, result = ask(cli, f"{asked} --stack hf-trainer --loss fused {DATA}")
    assert (code, result["verdict"]["fits"]) == (1, False)
    first, *rest = changes(result)
    assert first.startswith("stack hf-bf16 (Hugging Face Trainer with a model loaded in bfloat16")
    assert any("GPUs instead of 1" in text for text in rest)
    command = result["advice"][0]["command"].removeprefix("xe-sizer estimate ")
    mended, after = ask(cli, command)
    assert (mended, after["scenario"]["stack"]) == (0, "hf-bf16")
    assert after["memory"]["peak_bytes"] < result["memory"]["peak_bytes"]


def test_weights_trained_in_16_bit_come_after_a_smaller_optimizer(cli: Cli) -> None:
    """They are coarser than those that were asked for, so that what keeps them is advised first."""
    asked = f"--model qwen2.5-1.5b --gpu rtx-4090 --gpus 1 --job sft --stack hf-trainer@4.57 --seq-len 2048 {DATA}"
    _, result = ask(cli, asked)
    assert changes(result)[0] == "8-bit AdamW"
    assert not any("weights loaded in bf16" in text for text in changes(result)[:2])
    assert not any("hf-bf16" in text for text in changes(result))


def test_a_smaller_rank_comes_before_fewer_adapters(cli: Cli) -> None:
    _, result = ask(cli, f"{QLORA_32B} --gpu rtx-4090 --gpus 1 --stack unsloth --seq-len 1536 --lora-rank 64")
    assert changes(result)[:2] == ["adapters of rank 16 instead of 64", "adapters on attention alone"]
    assert ask(cli, result["advice"][0]["command"].removeprefix("xe-sizer estimate "))[0] == 0


@pytest.mark.parametrize("job", ["--job sft", "--job sft --offload optimizer --host-memory-gib 64"])
def test_nobody_puts_sixteen_cards_on_a_desk(cli: Cli, job: str) -> None:
    """Four are as many as a machine for a desk holds; a server of the same cards may be bought."""
    for model in ("llama-3.1-8b", "qwen2.5-32b", "qwen2.5-1.5b"):
        for limit in ("", " --max-hours 1"):
            _, result = ask(cli, f"--model {model} --gpu rtx-3090 --gpus 1 {job}{limit} {DATA}")
            counts = [int(number) for text in changes(result) for number in re.findall(r"(\d+) GPUs instead", text)]
            assert all(number <= 4 for number in counts)


def test_an_estimate_speaks_of_one_time_in_one_unit(cli: Cli) -> None:
    """407 steps of 128 read 52,096 of 52,002 samples, which is an epoch; 72 minutes are not 1.2 h further down."""
    asked = "--model llama-3.1-8b --gpu rtx-4090 --gpus 1 --job qlora --stack unsloth --dataset alpaca"
    asked = f"{asked} --global-batch 128 --epochs 1"
    told = " ".join(cli("estimate", *shlex.split(asked)).out.split())
    assert "407 1 epoch " in told
    slower = " ".join(cli("estimate", *shlex.split(f"{asked[:-11]} --steps 100 --micro-batch 1")).out.split())
    stated = re.search(r"Time (\S+) (min|h) ", slower)
    assert stated
    assert f" {stated[2]} instead of {stated[1]} {stated[2]} (" in slower
    assumed = cli("estimate", *shlex.split("--model llama-3.1-8b --gpu rtx-4090 --gpus 1 --job lora"))
    assert "1,000 steps assumed" in " ".join(assumed.out.split())


# The longest sequences that fit as Unsloth publishes them for Llama 3.1 8B, rank 32 on all linear layers, batch 1.
@pytest.mark.parametrize(
    ("gpu", "longest"),
    [("rtx-3060-12gb", 21_848), ("rtx-4080", 40_724), ("rtx-4090", 78_475), ("a100-sxm-40gb", 153_977),
     ("rtx-a6000", 191_728), ("a100-sxm-80gb", 342_733)],
)  # fmt: skip
def test_contexts_fit_that_unsloth_publishes_and_longer_ones_do_not(cli: Cli, gpu: str, longest: int) -> None:
    asked = f"--model llama-3.1-8b --gpu {gpu} --gpus 1 --job qlora --stack unsloth --lora-rank 32"
    batch = "--micro-batch 1 --global-batch 1 --host-memory-gib 512 --padding packed"
    codes = [ask(cli, f"{asked} {batch} --seq-len {round(share * longest)}")[0] for share in (0.92, 1.1)]
    assert codes == [0, 1]


def test_a_model_that_does_not_fit_gets_layers_on_the_cpu_as_its_first_advice(cli: Cli) -> None:
    """llama.cpp splits 70B between a card and the CPU: some 2 to 4 tokens a second, and the command says so too."""
    asked = "--model llama-3.3-70b --weights q4_k_m --gpu 3090 --gpus 1 --concurrency 1"
    code, result = ask(cli, asked, "serve")
    assert code == 1
    first = result["advice"][0]
    assert re.fullmatch(r"3\d of 80 layers on the CPU", first["change"])
    assert "3 output tokens/s in all; still misses max_tpot_s" in first["effect"]
    _, mended = ask(cli, first["command"].removeprefix("xe-sizer serve "), "serve")
    assert mended["verdict"]["fits"]
    assert any("GiB of host memory, read at 89.6 GB/s" in text for text in mended["warnings"])
    limited = changes(ask(cli, f"{asked} --tpot 0.2", "serve")[1])
    assert not any("layers on the CPU" in text for text in limited)  # that somebody set a limit for
    other = changes(ask(cli, asked.replace("q4_k_m", "awq"), "serve")[1])
    assert not any("layers on the CPU" in text for text in other)


@pytest.mark.parametrize("engine", ["ollama", "LM Studio", "koboldcpp", "text-generation-webui"])
def test_what_runs_llama_cpp_is_read_as_it(cli: Cli, engine: str) -> None:
    asked = f"--model llama-3.1-8b --weights q4_k_m --gpu rtx-4090 --gpus 1 --concurrency 1 --engine '{engine}'"
    assert ask(cli, asked, "serve")[1]["scenario"]["serve"]["engine"] == "llama.cpp"


@pytest.mark.parametrize("name", ["M3 Max", "Apple M3 Max", "MacBook Pro M3 Max", "apple-m3-max"])
def test_macs_serve_by_their_chip_and_the_memory_of_the_machine(cli: Cli, name: str) -> None:
    asked = f"--model qwen3-32b --gpu '{name}' --gpus 1 --concurrency 1 --weights q4_k_m"
    whole, small = (
        ask(cli, f"{asked} --host-memory-gib {gib}", "serve")[1]["memory"]["usable_bytes"] for gib in (128, 36)
    )
    assert (whole, small) == (pytest.approx(96 * 2**30), pytest.approx(27 * 2**30))
    assert ask(cli, asked, "serve")[1]["scenario"]["serve"]["engine"] == "llama.cpp"


def test_a_machine_without_its_memory_is_the_largest_and_says_so_under_the_verdict(cli: Cli) -> None:
    shown = cli("serve", *shlex.split("--model llama-3.1-8b --gpu 'M4 Max' --gpus 1 --concurrency 1 --brief")).out
    said = "a machine of 128 GiB is assumed, the largest there is, of which the GPU may use 75 %: --host-memory-gib 64"
    assert said in " ".join(shown.split())
    known = "--model llama-3.1-8b --gpu 'M4 Max' --gpus 1 --concurrency 1 --brief --host-memory-gib 48"
    assert "is assumed, the largest there is" not in cli("serve", *shlex.split(known)).out


def test_one_card_trains_adapters_before_it_needs_another_or_more_host_memory(cli: Cli) -> None:
    """DPO of all weights of 8B: 164 GiB, or 150 in host memory, which few machines for a desk have."""
    asked = "--model llama-3.1-8b --job dpo --gpu rtx-4090 --gpus 1 --seq-len 1024 --samples 1000 --epochs 1"
    first, second, *others = changes(ask(cli, asked)[1])
    assert first == "LoRA instead of all weights"
    assert second == "parameters and optimizer in host memory"
    assert all("instead of rtx-4090" in other for other in others)
    brief = cli("estimate", *shlex.split(f"{asked} --brief")).out
    assert "Change  LoRA instead of all weights" in brief
    known = changes(ask(cli, f"{asked} --host-memory-gib 192 --offload none")[1])
    assert known[:2] == [second, first]
    on_a_server = changes(ask(cli, asked.replace("rtx-4090", "a100-pcie-40gb"))[1])
    assert on_a_server[0] != first


def test_a_frozen_copy_in_float32_says_what_halves_it(cli: Cli) -> None:
    asked = "--model llama-3.1-8b --job dpo --gpu h100 --gpus 8 --stack trl --seq-len 1024 --samples 1000"
    said = "trl loads the model and its frozen copy in fp32 by itself: --weights-dtype bf16 halves both"
    assert said in ask(cli, asked)[1]["warnings"]
    assert said not in ask(cli, f"{asked} --weights-dtype bf16")[1]["warnings"]
    assert said not in ask(cli, f"{asked} --adapter lora")[1]["warnings"]
