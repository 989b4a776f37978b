"""What a layer's forward holds, by arithmetic on its sizes."""

from __future__ import annotations

import numpy as np
import pytest
from cases import REGISTRY, ask, graph, job, layouts
from msgspec.structs import replace

from xe_sizer.errors import InputError
from xe_sizer.graph.inputs import Learning, LowRank
from xe_sizer.graph.operators import MemoryBound, Operator
from xe_sizer.graph.transformer import layer_operators
from xe_sizer.training.activations import forward_peak_bytes
from xe_sizer.training.job import Job, LearningLayers
from xe_sizer.training.memory import memory_ledger
from xe_sizer.training.step_time import timeline

LLAMA = REGISTRY.model("llama-2-7b")
TOKENS, HIDDEN, FFN = 256, 4096, 11008


def kernel(kept: float, beside: float) -> MemoryBound:
    zero = np.zeros(1)
    return MemoryBound(
        name="kernel", module="mlp", layers=2.0, saved_bytes=np.array([kept]), forward_bytes=zero, backward_bytes=zero,
        forward_launches=1.0, backward_launches=1.0, temporary_bytes=zero,
        forward_temporary_bytes=np.array([beside]),
    )  # fmt: skip


@pytest.mark.parametrize(("stops_early", "expected"), [(True, 50.0), (False, 95.0)])
def test_a_forward_holds_what_is_kept_so_far_and_its_temporaries(stops_early: bool, expected: float) -> None:
    """Two layers each: 10 + 40, 10 + 20 + 0, then 30 + 65, which runs again only for what is kept by then."""
    operators = (kernel(10.0, 40.0), kernel(20.0, 0.0), kernel(0.0, 65.0))
    assert float(forward_peak_bytes(operators, 2.0, stops_early)[0]) == expected


def adapted(autocast: bool) -> dict[str, Operator]:
    learning = Learning(False, {"down": LowRank(8)}, adapter_element_bytes=4.0)
    inputs = replace(graph(LLAMA, learning, batch=1, sequence=TOKENS), autocast=autocast)
    return {op.name: op for op in layer_operators(inputs)}


@pytest.mark.parametrize(("autocast", "copies"), [(True, 4 + 2), (False, 2)])
def test_adapters_wait_beside_their_input_and_the_frozen_result(autocast: bool, copies: int) -> None:
    """Under autocast peft's float32 copy of the input lives beside the 16-bit one that the product keeps."""
    first = adapted(autocast)["down adapter A"]
    assert float(first.forward_temporary_bytes[0]) == TOKENS * (2 * HIDDEN + copies * FFN)


def test_an_output_of_adapters_lives_beside_its_scaled_copy() -> None:
    """Both in float32 where adapters are, and in 16 bit under autocast."""
    for autocast, size, copies in ((True, 2, 6), (False, 4, 2)):
        last = adapted(autocast)["down adapter add"]
        assert float(last.forward_temporary_bytes[0]) == TOKENS * ((2 + 2 * size) * HIDDEN + copies * FFN)


@pytest.mark.parametrize(("activation", "there"), [("fused", 1), ("eager", 2)])
def test_a_gate_and_its_activation_wait_for_the_up_projection(activation: str, there: int) -> None:
    """2 bytes of each, the activation where it is a kernel of its own, and the frozen projection's input and result."""
    inputs = graph(LLAMA, Learning(False, {"q": LowRank(8)}), batch=1, sequence=TOKENS)
    kernels = replace(inputs.kernels, fused_gate_up=False, activation=activation)
    up = next(op for op in layer_operators(replace(inputs, kernels=kernels)) if op.name == "up")
    assert float(up.forward_temporary_bytes[0]) == TOKENS * (there * 2 * FFN + 2 * (FFN + HIDDEN))


def test_a_written_out_gelu_returns_float32_under_autocast() -> None:
    """Result and its cast: 4 + 2 bytes an element, in place of 2; kept are 2 + 3 x 4 in place of 4 x 2."""
    model = REGISTRY.model("gpt2-xl")
    inputs = graph(model, Learning(False, {"q": LowRank(8)}), batch=1, sequence=TOKENS)
    inputs = replace(inputs, kernels=replace(inputs.kernels, activation="eager"))
    for autocast, passing, kept in ((False, 2, 8), (True, 6, 14)):
        found = {op.name: op for op in layer_operators(replace(inputs, autocast=autocast))}["activation"]
        assert float(found.forward_temporary_bytes[0]) == TOKENS * model.ffn * passing
        assert float(found.saved_bytes[0]) == TOKENS * model.ffn * kept


# Jobs in which some layers learn: what is kept for them, and what runs back, by hand.

LAYER = 4 * 4096**2 + 3 * 4096 * 11008 + 2 * 4096  # of Llama 2 7B, which has 32


def held(name: str, **flags: object) -> float:
    ledger = memory_ledger(job(stack="hf-bf16", **flags), layouts(recompute=2))
    return float(np.max(ledger.components[name]))


@pytest.mark.parametrize(
    ("last", "block", "count", "reach"), [(8, 0, 8, 8 / 32), (None, 1, 1, 33 / 64), (40, 0, 32, 1)]
)
def test_how_far_the_backward_reaches(last: int | None, block: int, count: int, reach: float) -> None:
    """Down to the first layer that learns; of a layer anywhere, over half of them on average."""
    found = LearningLayers.of(32, last, block)
    assert (found.count, found.share, found.reach, found.ends) == (count, count / 32, reach, 0)
    assert LearningLayers.of(32, None, 0).ends == 1


