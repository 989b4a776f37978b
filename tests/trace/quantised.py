"""Weights in four bits as bitsandbytes holds them, and what peft makes of the rest of such a model."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

COMPUTED_IN = torch.bfloat16  # bnb_4bit_compute_dtype
KEPT = ("lm_head",)  # never in few bits (transformers, get_keys_to_not_convert)


class _Product(torch.autograd.Function):
    """MatMul4Bit: the weight is expanded for the product and again for the gradient; the input is not kept."""

    @staticmethod
    def forward(ctx: Any, inputs: torch.Tensor, packed: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
        ctx.shape = shape
        return nn.functional.linear(inputs, _expanded(packed, shape))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return gradients[0] @ _expanded(gradients[0], ctx.shape), None, None


def _expanded(like: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
    return torch.empty(shape, dtype=COMPUTED_IN, device=like.device)


class Linear4bit(nn.Linear):
    """A linear layer of bitsandbytes: it computes in 16 bit and returns the type that it was given."""

    def __init__(self, plain: nn.Linear | Conv1D) -> None:
        inputs, outputs = (plain.nx, plain.nf) if isinstance(plain, Conv1D) else (plain.in_features, plain.out_features)
        super().__init__(inputs, outputs, bias=False, dtype=COMPUTED_IN)
        packed = torch.empty((plain.weight.numel() // 2, 1), dtype=torch.uint8)
        self.weight = nn.Parameter(packed, requires_grad=False)
        self.bias = plain.bias

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002  torch's name
        product = _Product.apply(input.to(COMPUTED_IN), self.weight, (self.out_features, self.in_features))
        made: torch.Tensor = product if self.bias is None else product + self.bias.to(COMPUTED_IN)
        return made.to(input.dtype)


def quantise(model: nn.Module) -> None:
    """Linear layers in four bits, everything else in float32 (peft, prepare_model_for_kbit_training).

    GPT-2's are transposed (Conv1D) and become Linear4bit too; what a class keeps in float32 does not (T5's `wo`).
    """
    kept = {*KEPT, *(getattr(model, "_keep_in_fp32_modules", None) or ())}
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear | Conv1D) and name not in kept:
                setattr(module, name, Linear4bit(child))
    made: dict[int, nn.Parameter] = {}  # tied weights stay one
    for module in model.modules():
        for name, weight in module._parameters.items():
            if weight is not None:
                wide = torch.empty(weight.shape, dtype=torch.uint8 if weight.dtype == torch.uint8 else torch.float32)
                module._parameters[name] = made.setdefault(id(weight), nn.Parameter(wide, requires_grad=False))
