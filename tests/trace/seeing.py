"""Models that see under trace: the classes of transformers with few layers, their images, and what learns of them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any
from unittest import mock

import msgspec
import numpy as np
import peft
import torch
import transformers
from msgspec.structs import replace
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.trace.compare import predicted_bytes
from tests.trace.emulation import gpu_like, recomputation
from tests.trace.tracer import MemoryTracer, Phase
from xe_sizer.graph.model import ModelShape, VisionTower
from xe_sizer.profiles.catalogue import Registry
from xe_sizer.scenario.read import read_scenario
from xe_sizer.training.job import Job
from xe_sizer.training.layout import RECOMPUTE, Layouts
from xe_sizer.training.memory import memory_ledger
from xe_sizer.training.resolve import resolve

LAYERS = 4
RANK = 16
STEPS = 2  # the optimizer's states exist from the second step on
POSITIONS = 8192
PARTS = {"vision": ("visual", "vision_tower"), "projector": ("merger", "multi_modal_projector")}


@dataclass(frozen=True)
class SeeingCase:
    """One training step in bf16. frozen : parts that do not learn; adapted : LoRA on all linear layers of the others.

    images : of each sample, of `size` pixels
    """

    family: str
    frozen: tuple[str, ...] = ()
    adapted: bool = False
    recompute: bool = False
    images: int = 1
    length: int = 1024
    size: tuple[int, int] = (448, 448)

    @property
    def name(self) -> str:
        """Short and unique."""
        frozen = "+".join(self.frozen) or "nothing"
        flags = ("lora" * self.adapted, "recompute" * self.recompute, f"{self.images}x{self.size[0]}", str(self.length))
        return "/".join(filter(None, (self.family, f"{frozen} frozen", *flags)))


@dataclass(frozen=True)
class Family:
    """A catalogue model and the class that has it: its configuration, and what its forward takes beside the tokens."""

    model: str
    model_class: str
    config: Callable[[ModelShape, VisionTower], Any]
    inputs: Callable[[SeeingCase, VisionTower], dict[str, Any]]


class _Listed(list[int]):
    """Whole numbers that a GPU's tensor would hold, where a fake tensor has no values."""

    def __sub__(self, other: _Listed) -> _Listed:
        return _Listed(a - b for a, b in zip(self, other, strict=True))

    def __floordiv__(self, divisor: int) -> _Listed:
        return _Listed(value // divisor for value in self)

    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        return _Listed(found) if isinstance(place, slice) else found

    def tolist(self) -> list[int]:
        return list(self)


@dataclass(frozen=True)
class _Grid:
    """Frames, rows and columns of patches of each image."""

    images: int
    rows: int
    columns: int

    @property
    def patches(self) -> int:
        return self.rows * self.columns

    def prod(self, _: int) -> _Listed:
        return _Listed([self.patches] * self.images)

    @property
    def bounds(self) -> _Listed:
        return _Listed(self.patches * image for image in range(self.images + 1))


def _text(shape: ModelShape) -> dict[str, Any]:
    return {
        "vocab_size": shape.vocab, "hidden_size": shape.hidden, "intermediate_size": shape.ffn,
        "num_hidden_layers": shape.layers, "num_attention_heads": shape.heads, "num_key_value_heads": shape.kv_heads,
        "max_position_embeddings": POSITIONS,
    }  # fmt: skip


def _encoder(encoder: ModelShape) -> dict[str, Any]:
    return {
        "hidden_size": encoder.hidden, "intermediate_size": encoder.ffn, "num_hidden_layers": encoder.layers,
        "num_attention_heads": encoder.heads,
    }  # fmt: skip


def _qwen2_vl(shape: ModelShape, tower: VisionTower) -> Any:
    rope = {"rope_type": "default", "mrope_section": [16, 24, 24], "rope_theta": 1e6}
    vision = {
        "depth": tower.encoder.layers, "embed_dim": tower.encoder.hidden, "hidden_size": shape.hidden,
        "num_heads": tower.encoder.heads, "mlp_ratio": tower.encoder.ffn // tower.encoder.hidden,
    }  # fmt: skip
    text = {**_text(shape), "rope_parameters": rope, "use_cache": False}
    return transformers.Qwen2VLConfig(text_config=text, vision_config=vision, tie_word_embeddings=shape.tied_embeddings)


def _patches(case: SeeingCase, tower: VisionTower) -> dict[str, Any]:
    columns, rows = (side // tower.patch for side in case.size)
    grid = _Grid(case.images, rows, columns)
    return {
        "pixel_values": torch.ones(grid.patches * case.images, 3 * tower.frames * tower.patch**2),
        "image_grid_thw": grid,
        "position_ids": torch.ones(3, 1, case.length, dtype=torch.int64),
    }


def _llava(shape: ModelShape, tower: VisionTower) -> Any:
    vision = {
        "model_type": "clip_vision_model", **_encoder(tower.encoder), "image_size": tower.side,
        "patch_size": tower.patch, "projection_dim": 768,
    }  # fmt: skip
    text = {"model_type": "llama", **_text(shape), "use_cache": False}
    return transformers.LlavaConfig(text_config=text, vision_config=vision, tie_word_embeddings=False)


def _squares(case: SeeingCase, tower: VisionTower) -> dict[str, Any]:
    return {"pixel_values": torch.ones(case.images, 3, tower.side, tower.side)}


def _gemma3(shape: ModelShape, tower: VisionTower) -> Any:
    vision = {
        "model_type": "siglip_vision_model", **_encoder(tower.encoder), "image_size": tower.side,
        "patch_size": tower.patch, "vision_use_head": False,
    }  # fmt: skip
    text = {**_text(shape), "head_dim": shape.head_dim, "sliding_window": shape.sliding_window, "use_cache": False}
    return transformers.Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=256)


FAMILIES: Mapping[str, Family] = {
    "qwen2-vl": Family("qwen2-vl-2b", "Qwen2VLForConditionalGeneration", _qwen2_vl, _patches),
    "llava": Family("llava-1.5-7b", "LlavaForConditionalGeneration", _llava, _squares),
    "gemma-3": Family("gemma-3-4b", "Gemma3ForConditionalGeneration", _gemma3, _squares),
}


@cache
def shape_of(family: str) -> ModelShape:
    """The catalogue's model with LAYERS layers in the language model and as many in the encoder."""
    whole = Registry().model(FAMILIES[family].model)
    assert whole.vision is not None
    tower = replace(whole.vision, encoder=replace(whole.vision.encoder, layers=LAYERS))
    return replace(whole.with_layers(LAYERS), vision=tower)


@contextmanager
def _values_known(case: SeeingCase) -> Iterator[None]:
    """Sizes that modules read from tensors of whole numbers, given as such."""
    module = "transformers.models.qwen2_vl.modeling_qwen2_vl"

    def positions(grid: _Grid, *_: Any, **__: Any) -> torch.Tensor:
        return torch.ones(grid.patches * grid.images, 2, dtype=torch.int64)

    def bounds(grid: _Grid, *_: Any, **__: Any) -> tuple[_Listed, None]:
        return grid.bounds, None

    with ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, TRANSFORMERS_DISABLE_TORCH_CHECK="1"))
        stack.enter_context(mock.patch("transformers.PreTrainedModel.initialize_weights", return_value=None))
        stack.enter_context(mock.patch(f"{module}.get_vision_position_ids", positions))
        stack.enter_context(mock.patch(f"{module}.get_vision_attention_seqlens", bounds))
        yield