def test_gradients_and_states_are_those_of_the_layers_that_learn() -> None:
    assert held("gradients", train__trainable_layers=4) == pytest.approx(4 * LAYER * 2, rel=1e-12)
    assert held("optimizer states", train__trainable_layers=4) == pytest.approx(4 * LAYER * 4, rel=1e-12)
    assert held("weights", train__trainable_layers=4) == held("weights")


def test_badam_keeps_one_layer_in_float32() -> None:
    """Weights, gradients and two moments: 16 bytes of a layer beside the model in 16 bit, whatever the stack has."""
    assert held("optimizer states", optimizer="badam") == pytest.approx(16 * LAYER, rel=1e-12)
    wide = memory_ledger(job(stack="hf-trainer", optimizer="badam", precision="bf16"), layouts(recompute=2))
    assert np.max(wide.components["weights"]) == 2 * 6_738_415_616


def test_the_fewer_layers_learn_the_shorter_the_step() -> None:
    seconds = [
        float(timeline(job(stack="hf-bf16", train__trainable_layers=count), layouts()).components["backward"][0])
        for count in (1, 8, 16)
    ]
    whole = float(timeline(job(stack="hf-bf16"), layouts()).components["backward"][0])
    assert seconds[0] < seconds[1] < seconds[2] < whole
    assert seconds[2] - seconds[1] == pytest.approx(seconds[1] * 8 / 8, rel=0.1)  # a layer's alike, the head's little


def test_activations_below_the_layers_that_learn_are_not_kept() -> None:
    """Of 32 layers the last 8 keep what they need; the head's input and what the loss reads stay as they are."""
    whole, some = (
        float(np.max(memory_ledger(job(stack="hf-bf16", **flags), layouts()).components["activations"]))
        for flags in ({}, {"train__trainable_layers": 8})
    )
    assert some == pytest.approx(whole / 4, rel=0.02)


def test_layers_beside_adapters_are_frozen_anyway() -> None:
    with pytest.raises(InputError) as raised:
        ask({"model": "llama-2-7b", "job": "lora", "stack": "hf-bf16", "train.trainable_layers": 4})
    assert "the layers are frozen" in str(raised.value)
    assert job(kind="lora", stack="hf-bf16", optimizer="badam").learning_layers.count is None


def test_no_more_layers_learn_than_the_model_has() -> None:
    with pytest.raises(InputError) as raised:
        ask({"model": "llama-2-7b", "job": "sft", "stack": "hf-bf16", "train.trainable_layers": 33})
    assert "llama-2-7b has 32 layers, not 33" in str(raised.value)


# Unfused attention in forwards that keep nothing, and weights that stay float32 where the others are held in few bits.


def at_end_of_forward(made: Job) -> float:
    """Activations of one GPU that runs every layer again, at the end of the forward [bytes]."""
    ledger = memory_ledger(made, layouts(recompute=2), np.array([1024.0]))
    return float(ledger.components["activations"][0, 0, 0])


def with_model(made: Job, **changes: object) -> Job:
    return replace(made, model=replace(made.model, **changes))


def test_a_forward_that_keeps_nothing_holds_scores() -> None:
    """BLOOM: 12 bytes a score of a head while the softmax runs, and 2 of the block before, which none keeps."""
    made = job("bloom-1b7", stack="hf-bf16", attention="eager", train__task="seq-cls")  # whose logits are few
    scores = 16 * 1024 * 1024
    more = at_end_of_forward(made) - at_end_of_forward(with_model(made, held_scores=()))
    assert more == scores * (2 + 2)
    fused = replace(made, attention="flash")
    operands = 4 * 1024 * 2048 * 2  # queries, keys, values and output
    state = 1024 * 2048 * 2
    of_loss = 4 * 1024  # what the loss keeps of a token, which comes later
    assert at_end_of_forward(made) - at_end_of_forward(fused) == scores * 14 + operands + state - of_loss


def test_a_frozen_pass_holds_scores_beside_the_logits_of_the_model() -> None:
    """The reference of DPO has scores of both answers, while three tensors of the policy's logits are there."""
    plain = job("bloom-1b7", kind="lora", stack="hf-bf16", attention="eager")
    pairs = job("bloom-1b7", kind="dpo", stack="hf-bf16", attention="eager", adapter="lora", train__reference="copy")
    narrow = with_model(pairs, held_scores=())
    assert at_end_of_forward(pairs) - at_end_of_forward(narrow) == 2 * 16 * 1024 * 1024 * (2 + 2)
    assert at_end_of_forward(pairs) > 2 * at_end_of_forward(plain)


def test_a_matrix_of_t5_stays_float32_where_the_others_are_in_four_bits() -> None:
    """Weights: 4 bytes an element of `wo`; autocast keeps a 16-bit copy of each until its layer's backward."""
    made = job("t5-large", kind="qlora", stack="hf-trainer", lora__targets=["q", "v"])
    alike = with_model(made, float32_weights=())
    elements = 48 * 1024 * 4096
    wide, narrow = (memory_ledger(one, layouts(), np.array([512.0])).components for one in (made, alike))
    weights = float(np.max(wide["weights"])) - float(np.max(narrow["weights"]))
    assert weights == pytest.approx(elements * (4 - 0.5161), rel=1e-9)
    kept = float(np.max(wide["activations"])) - float(np.max(narrow["activations"]))
    assert kept == pytest.approx(elements * 2, rel=1e-9)
    full = job("t5-large", stack="hf-trainer")
    first, second = (memory_ledger(one, layouts()).total_bytes for one in (full, with_model(full, float32_weights=())))
    assert np.array_equal(first, second)
