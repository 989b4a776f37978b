"""Adapters: their size, and that what a rank holds of them is what it multiplies with."""

from __future__ import annotations

import numpy as np
import pytest
from cases import REGISTRY, graph
from msgspec.structs import replace

from xe_sizer.errors import InputError
from xe_sizer.graph.inputs import Learning, LowRank, model_adapters
from xe_sizer.graph.operators import Kernels, Matmul
from xe_sizer.graph.transformer import head_operators, layer_operators
from xe_sizer.training.adapters import ADAPTERS, AdapterOptions

LLAMA = REGISTRY.model("llama-2-70b")  # 80 layers of 8192, 64 heads and 8 key-value heads of 128


def on_rank(targets: dict[str, LowRank], tp: int) -> float:
    return float(
        sum(layers * each.on_rank(np.array([float(tp)]))[0] for layers, each in model_adapters(LLAMA, targets))
    )


@pytest.mark.parametrize(("tp", "key_outputs"), [(1, 1024), (4, 256), (8, 128), (16, 128), (64, 128)])
def test_key_adapters_are_split_as_far_as_there_are_heads(tp: int, key_outputs: int) -> None:
    assert on_rank({"k": LowRank(16)}, tp) == 80 * 16 * (8192 + key_outputs)


def test_an_adapter_of_a_row_parallel_weight_splits_its_inputs() -> None:
    assert on_rank({"o": LowRank(16)}, 8) == 80 * 16 * (8192 / 8 + 8192)


@pytest.mark.parametrize("tp", [1, 8, 32])
@pytest.mark.parametrize("targets", [("q", "v"), ("qkv", "o"), ("gate_up", "down"), ("k", "v", "o", "gate")])
def test_a_rank_multiplies_with_what_it_holds(targets: tuple[str, ...], tp: int) -> None:
    adapters = dict.fromkeys(targets, LowRank(16))
    operators = layer_operators(graph(LLAMA, Learning(False, adapters), tp=tp))
    products = [op.layers * float((op.n * op.k)[0]) for op in operators if isinstance(op, Matmul) and op.adapter]
    assert sum(products) == pytest.approx(on_rank(adapters, tp), rel=1e-12)


def test_parameters_are_those_of_one_rank_that_shares_with_none() -> None:
    adapters = {"qkv": LowRank(8), "down": LowRank(32)}
    whole = sum(layers * each.parameters for layers, each in model_adapters(LLAMA, adapters))
    assert whole == on_rank(adapters, 1) == 80 * (8 * (8192 + 8192 + 2 * 1024) + 32 * (28672 + 8192))


@pytest.mark.parametrize("name", ["lm_head", "head", "embed_out"])
def test_an_adapter_on_the_head_has_factors_of_the_vocabulary(name: str) -> None:
    """r (hidden + vocabulary) beside r (inputs + outputs) of q; tied or not."""
    for model in ("llama-3.2-1b", "llama-3-8b"):
        shape = REGISTRY.model(model)
        options = AdapterOptions(lora_rank=16, lora_targets=("q", name))
        trained = ADAPTERS["lora"].applied_to(shape, options)
        of_q = shape.layers * 16 * (shape.hidden + shape.heads * shape.head_dim)
        assert trained.adapter_parameters(shape) == of_q + 16 * (shape.hidden + shape.vocab)
        heads = [op for op in head_operators(graph(shape, trained.learning)) if isinstance(op, Matmul) and op.adapter]
        assert sum(float((op.n * op.k)[0]) for op in heads) == 16 * (shape.hidden + shape.vocab)


def test_other_kinds_of_adapters_are_refused_on_the_head() -> None:
    with pytest.raises(InputError, match="'lm_head' is not a projection"):
        ADAPTERS["vera"].applied_to(LLAMA, AdapterOptions(lora_targets=("lm_head",)))


IN_PLACE = Learning(False, dict.fromkeys(("q", "k", "v", "o", "gate", "up", "down"), LowRank(32)))


def kept(learning: Learning, **kernels: object) -> dict[str, float]:
    """What autograd keeps of a layer of Llama 2 70B, in hidden states."""
    made = graph(LLAMA, learning, Kernels(fused_qkv=False, fused_gate_up=False, **kernels))  # type: ignore[arg-type]
    inputs = replace(made, autocast=True)
    hidden = float(inputs.hidden_bytes[0])
    return {op.name: float(op.saved_bytes[0]) / hidden for op in layer_operators(inputs)}


def test_adapters_in_place_keep_each_input_once_and_compute_that_of_the_down_projection_again() -> None:
    """Unsloth kernels/fast_lora.py: X of LoRA_QKV, of LoRA_W what attention kept, X, e and g of LoRA_MLP."""
    found, ffn = kept(IN_PLACE, adapters="in-place"), 28672 / 8192
    assert (found["q"], found["k"], found["v"], found["output projection"]) == (1, 0, 0, 0)
    assert (found["gate"], found["up"], found["activation"], found["down"]) == (1, 0, 2 * ffn, 0)
    assert all(found[f"{name} adapter A"] == 0 for name in IN_PLACE.adapters)
    apart = kept(IN_PLACE)
    assert (apart["q adapter A"], apart["up adapter A"], apart["down adapter A"]) == (1, 1, ffn)


@pytest.mark.parametrize(
    "learning",
    [
        replace(IN_PLACE, adapter_dropout=True),
        replace(IN_PLACE, adapters={name: form for name, form in IN_PLACE.adapters.items() if name != "up"}),
        replace(IN_PLACE, adapters=dict.fromkeys(IN_PLACE.adapters, LowRank(32, magnitudes=True))),
    ],
)
def test_dropout_missing_adapters_and_magnitudes_leave_the_mlp_to_modules(learning: Learning) -> None:
    """Unsloth models/llama.py, patch_peft_model."""
    found = kept(learning, adapters="in-place")
    assert found["down adapter A"] >= 28672 / 8192
    assert found["gate adapter A"] >= 1