def _frozen(model: Any, case: SeeingCase) -> None:
    for name, weight in model.named_parameters():
        parts = name.split(".")
        part = next((part for part in ("projector", "vision") if set(PARTS[part]) & set(parts)), "language")
        weight.requires_grad = part not in case.frozen


def _adapted(model: Any, case: SeeingCase) -> Any:
    options = peft.LoraConfig(r=RANK, lora_alpha=16, target_modules="all-linear", exclude_modules=_excluded(case))
    return peft.get_peft_model(model, options)


def _excluded(case: SeeingCase) -> str | None:
    names = [name for part in case.frozen for name in PARTS[part]]
    return rf".*\.({'|'.join(names)})\..*" if names else None


def build(case: SeeingCase) -> tuple[Any, int]:
    """The model, ready to train, and the number of its base parameters."""
    shape, family = shape_of(case.family), FAMILIES[case.family]
    assert shape.vision is not None
    made = getattr(transformers, family.model_class)
    model = made._from_config(family.config(shape, shape.vision), dtype=torch.bfloat16, attn_implementation="sdpa")
    parameters = sum(weight.numel() for weight in model.parameters())
    if case.recompute:
        options = {"use_reentrant": False, "preserve_rng_state": False, "context_fn": recomputation}
        model.gradient_checkpointing_enable(options)
    if case.adapted:
        if case.recompute:
            model.enable_input_require_grads()
        model = _adapted(model, case)
    else:
        _frozen(model, case)
    model.train()
    return model, parameters


