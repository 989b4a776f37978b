"""A few real steps of a scenario's job: a model of its shape with random weights, in a plain loop, as a record.

The loop is that of a trainer: forward, backward, clipping, update, and gradients away. Every sequence has the full
length. Under torchrun replicas are averaged by DistributedDataParallel, or shards gathered by FSDP2 (zero 3).
"""

from __future__ import annotations

import contextlib
import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.immutable import Immutable
from xe_sizer.laws.device import BF16, FP16, FP32
from xe_sizer.measure.model import (
    QUANTISER,
    SHARDED,
    Plan,
    build,
    optimizer,
    optimizer_class,
    reference,
    spread,
    unbuilt,
    unquantised,
    without_adapters,
)
from xe_sizer.measure.profile import slug
from xe_sizer.measure.samples import told
from xe_sizer.measure.timer import CUDA, Watch
from xe_sizer.software.stack import Objective
from xe_sizer.training.layout import RECOMPUTE
from xe_sizer.training.methods.preferences import ADAPTERS_OFF, COPY
from xe_sizer.training.methods.preferences import NONE as NO_REFERENCE
from xe_sizer.units import FLOAT32, GIB

if TYPE_CHECKING:
    from pathlib import Path

    from xe_sizer.measure.collectives import Ranks
    from xe_sizer.measure.samples import Machine
    from xe_sizer.measure.timer import Clock
    from xe_sizer.scenario.schema import LoraSection
    from xe_sizer.training.estimate import TrainingEstimate
    from xe_sizer.training.methods import Method

RECORDS = "records.jsonl"
LOOP, MIXED_LOOP = "pytorch-loop", "pytorch"  # what a record calls the loop, without and with autocast
MAX_GRAD_NORM = 1.0  # the usual default of trainers
BETA = 0.1  # of preferences, TRL's default; neither memory nor time depends on it
WARM_UP_STEPS = 2  # the optimizer's states exist from the second step on
DATA_PARALLEL = 0
PROJECTIONS = {
    "q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "o_proj", "gate": "gate_proj", "up": "up_proj",
    "down": "down_proj",
}  # fmt: skip


def plan_of(sized: TrainingEstimate, scenario_file: Path) -> Plan:
    """What of an estimated job can run here. Raises InputError with everything that cannot."""
    job, layouts, values = sized.resolved.job, sized.layouts, sized.resolved.scenario.values
    refused: list[str] = []
    for name, words in (("tp", "tensor"), ("pp", "pipeline"), ("cp", "context")):
        if int(getattr(layouts, name)[0]) > 1:
            refused.append(f"{words} parallelism is not run: DistributedDataParallel and FSDP2 (zero 3) are")
    zero = int(layouts.zero[0])
    if sized.gpus > 1 and zero not in (DATA_PARALLEL, SHARDED):
        refused.append(f"zero {zero} is not run: zero 0 (DistributedDataParallel) and zero 3 (FSDP2) are")
    if int(layouts.offload[0]):
        refused.append("offloading is not run")
    if job.learning_layers.count is not None:
        refused.append("a model of which some layers learn is not run")
    refused += _unlike(job.method, values.lora)
    refused += [text for text in (unbuilt(job.model, job.seq_len), _unoptimised(job.optimizer.name)) if text]
    if job.precision not in (FP32, BF16, FP16):
        refused.append(f"{job.precision} is not run: fp32, bf16 and fp16 are")
    if refused:
        raise InputError([Problem(f"cannot be measured: {text}", Location(str(scenario_file))) for text in refused])
    states = job.stack.states
    kind, method = job.method.kind, job.method
    frozen = method.adapter is not None
    weight = states.frozen_bytes if frozen else states.trained_weight_bytes
    sixteen = job.precision if job.precision in (BF16, FP16) else BF16
    load = FP32 if weight == FLOAT32 or job.precision == FP32 else sixteen
    targets = tuple(dict.fromkeys(PROJECTIONS[name] for name in _targets(sized) if name in PROJECTIONS))
    return Plan(
        shape=job.model,
        layers=job.model.layers,
        micro_batch=int(layouts.micro_batch[0]),
        grad_accum=int(layouts.grad_accum[0]),
        seq_len=job.seq_len,
        load=load,
        compute=job.precision if load == FP32 and states.autocast else load,
        attention=job.attention,
        recompute=RECOMPUTE[int(layouts.recompute[0])] != RECOMPUTE[0],
        zero=zero if sized.gpus > 1 else 0,
        optimizer=job.optimizer.name,
        rank=int(values.lora.rank or job.stack.defaults.lora_rank) if frozen else 0,
        targets=targets if frozen else (),
        dropout=float(values.lora.dropout or 0.0) if frozen else 0.0,
        fine_tunes=kind.fine_tunes,
        job=kind.name,
        bits=int(method.held.width.bits) if method.held else 0,
        pairs=method.compares,
        reference=next((COPY if one.copies else ADAPTERS_OFF for one in method.passing), None),
    )


