"""The browser, started once, and every kind of report as a page."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import devtools
import msgspec
import pytest

from xe_sizer.cli.main import main
from xe_sizer.cli.render import read_answer
from xe_sizer.report.document import EXPLAINABLE, Options
from xe_sizer.report.registry import render
from xe_sizer.result.common import Answer, Written
from xe_sizer.result.studies import Comparison

FIXTURES = Path(__file__).parents[1] / "report" / "fixtures"
KINDS = {
    "estimate": "lora",
    "estimate-too-big": "sft-too-big",
    "plan": "studies/plan",
    "plan-missed": "studies/plan-missed",
    "serve": "serve-chat",
    "serve-overloaded": "serve-overloaded",
    "compare": "studies/compare",
    "compare-five": "studies/compare",
    "compare-services": "studies/compare-services",
    "sensitivity": "studies/sensitivity",
    "sensitivity-services": "studies/sensitivity-services",
    "check": "studies/check",
    "profiles": "studies/profiles",
    "validate": "studies/validate",
    "scaling": "studies/scaling",
    "sweep": "studies/sweep",
    "calendar": "studies/calendar",
    "calendar-missed": "studies/calendar-missed",
    "measurement": "studies/measurement",
}
# Pages that a command writes: what to buy, of three kinds of servers and two of cards that cannot, with a deadline and
# a price of electricity; a pipeline whose second stage is the fullest; iterations in turn, and of two pools at once.
COMMANDS = {
    "purchase": (
        "plan --model llama-3.1-70b --job sft --stack nemo --samples 100000 --mean-tokens 1000 --epochs 3 "
        "--max-hours 24 --max-gpus 64 --among dell-xe9680-h100 --among dell-xe9680-h200 --among aws-p5.48xlarge "
        "--among rtx-5090 --among t4 --capex-per-server dell-xe9680-h100=290000 "
        "--capex-per-server dell-xe9680-h200=340000 --kwh-price 0.18"
    ),
    "pipeline": (
        "estimate --model llama-3.1-405b --server dell-xe9680-h100 --gpus 128 --job pretrain --stack megatron-lm "
        "--tp 8 --pp 16 --recompute full --uneven-stages --micro-batch 1 --global-batch 64 --seq-len 4096 --steps 100"
    ),
    "in-turn": "estimate --model llama-3.1-8b --server dell-xe9680-h100 --gpus 8 --job grpo --explain memory",
    "pools": (
        "estimate --model llama-3.1-8b --server dell-xe9680-h100 --gpus 8 --job ppo --rollout-gpus 4 --asynchronous "
        "--max-hours 300"
    ),
}
COMMAND = "xe-sizer estimate examples/lora-llama-2-70b.yaml --max-hours 24 --price-per-gpu-hour 2.5 --gpus 16 " * 2


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[devtools.Browser]:
    program = devtools.found()
    if program is None:
        pytest.skip(f"no Chromium on this machine: install it, or name one in {devtools.VARIABLE}")
    with devtools.started(program, tmp_path_factory.mktemp("browser")) as started:
        yield started


@pytest.fixture(scope="session", params=(*KINDS, *COMMANDS))
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An HTML report of each kind, with all that can be explained, and a foot."""
    file = tmp_path_factory.mktemp("pages") / f"{request.param}.html"
    if request.param in COMMANDS:
        assert main([*shlex.split(COMMANDS[request.param]), "-o", str(file)]) == 0
        return file
    answer = msgspec.structs.replace(answer_of(request.param), written=Written(COMMAND, "2026-01-31", "0.1.0"))
    file.write_text(render(answer, "html", Options(explain=EXPLAINABLE)), encoding="utf-8")
    return file


def answer_of(kind: str) -> Answer:
    answer = read_answer(str(FIXTURES / f"{KINDS[kind]}.json"))
    return five(answer) if kind == "compare-five" and isinstance(answer, Comparison) else answer


def five(answer: Comparison) -> Comparison:
    """Five alternatives with names as long as people make them."""
    first = answer.alternatives[0]
    names = [f"server=dell-xe9680-h200,gpus={2**n},job=qlora,stack=deepspeed" for n in range(3, 8)]
    alternatives = tuple(msgspec.structs.replace(first, name=name) for name in names)
    differences = tuple(
        msgspec.structs.replace(part, total_s=(part.total_s[0],) * len(names)) for part in answer.differences
    )
    return msgspec.structs.replace(answer, alternatives=alternatives, differences=differences)