@dataclass(frozen=True)
class Seen:
    """Base parameters, and live tensors of the last step [bytes]."""

    parameters: int
    learning: int
    phases: tuple[Phase, ...]

    @property
    def worst(self) -> Phase:
        return max(self.phases, key=lambda phase: phase.peak_bytes)


def _step(tracer: MemoryTracer, model: Any, optimizer: torch.optim.Optimizer, case: SeeingCase) -> tuple[Phase, ...]:
    shape, family = shape_of(case.family), FAMILIES[case.family]
    assert shape.vision is not None
    tokens = torch.ones(1, case.length, dtype=torch.int64)
    inputs = family.inputs(case, shape.vision)
    with tracer.phase("forward") as forward:
        loss = model(input_ids=tokens, labels=tokens, **inputs)["loss"]
    with tracer.phase("backward") as backward:
        loss.backward()
    del loss, inputs
    with tracer.phase("optimizer") as update:
        torch.nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], 1.0)
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return forward, backward, update


@cache
def trace(case: SeeingCase) -> Seen:
    """Trace one case. Nothing is computed and no weight is allocated."""
    known = _values_known(case)
    with warnings.catch_warnings(), FakeTensorMode(allow_non_fake_inputs=True), gpu_like(), known:
        warnings.simplefilter("ignore")
        model, parameters = build(case)
        learning = [weight for weight in model.parameters() if weight.requires_grad]
        optimizer = torch.optim.AdamW(learning, lr=1e-4, fused=True)
        tracer = MemoryTracer(model)
        tracer.hold(model.parameters(), "weights")
        tracer.hold(model.buffers(), "buffers")
        with tracer.following():
            for _ in range(STEPS):
                phases = _step(tracer, model, optimizer, case)
    return Seen(parameters, sum(weight.numel() for weight in learning), phases)


def job_of(case: SeeingCase) -> Job:
    """The question that a case asks, with its number of layers."""
    shape = shape_of(case.family)
    assert shape.vision is not None
    flags: dict[str, Any] = {
        "model": FAMILIES[case.family].model, "server": "dell-xe9680-h100", "stack": "hf-bf16", "attention": "sdpa",
        "job": "lora" if case.adapted else "sft", "train.dropout": 0.0, "train.seq_len": case.length,
        "train.freeze": list(case.frozen) or ["none"], "data.images": case.images,
        "data.image_size": f"{case.size[0]}x{case.size[1]}",
    }  # fmt: skip
    if case.adapted:
        flags |= {"lora.rank": RANK, "lora.targets": ["all-linear"]}
    with mock.patch.object(Registry, "model", return_value=shape):
        job = resolve(read_scenario(None, flags, {}), Registry()).job
    memory = msgspec.structs.replace(job.stack.memory, optimizer_transient="fused")
    return replace(job, stack=msgspec.structs.replace(job.stack, memory=memory))


def predicted(case: SeeingCase) -> float:
    """Peak of the ledger of one GPU that runs the case, as far as a trace sees it [bytes]."""
    sizes = dict.fromkeys(Layouts.__struct_fields__, 1)
    none = dict.fromkeys(("zero", "offload", "sequence_parallel", "schedule", "zero_group", "expert_tp"), 0)
    recompute = RECOMPUTE.index("full" if case.recompute else "none")
    layout = Layouts.of(**{**sizes, **none, "micro_batch": 1, "recompute": recompute})
    return predicted_bytes(memory_ledger(job_of(case), layout, np.array([float(case.length)])))
