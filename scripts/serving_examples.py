"""Write docs/reference/serving-examples.md: services as people ask for them, and the published run nearest to each.

python scripts/serving_examples.py
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from xe_sizer.profiles.catalogue import Registry
from xe_sizer.profiles.text import parse_scalar
from xe_sizer.report.format import number
from xe_sizer.report.service import judged, latency
from xe_sizer.result.serving import ServeResult
from xe_sizer.scenario.options import SERVE_OPTIONS
from xe_sizer.scenario.read import read_scenario
from xe_sizer.studies.estimate import serve
from xe_sizer.units import MILLI

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "serving-examples.md"
FOLDER = "examples/serve"
TPOT, TTFT, TOTAL, OUTPUT = "ms per token", "ms to the first token", "total tokens/s", "output tokens/s"
GPUSTACK = "https://docs.gpustack.ai/latest/performance-lab"
HEADER = """# Six example services and the closest published runs

Written by `python scripts/serving_examples.py`. The services are files in `examples/serve`.
Latencies are at the percentile of the limits if requests arrive at random, otherwise means.

## Services and answers

| example | service | GPUs | time to first token | time per token | output tokens/s |
|---|---|---|---|---|---|
"""
PUBLISHED = """
## The closest published run for each

Each run is predicted as it was made (`xe-sizer serve` with the options of the row), and one of its figures is
compared. Where no run of the same model on the same card was found, the row has the closest one. The first and the
fifth run are among those on the [accuracy page](accuracy.md); no constant was fitted to the other four.

| example | published run | options | metric | measured | predicted | predicted / measured |
|---|---|---|---|---|---|---|
"""


@dataclass(frozen=True)
class Run:
    """A published run: what it is called and where it stands, the options that ask for it, and one figure of it."""

    name: str
    url: str
    options: str
    figure: str
    measured: float


@dataclass(frozen=True)
class Service:
    """An example file with its question in a few words, and the run nearest to it."""

    file: str
    question: str
    run: Run


SERVICES = (
    Service(
        "llama-3.1-70b-chat",
        "70B chat, 20 requests/s on H100",
        Run(
            "Llama 3.1 70B, TensorRT-LLM 0.14, 4 H100, 2 requests/s",
            "https://github.com/NVIDIA/TensorRT-LLM/blob/258c7540c03517def55d9a5aadfa9288af474e1b/docs/source/performance/perf-overview.md",
            "--model llama-3.1-70b --gpu h100-sxm-80gb --gpus 4 --tp 4 --engine tensorrt-llm-cpp --request-rate 2 "
            "--input-tokens 467 --output-tokens 256",
            TPOT,
            21.0,
        ),
    ),
    Service(
        "deepseek-v3-8x-h200",
        "DeepSeek-V3, 64 requests in flight on 8 H200",
        Run(
            "DeepSeek-R1 (same architecture), vLLM 0.11, 8 H200, 500 prompts at once",
            f"{GPUSTACK}/deepseek-r1/h200",
            "--model deepseek-r1 --gpu h200-sxm-141gb --gpus 8 --tp 8 --ep 1 --engine vllm@0.11 --requests 500 "
            "--input-tokens 4000 --output-tokens 200",
            TOTAL,
            15808.55,
        ),
    ),
    Service(
        "qwen3-30b-a3b-l40s",
        "30B mixture of experts, 200 users on L40S",
        Run(
            "Qwen3-30B-A3B, vLLM, one A100, one request in flight",
            "https://github.com/tenstorrent/tt-inference-server/issues/340",
            "--model qwen3-30b-a3b --gpu a100-sxm-80gb --gpus 1 --engine vllm@0.9 --concurrency 1 --input-tokens 1024 "
            "--output-tokens 128",
            TPOT,
            9.8,
        ),
    ),
    Service(
        "gpt-oss-120b-one-h100",
        "gpt-oss-120b, 2 requests/s on one H100",
        Run(
            "gpt-oss-120b, vLLM 0.10.2, one H100, 500 prompts at once",
            f"{GPUSTACK}/gpt-oss-120b/h100",
            "--model gpt-oss-120b --gpu h100-sxm-80gb --gpus 1 --engine vllm@0.10 --requests 500 --input-tokens 4000 "
            "--output-tokens 200",
            TOTAL,
            14247.47,
        ),
    ),
    Service(
        "mistral-7b-awq-rtx-4090",
        "7B in 4 bit for one user on an RTX 4090",
        Run(
            "Llama 2 7B in 4 bit, llama.cpp of 2023, RTX 4090, one request",
            "https://github.com/mlc-ai/llm-perf-bench",
            "--model llama-2-7b --gpu rtx-4090 --gpus 1 --engine llama.cpp@23.10 --weights q4_0 --concurrency 1 "
            "--input-tokens 32 --output-tokens 256",
            TPOT,
            6.618,
        ),
    ),
    Service(
        "llama-3.1-8b-mi300x",
        "8B, 20 requests/s on one MI300X",
        Run(
            "Gemma 4 31B, SGLang 0.5.13, one MI300X, 16 in flight",
            "https://github.com/sgl-project/sglang/pull/31216",
            "--model gemma-4-31b --gpu mi300x --gpus 1 --engine sglang --concurrency 16 --input-tokens 1000 "
            "--output-tokens 1000",
            OUTPUT,
            492.0,
        ),
    ),
)


def answer(service: Service) -> ServeResult:
    """The answer to an example file."""
    return serve(read_scenario(ROOT / FOLDER / f"{service.file}.yaml", {}, {}), Registry(), False)


def predicted(run: Run) -> float:
    """What is predicted for the figure of a published run, in its unit."""
    words = run.options.split()
    flags = {SERVE_OPTIONS[name.removeprefix("--")]: value for name, value in zip(words[::2], words[1::2], strict=True)}
    result = serve(
        read_scenario(None, {key: parse_scalar(value) for key, value in flags.items()}, {}), Registry(), False
    )
    if run.figure in (TOTAL, OUTPUT):
        made = result.throughput
        return made.total_tokens_per_s if run.figure == TOTAL else made.output_tokens_per_s
    span = result.latency.tpot_s if run.figure == TPOT else result.latency.ttft_s
    assert span.expected is not None
    return span.expected / MILLI


def page() -> str:
    """The page as it should be."""
    answers = "".join(f"{_answer(service)}\n" for service in SERVICES)
    runs = "".join(f"{_run(service)}\n" for service in SERVICES)
    return f"{HEADER}{answers}{PUBLISHED}{runs}"


def _answer(service: Service) -> str:
    result = answer(service)
    at = judged(result)
    made = number(float(round(result.throughput.output_tokens_per_s)))
    cells = (
        f"[{service.file}](../../{FOLDER}/{service.file}.yaml)", service.question, f"{result.gpus.count}",
        latency(at.ttft_s), latency(at.tpot_s), made,
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _run(service: Service) -> str:
    run = service.run
    found = predicted(run)
    cells = (
        service.file, f"[{run.name}]({run.url})", f"`{run.options}`", run.figure,
        number(run.measured), number(found), f"{found / run.measured:.2f}",
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
