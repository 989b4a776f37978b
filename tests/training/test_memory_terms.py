"""The parts of a GPU's memory as sums of products, with the numbers of models that everybody can look up."""

from __future__ import annotations

import numpy as np
import pytest
from cases import job, layouts

from xe_sizer.result.common import Factor
from xe_sizer.training.evaluation import Evaluation
from xe_sizer.training.job import Job
from xe_sizer.training.layout import OFFLOAD
from xe_sizer.training.memory import Ledger, memory_ledger
from xe_sizer.training.memory_parts import MOMENTS
from xe_sizer.training.model_states import StateBytes
from xe_sizer.training.summary import terms_at
from xe_sizer.units import GIB

Products = list[dict[str, float]]  # each a factor by its name; divisors as their inverse

# Llama 2 7B: 32 layers of q, k, v, o and gate, up, down with two norms; embedding, head and the last norm.
LAYERS, HIDDEN, VOCAB, SEQUENCE = 32, 4096, 32000, 2048
MATRICES = 4 * HIDDEN**2 + 3 * HIDDEN * 11008
LAYER, ROOT = MATRICES + 2 * HIDDEN, 2 * VOCAB * HIDDEN + HIDDEN
PARAMETERS = LAYERS * LAYER + ROOT
ADAPTERS = LAYERS * 4 * 16 * 2 * HIDDEN  # rank 16 on q, k, v and o
# Mixtral 8x7B: grouped heads of 1,024, a router, and 8 experts of 3 x 4096 x 14336 in each of 32 layers.
EXPERTS = 8 * 3 * HIDDEN * 14336
DENSE = 2 * HIDDEN**2 + 2 * HIDDEN * 1024 + HIDDEN * 8 + 2 * HIDDEN
HIDDEN_STATE = 2.0 * SEQUENCE * HIDDEN
FIRST_LAYER = MOMENTS.index("backward of the first layer")


# No sums of products: maxima over operators, what a backward has reached of the gradients, weights of other models.
UNEXPLAINED = {"layer in its backward", "gradients", "cast weights", "frozen copies"}


def peak(made: Job, **sizes: object) -> tuple[Ledger, dict[str, Products]]:
    """The memory of a layout, and the terms of its parts at the worst moment of its worst stage."""
    chosen = layouts(**sizes)
    ledger = memory_ledger(made, chosen)
    terms = terms_of(made, ledger, *ledger.worst(), **sizes)
    held = ledger.at_peak()
    assert {name for name in held if not terms[name]} <= UNEXPLAINED
    return ledger, {name: terms[name] for name in held}


def terms_of(made: Job, ledger: Ledger, stage: int, moment: int, **sizes: object) -> dict[str, Products]:
    """The terms of all parts at a stage and a moment, which sum to the parts where there are any."""
    told = terms_at(Evaluation(made, layouts(**sizes)), ledger, stage, moment)
    for name, terms in told.items():
        products = [float(np.prod([1 / one.value if one.divides else one.value for one in term])) for term in terms]
        size = np.broadcast_to(ledger.components[name], ledger.total_bytes.shape)[stage, moment, 0]
        assert not terms or sum(products) == pytest.approx(size, rel=1e-12), name
    return {name: list(map(by_name, terms)) for name, terms in told.items()}


def named_peak(ledger: Ledger) -> tuple[int, str]:
    stage, moment = ledger.worst()
    return stage, MOMENTS[moment]


def by_name(term: tuple[Factor, ...]) -> dict[str, float]:
    return {one.name: 1.0 / one.value if one.divides else one.value for one in term}


def packed(model: str = "llama-2-7b", kind: str = "sft", stack: str = "megatron-lm", **flags: object) -> Job:
    if kind in ("lora", "qlora"):
        flags = {"lora__rank": 16, **flags}
    return job(model, kind, stack, train__seq_len=SEQUENCE, train__padding="packed", **flags)


def about(products: Products) -> list[object]:
    return [pytest.approx(each, rel=1e-9) for each in products]


def test_weights_gradients_and_sharded_states() -> None:
    """A distributed optimizer on 8 ranks: 2 and 4 bytes of every weight, an eighth of 12."""
    ledger, terms = peak(packed(), dp=8, zero=1)
    assert named_peak(ledger) == (0, "loss")
    assert terms["weights"] == about([{"elements": PARAMETERS, "B": 2}])
    assert terms["gradients"] == about([{"elements": PARAMETERS, "B": 4}])
    assert terms["optimizer states"] == about([{"elements": PARAMETERS, "B": 12, "ZeRO ranks": 1 / 8}])
    layers, ends = terms["activations"]
    assert (layers["layers"], layers["in flight"]) == (LAYERS, 1)
    assert ends == {"B at the ends": 2 * HIDDEN_STATE}
    logits = SEQUENCE * VOCAB
    (loss,) = terms["logits and loss"]
    assert loss["logits"] == logits
    assert set(loss) == {"logits", "B alive together"}


