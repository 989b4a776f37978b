"""Memory and time of jobs part by part, and what adapters of every kind run, kept to ten digits."""

from __future__ import annotations

import pytest
from cases import ask, layouts
from figures import cases, check, row

from xe_sizer.graph.operators import launches
from xe_sizer.training.adapters import ADAPTERS
from xe_sizer.training.evaluation import Evaluation
from xe_sizer.training.memory import ledger_of
from xe_sizer.training.run import Run, run_parts
from xe_sizer.training.step_time import timeline_of

ALPACA = {"data.profile": "alpaca"}
PADDED = {"train.seq_len": 2000, "train.padding": "to-seq-len"}
CASES: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "ddp": ({"model": "llama-3.2-1b", "job": "sft", "stack": "hf-trainer", **ALPACA}, {"dp": 8, "micro_batch": 2}),
    "zero 1": ({"model": "llama-3.1-8b", "job": "sft", "stack": "deepspeed", **ALPACA}, {"dp": 8, "zero": 1}),
    "zero 2": (
        {"model": "llama-3.1-8b", "job": "sft", "stack": "deepspeed", **ALPACA},
        {"dp": 8, "zero": 2, "grad_accum": 4},
    ),
    "zero 3": (
        {"model": "llama-3.1-8b", "job": "sft", "stack": "deepspeed", **ALPACA},
        {"dp": 16, "zero": 3, "recompute": 2, "micro_batch": 2},
    ),
    "offloaded": (
        {"model": "llama-3.1-8b", "job": "sft", "stack": "deepspeed", **ALPACA},
        {"dp": 8, "zero": 3, "offload": 2, "recompute": 2},
    ),
    "fsdp lora": ({"model": "llama-2-70b", "job": "lora", "stack": "torchtune", **ALPACA}, {"dp": 8, "zero": 3}),
    "qlora paged": (
        {"model": "llama-2-13b", "job": "qlora", "stack": "hf-trainer", "optimizer": "paged-adamw-8bit", **ALPACA},
        {"micro_batch": 4, "recompute": 2},
    ),
    "pipeline": (
        {"model": "llama-2-70b", "job": "pretrain", "stack": "megatron-lm", **PADDED},
        {"tp": 4, "pp": 4, "dp": 2, "grad_accum": 8, "sequence_parallel": 1, "recompute": 1},
    ),
    "interleaved": (
        {"model": "gpt3-175b", "job": "pretrain", "stack": "megatron-lm", **PADDED},
        {"tp": 8, "pp": 8, "vpp": 3, "dp": 2, "grad_accum": 16, "zero": 1},
    ),
    "context": (
        {"model": "llama-3.1-8b", "job": "pretrain", "stack": "nemo", "train.seq_len": 65536, "layout.cp_kind": "ring"},
        {"tp": 2, "cp": 4, "dp": 2, "sequence_parallel": 1},
    ),
    "experts": (
        {"model": "mixtral-8x7b", "job": "pretrain", "stack": "megatron-lm", **PADDED},
        {"tp": 2, "ep": 8, "dp": 16, "grad_accum": 2, "zero": 1},
    ),
    "fp8": (
        {"model": "llama-3.1-70b", "job": "pretrain", "stack": "nemo", "precision": "fp8", **PADDED},
        {"tp": 4, "pp": 2, "dp": 4, "grad_accum": 4},
    ),
    "preferences": ({"model": "llama-3.1-8b", "job": "dpo", "stack": "trl", **ALPACA}, {"dp": 8, "zero": 3}),
    "muon": ({"model": "llama-3.2-1b", "job": "pretrain", "optimizer": "muon", **PADDED}, {"dp": 4, "zero": 1}),
    "galore": ({"model": "llama-3.2-1b", "job": "sft", "optimizer": "galore-adamw", **ALPACA}, {"micro_batch": 2}),
    "images": (
        {"model": "qwen2-vl-2b", "job": "sft", "stack": "hf-trainer", "data.images": 2},
        {"dp": 4, "zero": 2, "micro_batch": 2},
    ),
    "encoder and decoder": ({"model": "t5-base", "job": "sft", "stack": "hf-trainer", **PADDED}, {"micro_batch": 4}),
    "generator": ({"model": "electra-base", "job": "pretrain", "stack": "hf-trainer", **PADDED}, {"micro_batch": 8}),
    "saved and failing": (
        {
            "model": "llama-2-70b", "job": "pretrain", "stack": "megatron-lm", "train.steps": 100_000,
            "train.checkpoint_every": 500, "train.failures_per_gpu_day": 0.002, **PADDED,
        },
        {"tp": 8, "pp": 4, "dp": 8, "grad_accum": 4},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_parts_of_a_job(case: str) -> None:
    asked, sizes = CASES[case]
    one = ask(asked).job
    evaluation = Evaluation(one, layouts(**sizes))
    ledger, line = ledger_of(evaluation), timeline_of(evaluation)
    found = {f"{name} [bytes]": row(size) for name, size in ledger.components.items() if size.any()}
    found |= {"host, cached [bytes]": row(ledger.host_bytes, ledger.cached_bytes)}
    found |= {f"{name} [s]": row(seconds) for name, seconds in line.components.items() if seconds.any()}
    found |= {f"{name} [s]": row(both) for name, both in line.modules.items()}
    found |= {"work, again [FLOP]": row(line.flops, line.recompute_flops)}
    run = Run(evaluation, line.step_s)
    found |= {f"{name} of the run [s]": row(seconds) for name, seconds in run_parts(run).items()}
    found |= {"checkpoint": row(run.saved.size, run.saved.weights, run.saved.optimizer, run.pause_s)}
    check("training", case, found)


@pytest.mark.parametrize("adapter", sorted(set(ADAPTERS) - {"qlora"}))
def test_what_adapters_run(adapter: str) -> None:
    model = "gpt2-xl" if adapter == "bitfit" else "llama-3.2-3b"  # the other has no biases
    asked = {"model": model, "gpus": 1, "adapter": adapter, "stack": "hf-bf16", **PADDED, "train.seq_len": 1000}
    one = ask(asked).job
    evaluation = Evaluation(one, layouts(micro_batch=3))
    graph = evaluation.shapes.graph
    found = {"learns": row(one.method.trainable_parameters(one.model))}
    for place, operator in enumerate((*graph.embedding, *graph.layers, *graph.head)):
        if getattr(operator, "adapter", False) or "adapter" in operator.name or adapter in operator.name:
            flops = (getattr(operator, name, 0.0) for name in ("forward_flops", "backward_flops"))
            found[f"{place} {operator.name}"] = row(operator, *flops, *launches(operator))
    ledger = ledger_of(evaluation)
    found |= {f"{name} [bytes]": row(size.max()) for name, size in ledger.components.items() if size.any()}
    found |= {"step [s]": row(timeline_of(evaluation).step_s)}
    check("adapters", adapter, found)


def test_no_figures_are_kept_of_what_nobody_asks() -> None:
    assert cases("training") == set(CASES)