def _unlike(method: Method, lora: LoraSection) -> Iterator[str]:
    """What of a method the loop does not do."""
    learns = method.objective in (Objective.NEXT_TOKEN, Objective.LOG_PROBABILITIES)
    others = [one for one in method.frozen if one.model is not None or one.adapted or one.forwards != 1]
    if method.kind.rollout is not None or not learns or others or method.before or method.compared or method.parts:
        yield (
            f"{method.kind.label} is not run: pre-training, fine-tuning, and pairs of answers with a reference or "
            "without are"
        )
    adapter = method.adapter
    if adapter is not None and (not adapter.on_head or lora.dora or lora.modules_to_save):
        yield f"{'DoRA' if lora.dora else adapter.label} with these settings is not run: plain LoRA and QLoRA are"
    if method.held is not None:
        if method.compares:
            yield "pairs of answers beside weights in few bits are not run"
        if (text := unquantised(method.held.quantiser.name)) is not None:
            yield text


def _unoptimised(name: str) -> str | None:
    if optimizer_class(name) is None:
        return f"the optimizer {name} is not run: AdamW of PyTorch and those of an installed {QUANTISER} are"
    return None


def _targets(sized: TrainingEstimate) -> tuple[str, ...]:
    from xe_sizer.software.adapter_targets import resolve_targets

    job, values = sized.resolved.job, sized.resolved.scenario.values
    found = resolve_targets(job.model, values.lora.targets or job.stack.defaults.lora_targets)
    parts = {"qkv": ("q", "k", "v"), "gate_up": ("gate", "up")}
    return tuple(part for name in found for part in parts.get(name, (name,)))


# The loop.


class Steps(Immutable):
    """What was measured. seconds : of each timed step; bytes : None where nobody says"""

    seconds: tuple[float, ...]
    parameters: int
    words: str
    peak_bytes: float | None = None
    reserved_bytes: float | None = None
    driver_bytes: float | None = None
    conditions: str = ""


def run(plan: Plan, device: str, steps: int, ranks: Ranks | None = None, clock: Clock = time.perf_counter) -> Steps:
    """Run the job's steps: the first ones untimed, while memory is counted on a CPU.

    Raises the device's error where memory does not suffice.
    """
    import torch

    torch.manual_seed(0)
    model, words = build(plan, device)
    frozen = spread(reference(plan, device), plan, device, ranks) if plan.reference == COPY else None
    parameters = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    model = spread(model, plan, device, ranks)
    learning = [weight for weight in model.parameters() if weight.requires_grad]
    update = optimizer(learning, plan.optimizer)
    sequences = plan.micro_batch * (2 if plan.pairs else 1)
    tokens = torch.randint(3, plan.shape.vocab, (sequences, plan.seq_len), device=device)

    def step() -> None:
        _step(model, frozen, update, learning, tokens, plan, device)

    card = device.startswith(CUDA)
    peak: float | None = None
    if card:
        torch.cuda.empty_cache()  # what making the model took
        torch.cuda.reset_peak_memory_stats(device)
        for _ in range(WARM_UP_STEPS):
            step()
        torch.cuda.synchronize(device)
    else:
        peak = _counted([model, *([frozen] if frozen is not None else [])], tokens, step)
    watch = Watch() if card else None
    seconds = []
    for _ in range(steps):
        began = clock()
        step()
        if card:
            torch.cuda.synchronize(device)
        seconds.append(clock() - began)
    if watch is not None:
        watch.stop()
    return Steps(
        seconds=tuple(seconds),
        parameters=parameters,
        words=words,
        peak_bytes=float(torch.cuda.max_memory_allocated(device)) if card else peak,
        reserved_bytes=float(torch.cuda.max_memory_reserved(device)) if card else None,
        driver_bytes=watch.used_gib * GIB if watch and watch.used_gib else None,
        conditions=watch.words if watch else f"{torch.get_num_threads()} threads",
    )