def test_what_sits_beside_the_tensors() -> None:
    made = packed()
    ledger, terms = peak(made, dp=8, zero=1)
    memory = made.stack.memory
    assert terms["CUDA context"] == [{"GiB": memory.context_gib.cautious, "": GIB}]
    assert terms["library workspaces"] == [{"GiB": memory.workspace_gib.cautious, "": GIB}]
    assert "communication buckets" not in terms  # gradients are reduced where they lie
    assert terms["NCCL buffers"] == [{"communicators": 1, "GiB": memory.communicator_gib.cautious, "": GIB}]
    beside = ("communication buckets", "CUDA context", "library workspaces", "NCCL buffers", "allocator slack")
    live = sum(size for name, size in ledger.at_peak().items() if name not in beside)
    assert terms["allocator slack"] == about([{"B of tensors": live, "": memory.slack_share.cautious}])
    _, mixed = peak(packed("mixtral-8x7b"), dp=8, ep=4, pp=2, tp=2, cp=2, grad_accum=4)
    assert mixed["NCCL buffers"][0]["communicators"] == 5
    bucketed = packed(stack="nanotron")
    _, terms = peak(bucketed, dp=8, zero=1)
    assert terms["communication buckets"] == [{"GiB": bucketed.stack.memory.bucket_gib, "": GIB}]


def test_sharded_weights_are_gathered_two_layers_at_a_time() -> None:
    _, terms = peak(packed(stack="deepspeed"), dp=8, zero=3, micro_batch=4)
    assert terms["weights"] == about([{"elements": PARAMETERS, "B": 2, "ZeRO ranks": 1 / 8}])
    assert terms["gathered layers"] == about(
        [{"elements of the root": ROOT, "B": 2}, {"layers": 2, "elements": LAYER, "B": 2}]
    )
    assert set(terms["activations"][1]) == {"B at the ends"}


def test_frozen_weights_beside_adapters() -> None:
    """Nothing before the first adapter is kept: a hidden state less."""
    _, terms = peak(packed(kind="lora", stack="hf-bf16"), dp=8, zero=3)
    eighth = {"ZeRO ranks": 1 / 8}
    linear = LAYERS * MATRICES
    assert terms["weights"] == about(
        [{"elements of matrices": linear, "B": 2, **eighth}, {"other elements": PARAMETERS - linear, "B": 2, **eighth}]
    )
    states = packed(kind="lora", stack="hf-bf16").stack.states
    assert terms["adapters"] == about([{"elements": ADAPTERS, "B": states.adapter_weight_bytes, **eighth}])
    assert terms["optimizer states"] == about([{"elements of adapters": ADAPTERS, "B": 8, **eighth}])
    before, ends = terms["activations"][1:]
    assert before == {"B before what learns": -2 * HIDDEN_STATE, "in flight": 1}
    assert ends == {"B at the ends": 2 * HIDDEN_STATE}
    assert terms["communication buckets"] == about([{"elements of adapters": ADAPTERS, "B": 2}])


def test_weights_in_4_bit_are_gathered_and_unpacked() -> None:
    made = packed(kind="qlora", stack="hf-bf16")
    narrow = made.method.frozen_linear_bytes
    assert narrow is not None
    _, whole = peak(made, dp=2, recompute=2)
    linear = LAYERS * MATRICES
    assert whole["weights"] == about(
        [{"elements of matrices": linear, "B": narrow}, {"other elements": PARAMETERS - linear, "B": 2}]
    )
    largest, wide = HIDDEN * 11008, made.method.held.buffer_bytes
    at_first = terms_of(made, memory_ledger(made, layouts(dp=2)), 0, FIRST_LAYER, dp=2)
    assert at_first["dequantised layer"] == [{"elements of the largest matrix": largest, "B": wide}]
    assert whole["activations"] == about(
        [{"B a layer": HIDDEN_STATE, "layers": LAYERS, "in flight": 1}, {"B at the ends": 2 * HIDDEN_STATE}]
    )
    _, shared = peak(made, dp=8, zero=3, recompute=2)
    assert shared["gathered layers"] == about(
        [{"elements of the root": ROOT, "B": 2}, {"layers": 2, "elements": LAYER, "B": narrow}]
    )


