"""Selective checkpointing by operator: what a layer keeps, with PyTorch's own contexts and TorchTitan's policy."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("peft")

from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts  # noqa: E402

from tests.trace import training  # noqa: E402
from tests.trace.matrix import Case  # noqa: E402
from tests.trace.subjects import shape_of  # noqa: E402
from xe_sizer.graph.inputs import GraphInputs, Learning  # noqa: E402
from xe_sizer.graph.operators import Kernels, RankShape  # noqa: E402
from xe_sizer.graph.transformer import layer_operators  # noqa: E402

ATTENTION = "aten::_scaled_dot_product_flash_attention_for_cpu"
TOKENS = 2048


def _policy() -> Any:
    """Every second product runs again; attention is saved (torchtitan distributed/activation_checkpoint.py)."""
    products: Counter[bool] = Counter()

    def choose(ctx: Any, op: Any, *_: Any, **__: Any) -> CheckpointPolicy:
        if op is torch.ops.aten.mm.default:
            products[ctx.is_recompute] += 1
            odd = products[ctx.is_recompute] % 2 == 1
            return CheckpointPolicy.MUST_SAVE if odd else CheckpointPolicy.PREFER_RECOMPUTE
        return CheckpointPolicy.MUST_SAVE if op.name() == ATTENTION else CheckpointPolicy.PREFER_RECOMPUTE

    return choose


@pytest.mark.parametrize("family", ["llama", "llama-3", "qwen3"])
def test_bytes_that_a_layer_keeps(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "recomputation", lambda: create_selective_checkpoint_contexts(_policy()))
    cases = [Case(family, "full", recompute=True, batch=1, length=TOKENS, layers=layers) for layers in (2, 4)]
    two, four = (training.trace(case).forward.end_bytes for case in cases)
    states = [training.trace(case).states_bytes + training.trace(case).weights_bytes for case in cases]
    kept = (four - two - (states[1] - states[0])) / 2
    sizes = dict.fromkeys(("batch", "tp", "cp", "ep", "expert_tp"), 1.0) | {"sequence": TOKENS, "sequence_parallel": 0}
    rank = RankShape(**{name: np.array([float(size)]) for name, size in sizes.items()})
    kernels = Kernels(attention="sdpa", norm="eager", rotary="eager", activation="native", selective="alternate",
                      fused_qkv=False, fused_gate_up=False)  # fmt: skip
    one = shape_of(cases[0].subject, 1, TOKENS)
    operators = layer_operators(GraphInputs(one, rank, kernels, Learning(base=True)))
    ours = float(sum(np.sum(op.saved_bytes - op.dropped_bytes) for op in operators))
    assert ours == pytest.approx(kept, rel=0.01)