def _step(model: Any, frozen: Any, update: Any, learning: Sequence[Any], tokens: Any, plan: Plan, device: str) -> None:
    """One optimizer step; replicas exchange gradients with the last micro-batch."""
    import torch

    from xe_sizer.measure.kernels import DTYPES

    last = plan.grad_accum - 1
    for place in range(plan.grad_accum):
        quiet = model.no_sync() if place < last and hasattr(model, "no_sync") else contextlib.nullcontext()
        casts: Any = contextlib.nullcontext()
        if plan.autocasts:
            casts = torch.autocast(device.partition(":")[0], DTYPES[plan.compute])
        with quiet:
            with casts:
                loss = _preference(model, frozen, tokens, plan) if plan.pairs else _next_token(model, tokens)
            (loss / plan.grad_accum).backward()
            del loss
    torch.nn.utils.clip_grad_norm_(learning, MAX_GRAD_NORM)
    update.step()
    update.zero_grad()


def _next_token(model: Any, tokens: Any) -> Any:
    return model(input_ids=tokens, labels=tokens)["loss"]


def _preference(model: Any, frozen: Any, tokens: Any, plan: Plan) -> Any:
    """The loss of direct preference optimisation (arXiv:2305.18290, equation 7); without a reference that of SimPO.

    Logits of both passes live until the loss is there, as in TRL's DPOTrainer (_compute_loss).
    """
    import torch
    import torch.nn.functional as F  # noqa: N812  as everybody calls it

    learned = _answers(model, tokens, plan)
    chosen, rejected = learned[0].chunk(2)
    margin = chosen - rejected
    if plan.reference:
        alone = without_adapters(model) if frozen is None else contextlib.nullcontext()
        with torch.no_grad(), alone:
            compared = _answers(model if frozen is None else frozen, tokens, plan)
        usual, other = compared[0].chunk(2)
        margin = margin - (usual - other)
    return -F.logsigmoid(BETA * margin).mean()


def _answers(model: Any, tokens: Any, plan: Plan) -> tuple[Any, Any, Any]:
    """Log-probability of each sequence, shape (sequence,), and the logits and their shifted copy that it is made of.

    Of 16-bit logits a log-softmax of one sequence after the other; of wider ones the label's logit less the log of the
    sum of exponentials, as TRL's selective_log_softmax has it.
    """
    import torch
    import torch.nn.functional as F  # noqa: N812  as everybody calls it

    logits = model(input_ids=tokens)["logits"]
    if plan.autocasts:
        logits = logits.float()  # as accelerate returns them (convert_outputs_to_fp32)
    shifted, labels = logits[:, :-1].contiguous(), tokens[:, 1:].unsqueeze(-1)
    if shifted.dtype == torch.float32:
        selected = shifted.gather(-1, labels).squeeze(-1)
        each = selected - torch.stack([torch.logsumexp(one, dim=-1) for one in shifted])
    else:
        rows = zip(shifted, labels, strict=True)
        each = torch.stack([F.log_softmax(one, dim=-1).gather(-1, label) for one, label in rows]).squeeze(-1)
    return each.sum(-1), logits, shifted


