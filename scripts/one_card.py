"""Write docs/reference/one-card.md: what fits one card and how fast it runs there, beside what others published.

python scripts/one_card.py
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any

import xe_sizer.training.jobs  # noqa: F401  the names of jobs
from xe_sizer.errors import InputError, attempt
from xe_sizer.immutable import Immutable
from xe_sizer.profiles.catalogue import Registry
from xe_sizer.profiles.yaml_reader import load_yaml
from xe_sizer.report.format import number
from xe_sizer.scenario.read import read_scenario
from xe_sizer.studies.estimate import serve
from xe_sizer.studies.fit import fit

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "one-card.md"
PUBLISHED = Path(__file__).with_suffix(".yaml")
GENERATING, READING = "generating", "prompt"
OLD_BUILD = "NVIDIA, May 2024"  # of which prompts are shown, and not counted
EMPTY: Mapping[str, object] = MappingProxyType({})
HOST_GIB = 1024
"""Of the machines of a context's table, which nobody states: Unsloth keeps activations there."""


class Figure(Immutable):
    """One published figure: where it is from, the card and what runs there, in what unit, and what is predicted.

    kind : training, or what of inference; predicted : None where nothing fits
    """

    source: str
    card: str
    model: str
    how: str
    test: str
    kind: str
    published: float
    predicted: float | None

    @property
    def difference(self) -> float:
        """Of the prediction, in shares of what was published [-]."""
        return (self.predicted or 0.0) / self.published - 1.0


def published() -> dict[str, Any]:
    """The published figures by part."""
    value = load_yaml(PUBLISHED).value
    assert isinstance(value, dict)
    return value


def contexts(registry: Registry) -> Iterator[Figure]:
    """The longest contexts of Unsloth's table."""
    for table in published()["contexts"]:
        for model, gpu, longest in table["longest"]:
            for stack, tokens in longest.items():
                found = attempt(_longest, model, gpu, stack, registry)
                predicted = None if isinstance(found, InputError) else float(found)
                yield Figure(table["title"], gpu, model, stack, "longest context", "training", tokens, predicted)


def _longest(model: str, gpu: str, stack: str, registry: Registry) -> int:
    keys = {
        "model": model, "gpu": gpu, "gpus": 1, "job": "qlora", "stack": stack, "attention": "flash", "lora.rank": 32,
        "train.micro_batch": 1, "train.global_batch": 1, "host_memory_gib": HOST_GIB,
    }  # fmt: skip
    found = fit(read_scenario(None, keys, {}), "context", registry, details=False).fit
    assert found is not None
    assert isinstance(found.value, int)
    return found.value


def speeds(registry: Registry) -> Iterator[Figure]:
    """Tokens per second of one request, generating and reading a prompt."""
    for table in published()["speeds"]:
        for gpu, model, weights, tests in table["runs"]:
            for test, measured in tests.items():
                predicted = tokens_per_s(gpu, model, weights, table["engine"], test, registry)
                kind = GENERATING if test.startswith("tg") else READING
                yield Figure(table["title"], gpu, model, weights, test, kind, measured, predicted)


def offloaded(registry: Registry) -> Iterator[Figure]:
    """Tokens per second with layers on the CPU."""
    for table in published()["offloaded"]:
        for gpu, model, weights, tests in table["runs"]:
            for layers, measured in tests.items():
                cpu = {"serve.cpu_layers": int(layers), "serve.host_memory_gb_per_s": table["host_gb_per_s"]}
                cpu = cpu if int(layers) else {}
                predicted = tokens_per_s(gpu, model, weights, "llama.cpp", "tg128", registry, cpu)
                yield Figure(table["title"], gpu, model, weights, layers, GENERATING, measured, predicted)


def tokens_per_s(
    gpu: str, model: str, weights: str, engine: str, test: str, registry: Registry, more: Mapping[str, object] = EMPTY
) -> float:
    """Tokens per second of one of llama-bench's tests."""
    kind, count = _test(test)
    prompt, answer = (1, count) if kind == "tg" else (count, 1)
    keys = {
        "model": model, "gpu": gpu, "gpus": 1, "serve.engine": engine, "serve.weights": weights,
        "serve.concurrency": 1, "serve.input_tokens": prompt, "serve.output_tokens": answer,
        **more,
    }  # fmt: skip
    latency = serve(read_scenario(None, keys, {}), registry, False).latency
    seconds = latency.tpot_s.expected if kind == "tg" else latency.ttft_s.expected
    if seconds is None:
        raise ValueError(f"{model} in {weights} does not fit {gpu}")
    return 1.0 / seconds if kind == "tg" else count / seconds


def _test(name: str) -> tuple[str, int]:
    match = re.fullmatch(r"(tg|pp)(\d+)", name)
    assert match
    return match[1], int(match[2])


def median_off(figures: list[Figure]) -> float:
    """Half of the figures are no further off [-]."""
    return median(abs(figure.difference) for figure in figures)


INTRODUCTION = """# One card: what fits, and how fast

Written by `python scripts/one_card.py` from the published figures in `scripts/one_card.yaml`.

```
xe-sizer models --gpu rtx-4090                      # what trains on the card, how fast, up to which context
xe-sizer models --gpu rtx-4090 --serve --part qwen  # what it serves, in the widest format that fits
xe-sizer estimate --gpu rtx-4090 --model llama-3.1-8b --job qlora --stack unsloth --fit context
xe-sizer serve --model llama-3.3-70b --weights q4_k_m --gpu rtx-4090 --cpu-layers auto --concurrency 1
```

"""


def page() -> str:
    """The page as it should be."""
    registry = Registry()
    longest, fast, slow = list(contexts(registry)), list(speeds(registry)), list(offloaded(registry))
    return "".join(
        (INTRODUCTION, _summary(longest, fast, slow), _contexts(longest), _speeds(fast), _offloaded(slow), UNIFIED)
    )


