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
from xe_sizer.measure.samples import told
from xe_sizer.measure.timer import CUDA, Watch
from xe_sizer.training.layout import RECOMPUTE
from xe_sizer.units import FLOAT32, GIB

if TYPE_CHECKING:
    from pathlib import Path

    from xe_sizer.graph.model import ModelShape
    from xe_sizer.measure.collectives import Ranks
    from xe_sizer.measure.samples import Machine
    from xe_sizer.measure.timer import Clock
    from xe_sizer.training.estimate import TrainingEstimate

RECORDS = "records.jsonl"
LOOP, MIXED_LOOP = "pytorch-loop", "pytorch"  # what a record calls the loop, without and with autocast
MAX_GRAD_NORM = 1.0  # the usual default of trainers
WARM_UP_STEPS = 2  # the optimizer's states exist from the second step on
WHOLE, DATA_PARALLEL, SHARDED = "one device", 0, 3
EAGER = "eager"
IN_TRANSFORMERS = {  # classes by what tells their layers apart; others are built of plain blocks
    "qwen2": "Qwen2Config",
    "llama": "LlamaConfig",
}
PROJECTIONS = {
    "q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "o_proj", "gate": "gate_proj", "up": "up_proj",
    "down": "down_proj",
}  # fmt: skip


class Plan(Immutable):
    """What runs: a model's shape with as many layers as fit, and how.

    layers : of `shape` that run; load, compute : number formats of weights and of products (autocast where they differ)
    zero : 0 or 3 over several ranks; targets : projections with adapters, empty where all weights learn
    """

    shape: ModelShape
    layers: int
    micro_batch: int
    grad_accum: int
    seq_len: int
    load: str
    compute: str
    attention: str
    recompute: bool
    zero: int
    optimizer: str
    rank: int = 0
    targets: tuple[str, ...] = ()
    dropout: float = 0.0
    fine_tunes: bool = True
    job: str = ""

    @property
    def autocasts(self) -> bool:
        return self.load == FP32 and self.compute in (BF16, FP16)


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
    kind = job.method.kind
    plain = kind.rollout is None and not job.method.frozen and not job.method.compares
    if not plain or kind.quantises or (kind.adapter and "lora" not in kind.settings):
        refused.append(f"{kind.label} is not run: pre-training, fine-tuning of all weights and LoRA are")
    refused += _unbuilt(job.model)
    if job.optimizer.name != _adamw(job.optimizer.name):
        refused.append(f"the optimizer {job.optimizer.name} is not run: AdamW of PyTorch is")
    if refused:
        raise InputError([Problem(f"cannot be measured: {text}", Location(str(scenario_file))) for text in refused])
    states = job.stack.states
    frozen = kind.adapter is not None
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
    )


def _targets(sized: TrainingEstimate) -> tuple[str, ...]:
    from xe_sizer.software.adapter_targets import resolve_targets

    job, values = sized.resolved.job, sized.resolved.scenario.values
    found = resolve_targets(job.model, values.lora.targets or job.stack.defaults.lora_targets)
    parts = {"qkv": ("q", "k", "v"), "gate_up": ("gate", "up")}
    return tuple(part for name in found for part in parts.get(name, (name,)))


def _adamw(name: str) -> str:
    """The optimizer of that name if it is the plain one, which is the root of all optimizers."""
    from xe_sizer.profiles.catalogue import load_optimizer

    return name if load_optimizer(name).parent is None else ""


def _unbuilt(shape: ModelShape) -> Iterator[str]:
    """What of a shape neither a class nor the plain blocks have."""
    without = {
        "experts": shape.experts, "latent attention": shape.latent_attention, "state-space layers": shape.state_space,
        "an encoder": shape.encoder_layers or shape.bidirectional, "an encoder of images": shape.vision,
        "learned positions": shape.learned_positions, "norms behind the blocks": shape.post_norm,
        "blocks side by side": shape.parallel_block, "capped logits": shape.soft_caps,
        "norms of queries": shape.qk_norm,
    }  # fmt: skip
    found = [name for name, has in without.items() if has]
    if found:
        yield f"{shape.name} has {', '.join(found)}, which are not built here"


# The model.


def build(plan: Plan, device: str) -> tuple[Any, str]:
    """The model with random weights, ready to train, and what it is made of."""
    import torch

    from xe_sizer.measure.kernels import DTYPES

    before = torch.get_default_dtype()
    torch.set_default_dtype(DTYPES[plan.load])
    try:
        with torch.device(device):
            made = _of_transformers(plan)
            words = f"transformers {made[1]}" if made else "plain blocks"
            model = made[0] if made else _plain(plan)
    finally:
        torch.set_default_dtype(before)
    model.train()
    if plan.rank:
        words += f", {_adapt(model, plan)}"
    return model, words


