"""A step under PyTorch's FSDP, with frozen layers and adapters in units of their own, as peft wraps them: one CPU rank.

FSDP keeps hooks and views of its own, so nothing is faked: models are small, and the weights are there.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import peft
import torch
import torch.distributed
import transformers
from msgspec.structs import replace
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.utils.checkpoint import checkpoint

from tests.trace.compare import UNTRACED
from tests.trace.subjects import BY_FAMILY, shape_of
from tests.trace.tracer import MemoryTracer, Phase
from xe_sizer.graph.model import ModelShape
from xe_sizer.immutable import Immutable
from xe_sizer.profiles.catalogue import Registry, load_stack
from xe_sizer.scenario.read import read_scenario
from xe_sizer.training.layout import RECOMPUTE, Layouts
from xe_sizer.training.memory import NOT_TENSORS, memory_ledger
from xe_sizer.training.memory_parts import MOMENTS
from xe_sizer.training.resolve import resolve

BATCH, LENGTH, LAYERS, RANK = 2, 128, 6, 8
SIZES = {"hidden": 256, "heads": 8, "head_dim": 32, "ffn": 688, "vocab": 512}
LAYER_CLASSES = {"llama": "LlamaDecoderLayer", "qwen2": "Qwen2DecoderLayer"}
RELEASES = {True: "hf-trainer@4.51", False: "hf-trainer"}
"""Of transformers: those that recompute in a function of autograd's own, around FSDP's units, and those that do not."""


class ShardedCase(Immutable, eq=True):
    """LoRA in bfloat16 with recomputed layers. reentrant : recomputed in a function of autograd's own."""

    family: str
    reentrant: bool

    @property
    def shape(self) -> ModelShape:
        shape = shape_of(BY_FAMILY[self.family], LAYERS, LENGTH)
        return replace(shape, **SIZES, kv_heads=SIZES["heads"] if shape.kv_heads == shape.heads else 2)


class _Recomputed(torch.nn.Module):
    """A layer as models of transformers called theirs before 4.52: the checkpoint is around the unit of FSDP."""

    def __init__(self, unit: torch.nn.Module, reentrant: bool) -> None:
        super().__init__()
        self.unit, self.reentrant = unit, reentrant
        self.on_gradient: Any = None

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("unit"), name)

    def forward(self, hidden: torch.Tensor, **others: Any) -> torch.Tensor:
        result: torch.Tensor = checkpoint(partial(self.unit.__call__, **others), hidden, use_reentrant=self.reentrant)
        if self.on_gradient is not None:
            result.register_hook(self.on_gradient)
        return result


@contextmanager
def one_rank(folder: Path) -> Iterator[None]:
    """A group of this process alone."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder / 'group'}", rank=0, world_size=1)
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


def _build(case: ShardedCase) -> tuple[torch.nn.Module, torch.nn.ModuleList]:
    """The wrapped model, and its layers."""
    subject = BY_FAMILY[case.family]
    config = getattr(transformers, subject.config_class)(**subject.sizes(case.shape), use_cache=False)
    base = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    base.enable_input_require_grads()
    options = peft.LoraConfig(r=RANK, target_modules=list(subject.narrow_targets[0]), task_type="CAUSAL_LM")
    model = peft.get_peft_model(base, options).train()
    os.environ["FSDP_TRANSFORMER_CLS_TO_WRAP"] = LAYER_CLASSES[case.family]
    policy = peft.utils.other.fsdp_auto_wrap_policy(model)
    wrapped = FullyShardedDataParallel(model, auto_wrap_policy=policy, device_id=torch.device("cpu"))
    layers = wrapped.module.base_model.model.model.layers
    for place, unit in enumerate(layers):
        layers[place] = _Recomputed(unit, case.reentrant)
    return wrapped, layers


def first_layer(case: ShardedCase) -> Phase:
    """The stretch of a step in which the first layer runs again and backwards. Inside `one_rank`."""
    with warnings.catch_warnings(), ExitStack() as until_the_end:
        warnings.simplefilter("ignore")
        model, layers = _build(case)
        tracer = MemoryTracer(model)
        tracer.hold(model.parameters(), "weights")
        tracer.hold(model.buffers(), "buffers")
        layers[0].on_gradient = lambda _: until_the_end.enter_context(tracer.phase("first layer")) and None
        tokens = torch.ones(BATCH, LENGTH, dtype=torch.int64)
        with tracer.following():
            model(input_ids=tokens, labels=tokens).loss.backward()
        return tracer.phases[-1]


def predicted_bytes(case: ShardedCase) -> float:
    """The ledger's live tensors at the first layer's backward; one rank gathers nothing, and no optimizer has run."""
    flags: dict[str, Any] = {
        "model": BY_FAMILY[case.family].model,
        "server": "dell-xe9680-h100",
        "job": "lora",
        "stack": "hf-bf16",
        "attention": "sdpa",
        "lora.rank": RANK,
        "lora.targets": list(BY_FAMILY[case.family].narrow_targets[1]),
    }
    job = resolve(read_scenario(None, flags, {}), Registry()).job
    reentrant = load_stack(RELEASES[case.reentrant]).states.reentrant
    states = msgspec.structs.replace(job.stack.states, reentrant=reentrant)
    job = replace(job, model=case.shape, stack=msgspec.structs.replace(job.stack, states=states))
    sizes = dict.fromkeys(Layouts.__struct_fields__, 1)
    none = {"offload": 0, "sequence_parallel": 0, "schedule": 0, "zero_group": 0}
    layout = {**sizes, **none, "zero": 3, "micro_batch": BATCH, "recompute": RECOMPUTE.index("full")}
    ledger = memory_ledger(job, Layouts.of(**layout), np.array([float(LENGTH)]))
    left_out = (*NOT_TENSORS, UNTRACED, "gathered layers", "optimizer states", "communication buckets")
    tensors = sum(value for name, value in ledger.components.items() if name not in left_out)
    moment = MOMENTS.index("backward of the first layer")
    return float(np.broadcast_to(np.asarray(tensors), ledger.total_bytes.shape)[0, moment, 0])
