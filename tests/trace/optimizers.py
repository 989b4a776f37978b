"""Real optimizers under trace, by the names that their files have here; kernels of AdamW by PyTorch's words."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import transformers

LEARNING_RATE = 1e-4
RANK = 128  # of projections, as in transformers
Weights = list[torch.nn.Parameter]
HOOKED = ("lomo",)  # update in hooks that they set themselves
KERNELS = ("fused", "foreach")  # of torch.optim.AdamW
LAYERWISE = ("galore-adamw-layerwise", "galore-adafactor-layerwise", "apollo-layerwise")


@dataclass
class Updates:
    """The optimizers of a step, one after the other.

    in_backward : each weight has an optimizer of its own, which runs as soon as the gradient is there
    """

    weights: Weights
    optimizers: list[Any]
    in_backward: bool = False
    hooks: list[Any] = field(default_factory=list)

    def step(self) -> None:
        if not self.in_backward:
            for optimizer in self.optimizers:
                optimizer.step()

    def end_backward(self) -> None:
        """LOMO updates a weight when the next gradient comes, so the last one is left."""
        for optimizer in self.optimizers if self.in_backward else ():
            getattr(optimizer, "grad_func", bool)(0)

    def made_before(self) -> Iterator[torch.Tensor]:
        """States that exist before the first step."""
        for optimizer in self.optimizers:
            for state in optimizer.state.values():
                yield from (value for value in state.values() if isinstance(value, torch.Tensor))

    def zero_grad(self) -> None:
        for weight in self.weights:
            weight.grad = None

    def drop_idle(self) -> bool:
        """Drop the states of weights that have no gradient, which no update makes; whether there are any."""
        if self.in_backward:
            return False
        idle = [weight for weight in self.weights if weight.grad is None]
        dropped = [optimizer.state.pop(weight, None) for optimizer in self.optimizers for weight in idle]
        return any(dropped)

    def update_in_backward(self) -> Updates:
        """As the Trainer of transformers does it layer by layer (trainer_optimizer.py, optimizer_hook)."""
        by_weight = dict(zip(self.weights, self.optimizers, strict=True))

        def update(weight: torch.Tensor) -> None:
            by_weight[weight].step()  # type: ignore[index]
            weight.grad = None

        self.hooks = [weight.register_post_accumulate_grad_hook(update) for weight in self.weights]
        self.in_backward = True
        return self


def optimizer_of(name: str, model: Any) -> Updates:
    """The optimizers of a model's learning weights. Skips where a library is missing: ImportError."""
    named = {key: weight for key, weight in model.named_parameters() if weight.requires_grad}
    weights = list(named.values())
    if name in KERNELS:
        return Updates(weights, [torch.optim.AdamW(weights, lr=LEARNING_RATE, **{name: True})])  # type: ignore[arg-type]
    stem = name.removesuffix("-layerwise")
    made = MAKERS[stem]
    if stem == name:
        return Updates(weights, list(made(named)), in_backward=name in HOOKED)
    return Updates(weights, [one for key, weight in named.items() for one in made({key: weight})]).update_in_backward()


def _torch(kind: str, **options: Any) -> Callable[[dict[str, Any]], Iterator[Any]]:
    def make(named: dict[str, Any]) -> Iterator[Any]:
        yield getattr(torch.optim, kind)(list(named.values()), lr=LEARNING_RATE, **options)

    return make


def _adafactor(named: dict[str, Any]) -> Iterator[Any]:
    """As the Trainer makes it: neither scaled by the weight nor with relative steps."""
    yield transformers.Adafactor(named.values(), lr=LEARNING_RATE, scale_parameter=False, relative_step=False)


def _library(module: str, kind: str, **options: Any) -> Callable[[dict[str, Any]], Iterator[Any]]:
    def make(named: dict[str, Any]) -> Iterator[Any]:
        yield getattr(importlib.import_module(module), kind)(list(named.values()), lr=LEARNING_RATE, **options)

    return make


def _of_layers(named: dict[str, Any]) -> tuple[Weights, Weights]:
    """Matrices of the layers, and the rest."""
    inside = [weight for key, weight in named.items() if weight.ndim == 2 and ".layers." in key]
    return inside, [weight for weight in named.values() if all(weight is not other for other in inside)]


def _muon(named: dict[str, Any]) -> Iterator[Any]:
    matrices, others = _of_layers(named)
    yield torch.optim.Muon(matrices, lr=LEARNING_RATE)
    yield torch.optim.AdamW(others, lr=LEARNING_RATE, foreach=True)


def _schedule_free(named: dict[str, Any]) -> Iterator[Any]:
    (optimizer,) = _library("schedulefree", "AdamWScheduleFree", foreach=True)(named)
    optimizer.train()
    yield optimizer


def _low_rank(module: str, kind: str, **options: Any) -> Callable[[dict[str, Any]], Iterator[Any]]:
    """Projected matrices of the layers, and the rest; the package also imports bitsandbytes, which nothing here needs.

    The projection is made anew in every step, so that the step that is traced makes one.
    """

    def make(named: dict[str, Any]) -> Iterator[Any]:
        stub = mock.MagicMock(__path__=[])
        stub.Optimizer2State = torch.optim.Optimizer
        names = [f"bitsandbytes{part}" for part in ("", ".optim", ".optim.optimizer", ".functional")]
        with mock.patch.dict(sys.modules, dict.fromkeys(names, stub)):
            found = getattr(importlib.import_module(module), kind)
            if "proj" in options:  # draws its next seed from a tensor, which has no value here
                importlib.import_module("apollo_torch.random_projector").next_seed = int  # type: ignore[attr-defined]
        matrices, others = _of_layers(named)
        projected = {"rank": RANK, "update_proj_gap": 1, "scale": 0.25, "proj_type": "std", **options}
        groups = [{"params": others}] if others else []
        groups += [{"params": matrices, **projected}] if matrices else []
        rates: dict[str, Any] = {"lr": LEARNING_RATE}
        if kind == "Adafactor":
            rates |= {"scale_parameter": False, "relative_step": False}
        if "proj" in options:
            rates |= {"disable_nl": True}  # compares norms, which have no value here
        yield found(groups, **rates)

    return make


def _hooked(kind: str) -> Callable[[dict[str, Any]], Iterator[Any]]:
    def make(named: dict[str, Any]) -> Iterator[Any]:
        model = SimpleNamespace(named_parameters=named.items, parameters=named.values)
        yield getattr(importlib.import_module("lomo_optim"), kind)(model, lr=LEARNING_RATE)

    return make


MAKERS: dict[str, Callable[[dict[str, Any]], Iterator[Any]]] = {
    "sgd": _torch("SGD", momentum=0.9, foreach=True),
    "plain-sgd": _torch("SGD", foreach=True),
    "adagrad": _torch("Adagrad", foreach=True),
    "rmsprop": _torch("RMSprop", foreach=True),
    "muon": _muon,
    "adafactor": _adafactor,
    "galore-adamw": _low_rank("galore_torch.adamw", "AdamW"),
    "galore-adafactor": _low_rank("galore_torch.adafactor", "Adafactor"),
    "apollo": _low_rank("apollo_torch.apollo", "AdamW", proj="random", scale_type="channel"),
    "schedule-free-adamw": _schedule_free,
    "lomo": _hooked("Lomo"),
    "soap": _library("pytorch_optimizer", "SOAP"),
    "came": _library("came_pytorch", "CAME"),
    "adopt": _library("pytorch_optimizer", "ADOPT"),
}