def _of_transformers(plan: Plan) -> tuple[Any, str] | None:
    """A class of transformers with the shape; None where it is not installed, or none has it."""
    shape = plan.shape
    if shape.norm != "rmsnorm" or not shape.gated or shape.position != "rope" or shape.output_bias or shape.mlp_bias:
        return None
    try:
        import transformers
    except ImportError:
        return None
    class_ = getattr(transformers, IN_TRANSFORMERS["qwen2" if shape.qkv_bias else "llama"])
    config = class_(
        vocab_size=shape.vocab,
        hidden_size=shape.hidden,
        intermediate_size=shape.ffn,
        num_hidden_layers=plan.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=max(plan.seq_len, 2048),
        tie_word_embeddings=shape.tied_embeddings,
        use_cache=False,
    )
    from xe_sizer.measure.kernels import DTYPES

    attention = EAGER if plan.attention == EAGER else "sdpa"
    model = transformers.AutoModelForCausalLM.from_config(
        config, dtype=DTYPES[plan.load], attn_implementation=attention
    )
    if plan.recompute:
        model.gradient_checkpointing_enable({"use_reentrant": False, "preserve_rng_state": False})
        if plan.rank:
            model.enable_input_require_grads()
    return model, str(transformers.__version__)


def _plain(plan: Plan) -> Any:
    from xe_sizer.measure.blocks import Decoder

    return Decoder(plan.shape.with_layers(plan.layers), plan.attention, plan.recompute)


def _adapt(model: Any, plan: Plan) -> str:
    """Put adapters beside the projections, by peft where it is installed."""
    try:
        import peft
    except ImportError:
        from xe_sizer.measure.blocks import adapt

        return f"{adapt(model, set(plan.targets), plan.rank, plan.dropout)} adapters"
    options = peft.LoraConfig(
        r=plan.rank, lora_alpha=2 * plan.rank, target_modules=list(plan.targets), lora_dropout=plan.dropout
    )
    peft.inject_adapter_in_model(options, model)
    return f"peft {peft.__version__}"


def spread(model: Any, plan: Plan, device: str, ranks: Ranks | None) -> Any:
    """The model over the ranks: replicas, or shards of each layer and of the rest."""
    if ranks is None:
        return model
    if plan.zero == SHARDED:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(device.partition(":")[0], (ranks.size,))
        layers = next(child for name, child in model.named_modules() if name.rpartition(".")[2] == "layers")
        for layer in layers:
            fully_shard(layer, mesh=mesh)
        return fully_shard(model, mesh=mesh)
    from torch.nn.parallel import DistributedDataParallel

    return DistributedDataParallel(model, device_ids=[ranks.local_rank] if device.startswith(CUDA) else None)


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
    parameters = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    model = spread(model, plan, device, ranks)
    learning = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(learning, lr=1e-5, fused=True)
    tokens = torch.randint(3, plan.shape.vocab, (plan.micro_batch, plan.seq_len), device=device)

    def step() -> None:
        _step(model, optimizer, learning, tokens, plan, device)

    card = device.startswith(CUDA)
    peak: float | None = None
    if card:
        torch.cuda.reset_peak_memory_stats(device)
        for _ in range(WARM_UP_STEPS):
            step()
        torch.cuda.synchronize(device)
    else:
        peak = _counted(model, optimizer, tokens, step)
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


def _step(model: Any, optimizer: Any, learning: Sequence[Any], tokens: Any, plan: Plan, device: str) -> None:
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
                loss = model(input_ids=tokens, labels=tokens)["loss"]
            (loss / plan.grad_accum).backward()
            del loss
    torch.nn.utils.clip_grad_norm_(learning, MAX_GRAD_NORM)
    optimizer.step()
    optimizer.zero_grad()


def _counted(model: Any, optimizer: Any, tokens: Any, step: Callable[[], None]) -> float:
    """The peak of live storages while steps run [bytes]."""
    from xe_sizer.measure.storages import LiveStorages

    storages = LiveStorages()
    storages.hold([*model.parameters(), *model.buffers(), tokens])
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
        "optimizer": "adamw_torch_fused",
        **lora,
        "measured": measured,
        "notes": "; ".join(note for note in notes if note),
    }


def _identity(plan: Plan, machine: Machine, count: int) -> str:
    """The name of a record by its conditions, so that the same run has the same one."""
    parts = [
        machine.device, plan.shape.name, plan.job, f"{plan.layers}l", f"b{plan.micro_batch}", f"s{plan.seq_len}",
        f"a{plan.grad_accum}", plan.load, plan.compute if plan.autocasts else "", plan.attention,
        "recomputed" if plan.recompute else "", f"r{plan.rank}" if plan.rank else "",
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
