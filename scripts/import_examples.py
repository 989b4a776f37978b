"""Write docs/reference/import-examples.md: ten configurations of other tools, read and answered.

    python scripts/import_examples.py CONFIGS

CONFIGS is a folder with a folder for each tool, whose files are called as their repository has them, with `__` for `/`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import xe_sizer.training.jobs  # noqa: F401  makes the methods known to scenarios
from xe_sizer.immutable import Immutable
from xe_sizer.interop.draft import ASSUMED, READ, TOOL_DEFAULT
from xe_sizer.interop.read import Imported, read_foreign
from xe_sizer.interop.source import Asked
from xe_sizer.profiles.catalogue import Registry
from xe_sizer.report.format import plural
from xe_sizer.scenario.read import read_scenario
from xe_sizer.scenario.scenario import serves
from xe_sizer.studies.estimate import estimate, serve

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "import-examples.md"
HEADER = """# Ten files of other tools, read and answered

Written by `python scripts/import_examples.py CONFIGS` from public configurations as they are. What the files do
not say was passed as shown. Times rest on 1,000 steps where no data is given; `xe-sizer import FILE` shows every line.
"""
FEW = 6  # names in a list before it is cut


class Example(Immutable):
    """A file, and what is passed for what it does not say."""

    file: str
    passed: tuple[tuple[str, object], ...] = ()


EXAMPLES = (
    Example("axolotl/axolotl--examples__mistral__mistral-qlora-fsdp.yml", (("gpus", 8),)),
    Example("hf-trl/alignment-handbook--recipes__smollm3__sft__sft.yaml", (("gpus", 64),)),
    Example("llamafactory/llama-factory--examples__train_lora__qwen3_lora_sft_ds3.yaml", (("gpus", 4),)),
    Example("torchtune/torchtune--recipes__configs__qwen2_5__72B_lora.yaml", (("gpus", 8),)),
    Example("torchtitan/torchtitan--torchtitan__models__llama3__train_configs__llama3_70b.toml", (("gpus", 256),)),
    Example("ms-swift/ms-swift--examples__train__packing__llm.sh"),
    Example("unsloth/notebooks--python_scripts__Qwen3_(14B)-Alpaca.py", (("gpu", "l4-24gb"),)),
    Example("megatron/megatron-lm--examples__llama__train_llama3_8b_h100_fp8.sh"),
    Example("vllm/recipes--models__openai__gpt-oss-120b.yaml"),
    Example(
        "sglang/inferencex--benchmarks__multi_node__srt-slurm-recipes__sglang__qwen3.5__gb200-fp8__1k1k__1p1d-dep4-dep16.yaml"
    ),
)  # fmt: skip


def section(example: Example, configs: Path) -> str:
    """What a file says, what it takes, and what was assumed."""
    path = configs / example.file
    found = read_foreign([path], Asked(hardware=dict(example.passed)))
    verb = "serve" if found.tool.serving else "estimate"
    command = " ".join(["xe-sizer", verb, path.name, *(f"--{key} {value}" for key, value in example.passed)])
    origins = [fact.origin for fact in found.facts.values()]
    counts = f"{origins.count(READ)} values read, {origins.count(TOOL_DEFAULT)} defaults of {found.tool.title}"
    parts = [
        f"## {found.tool.title}: {_named(path)}\n",
        f"`{command}` <!-- not run: the file is in another repository -->\n",
        f"- Read: {counts}.",
        f"- Answer: {_answer(found)}.",
        f"- Assumed: {_listed(_assumed(found)) or 'nothing'}.",
        f"- Not in the scenario: {_listed(each.key for each in found.lost) or 'nothing'}.",
    ]
    return "\n".join(parts) + "\n"


def _named(path: Path) -> str:
    """Repository and path, as the name of the file has them."""
    repository, _, rest = path.name.partition("--")
    return f"`{rest.replace('__', '/')}` of {repository}"


def _answer(found: Imported) -> str:
    document = found.document()
    scenario = read_scenario(found.path, {}, {}, lambda _: document)
    registry = Registry()
    if serves(scenario):
        return _served(serve(scenario, registry))
    return _trained(estimate(scenario, registry, details=False))


def _trained(answer: Any) -> str:
    memory, gpus = answer.memory, answer.gpus
    used = f"{memory.peak_bytes / 2**30:.1f} of {memory.usable_bytes / 2**30:.1f} GiB"
    fits = "fits" if answer.verdict.fits else "does not fit"
    step = f", {answer.time.step_s.expected:.2f} s a step" if answer.verdict.fits else ""
    rate = f"{answer.time.tokens_per_s_per_gpu:,.0f} tokens/s per GPU"
    return f"{fits} on {plural(gpus.count, 'GPU')}, {used} each{step}, {rate}"


def _served(answer: Any) -> str:
    if not answer.verdict.fits:
        return "does not fit"
    return (
        f"{plural(answer.replicas.count, 'replica')} on {plural(answer.replicas.gpus, 'GPU')}, "
        f"{answer.throughput.output_tokens_per_s:,.0f} output tokens/s, "
        f"{answer.latency.tpot_s.expected * 1e3:.1f} ms per output token"
    )


def _assumed(found: Imported) -> Iterator[str]:
    for key, fact in found.facts.items():
        if fact.origin == ASSUMED:
            yield f"{key} {fact.value}"
    for missing in found.missing:
        yield f"{missing.key} left open"


def _listed(names: Any) -> str:
    found = [f"`{name}`" for name in names]
    more = f" and {len(found) - FEW} more" if len(found) > FEW else ""
    return ", ".join(found[:FEW]) + more


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("configs", type=Path)
    configs = parser.parse_args().configs
    PAGE.write_text("\n".join([HEADER, *(section(each, configs) for each in EXAMPLES)]), encoding="utf-8")


if __name__ == "__main__":
    main()
