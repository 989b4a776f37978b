"""LoRA adapters in one service: their slots in memory, their grouped products in a step, what is asked and refused."""

from __future__ import annotations

import numpy as np
import pytest
from serving_cases import asked, job, problems, served

from xe_sizer.serving.job import ReplicaLayouts, ServedAdapters
from xe_sizer.serving.memory import adapter_bytes, adapter_operators, distinct
from xe_sizer.serving.step_time import Work, step_time
from xe_sizer.serving.summary import summarise

ALL = ("q", "k", "v", "o", "gate", "up", "down")
# Llama 3.1 8B: inputs and outputs of each projection.
SIZES = {"q": (4096, 4096), "k": (4096, 1024), "v": (4096, 1024), "o": (4096, 4096),
         "gate": (4096, 14336), "up": (4096, 14336), "down": (14336, 4096)}  # fmt: skip


def held(count: int, rank: int = 16, names: tuple[str, ...] = ALL, slots: int | None = None) -> ServedAdapters:
    return ServedAdapters(count, slots or count, dict.fromkeys(names, rank), 2.0)


def test_an_adapter_of_rank_16_on_all_linear_layers_has_41_9_million_elements() -> None:
    """As peft counts for Llama 3.1 8B: 41,943,040 trainable parameters."""
    model = job().model
    assert adapter_bytes(model, held(1), ReplicaLayouts.of())[0] == 41_943_040 * 2
    assert adapter_bytes(model, held(40), ReplicaLayouts.of())[0] == 40 * 41_943_040 * 2


