"""Predict each publication of inference without what it gave the engines: python scripts/leave_source_out.py FILE...

Engines are data that partly come from the publications that they are judged on. Here every engine that one publication
(or the pages of one project) shaped is replaced by itself without those figures; see left_out/. Prints the errors with
sources weighted alike.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from xe_sizer.errors import InputError
from xe_sizer.evidence.flags import RecordRegistry
from xe_sizer.evidence.inference import Figure, figures, serve_record
from xe_sizer.evidence.records import Record, read_records
from xe_sizer.evidence.statistics import source_weights, weighted_quantile

FOLDER = Path(__file__).parent / "left_out"
TENSORRT = dict.fromkeys(("tensorrt-llm", "tensorrt-llm-cpp", "tensorrt-llm-2023"), "tensorrt-llm")
TRANSFORMERS = dict.fromkeys(("hf-transformers", "hf-transformers-2023"), "hf-transformers")
# Part of a publication's title: the engines that it shaped, and the file without its figures.
SHAPED = {
    "Argonne": {"vllm-v0": "vllm", "vllm-v0-rocm": "vllm", "deepspeed-mii": "deepspeed"},
    "gpt-fast": {"gpt-fast": "gpt-fast"},
    "LMDeploy": {"lmdeploy": "lmdeploy"},
    "optimum-benchmark": TRANSFORMERS,
    "h2oGPT": {**TRANSFORMERS, "tgi-2023": "tgi"},
    "Transformers docs": TRANSFORMERS,
    "NeMo": {"nemo-export": "tensorrt-llm"},
    "TensorRT-LLM": TENSORRT,
}


def substitutes(title: str) -> dict[str, str]:
    """Engine -> path of the file that stands for it where this publication is left out."""
    found = next((engines for part, engines in SHAPED.items() if part in title), {})
    return {engine: str(FOLDER / f"{name}.yaml") for engine, name in found.items()}


def predicted(records: Iterable[Record]) -> Iterator[tuple[str, Figure]]:
    """Source and figure of everything that has a prediction."""
    registry = RecordRegistry()
    for record in records:
        try:
            answer = serve_record(record, registry, substitutes(record.title))
        except InputError:
            continue
        yield from ((record.title, figure) for figure in figures(answer))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    by_quantity: dict[str, list[tuple[str, Figure]]] = defaultdict(list)
    for file in parser.parse_args().files:
        for title, figure in predicted(read_records(file).records):
            by_quantity[figure.quantity].append((title, figure))
    everything = [pair for pairs in by_quantity.values() for pair in pairs]
    for name, pairs in (*by_quantity.items(), ("all", everything)):
        errors = np.array([abs(figure.predicted / figure.measured - 1.0) for _, figure in pairs])
        weights = source_weights([title for title, _ in pairs])
        middle, high = (weighted_quantile(errors, weights, share) for share in (0.5, 0.9))
        print(f"{name:12} {len(pairs):5} figures  median {middle:6.1%}  90 % below {high:6.1%}")


if __name__ == "__main__":
    main()
