"""Whatever the catalogue holds can be estimated: every model, accelerator and server gives finite, positive figures."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from cases import REGISTRY, ask, job, layouts

from xe_sizer.immutable import Immutable
from xe_sizer.training.job import Job
from xe_sizer.training.layout import Layouts
from xe_sizer.training.memory import memory_ledger
from xe_sizer.training.step_time import timeline


def assert_estimated(made: Job, chosen: Layouts) -> None:
    ledger, line = memory_ledger(made, chosen), timeline(made, chosen)
    for part in (*ledger.components.values(), *line.components.values(), ledger.host_bytes):
        assert np.all(np.isfinite(part))
        assert np.all(part >= 0)
    weights = np.broadcast_to(ledger.components["weights"], ledger.total_bytes.shape)
    assert np.all(weights.max(axis=(0, 1)) > 0)
    assert np.all(ledger.peak_bytes > weights.max(axis=(0, 1)))
    for name in ("forward", "backward"):
        assert np.all(line.components[name] > 0)
    assert np.all(line.flops > 0)
    # No step is faster than its useful FLOPs at the peak.
    assert np.all(line.step_s > line.flops / made.device.peak_flops_per_s)


def structure(value: object) -> object:
    """What a model is built of, without how much of it there is; names and words about it are none of that."""
    if isinstance(value, Immutable):
        fields = {each.name: getattr(value, each.name) for each in msgspec.structs.fields(value)}
        return tuple((name, structure(each)) for name, each in fields.items() if name not in SAID)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value > 0
    return value


SAID = ("name", "family", "released", "assumptions", "guesses", "layer_pattern", "checkpoint_format", "vision")
MODELS = {name: REGISTRY.model(name) for name in REGISTRY.names("model")}
FIRST = {(structure(model), frozenset(kind for kind, _ in model.layer_kinds)): name for name, model in MODELS.items()}
CASES = [(name, "lora") for name in MODELS]
CASES += [(name, kind) for name in FIRST.values() for kind in ("pretrain", "qlora")]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_every_model(name: str, kind: str) -> None:
    """On one GPU kind: alone, sharded, recomputed and, where the heads allow it, tensor-parallel.

    Of models that are built alike, one learns in every way.
    """
    targets = {} if kind == "pretrain" else {"lora__targets": ["all-linear"]}
    made = job(name, kind, train__seq_len=1024, **targets)
    tp = 2 if made.model.heads % 2 == 0 else 1
    assert_estimated(
        made, layouts(tp=[1, 1, 1, tp], dp=[1, 8, 8, 4], zero=[0, 3, 1, 0], recompute=[0, 0, 2, 1], grad_accum=4)
    )


@pytest.mark.parametrize("name", [name for name in REGISTRY.names("model") if REGISTRY.model(name).experts])
def test_every_model_with_experts_spreads_them(name: str) -> None:
    made = job(name, "sft", train__seq_len=1024)
    assert_estimated(made, layouts(tp=[1, 1, 4], dp=[8, 16, 2], ep=[1, 4, 4], zero=1, grad_accum=4))
    spread = memory_ledger(made, layouts(dp=8, ep=[1, 2, 4], zero=1, grad_accum=4)).tensor_peak_bytes
    assert np.all(np.diff(spread) < 0)


SERVERS = [name for name in REGISTRY.names("server") if not REGISTRY.server(name).accelerator.serving_only]


@pytest.mark.parametrize("name", SERVERS)
def test_every_server(name: str) -> None:
    """A small job inside one node and over two."""
    made = ask({"model": "qwen2.5-0.5b", "job": "lora", "server": name, "train.seq_len": 512}).job
    node = made.server.accelerators
    assert_estimated(made, layouts(dp=[1, node, 2 * node], zero=[0, 1, 3], grad_accum=2))


TRAINS = [name for name in REGISTRY.names("gpu") if not REGISTRY.accelerator(name).serving_only]


@pytest.mark.parametrize("name", TRAINS)
def test_every_accelerator(name: str) -> None:
    made = ask({"model": "qwen2.5-0.5b", "job": "sft", "gpu": name, "gpus": 4, "train.seq_len": 512}).job
    assert_estimated(made, layouts(tp=[1, 2, 1], dp=[1, 2, 4], zero=[0, 1, 3], grad_accum=2))


LATENT = [name for name in REGISTRY.names("model") if REGISTRY.model(name).latent_attention]


@pytest.mark.parametrize("kind", ["lora", "qlora"])
@pytest.mark.parametrize("name", LATENT)
def test_latent_attention_takes_the_stacks_default_adapters(name: str, kind: str) -> None:
    """A user who names no targets must not be told that theirs are wrong."""
    assert ask({"model": name, "job": kind}).job.method.trained.adapter_parameters(REGISTRY.model(name)) > 0
