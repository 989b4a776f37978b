"""Forms of adapters: bytes and products of low-rank ones, by arithmetic on their sizes."""

from __future__ import annotations

import numpy as np
import pytest
from cases import REGISTRY, graph
from msgspec.structs import replace

from xe_sizer.graph.inputs import Adapter, Learning, LowRank
from xe_sizer.graph.operators import Matmul
from xe_sizer.graph.transformer import layer_operators
from xe_sizer.graph.weights import layer_weights

LLAMA = REGISTRY.model("llama-2-7b")
TOKENS = 256


def products(form: LowRank) -> dict[str, Matmul]:
    learning = Learning(False, {"q": form})
    operators = layer_operators(graph(LLAMA, learning, batch=1, sequence=TOKENS))
    return {op.name: op for op in operators if isinstance(op, Matmul) and op.adapter}


@pytest.mark.parametrize("freezes", [False, True])
def test_a_frozen_first_matrix_has_no_gradient_and_keeps_no_input(freezes: bool) -> None:
    """LoRA-FA: A neither learns nor keeps its 4-byte copy of the input; B keeps what it reads."""
    found = products(LowRank(8, freezes_first=freezes))
    first, second = found["q adapter A"], found["q adapter B"]
    assert first.weight_gradient is not freezes
    assert float(first.saved_bytes[0]) == (0 if freezes else 4 * TOKENS * 4096)
    assert float(second.saved_bytes[0]) == 4 * TOKENS * 8


def test_a_frozen_first_matrix_stands_beside_the_weight() -> None:
    weight = next(each for each in layer_weights(LLAMA, LLAMA.layer_kinds[0][0]) if each.name == "down")
    learns, frozen = (Adapter(LowRank(16, freezes_first=freezes), (weight,)) for freezes in (False, True))
    assert (learns.parameters, frozen.parameters) == (16 * (4096 + 11008), 16 * 4096)
    assert float(frozen.buffer_bytes(np.ones(1))[0]) == 4 * 16 * 11008
    assert frozen.matrices == ((4096, 16),)
    assert float(replace(learns, form=LowRank(4)).on_rank(np.array([8.0]))[0]) == 4 * (11008 / 8 + 4096)
