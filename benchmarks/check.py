"""How long a gate over 200 different scenarios takes: CPU time of one `xe-sizer check` over that of bare imports.

    python benchmarks/check.py [--runs 3] [--limit 12] [--keep FOLDER]

The scenarios are written by this script, the same in every run: models x GPUs x methods x stacks x batch sizes, all
with an open layout, two fifths with an open number of GPUs, one fifth of inference. A third of them does not fit in
memory or misses a limit. Exit code 1 if the ratio is above the limit.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml
from yardstick import bare_imports_s, run

NUMBER = 200
MODELS = (
    "llama-3.1-8b", "qwen3-8b", "mistral-7b", "llama-2-13b", "gemma-2-9b", "qwen2.5-32b", "mixtral-8x7b", "llama-2-70b",
    "opt-6.7b", "gpt2-xl",
)  # fmt: skip
HARDWARE = (
    {"server": "dell-xe9680-h100"}, {"gpu": "a100-sxm-80gb"}, {"gpu": "h200-sxm-141gb"}, {"gpu": "l40s"},
    {"server": "aws-p4d.24xlarge"}, {"gpu": "mi300x"}, {"gpu": "rtx-4090"},
)  # fmt: skip
JOBS = ("lora", "sft", "qlora", "pretrain", "inference")
STACKS = ("hf-trainer", "nemo", "torchtune", "deepspeed", "megatron-lm", "litgpt")
ENGINES = ("vllm", "tensorrt-llm", "sglang")
BATCHES = (16, 64, 256)
GPUS = (None, 8, None, 4, 2)
HOURS = (30.0, 3.0, 0.3)
DATA: tuple[Mapping[str, object], ...] = (
    {"profile": "alpaca"},
    {"samples": 20_000, "mean_tokens": 700.0, "max_tokens": 8_000},
    {"profile": "dell-design-guide"},
)


def scenarios() -> Iterator[Mapping[str, object]]:
    """Different questions without end: cycles of lengths that share no factor meet in ever new combinations."""
    for index, (model, job) in enumerate(itertools.product(MODELS * 1000, JOBS)):
        hardware = HARDWARE[index % len(HARDWARE)]
        batch = BATCHES[index % len(BATCHES)] << index // (len(MODELS) * len(JOBS))
        gpus = GPUS[index // len(JOBS) % len(GPUS)]
        common = {"model": model, **hardware, **({} if gpus is None else {"gpus": gpus})}
        yield {**common, **(_served(index, batch) if job == "inference" else _trained(index, job, batch))}


def _trained(index: int, job: str, batch: int) -> Mapping[str, object]:
    data = {"tokens": 2e9} if job == "pretrain" else DATA[index // 7 % len(DATA)]
    train = {"global_batch": batch, "seq_len": (2048, 4096)[index // 3 % 2], "epochs": 1 + index % 2}
    limits = {"max_hours": HOURS[index // 2 % len(HOURS)], "max_gpus": 64}
    return {"job": job, "stack": STACKS[index % len(STACKS)], "data": data, "train": train, "limits": limits}


def _served(index: int, batch: int) -> Mapping[str, object]:
    load = {"request_rate": batch / 16, "input_tokens": 512 + batch, "output_tokens": 128}
    limits = {"max_ttft_s": (2.0, 0.5)[index // 5 % 2], "max_tpot_s": (0.1, 0.03)[index // 3 % 2], "max_gpus": 32}
    return {"job": "inference", "serve": {"engine": ENGINES[index % len(ENGINES)], **load}, "limits": limits}


def write(folder: Path) -> None:
    """One file a scenario, NUMBER of them."""
    for index, scenario in enumerate(itertools.islice(scenarios(), NUMBER)):
        (folder / f"scenario-{index:03}.yaml").write_text(yaml.safe_dump(scenario, sort_keys=False), encoding="utf-8")


def measure(folder: Path, runs: int) -> tuple[float, float, int]:
    """Smallest CPU times of the bare imports and of the gate [s], in turns, and how many scenarios failed.

    Raises RuntimeError where a scenario could not be answered: a benchmark of error messages would say nothing.
    """
    pairs = []
    for _ in range(runs):
        bare_s = bare_imports_s(3)
        gate = run(("-m", "xe_sizer", "check", str(folder), "--format", "junit", "--exit-zero"))
        if gate.code:
            raise RuntimeError(f"exit code {gate.code}: not every scenario could be answered")
        pairs.append((bare_s, gate.cpu_s))
    suites = ET.fromstring(gate.output)
    failed = sum(int(suite.attrib["failures"]) > 0 for suite in suites)
    return min(bare for bare, _ in pairs), min(gate_s for _, gate_s in pairs), failed


def main() -> int:
    """Write the scenarios, time the gate over them and print the ratio."""
    parser = argparse.ArgumentParser(description="CPU time of a gate over many scenarios.")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--limit", type=float, default=12.0)
    parser.add_argument("--keep", type=Path, help="folder for the scenario files; default: one that is removed again")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = chosen.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        write(folder)
        bare_s, gate_s, failed = measure(folder, chosen.runs)
    ratio = gate_s / bare_s
    print(f"import typer, numpy, yaml  {bare_s * 1e3:8.1f} ms CPU")
    print(f"xe-sizer check             {gate_s * 1e3:8.1f} ms CPU, {NUMBER} scenarios, {failed} of them fail")
    print(f"ratio                      {ratio:8.2f}  (limit {chosen.limit:g})")
    return int(ratio > chosen.limit)


if __name__ == "__main__":
    sys.exit(main())