def test_experts_lie_on_fewer_ranks() -> None:
    """4 expert groups of 8 ranks: two ranks share the states of an expert; half of the layers on each of two stages."""
    ledger, terms = peak(packed("mixtral-8x7b"), dp=8, ep=4, zero=1, pp=2, grad_accum=4)
    assert named_peak(ledger) == (0, "backward of the last layer")
    dense, experts = 16 * DENSE + VOCAB * HIDDEN, 16 * EXPERTS / 4
    assert terms["weights"] == about([{"elements": dense, "B": 2}, {"elements of experts": experts, "B": 2}])
    assert terms["gradients"] == about([{"elements": dense, "B": 4}, {"elements of experts": experts, "B": 4}])
    assert terms["optimizer states"] == about(
        [
            {"elements": dense, "B": 12, "ZeRO ranks": 1 / 8},
            {"elements of experts": experts, "B": 12, "ZeRO ranks": 0.5},
        ]
    )
    layers, last = terms["activations"]
    assert (layers["layers"], layers["in flight"]) == (16, 2)
    assert last == about([{"B of the layer in its backward": -layers["B a layer"]}])[0]


def test_the_root_s_gradients_come_with_the_backward() -> None:
    _, terms = peak(packed("mixtral-8x7b", stack="deepspeed"), dp=8, ep=4, zero=3)
    dense, experts = 32 * DENSE + ROOT, 32 * EXPERTS / 4
    assert terms["weights"] == about(
        [{"elements": dense, "B": 2, "ZeRO ranks": 1 / 8}, {"elements of experts": experts, "B": 2, "ZeRO ranks": 0.5}]
    )
    assert terms["gathered layers"] == about(
        [
            {"elements of the root": ROOT, "B": 2},
            {"layers": 2, "elements": DENSE + EXPERTS / 4, "B": 2},
            {"gradients of the root": ROOT, "B": 2},
        ]
    )


def test_the_first_of_four_stages_holds_four_micro_batches() -> None:
    """Two tensor ranks: half of the matrices; the last layer's own are in its backward."""
    _, terms = peak(packed(), pp=4, tp=2, grad_accum=8, recompute=1)
    mine = 8 * (MATRICES / 2 + 2 * HIDDEN) + VOCAB * HIDDEN / 2
    for name, each in (("weights", 2), ("gradients", 4), ("optimizer states", 12)):
        assert terms[name] == about([{"elements": mine, "B": each}])
    layers, last = terms["activations"]
    assert (layers["layers"], layers["in flight"]) == (8, 4)
    assert last == {"B of the layer in its backward": -layers["B a layer"]}


def test_other_micro_batches_lie_beside_the_first_layer_s_backward() -> None:
    """Four stages, everything recomputed: three more micro-batches of eight inputs of layers."""
    made, sizes = packed(), {"pp": 4, "grad_accum": 8, "recompute": 2}
    terms = terms_of(made, memory_ledger(made, layouts(**sizes)), 0, FIRST_LAYER, **sizes)
    others, first = terms["activations"]
    assert others == {"B a layer": HIDDEN_STATE, "layers": 8, "other micro-batches": 3}
    assert first == {"B of the first layer": HIDDEN_STATE}


def test_layers_on_their_way_to_the_host_stay_for_a_while() -> None:
    """All inputs of layers go to the host but the one that is copied and the one that runs."""
    made, sizes = packed(), {"offload": OFFLOAD.index("activations"), "recompute": 2}
    terms = terms_of(made, memory_ledger(made, layouts(**sizes)), 0, MOMENTS.index("loss"), **sizes)
    layers, ends = terms["activations"]
    assert layers == {"B a layer": HIDDEN_STATE, "layers on their way": 2}
    assert set(ends) == {"B at the ends"}


def test_weights_of_another_pass_are_no_gradients() -> None:
    """A policy's reference is gathered at the loss, when the policy has no gradients of its root yet."""
    made, sizes = packed(kind="dpo", stack="generic"), {"dp": 8, "zero": 3}
    terms = terms_of(made, memory_ledger(made, layouts(**sizes)), 0, MOMENTS.index("loss"), **sizes)
    assert terms["gathered layers"][-1] == {"B of other weights in their pass": 2 * ROOT}


def test_an_update_holds_a_copy_of_what_learns() -> None:
    """A foreach optimizer in 16 bit: 2 bytes of everything, of states 4."""
    made = packed(stack="hf-trainer", optimizer="adamw-foreach")
    ledger, terms = peak(made, recompute=2)
    assert named_peak(ledger) == (0, "optimizer step")
    each = float(StateBytes.of(made, layouts()).weight[0])
    assert terms["optimizer workspace"] == about([{"learning elements": PARAMETERS, "B": each}])
    assert terms["gradients"] == about([{"elements": PARAMETERS, "B": each}])


def test_a_last_stage_keeps_all_that_comes_before_its_adapters() -> None:
    """Of two stages the gradient passes through the last one to the first."""
    made, sizes = packed(kind="lora"), {"pp": 2, "grad_accum": 4}
    ledger = memory_ledger(made, layouts(**sizes))
    for stage, names in ((0, ["B a layer", "B before what learns"]), (1, ["B a layer"])):
        terms = terms_of(made, ledger, stage, MOMENTS.index("loss"), **sizes)["activations"]
        found = [next(iter(term)) for term in terms]
        assert [name for name in found if name != "B at the ends"] == names
