"""The memory ledger beside the trace: `python -m tests.trace.compare trace.jsonl [--family llama] [--components]`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from tests.trace.adapters import KINDS
from tests.trace.matrix import TAUGHT, TAUGHT_BY, Case
from tests.trace.subjects import BY_FAMILY, ENCODER, shape_of
from xe_sizer.profiles.catalogue import Registry, load_optimizer
from xe_sizer.scenario.read import read_scenario
from xe_sizer.training.job import Job
from xe_sizer.training.layout import RECOMPUTE, Layouts
from xe_sizer.training.memory import NOT_TENSORS, Ledger, memory_ledger
from xe_sizer.training.memory_parts import MOMENTS
from xe_sizer.training.resolve import resolve

# Allocated by cuBLAS through PyTorch's allocator, inside kernels that a trace does not look into.
UNTRACED = "library workspaces"
# With what learns in float32, the products in 16 bit; or all in 16 bit.
SOFTWARE = {
    "bf16": {"stack": "hf-bf16"},
    "autocast": {"stack": "hf-trainer", "train.weights_dtype": "fp32"},
}
QUANTISED = {"stack": "hf-trainer"}  # from 16-bit weights
# How jobs beyond the next token get what they compare; TRL's trainers are the Trainer's children.
KERNELS: Mapping[str, dict[str, str]] = {
    "llama-factory": {"log_probabilities": "log-softmax"},
    "trl": {"divergence": "jensen-shannon"},
    "sentence-transformers": {},
}
ADAPTER_DROPOUT = 0.05
TRANSIENTS = {"fused": "fused", "foreach": "multi-tensor"}
MEBIBYTE = 2**20


def _targets(case: Case) -> list[str]:
    """LoRA targets in the catalogue's words."""
    targets = list(case.subject.narrow_targets[1]) if case.method == "lora-qv" else ["all-linear"]
    return [*targets, case.subject.ends[1]] if case.on_head else targets


def job_of(case: Case) -> Job:
    """The question that a case asks, with its stack and number of layers."""
    flags: dict[str, Any] = {
        "model": case.subject.model,
        "server": "dell-xe9680-h100",
        "job": case.job if case.job != "sft" else ("qlora" if case.quantised else "lora") if case.rank else "sft",
        "attention": case.attention,
        "train.dropout": 0.1 * case.dropout,
        **(QUANTISED if case.quantised else SOFTWARE[case.dtype]),
    }
    if case.adapter:
        flags |= KINDS[case.adapter].flags(case)
    elif case.rank:
        saved = {"lora.modules_to_save": list(case.subject.ends)} if case.saved else {}
        flags |= saved | {"lora.dropout": ADAPTER_DROPOUT * case.adapter_dropout}
        flags |= {"lora.rank": case.rank, "lora.targets": _targets(case)}
    flags |= _beside(case)
    if case.subject.classes[0] == ENCODER[0] and case.job == "sft" and not case.rank:
        flags["job"] = "pretrain"
    job = resolve(read_scenario(None, flags, {}), Registry()).job
    transient = TRANSIENTS.get(case.optimizer, "multi-tensor")
    memory = msgspec.structs.replace(job.stack.memory, optimizer_transient=transient)
    kernels = msgspec.structs.replace(job.stack.kernels, **KERNELS[case.framework])
    stack = msgspec.structs.replace(job.stack, memory=memory, kernels=kernels)
    shape = job.method.kind.read_by(shape_of(case.subject, case.layers, case.length))
    optimizer = job.optimizer if case.optimizer in TRANSIENTS else load_optimizer(case.optimizer)
    job = replace(job, stack=stack, optimizer=optimizer, model=shape, trainable_layers=case.trainable_layers or None)
    if case.job not in TAUGHT:
        return job
    teacher = shape_of(case.subject, TAUGHT_BY * case.layers, case.length)
    frozen = tuple(replace(one, model=teacher) for one in job.method.frozen)
    return replace(job, method=replace(job.method, frozen=frozen))


def _beside(case: Case) -> dict[str, Any]:
    """What stands beside the model, and the adapters that the job does not imply."""
    adapter = {"adapter": "lora"} if case.rank and case.job != "sft" else {}
    reference = {"train.reference": case.reference} if case.reference else {}
    teacher = {"train.teacher_model": case.subject.model} if case.job in TAUGHT else {}
    return adapter | reference | teacher


