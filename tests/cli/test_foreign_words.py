"""Options that a command does not have: what other tools call ours, and what is of another command."""

import json
from collections.abc import Callable

import pytest

from xe_sizer.scenario.foreign_words import MEANT, NO_EFFECT, listed_names
from xe_sizer.scenario.options import OPTIONS, SERVE_OPTIONS

from .conftest import Ran

Cli = Callable[..., Ran]


@pytest.mark.parametrize(
    ("command", "option", "hint"),
    [
        ("estimate", "--fsdp", "write --zero 3"),
        ("estimate", "--max-model-len", "write --seq-len"),
        ("serve", "--seq-len", "write --max-model-len"),
        (
            "estimate",
            "--batch-size",
            "write --micro-batch for sequences per GPU, or --global-batch for those of all GPUs",
        ),
        ("plan", "--num-gpus", "write --gpus"),
        ("estimate", "--deepspeed", "write --stack: the framework by its name, with --zero for its stage"),
        (
            "estimate",
            "--use-liger-kernel",
            "write --stack: one with these kernels, see 'xe-sizer profiles list stack'",
        ),
        ("estimate", "--learning-rate", "it changes neither memory nor time: leave it out"),
        ("export", "--learning-rate", "did you mean '--learning-rates'?"),
        ("estimate", "--per_device_train_batch_size", "write --micro-batch"),
        ("serve", "--tensor-parallel-size", "write --tp"),
        ("serve", "--max-num-seqs", "write --max-sequences"),
        ("estimate", "--request-rate", "'xe-sizer serve' has --request-rate"),
        ("serve", "--lora-r", "write --lora-rank"),
        ("serve", "--max-loras", "write --adapter-slots"),
        ("serve", "--kv-offloading-size", "write --kv-host-gib"),
        ("serve", "--n-gpu-layers", "write --cpu-layers: the layers that are not on the GPU"),
        ("estimate", "--max_hours", "write --max-hours"),
        ("estimate", "--modle", "did you mean '--model' or '--nodes'?"),
        ("estimate", "--frobnicate", "'xe-sizer estimate --help' lists all"),
    ],
)
def test_an_unknown_option_is_told_what_to_write(cli: Cli, command: str, option: str, hint: str) -> None:
    ran = cli(command, "--model", "llama-2-7b", option, 8)
    assert (ran.code, ran.err) == (2, f"{option}: 'xe-sizer {command}' has no such option\n  hint: {hint}\n")


def test_what_is_proposed_is_an_option_and_what_is_foreign_is_said_once() -> None:
    ours = {*OPTIONS, *SERVE_OPTIONS}
    proposed = {one.partition(" ")[0].rstrip(":") for setting in MEANT for one in setting.split("|")}
    assert proposed <= ours
    without_effect = listed_names(NO_EFFECT)
    foreign = [name for names in MEANT.values() for name in listed_names(names)] + without_effect
    assert len(foreign) == len(set(foreign))
    assert [name for name in foreign if name != name.strip(" ,-") or " " in name] == []
    assert not ours & set(without_effect)


@pytest.mark.parametrize(
    ("stack", "hint"),
    [
        ("fsdp", "that is ZeRO 3 here: write --zero 3 and name what trains as the stack; did you mean 'pytorch-fsdp'?"),
        ("DDP", "that is ZeRO 0 here: write --zero 0 and name what trains as the stack; known stacks: "),
        ("zero-2", "that is ZeRO 2 here: write --zero 2 "),
        ("deepspeed zero3", "write --stack deepspeed --zero 3"),
        ("DeepSpeed-ZeRO-2", "write --stack deepspeed --zero 2"),
        ("accelerate fsdp", "write --stack accelerate --zero 3"),
        ("{} fsdp", "that is ZeRO 3 here: "),  # what is no stack is none to write
        ("nosuch", "known stacks: "),
    ],
)
def test_a_way_to_share_states_is_no_stack_and_says_the_option(cli: Cli, stack: str, hint: str) -> None:
    ran = cli("estimate", "--model", "llama-3.1-8b", "--gpu", "h100-sxm-80gb", "--stack", stack)
    assert (ran.code, ran.out) == (2, "")
    problem, told = ran.err.splitlines()[:2]
    assert problem == f"--stack: unknown stack '{stack}'"
    assert told.startswith(f"  hint: {hint}")


def test_a_price_is_read_by_the_name_that_a_server_is_read_by(cli: Cli) -> None:
    job = ("plan", "--model", "llama-3.1-8b", "--job", "lora", "--gpus", "8", "--steps", "100", "--format", "json")
    plans = [
        json.loads(cli(*job, "--server", server, "--price", f"{server}=30").out)["candidates"][0]
        for server in ("XE9680 H100", "dell-xe9680-h100")
    ]
    assert plans[0]["price"] == plans[1]["price"] == pytest.approx(30 * plans[0]["gpu_hours"])