def _counted(models: Sequence[Any], tokens: Any, step: Callable[[], None]) -> float:
    """The peak of live storages while steps run [bytes]."""
    from xe_sizer.measure.storages import LiveStorages

    storages = LiveStorages()
    storages.hold([tokens, *(one for model in models for one in (*model.parameters(), *model.buffers()))])
    with storages:
        for _ in range(WARM_UP_STEPS):
            step()
    return float(storages.peak_bytes)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a device says that its memory does not suffice."""
    return "out of memory" in str(error).lower() or isinstance(error, MemoryError)


# The record.


def record(
    plan: Plan, done: Steps | None, machine: Machine, gpu: str, ranks: Ranks | None, error: str = ""
) -> dict[str, Any]:
    """What was measured, with every condition. done : None where memory did not suffice, which is measured too"""
    import torch

    shape, count = plan.shape, ranks.size if ranks else 1
    words = done.words if done else "transformers"
    measured: dict[str, Any] = {"oom": True}
    if done is not None:
        measured = {
            "step_time_s": statistics.median(done.seconds),
            "steps_timed": len(done.seconds),
            "step_time_s_least": min(done.seconds),
            "step_time_s_most": max(done.seconds),
        }
        if done.peak_bytes is not None:
            measured |= {"peak_memory_gib": done.peak_bytes / GIB, "memory_metric": "allocated"}
        if done.reserved_bytes is not None:
            measured["reserved_memory_gib"] = done.reserved_bytes / GIB
        if done.driver_bytes is not None:
            measured["nvidia_smi_gib"] = done.driver_bytes / GIB
    sizes = ("hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab")
    lora = {"lora": {"rank": plan.rank, "targets": list(plan.targets), "dropout": plan.dropout}} if plan.rank else {}
    notes = [
        "random weights and tokens, every sequence of full length", machine.host, machine.software,
        done.conditions if done else "", error, f"{done.parameters:,} weights learn" if done else "",
        "" if plan.layers == shape.layers else f"{plan.layers} of {shape.layers} layers, as many as fit",
    ]  # fmt: skip
    return {
        "id": _identity(plan, machine, count),
        "source": {"title": f"xe-sizer measure on {machine.device}", "date": machine.date},
        "job": plan.job,
        "stack": MIXED_LOOP if plan.autocasts else LOOP,
        "framework": f"a loop in PyTorch ({words}, torch {torch.__version__})",
        "date": machine.date[:7],
        "model": shape.name,
        "shape": {"layers": plan.layers, **{name: getattr(shape, name) for name in sizes}},
        "gpu": gpu,
        "gpus": count,
        "gpus_per_node": ranks.local_size if ranks else 1,
        "precision": plan.compute,
        "load_dtype": plan.load,
        **({"mixed_precision": plan.compute} if plan.autocasts else {}),
        "layout": {"tp": 1, "pp": 1, "dp": count, "zero": plan.zero},
        "batch": {
            "micro": plan.micro_batch,
            "grad_accum": plan.grad_accum,
            "global": plan.micro_batch * plan.grad_accum * count,
        },
        "seq_len": plan.seq_len,  # alone: samples that have a mean vary in length
        "attention": plan.attention,
        "recompute": "full" if plan.recompute else "none",
        "optimizer": "adamw_torch_fused" if plan.plain_optimizer else plan.optimizer,
        **lora,
        **({"bits": plan.bits, "quantiser": QUANTISER} if plan.bits else {}),
        **({"reference": plan.reference or NO_REFERENCE} if plan.pairs else {}),
        "measured": measured,
        "notes": "; ".join(note for note in notes if note),
    }


def _identity(plan: Plan, machine: Machine, count: int) -> str:
    """The name of a record by its conditions, so that the same run has the same one."""
    parts = [
        slug(machine.device), plan.shape.name, plan.job, f"{plan.layers}l", f"b{plan.micro_batch}", f"s{plan.seq_len}",
        f"a{plan.grad_accum}", plan.load, plan.compute if plan.autocasts else "", plan.attention,
        "recomputed" if plan.recompute else "", f"r{plan.rank}" if plan.rank else "", plan.reference or "",
        "" if plan.plain_optimizer else plan.optimizer,
        f"{count}x-zero{plan.zero}" if count > 1 else "",
    ]  # fmt: skip
    return "-".join("-".join(part.split()).lower() for part in parts if part)


def keep(made: Mapping[str, Any], file: Path) -> None:
    """Put a record into a file, in the place of an earlier one of the same run. Raises InputError: a full disk"""
    rows = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    rows = [row for row in rows if row.strip() and json.loads(row)["id"] != made["id"]]
    beside = file.with_suffix(".tmp")
    with told(file):
        try:
            beside.write_text("".join(f"{row}\n" for row in (*rows, json.dumps(made))), encoding="utf-8")
            beside.replace(file)
        finally:
            beside.unlink(missing_ok=True)
