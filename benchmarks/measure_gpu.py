"""Predicts ten training jobs on this GPU, by the catalogue's profile and by the measured one, and then runs them.

    xe-sizer measure -o DIR
    python benchmarks/measure_gpu.py DIR [--steps 5] [--only TEXT] [--predict GPU]

Full fine-tuning, LoRA, QLoRA and DPO, of three lengths and several batch sizes, of models from 0.6B to 30B. Predictions
are printed before anything runs; records go to DIR/records.jsonl. Needs transformers, peft and bitsandbytes.

    --predict GPU   only the predictions, for a GPU by name, on any machine
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from xe_sizer.errors import InputError
from xe_sizer.measure import session
from xe_sizer.measure.trial import measure_job, profile_of
from xe_sizer.profiles.catalogue import Registry
from xe_sizer.scenario.read import changed, read_scenario
from xe_sizer.training.resolve import resolve
from xe_sizer.training.search import size

LINEAR = {"rank": 16, "targets": ["all-linear"]}
GIB = 2**30


def job(
    kind: str, model: str, micro: int, seq_len: int, recompute: str = "none", accumulate: int = 1, **more: Any
) -> dict[str, Any]:
    """The scenario of a job in a plain PyTorch loop, in bf16."""
    batch = {"micro_batch": micro, "global_batch": micro * accumulate, "seq_len": seq_len}
    train = {"steps": 10, "weights_dtype": "bf16", "padding": "packed", **batch}
    return {"model": model, "stack": "pytorch-fsdp", "job": kind, "precision": "bf16", "train": train,
            "layout": {"recompute": recompute}, **more}  # fmt: skip


JOBS = {
    "SFT 1B, 4 x 2048": job("sft", "llama-3.2-1b", 4, 2048),
    "SFT 1B, 1 x 8192, recompute": job("sft", "llama-3.2-1b", 1, 8192, "full"),
    "SFT 1.5B, 8 x 512": job("sft", "qwen2.5-1.5b", 8, 512),
    "SFT 0.6B, 2 x 1024, 4 accumulated": job("sft", "qwen3-0.6b", 2, 1024, accumulate=4),
    "LoRA 8B, 2 x 2048": job("lora", "llama-3.1-8b", 2, 2048, lora=LINEAR),
    "LoRA 8B, 1 x 8192, recompute": job("lora", "llama-3.1-8b", 1, 8192, "full", lora=LINEAR),
    "LoRA 30B-A3B, 1 x 1024": job("lora", "qwen3-30b-a3b", 1, 1024, lora={"rank": 16, "targets": ["qkv", "o"]}),
    "QLoRA 8B, 4 x 1024": job("qlora", "llama-3.1-8b", 4, 1024, lora=LINEAR),
    "QLoRA 14B, 1 x 4096, recompute": job("qlora", "qwen2.5-14b", 1, 4096, "full", lora=LINEAR),
    "DPO 1B, 2 x 1024": job("dpo", "llama-3.2-1b", 2, 1024),
    "DPO 8B with LoRA, 1 x 1024": job("dpo", "llama-3.1-8b", 1, 1024, lora=LINEAR),
}


def predicted(scenario: Path, gpu: str, registry: Registry) -> tuple[float, float]:
    """Seconds of a step and bytes of its peak."""
    asked = changed(read_scenario(scenario, {}, os.environ), {"gpu": gpu, "gpus": 1})
    sized = size(resolve(asked, registry))
    return sized.step_s, sized.peak_bytes


def scenarios(folder: Path, only: str) -> Iterator[tuple[str, Path]]:
    """Every job as a file, by its name."""
    for place, (name, scenario) in enumerate(JOBS.items()):
        if only in name:
            file = folder / f"{place}.yaml"
            file.write_text(yaml.safe_dump(scenario), encoding="utf-8")
            yield name, file


def main() -> int:
    """Print a line for each job."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("measured"))
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--only", default="", help="jobs with this in their name")
    parser.add_argument("--predict", metavar="GPU")
    options = parser.parse_args()
    catalogue, measured = Registry(), Registry((options.folder,) if options.folder.is_dir() else ())
    with tempfile.TemporaryDirectory() as made:
        files = list(scenarios(Path(made), options.only))
        device = "" if options.predict else session.chosen_device("cuda")
        gpu = options.predict or profile_of(session.machine(device), measured)
        print(f"{'predicted on ' + gpu:40} {'catalogue':>10} {'measured':>10} {'peak GiB':>9}")
        for name, file in files:
            before, after = predicted(file, gpu, catalogue), predicted(file, gpu, measured)
            print(f"{name:40} {before[0]:8.3f} s {after[0]:8.3f} s {after[1] / GIB:9.1f}", flush=True)
        if options.predict:
            return 0
        print(f"{'':40} {'step':>10} {'catalogue':>10} {'measured':>9} {'peak GiB':>9} {'':>6}")
        for name, file in files:
            _run(name, file, options.steps, device, options.folder, measured)
    return 0


def _run(name: str, file: Path, steps: int, device: str, folder: Path, registry: Registry) -> None:
    import torch

    try:
        found = measure_job(file, steps, device, folder, registry, print)
    except InputError as error:
        print(f"{name:40} {error.problems[0].message}", flush=True)
        return
    finally:
        gc.collect()
        torch.cuda.empty_cache()
    assert found is not None
    ran = found.job
    assert ran is not None
    if ran.out_of_memory:
        print(f"{name:40} out of memory", flush=True)
        return
    ratios = [one / ran.step_s if one else float("nan") for one in (ran.before_s, ran.predicted_s)]
    peak, said = ran.peak_bytes or 0.0, ran.predicted_peak_bytes or 0.0
    times = f"{ran.step_s:8.3f} s x{ratios[0]:9.2f} x{ratios[1]:8.2f}"
    print(f"{name:40} {times} {peak / GIB:9.1f} x{said / max(peak, 1.0):5.2f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