def test_ranks_keep_a_of_columns_and_b_of_rows_whole() -> None:
    """On 4 ranks: A of q, k, v, gate and up whole, B a quarter; of o and down A a quarter, B whole."""
    size = 0
    for name, (inputs, outputs) in SIZES.items():
        row = name in ("o", "down")
        size += 16 * (inputs // 4 + outputs if row else inputs + outputs // 4)
    found = adapter_bytes(job().model, held(3), ReplicaLayouts.of(tp=4))
    assert found[0] == 3 * 32 * size * 2


def test_stages_hold_the_adapters_of_their_layers() -> None:
    model = job().model
    whole, half = (float(adapter_bytes(model, held(2), ReplicaLayouts.of(pp=pp))[0]) for pp in (1, 2))
    assert half == whole / 2


def test_different_adapters_of_a_step() -> None:
    """Of 2 adapters 3 sequences use both unless all ask for one: 2 (1 - 1/8); slots bound them."""
    assert distinct(held(2), 3.0) == pytest.approx(1.75)
    assert distinct(held(1), 9.0) == 1.0
    assert distinct(held(1000, slots=8), 500.0) == 8.0


def test_bytes_of_the_grouped_products() -> None:
    """q alone: 10 tokens of 10 sequences with one adapter; the buffer between the kernels is float32."""
    (found,) = adapter_operators(
        job().model, held(1, names=("q",)), np.ones(1), np.array([10.0]), np.array([10.0]), 2.0
    )  # fmt: skip
    shrink = 10 * 4096 * 2 + 16 * 4096 * 2 + 10 * 16 * 4
    expand = 10 * 16 * 4 + 16 * 4096 * 2 + 2 * 10 * 4096 * 2
    assert found.forward_bytes[0] == shrink + expand
    assert found.forward_launches == 2.0
    assert found.layers == 32


def test_ranks_share_the_grouped_products() -> None:
    """On 4 ranks outputs of q, k and v are split, so is the input of o; both have 2 different adapters of 3 tokens."""
    two = ServedAdapters(2, 2, {"q": 16, "k": 8, "v": 8, "o": 16}, 2.0, kernel_launches=3.0)
    four, tokens, sequences = np.array([4.0]), np.array([6.0]), np.array([3.0])
    together, row = adapter_operators(job().model, two, four, tokens, sequences, 2.0)
    outputs, of_b = 4096 / 4 + 2 * 1024 / 4, 16 * 4096 / 4 + 2 * 8 * 1024 / 4
    weights = 1.75 * 2 * (32 * 4096 + of_b)
    assert together.forward_bytes.tolist() == pytest.approx([6 * (2 * (4096 + 2 * outputs) + 8 * 32) + weights])
    weights = 1.75 * 2 * (16 * 4096 / 4 + 16 * 4096)
    assert row.forward_bytes.tolist() == pytest.approx([6 * (2 * (4096 / 4 + 2 * 4096) + 8 * 16) + weights])
    for found in (together, row):
        assert (found.forward_launches, found.backward_launches, found.layers) == (6, 0, 32)
        assert [size.tolist() for size in (found.saved_bytes, found.backward_bytes, found.temporary_bytes)] == [[0]] * 3


def test_projections_that_share_an_input_share_their_kernels() -> None:
    one = np.ones(1)
    found = list(adapter_operators(job().model, held(1), one, one, one, 2.0))
    assert [operator.name for operator in found] == ["q+k+v adapter", "gate+up adapter", "o adapter", "down adapter"]


def test_a_step_takes_the_grouped_products_longer() -> None:
    """256 kernels (32 layers, 4 groups, 2 each) of 10 us, and their bytes at the bandwidth of streaming kernels."""
    plain, adapted = (job(serve__adapters=n) if n else job() for n in (0, 1))
    work, one = Work(decodes=8.0, decode_past=500.0), ReplicaLayouts.of()
    longer_s = float((step_time(adapted, one, work).total_s - step_time(plain, one, work).total_s)[0])
    columns = sum(inputs for inputs, _ in SIZES.values())
    weights = 2 * 16 * sum(inputs + outputs for inputs, outputs in SIZES.values())
    assert columns == 6 * 4096 + 14336
    shared = 4096 + 4096 + 4096 + 14336  # inputs of qkv, gate and up, o, down
    outputs = sum(outputs for _, outputs in SIZES.values())
    moved = 8 * (2 * shared + 4 * outputs + 2 * 4 * 16 * 7) + weights
    law = plain.device
    bytes_s = 32 * moved / (law.memory_bound_efficiency * law.bandwidth_bytes_per_s)
    assert longer_s == pytest.approx(256 * 10e-6 + bytes_s, rel=1e-6)


def test_held_adapters_leave_less_for_the_cache() -> None:
    plain, adapted = served(serve__concurrency=8), served(serve__concurrency=8, serve__adapters=40)
    assert plain.pool_bytes - adapted.pool_bytes == pytest.approx(40 * 41_943_040 * 2)
    assert "LoRA adapters" in adapted.memory_parts
    assert "LoRA adapters" not in plain.memory_parts
    shown = summarise(adapted)
    assert [part.name for part in shown.memory.components][:3] == ["weights", "LoRA adapters", "KV cache"]
    assert sum(part.bytes for part in shown.memory.components) == shown.memory.peak_bytes


def test_an_engine_allocates_its_next_rank_on_all_linear_layers_or_the_targets() -> None:
    flags = {"serve__adapters": 2, "lora__rank": 20, "lora__targets": ["q_proj"]}
    allocated = asked(**flags).job.adapters
    assert allocated is not None
    assert allocated.ranks == dict.fromkeys(ALL, 32)
    exact = asked(**flags, serve__engine="sglang").job.adapters
    assert exact is not None
    assert exact.ranks == {"q": 20}


def test_slots_bound_what_is_held() -> None:
    sized = served(serve__adapters=100, serve__adapter_slots=8, serve__concurrency=64)
    shown = summarise(sized).adapters
    assert shown is not None
    assert (shown.count, shown.held, shown.rank) == (100, 8, 16)
    assert shown.bytes == 8 * 41_943_040 * 2
    assert shown.adapter_bytes == 41_943_040 * 2
    assert shown.distinct == 8.0
    assert shown.share == pytest.approx(shown.seconds / float(sized.point.decode.total_s[0]))
    split = summarise(served(serve__adapters=100, serve__adapter_slots=8, layout__tp=2, serve__concurrency=64)).adapters
    assert split is not None
    assert (split.adapter_bytes, split.held) == (2 * split.bytes / 8, 8)
    assert split.bytes < shown.bytes
    assert summarise(served()).adapters is None


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"serve__adapters": 2, "serve__engine": "gpt-fast"}, "does not serve adapters"),
        ({"serve__adapters": 2, "lora__rank": 1024}, "up to rank 512"),
        ({"serve__adapters": 2, "lora__targets": ["nose"]}, "'nose' is not a projection"),
        ({"serve__adapter_slots": 2}, "needs 'adapters'"),
    ],
)
def test_what_does_not_go_together_is_refused(flags: dict[str, object], words: str) -> None:
    assert any(words in problem for problem in problems(**flags))


def test_a_rank_without_adapters_has_no_effect() -> None:
    assert any("lora.rank" in warning for warning in summarise(served(lora__rank=8)).warnings)
    assert not any("lora.rank" in one for one in summarise(served(lora__rank=8, serve__adapters=1)).warnings)
