"""Every term that the ablation switches off is one that some run has, and nothing stays switched off."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from xe_sizer.evidence.predict import predictions, validate
from xe_sizer.evidence.records import Batch, LayoutStated, Lora, Measured, Record

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "scripts"))
ablation = importlib.import_module("ablation")
accuracy = importlib.import_module("build_accuracy")
split = importlib.import_module("held_out")

PIPELINE: dict[str, Any] = {
    "job": "pretrain", "stack": "megatron-zero-bubble", "model": "llama-2-7b", "gpus": 16, "pipeline_schedule": "zb-v",
    "layout": LayoutStated(tp=2, pp=4, vpp=2, dp=2, zero=0), "batch": Batch(micro=1, total=64),
}  # fmt: skip
UNEVEN: dict[str, Any] = {
    "job": "pretrain", "stack": "megatron-lm", "model": "llama-2-7b", "gpus": 24,
    "layout": LayoutStated(tp=4, pp=6, dp=1, zero=0), "batch": Batch(micro=1, total=32),
}  # fmt: skip
TUNED: dict[str, Any] = {
    "job": "sft", "stack": "hf-trainer", "framework": "transformers 4.46, accelerate 1.0", "model": "llama-2-7b",
    "gpus": 8, "layout": LayoutStated(tp=1, pp=1, dp=8, zero=3), "batch": Batch(micro=2, total=64),
}  # fmt: skip
QLORA: dict[str, Any] = {
    "job": "qlora", "stack": "hf-trainer", "framework": "transformers 4.46", "model": "llama-2-7b", "gpus": 1,
    "layout": LayoutStated(tp=1, pp=1, dp=1, zero=0), "batch": Batch(micro=1, total=4),
    "lora": Lora(rank=16, targets="all-linear"),
}  # fmt: skip
SHARDED_STAGES: dict[str, Any] = {"date": "2025-06",
    "job": "pretrain", "stack": "torchtitan", "model": "llama-3.1-8b", "gpus": 16,
    "layout": LayoutStated(tp=1, pp=2, dp=8, zero=3), "batch": Batch(micro=1, total=128),
}  # fmt: skip


def run(**conditions: Any) -> Record:
    usual: dict[str, Any] = {
        "id": "run", "gpu": "a100-sxm-80gb", "gpus_per_node": 8, "precision": "bf16", "seq_len": 2048,
        "recompute": "full", "attention": "flash",
        "measured": Measured(step_time_s=5.0, peak_memory_gib=60.0, memory_metric="reserved"),
    }  # fmt: skip
    return Record(**(usual | conditions))


def served(name: str, **conditions: Any) -> Record:
    usual: dict[str, Any] = {
        "id": name, "job": "inference", "stack": "vllm", "framework": "vllm 0.9.1", "model": "llama-2-7b", "gpus": 1,
        "gpu": "a100-sxm-80gb", "precision": "bf16", "tp": 1, "input_len": 512, "output_len": 64,
        "measured": Measured(ttft_ms=60.0, tpot_ms=12.0, output_tokens_per_s=300.0),
    }  # fmt: skip
    return Record(**(usual | conditions))


def test_of_a_publication_of_many_models_a_third_of_these_is_left_out() -> None:
    models = [f"model-{number}" for number in range(9)]
    parts = [split.record_held_out(served(name, model=name, source={"title": split.BY_MODEL[0]})) for name in models]
    assert parts == [split.held_out(name) for name in models]
    assert len(set(parts)) == 2


@pytest.mark.parametrize(
    ("term", "conditions", "moves"),
    [
        ("orders of pipelines beyond 1F1B", PIPELINE, "both"),
        ("fewer layers at the ends of a pipeline", UNEVEN, "step_time"),
        ("FSDP inside pipeline stages", SHARDED_STAGES, "both"),
        ("16-bit hidden state under FSDP", TUNED, "both"),
        ("float32 copies of what learns or is quantised", QLORA, "both"),
        ("weights loaded in 16 bit", QLORA | {"job": "sft", "framework": "transformers 5.1", "lora": Lora()}, "both"),
        ("norms written out in Python", TUNED, "both"),
        ("activations in host memory", TUNED | {"offload": "activations", "recompute": "none"}, "both"),
        ("blocks that the allocator keeps", QLORA | {"mean_tokens": 300, "max_seq_len": 2048}, "peak_memory"),
    ],
)
def test_a_term_that_is_off_changes_a_run_that_has_it(term: str, conditions: dict[str, Any], moves: str) -> None:
    times, peaks = ablation.figures([run(**conditions)])
    assert len(times) == len(peaks) == 1
    said = {one.quantity: one.predicted for one in predictions(times[0].run)}
    for figures, quantity in ((times, "step_time"), (peaks, "peak_memory")):
        (figure,) = figures
        job, layouts = figure.run.sized.resolved.job, figure.run.sized.layouts
        switch, nothing = ablation.SWITCHES[term], ablation.Switch()
        full = figure.predict(job, layouts, nothing)
        assert full == pytest.approx(said[quantity])
        without = ablation.without_term(switch, figure, full)
        if moves in ("both", quantity):
            assert without != pytest.approx(full, rel=1e-3), quantity
        assert figure.predict(job, layouts, nothing) == pytest.approx(full), "nothing stays switched off"


def test_a_term_that_a_run_does_not_have_changes_nothing() -> None:
    times, _ = ablation.figures([run(**TUNED)])
    for term in ("orders of pipelines beyond 1F1B", "FSDP inside pipeline stages", "activations in host memory"):
        assert ablation.without_term(ablation.SWITCHES[term], times[0], 7.0) == 7.0


def test_the_page_of_accuracy_can_be_written() -> None:
    """Of a few records, those of one publication left out among them."""
    titles = [f"Publication {letter}" for letter in "ABCDE"]
    assert len({split.held_out(title) for title in titles}) == 2
    runs = [run(id=title, source={"title": title}, **TUNED) for title in titles]
    tests = [
        served(f"{title}, {batch} requests", sequences=batch, source={"title": title})
        for title in titles
        for batch in (1, 4)
    ]
    page = accuracy.page([*runs, *tests], {False: validate(runs), True: validate(tests)})
    left_out = next(title for title in titles if split.held_out(title))
    shown = next(title for title in titles if not split.held_out(title))
    assert f"| {shown} | 1 |" in page
    assert f"| {shown} | 2 |" in page
    assert left_out not in page
    assert "| all terms |" in page
    assert "nan%" not in page