def ledger_of(case: Case) -> Ledger:
    """The ledger of one GPU that runs the case."""
    recompute = RECOMPUTE.index("full" if case.recompute else "none")
    sizes = dict.fromkeys(Layouts.__struct_fields__, 1)
    none = {"zero": 0, "offload": 0, "sequence_parallel": 0, "schedule": 0, "zero_group": 0}
    job = job_of(case)
    samples = case.batch // job.method.sequences_per_sample
    layout = Layouts.of(**{**sizes, **none, "micro_batch": samples, "recompute": recompute})
    return memory_ledger(job, layout, np.array([float(case.length)]))


def predicted_bytes(ledger: Ledger) -> float:
    """Peak of live tensors as far as a trace sees them."""
    return float(ledger.tensor_peak_bytes[0]) - float(ledger.components[UNTRACED].max())


@dataclass(frozen=True)
class Comparison:
    """One case: bytes of the ledger and of the trace."""

    case: Case
    ledger: Ledger
    traced: Mapping[str, Any]

    @property
    def error(self) -> float:
        """Relative error of the peak."""
        return predicted_bytes(self.ledger) / float(self.traced["peak_bytes"]) - 1.0

    def moments(self) -> dict[str, float]:
        """The ledger's live tensors at each of its moments [bytes]."""
        left_out = (*NOT_TENSORS, UNTRACED)
        tensors = np.asarray(sum(v for name, v in self.ledger.components.items() if name not in left_out))
        whole = np.broadcast_to(tensors, self.ledger.total_bytes.shape).max(axis=(0, 2))
        return dict(zip(MOMENTS, whole.tolist(), strict=True))

    def row(self) -> str:
        """One line: error, both peaks and the moments of each."""
        ours = " ".join(f"{name} {value / MEBIBYTE:.0f}" for name, value in self.moments().items())
        names = ("after_forward", "forward_peak", "backward_peak", "after_backward", "optimizer_peak")
        theirs = " ".join(f"{name} {self.traced[f'{name}_bytes'] / MEBIBYTE:.0f}" for name in names)
        peaks = f"{predicted_bytes(self.ledger) / MEBIBYTE:9.0f} {self.traced['peak_bytes'] / MEBIBYTE:9.0f}"
        return f"{self.error:+7.1%} {peaks}  {self.case.name:58} | {ours} | {theirs}"

    def parts(self) -> Iterator[str]:
        """The ledger's components at its peak, then what lives at the trace's."""
        for name, value in sorted(self.ledger.at_peak().items(), key=lambda item: -item[1]):
            if value and name not in (*NOT_TENSORS, UNTRACED):
                yield f"    ledger {value / MEBIBYTE:9.1f} MiB  {name}"
        for label, size, count in self.traced["live"][self.traced["peak_phase"]]:
            yield f"    traced {size / MEBIBYTE:9.1f} MiB  {label} x {count}"


def comparisons(path: Path, families: list[str]) -> Iterator[Comparison]:
    """Every record of a file that belongs to the families."""
    known = set(Case.__struct_fields__)
    for line in path.read_text(encoding="utf-8").splitlines():
        traced = json.loads(line)
        if traced["family"] in families:
            case = Case(**{key: value for key, value in traced.items() if key in known})
            yield Comparison(case, ledger_of(case), traced)


def summary(rows: list[Comparison]) -> Iterator[str]:
    """Median and worst error of each family and of all."""
    groups = {"all": rows} | {family: [row for row in rows if row.case.family == family] for family in BY_FAMILY}
    for name, members in groups.items():
        if members:
            errors = np.abs([row.error for row in members])
            yield f"{name:12} {len(members):4} cases, median {np.median(errors):6.2%}, worst {errors.max():6.2%}"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--family", nargs="+", choices=sorted(BY_FAMILY), default=list(BY_FAMILY))
    parser.add_argument("--components", action="store_true", help="print what both peaks are made of")
    parser.add_argument("--name", default="", help="only cases whose name contains this")
    options = parser.parse_args()
    rows = [row for row in comparisons(options.trace, options.family) if options.name in row.case.name]
    for row in rows:
        print(row.row())
        if options.components:
            print("\n".join(row.parts()))
    print("\n".join(summary(rows)))


if __name__ == "__main__":
    main()