def _summary(longest: list[Figure], fast: list[Figure], slow: list[Figure]) -> str:
    rows = ["## How far off\n", "| what | figures | median difference | within 15 % |", "|---|--:|--:|--:|"]
    groups = {
        "longest context of QLoRA (Unsloth, Hugging Face with FlashAttention 2)": longest,
        "tokens per second, generating (llama.cpp, all formats and cards)": _of(fast, GENERATING),
        "tokens per second, reading prompts (builds since June 2024)": [
            figure for figure in _of(fast, READING) if OLD_BUILD not in figure.source
        ],
        "tokens per second, generating with layers on the CPU": slow,
    }
    for what, figures in groups.items():
        near = sum(abs(figure.difference) <= 0.15 for figure in figures)
        rows.append(f"| {what} | {len(figures)} | {100 * median_off(figures):.0f} % | {near} |")
    return "\n".join(rows) + "\n\n"


def _offloaded(figures: list[Figure]) -> str:
    text = OFFLOADED
    for table in published()["offloaded"]:
        rows = [figure for figure in figures if figure.source == table["title"]]
        text += f"\n[{table['title']}]({table['url']}), {table['host_gb_per_s']:g} GB/s:\n\n"
        text += "| card | model | weights | layers on the CPU | published | predicted | difference |\n"
        text += "|---|---|---|--:|--:|--:|--:|\n"
        text += "".join(f"| {f.card} | {f.model} | {f.how} | {f.test} | {_cells(f)} |\n" for f in rows)
    return text


OFFLOADED = """
## Layers on the CPU

`serve --cpu-layers 16` computes 16 layers and the head on the CPU, as llama.cpp does where `-ngl` is below the model's
layers; `--cpu-layers auto` as few as memory needs. They are read at two thirds of the bandwidth of the host's memory,
which is fitted to the runs below: `--host-memory-gb-per-s` is channels x 8 bytes x rate, and two channels of DDR5-5600
are assumed. Their weights and their KV cache leave the card. Prompts of 32 tokens and more are computed on the GPU, to
which the weights are copied in each step. Where a model does not fit and its engine computes layers on the CPU, the
advice says how many would do.
"""


def _of(figures: list[Figure], kind: str) -> list[Figure]:
    return [figure for figure in figures if figure.kind == kind]


def _contexts(figures: list[Figure]) -> str:
    rows = [
        "## Longest context of QLoRA by card\n",
        f"{_links('contexts')}. Predicted is what `estimate --fit context` answers: what likely fits, at least three",
        "times in four, in steps of 256 tokens.\n",
        "| model | card | stack | published | predicted | difference |",
        "|---|---|---|--:|--:|--:|",
    ]
    rows += [f"| {f.model} | {f.card} | {f.how} | {_cells(f)} |" for f in figures]
    return "\n".join(rows) + NOT_A_CARD


NOT_A_CARD = """

The 70B row of 48 GB was measured on an A100 of 80 GB that was held to 48 GB. At 12,106 tokens PyTorch is predicted to
reserve 47 GiB there; an RTX A6000 has 47.3 GiB for that and the CUDA context together, so that less fits.

"""


def _speeds(figures: list[Figure]) -> str:
    text = (
        "## Tokens per second by card and format\n\n`tg128` generates 128 tokens from an empty context, `pp512` reads"
    )
    text += " a prompt of 512 tokens, one request at a time.\n"
    for table in published()["speeds"]:
        rows = [figure for figure in figures if figure.source == table["title"]]
        text += f"\n[{table['title']}]({table['url']}), predicted as `{table['engine']}`; off by"
        text += f" {100 * median_off(rows):.0f} % in the median:\n\n"
        text += (
            "| card | model | weights | test | published | predicted | difference |\n|---|---|---|---|--:|--:|--:|\n"
        )
        text += "".join(f"| {f.card} | {f.model} | {f.how} | {f.test} | {_cells(f)} |\n" for f in rows)
    return text + WHY


WHY = """
What decides these figures: the bytes of the weights in the format over the bandwidth; on cards with HBM the 6 bytes
that a multiprocessor reads in a clock at most in llama.cpp's vector kernels; some hundred kernels a token. Prompts run
at the rate at which multiprocessors unpack weights, not at that of their tensor cores. Builds before June 2024 widened
weights for cuBLAS instead: GeForce cards then gained from sums in 16 bit and large caches, which is not modelled. Nor
is it that Metal's kernels of mixed formats (q4_k_m) are slower than those of q4_0, on M1 most of all.
"""

UNIFIED = """
## One memory for CPU and GPU

Apple silicon (M1 to M4), DGX Spark, Strix Halo and Jetson Thor have one memory, of which the GPU may use a share:
three quarters, two thirds of small Macs, all but a twentieth of a DGX Spark. A profile has the largest machine;
`--host-memory-gib 36` says yours. Only the DGX Spark is sized for training too. llama.cpp is the default engine on Macs
and on Strix Halo.

```
xe-sizer models --gpu "M3 Max" --host-memory-gib 36 --serve
xe-sizer serve --model llama-3.3-70b --weights q4_k_m --gpu "M4 Max" --host-memory-gib 64 --gpus 1 --concurrency 1
```
"""


def _links(part: str) -> str:
    return ", ".join(f"[{table['title']}]({table['url']})" for table in published()[part])


def _cells(figure: Figure) -> str:
    if figure.predicted is None:
        return f"{number(figure.published)} | nothing fits | "
    return f"{number(figure.published)} | {number(figure.predicted)} | {100 * figure.difference:+.0f} %"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
