"""Questions and layouts that tests of the equations estimate. Fixed answers only, no logic of the code under test."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec.structs import replace
from numpy.typing import ArrayLike

from xe_sizer.graph.inputs import GraphInputs, Learning
from xe_sizer.graph.model import ModelShape
from xe_sizer.graph.operators import Kernels, RankShape
from xe_sizer.profiles.catalogue import Registry
from xe_sizer.scenario.read import read_scenario
from xe_sizer.training.job import Job
from xe_sizer.training.layout import Layouts
from xe_sizer.training.memory import memory_ledger
from xe_sizer.training.resolve import resolve
from xe_sizer.training.resolved import ResolvedTraining
from xe_sizer.training.step_time import timeline

REGISTRY = Registry()
ONE_GPU = {
    "tp": 1, "pp": 1, "vpp": 1, "cp": 1, "ep": 1, "dp": 1, "zero": 0, "micro_batch": 1, "grad_accum": 1,
    "recompute": 0, "offload": 0, "sequence_parallel": 0, "schedule": 0, "zero_group": 0, "expert_tp": 0,
}  # fmt: skip
# A GPT layer without dropout, as in the papers: layer norms with bias, GELU, MLP of four times the width.
GPT = ModelShape(
    name="gpt", family="gpt", layers=4, hidden=1024, heads=16, kv_heads=16, head_dim=64, ffn=4096, vocab=51200,
    max_positions=2048, tied_embeddings=True, norm="layernorm", norms_per_layer=2, activation="gelu",
    position="learned", learned_positions=2048, qkv_bias=True, output_bias=True, mlp_bias=True,
)  # fmt: skip


def ask(flags: Mapping[str, object]) -> ResolvedTraining:
    """A question on a server with 8 H100 unless the flags say another."""
    hardware = {} if "gpu" in flags or "server" in flags else {"server": "dell-xe9680-h100"}
    return resolve(read_scenario(None, {**hardware, **flags}, {}), REGISTRY)


def job(model: str = "llama-2-7b", kind: str = "sft", stack: str = "generic", **flags: object) -> Job:
    """A job; `train__seq_len=1` stands for the key train.seq_len. Adapters sit on all attention projections."""
    given = {name.replace("__", "."): value for name, value in flags.items()}
    if kind in ("lora", "qlora"):
        given.setdefault("lora.targets", ["attention"])
    return ask({"model": model, "job": kind, "stack": stack, **given}).job


def layouts(**sizes: ArrayLike) -> Layouts:
    """Layouts that differ from one GPU with one micro-batch in the given sizes."""
    return Layouts.of(**{**ONE_GPU, **sizes})


def graph(model: ModelShape, learning: Learning, kernels: Kernels | None = None, **sizes: float) -> GraphInputs:
    """Inputs of the operator graph for one rank; sizes are those of `RankShape`."""
    one = {"batch": 1, "sequence": 512, "tp": 1, "cp": 1, "ep": 1, "expert_tp": 1, "sequence_parallel": 0}
    rank = RankShape(**{name: np.array([float(size)]) for name, size in {**one, **sizes}.items()})
    return GraphInputs(model, rank, kernels or Kernels(), learning)


def with_device(question_job: Job, **changes: float) -> Job:
    """The job on a device whose named rates are multiplied by the given factors."""
    device = question_job.device
    scaled = {name: getattr(device, name) * factor for name, factor in changes.items()}
    return replace(question_job, device=replace(device, **scaled))


def figures_of(made: Job, chosen: Layouts) -> dict[str, np.ndarray]:
    """Every figure that has one value a layout, by name."""
    ledger, line = memory_ledger(made, chosen), timeline(made, chosen)
    shape = ledger.total_bytes.shape
    figures = {f"memory {name}": np.broadcast_to(v, shape) for name, v in ledger.components.items()}
    figures |= {f"time {name}": value for name, value in line.components.items()}
    figures |= {f"module {name}": np.stack(sides) for name, sides in line.modules.items()}
    figures |= {"peak": ledger.peak_bytes, "tensors": ledger.tensor_peak_bytes, "host": ledger.host_bytes}
    figures |= {"cached": np.broadcast_to(ledger.cached_bytes, shape), "again": line.recompute_flops}
    figures |= {"stage": np.broadcast_to(line.slowest, shape)}
    return figures | {"flops": line.flops * np.ones(len(chosen)), "step": line.step_s}
