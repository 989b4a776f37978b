"""Options that a command does not have: what other tools call ours, and what is of another command."""

from collections.abc import Callable

import pytest

from xe_sizer.scenario.foreign import _MEANT, _NO_EFFECT, _names
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
        ("estimate", "--per_device_train_batch_size", "write --micro-batch"),
        ("serve", "--tensor-parallel-size", "write --tp"),
        ("serve", "--max-num-seqs", "write --max-sequences"),
        ("estimate", "--request-rate", "'xe-sizer serve' has --request-rate"),
        ("serve", "--lora-r", "'xe-sizer estimate' has --lora-rank"),
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
    proposed = {one.partition(" ")[0].rstrip(":") for setting in _MEANT for one in setting.split("|")}
    assert proposed <= ours
    without_effect = _names(_NO_EFFECT)
    foreign = [name for names in _MEANT.values() for name in _names(names)] + without_effect
    assert len(foreign) == len(set(foreign))
    assert [name for name in foreign if name != name.strip(" ,-") or " " in name] == []
    assert not ours & set(without_effect)
