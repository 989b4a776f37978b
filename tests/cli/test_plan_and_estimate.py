"""Plan and estimate name no different bests: on as many GPUs a plan is no slower than what an estimate names.

Advice on other hardware, or on another training, is no matter of the layout and the run.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from xe_sizer.result.common import LIKELY
from xe_sizer.training.search import TIE

from .conftest import Ran

Cli = Callable[..., Ran]
BOX = "--server dell-xe9680-h100"
JOBS = {
    "padded": f"--model llama-3.1-8b --job sft {BOX} --gpus 8 --stack nemo --samples 50000 --mean-tokens 300",
    "trainer": f"--model llama-3.1-8b --job sft {BOX} --gpus 8 --stack hf-trainer --samples 50000 --mean-tokens 300",
    "adapters": f"--model llama-3.1-70b --job lora {BOX} --gpus 16 --stack nemo --steps 100",
    "pretraining": f"--model llama-2-7b --job pretrain {BOX} --gpus 64 --stack megatron-lm --steps 100",
    "experts": f"--model mixtral-8x7b --job sft {BOX} --gpus 32 --stack megatron-lm --steps 100",
    "pairs": f"--model llama-3.1-8b --job dpo --adapter lora {BOX} --gpus 8 --stack trl --steps 100 --reference copy",
    "checkpoints": f"--model llama-3.1-8b --job dpo {BOX} --gpus 8 --stack trl --steps 100 --checkpoint-every 10",
    "one card": "--model llama-3.1-8b --job qlora --gpu rtx-4090 --gpus 1 --stack unsloth --steps 100",
    "answers": f"--model qwen3-8b --job grpo {BOX} --gpus 8 --stack verl --steps 100",
    "long answers": f"--model qwen3-32b --job grpo {BOX} --gpus 32 --stack verl --steps 50 --rollout-output-tokens 4k",
    "no engine": f"--model qwen3-8b --job grpo {BOX} --gpus 8 --stack trl --steps 100",
    "ray": f"--model qwen3-8b --job grpo {BOX} --gpus 16 --stack openrlhf --steps 100",
}
# Options of another training, which a plan keeps as it is asked.
OTHER_TRAINING = {"job", "adapter", "optimizer", "weights-dtype", "stack", "rollout-max-output-tokens"}
OTHER_HARDWARE = {"gpu", "server", "gpus", "nodes"}


def ask(cli: Cli, command: str) -> Any:
    return json.loads(cli(*shlex.split(command.removeprefix("xe-sizer ")), "--format", "json", "--exit-zero").out)


def options(command: str) -> dict[str, str]:
    """Options of a command with their values."""
    words = shlex.split(command)
    return {
        word[2:]: following if not following.startswith("--") else ""
        for word, following in zip(words, [*words[1:], "--"], strict=True)
        if word.startswith("--")
    }


def on_the_same(cli: Cli, job: str, estimate: Any) -> Iterator[Any]:
    """What advice comes to that keeps hardware and training."""
    for advice in estimate["advice"]:
        changed = {name for name, value in options(advice["command"]).items() if options(job).get(name) != value}
        if not changed & (OTHER_TRAINING | OTHER_HARDWARE) and (changed != {"seq-len"}):
            yield ask(cli, advice["command"])


@pytest.mark.parametrize("name", JOBS)
def test_a_plan_is_no_slower_than_the_estimate_and_its_advice(cli: Cli, name: str) -> None:
    """Within what the search takes for equal, and of what likely fits: a plan takes nothing else where it can."""
    job = JOBS[name]
    estimate, plan = ask(cli, f"estimate {job}"), ask(cli, f"plan {job}")
    advised = list(on_the_same(cli, job, estimate))
    named = [*plan["candidates"], *(way["candidate"] for way in plan["ways"])]
    assert {one["gpus"] for one in named} == {estimate["gpus"]["count"]}
    best_s = min(one["total_s"]["expected"] for one in named)
    found = [one for one in (estimate, *advised) if (one["verdict"]["fit_probability"] or 0.0) >= LIKELY]
    assert found
    for one in found:
        assert best_s <= one["time"]["total_s"]["expected"] * (1.0 + TIE)


@pytest.mark.parametrize(
    ("name", "change", "option"),
    [
        ("padded", "packing", "--padding packed"),
        ("checkpoints", "asynchronous checkpoints", "--async-checkpoint"),
        ("answers", "partial rollouts", "--rollout-partial"),
        ("ray", "one iteration older than the weights", "--asynchronous"),
        ("no engine", "vllm", "--rollout-engine vllm"),
    ],
)
def test_a_plan_names_what_would_make_it_faster_and_keeps_the_training(
    cli: Cli, name: str, change: str, option: str
) -> None:
    """The chosen plan is of the job as asked; each change has a plan of its own, which its command repeats."""
    job = JOBS[name]
    plan = ask(cli, f"plan {job}")
    chosen = plan["candidates"][plan["answers"]["chosen"]]
    assert option not in chosen["command"]
    way = next(way for way in plan["ways"] if change in way["change"])
    assert option in way["command"]
    assert way["time_ratio"] < 0.95
    again = ask(cli, way["command"])
    assert again["candidates"][again["answers"]["chosen"]]["total_s"] == way["candidate"]["total_s"]
    first = plan["ways"][0]
    assert first["time_ratio"] == min(way["time_ratio"] for way in plan["ways"])
    out = " ".join(cli("plan", *shlex.split(job)).out.split())
    assert f"Change {first['change']}: " in out
    assert change in out


def test_what_rules_a_change_out_rules_out_its_plan(cli: Cli) -> None:
    """Answers that somebody wants on the GPUs that train are not written beside the training."""
    plan = ask(cli, f"plan {JOBS['ray']} --colocated")
    assert not any("--asynchronous" in way["command"] for way in plan["ways"])
    packed = ask(cli, f"plan {JOBS['padded']} --padding packed")
    assert packed["ways"] == []
