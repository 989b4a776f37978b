"""What is decided at equality, and arrays that stand for several layouts: small cases whose answers are plain."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from cases import REGISTRY, ask, job, layouts
from msgspec.structs import replace

from xe_sizer.laws.device import Efficiency
from xe_sizer.scenario.read import Change
from xe_sizer.software.stack import EXCHANGES
from xe_sizer.training.activations import needed_flops
from xe_sizer.training.advice import beyond_the_speed_of_light
from xe_sizer.training.device import without_losses
from xe_sizer.training.evaluation import Evaluation
from xe_sizer.training.layout import SCHEDULES, Passes, Split, build_stages
from xe_sizer.training.memory import Ledger, memory_ledger, possible_of
from xe_sizer.training.model_states import accumulates_whole_gradients
from xe_sizer.training.padding import Sequences, standard_normal, unpadded_sequences
from xe_sizer.training.rank import rank_shapes, unique_rows
from xe_sizer.training.search import Kept, keep_best, size
from xe_sizer.training.step_time import operator_costs, timeline
from xe_sizer.training.token_lengths import histogram_lengths
from xe_sizer.training.workload import share_words

# Llama 2 7B
LAYERS, HIDDEN, VOCAB = 32, 4096, 32000
LINEAR = 4 * HIDDEN**2 + 3 * HIDDEN * 11008
PARAMETERS = LAYERS * (LINEAR + 2 * HIDDEN) + 2 * VOCAB * HIDDEN + HIDDEN


# --- one of several layouts


def test_a_ledger_of_one_of_three_layouts() -> None:
    parts = {"weights": np.array([[[1.0, 2.0, 3.0]]]), "context": np.array([[[5.0]]])}
    whole = Ledger(parts, np.array([10.0, 20.0, 30.0]), np.array([7.0, 8.0, 9.0]))
    one = whole.at(1)
    assert (one.total_bytes.tolist(), one.host_bytes.tolist(), one.cached_bytes.tolist()) == ([[[7.0]]], [20.0], [8.0])
    assert replace(whole, cached_bytes=np.array([4.0])).at(2).cached_bytes.tolist() == [4.0]


def test_states_that_fill_the_card_to_the_byte_are_possible() -> None:
    """2 bytes of weights and 4 of gradients, 12 of states: 18 of each parameter on one H100's worth and a headroom."""
    made = job(stack="megatron-lm", train__seq_len=512)
    card = 200 * 2**30
    server = made.server
    made = replace(made, server=replace(server, accelerator=replace(server.accelerator, memory_bytes=float(card))))
    left = card - 18 * PARAMETERS
    found = possible_of(Evaluation(made, layouts()), left)
    assert found is not None
    assert found.index.tolist() == [0]
    assert possible_of(Evaluation(made, layouts()), left + 1) is None
    both = possible_of(Evaluation(made, layouts(dp=[1, 8, 1], zero=[0, 1, 0])), left + 1)
    assert both is not None
    assert both.index.tolist() == [1]
    alone = memory_ledger(made, layouts(dp=8, zero=1))
    assert both.ledger.peak_bytes == pytest.approx(alone.peak_bytes, rel=1e-12)


@pytest.mark.parametrize("offset", [0, 1, -5])
def test_rows_of_wide_columns_do_not_run_into_each_other(offset: int) -> None:
    """Three columns of 2^32 numbers each have no key in 64 bits: the first would fall out of it."""
    most = 2**32 - 1
    column = np.array([1, 2, most, 0, 1]) + offset
    rest = np.array([0, 0, most, 0, 0]) + offset
    rows = unique_rows([column, rest, rest])
    assert sorted(rows.first.tolist()) == [0, 1, 2, 3]
    assert (rows.broadcast(column[rows.first]) == column).all()


def test_bins_of_the_normal_distribution() -> None:
    """1,153 values from -9 to 9; each has the probability of a bin of 1/64 around it."""
    found = standard_normal.__wrapped__()
    assert (found.lengths[0], found.lengths[-1], found.lengths.size) == (-9.0, 9.0, 1153)
    assert found.probabilities.sum() == pytest.approx(1.0, abs=1e-15)
    for value in (0.0, 1.0, -2.5):
        (place,) = np.flatnonzero(found.lengths == value)
        low, high = (0.5 * math.erfc(-(value + side) / math.sqrt(2.0)) for side in (-1 / 128, 1 / 128))
        assert found.probabilities[place] == pytest.approx(high - low, rel=1e-12)


@pytest.mark.parametrize(
    ("share", "words"),
    [(0.0009, "less than 0.1 %"), (0.001, "0.1 %"), (0.0123, "1.2 %"), (0.0999, "10.0 %"), (0.1, "10 %")],
)
def test_shares_in_words(share: float, words: str) -> None:
    assert share_words(share) == words


# --- stages


@pytest.mark.parametrize(
    ("split", "pp", "layers"),
    [
        (Split(first=10), 3, [10, 11, 11]),
        (Split(last=10), 3, [11, 10, 11]),
        (Split(first=10, last=10), 3, [10, 10, 12]),
        (Split(first=10), 2, [10, 22, 0]),
        (Split(last=10), 2, [22, 10, 0]),
        (Split(first=10), 1, [32, 32, 32]),
    ],
)
def test_the_others_share_what_given_ends_leave(split: Split, pp: int, layers: list[int]) -> None:
    found = build_stages(32, split, layouts(pp=pp))
    assert found.layers[:, 0].tolist() == layers
    assert found.middles.tolist() == [1.0 if pp == 3 else 0.0]


def test_middle_stages_are_those_between_the_ends() -> None:
    assert build_stages(32, Split(), layouts(pp=[1, 2, 4, 8, 32])).middles.tolist() == [0, 0, 2, 6, 30]


# --- what ranks hold


def test_ends_of_a_pipeline_in_a_v_are_on_its_first_stage() -> None:
    made = job()
    table = VOCAB * HIDDEN
    straight, folded = (
        Evaluation(made, layouts(pp=2, vpp=vpp, schedule=SCHEDULES.index(name))).held.root
        for name, vpp in (("1f1b", 1), ("v-half", 2))
    )
    assert straight[:, 0].tolist() == [table, table + HIDDEN]
    assert folded[:, 0].tolist() == [2 * table + HIDDEN, 0.0]


def test_the_largest_matrix_that_is_expanded() -> None:
    """Of a dense layer a matrix of its MLP; of experts half of all on a rank: three matrices in two tensors."""
    dense, mixture = job(), job("mixtral-8x7b")
    assert Evaluation(dense, layouts()).held.largest.max() == HIDDEN * 11008
    held = Evaluation(mixture, layouts(dp=8, ep=[1, 4])).held
    experts = 8 * 3 * 4096 * 14336
    assert held.largest.max(axis=0).tolist() == [experts / 2, experts / 8]


def test_whole_gradients_wait_where_nobody_reduces_them() -> None:
    """FSDP under accelerate, and pipelines: ZeRO 2 and 3 over several ranks that accumulate."""
    made = job(stack="hf-bf16")
    found = accumulates_whole_gradients(
        made, layouts(dp=[2, 2, 2, 2, 2, 1], zero=[0, 1, 2, 3, 3, 3], grad_accum=[2, 2, 2, 2, 1, 2])
    )
    assert found.tolist() == [False, False, True, True, False, False]
    every = accumulates_whole_gradients(job(stack="deepspeed"), layouts(dp=2, pp=[1, 2], zero=2, grad_accum=2))
    assert every.tolist() == [False, True]


def test_a_census_has_both_stages_of_every_layout() -> None:
    held = Evaluation(job(), layouts(dp=[1, 2, 4])).held
    for name in ("layer", "layer_experts", "mean_layer", "mean_experts", "root", "embedding", "head"):
        assert getattr(held, name).shape == (2, 3), name
    assert held.mean_layer[:, 0].tolist() == [LINEAR + 2 * HIDDEN] * 2


def test_casts_of_a_shard_are_told_apart_under_zero_3_alone() -> None:
    """Autocast of float32 weights: under ZeRO 0 to 2 a rank casts all of them, whoever shares their states."""
    made = job(stack="hf-trainer@4.40")

    def shapes(**sizes: object) -> int:
        chosen = layouts(**sizes)
        return int(rank_shapes(made, chosen, np.full(len(chosen), 512.0))[0].inputs.rank.tp.size)

    assert shapes(dp=[1, 2, 4, 8], zero=[0, 1, 2, 2]) == 1
    assert shapes(dp=[2, 4, 8], zero=3) == 3


# --- time


def test_a_recomputed_step_needs_more_flops_only_in_the_machine() -> None:
    """The forward of the layers again: 2 FLOP for each weight and token, and attention; half on each of two stages."""
    made = job(stack="megatron-lm", train__seq_len=512, train__padding="packed")
    one, two = (timeline(made, layouts(pp=pp, recompute=[0, 2], grad_accum=4)).recompute_flops for pp in (1, 2))
    assert one[0] == 0.0
    pairs = 512 * 513 / 2
    least = 4 * LAYERS * 2 * (LINEAR * 512 + 2 * HIDDEN * pairs)
    assert one[1] == pytest.approx(least, rel=0.01)
    assert two[1] == pytest.approx(one[1] / 2, rel=1e-12)


def test_operators_move_what_their_operands_weigh() -> None:
    """A product of m x k and k x n in 16 bit: forward once, twice backward; recomputed, the forward once more.

    That of the weight gradient reads and writes the 32-bit sum of gradients too.
    """
    made = job(stack="megatron-lm", train__seq_len=512, train__padding="packed")

    def of(name: str, **sizes: int) -> Any:
        costs = operator_costs(timeline(made, layouts(grad_accum=2, **sizes)))
        return next(cost for cost in costs if cost.operator.name == name)

    plain, again = of("output projection"), of("output projection", recompute=2)
    m, n, k = (plain.sizes[side] for side in "mnk")
    assert (m, n, k) == (512, HIDDEN, HIDDEN)
    assert plain.flops == pytest.approx(2 * LAYERS * 3 * 2 * m * n * k)
    assert again.flops == pytest.approx(2 * LAYERS * 4 * 2 * m * n * k)
    each = again.moved_bytes - plain.moved_bytes
    assert each == pytest.approx(2 * LAYERS * 2 * (m * k + k * n + m * n))
    assert plain.moved_bytes == pytest.approx(3 * each + 2 * LAYERS * 8 * k * n)


def test_exchanges_send_their_messages_there_and_back() -> None:
    """Two all-reduces of the hidden state a layer, as many backward; recomputed, the forward's once more."""
    made = job(stack="megatron-lm", train__seq_len=512, train__padding="packed")

    def sent(tp: int = 2, **sizes: int) -> float:
        costs = operator_costs(timeline(made, layouts(tp=tp, grad_accum=2, **sizes)))
        inside = [cost for cost in costs if cost.bound == "network" and cost.operator.layers == LAYERS]
        return sum(cost.moved_bytes for cost in inside)

    message = 2.0 * 512 * HIDDEN
    assert sent(tp=1) == 0.0
    assert sent(recompute=2) - sent() == pytest.approx(2 * LAYERS * 2 * message)
    assert sent() == pytest.approx(2 * LAYERS * 4 * message)


def test_longer_sequences_are_no_excuse_for_missing_a_deadline() -> None:
    """At twice the length no step is shorter than now, and a change to the present length keeps all tokens."""
    flags = {"model": "llama-2-7b", "gpu": "h100-sxm-80gb", "gpus": 8, "train.global_batch": 64, "train.seq_len": 512,
             "train.padding": "to-seq-len", "train.steps": 100}  # fmt: skip
    found = size(ask(flags))
    job_, flops = found.resolved.job, float(found.timeline.flops[0]) * 8 * 100
    peak = job_.server.accelerator.peak_flops_per_s[job_.precision]
    real = 1.0 - float(found.choice.sequences.padding_share[0])
    least_hours = flops * real**2 / (peak * 8) / 3600
    for factor, hopeless in ((1.001, False), (0.999, True)):
        asked = size(ask({**flags, "limits.max_hours": least_hours * factor}))
        for change in ({"train.seq_len": 512}, {"train.seq_len": 1024}, {"gpus": 8}, {"gpu": "h100-sxm-80gb"}):
            assert beyond_the_speed_of_light(asked, Change("", change, 1), REGISTRY) is hopeless
        assert beyond_the_speed_of_light(asked, Change("", {"gpus": 4}, 1), REGISTRY)
        assert not beyond_the_speed_of_light(asked, Change("", {"gpus": 16}, 1), REGISTRY)


def test_ranks_that_wait_for_each_other_meet_the_longest() -> None:
    """Padded to the longest of a micro-batch: whoever gathers layers waits for the slowest in each micro-batch."""
    made = ask({"model": "llama-2-7b", "job": "sft", "stack": "hf-bf16", "data.profile": "alpaca",
                "train.seq_len": 2048, "train.padding": "longest-in-micro-batch"}).job  # fmt: skip
    found = Evaluation(made, layouts(dp=8, zero=[0, 3], grad_accum=4)).sequences.critical_tokens
    assert found[1] > found[0] * 1.01


def test_the_longest_sample_lies_among_average_ones() -> None:
    """Three samples of 100 tokens and one of 500 in one row: 200 each, and of all four with the longest 275."""
    cut, one = histogram_lengths([100, 500], [3, 1]), np.ones(1)
    batches = SimpleNamespace(b=4.0 * one, d=one, g=one, meet_every_micro_batch=one > 0)
    found = unpadded_sequences(cut, batches, 4.0)  # type: ignore[arg-type]
    assert found.longest_tokens.tolist() == [275.0]
    assert found.critical_tokens == pytest.approx([200.0])
    assert found.mean_tokens.tolist() == [200.0]


def test_samples_as_long_as_a_sequence_are_not_cut() -> None:
    flags = {"model": "llama-2-7b", "job": "sft", "data.samples": 100, "data.mean_tokens": 100, "train.seq_len": 512,
             "train.padding": "longest-in-micro-batch"}  # fmt: skip
    at, above = (ask({**flags, "data.max_tokens": longest}).warnings for longest in (512, 513))
    assert not any("are cut" in text for text in at)
    assert any("are cut" in text for text in above)


def test_what_has_room_on_one_gpu_is_no_answer_for_two() -> None:
    """A layout that fits by a hair on one GPU, and one ten times as fast with room on two: each is kept."""
    both = layouts(dp=[1, 2])
    none = np.zeros(2, dtype=bool)
    for tight in ([True, False], [False, True], [False, False]):
        kept = keep_best(Kept(both, np.array([10.0, 1.0]), np.ones(2), np.array(tight), none))
        assert sorted(kept.layouts.gpus.tolist()) == [1, 2]


def test_flops_that_are_needed_are_one_figure() -> None:
    assert needed_flops([]).tolist() == [0.0]


def test_copies_in_8_bit_stay_beside_weights_that_learn() -> None:
    """As many bytes as the recipe keeps of each element of a layer's matrices; none of gathered or frozen ones."""
    made = job(stack="megatron-lm", precision="fp8", train__seq_len=512)
    kept = made.device.casts.kept_weight
    found = memory_ledger(made, layouts(dp=2, zero=[1, 3])).components["narrow copies of weights"]
    assert kept > 0
    assert found[0].max(axis=0).tolist() == [kept * LAYERS * LINEAR, 0.0]
    frozen = job(kind="lora", stack="megatron-lm", precision="fp8", train__seq_len=512)
    assert not np.any(memory_ledger(frozen, layouts()).components.get("narrow copies of weights", 0.0))


def test_the_fullest_stage_has_the_most_to_update() -> None:
    made = job(stack="megatron-lm", train__seq_len=512)
    shape = layouts(pp=2, grad_accum=2)
    half = 16 * (LINEAR + 2 * HIDDEN) + VOCAB * HIDDEN
    assert Evaluation(made, shape).updated.max(axis=0).tolist() == [half + HIDDEN]


def test_fixed_fractions_leave_no_time_to_the_host() -> None:
    stack = job(stack="hf-bf16").stack
    assert without_losses(stack, Efficiency()) is stack
    for efficiency in (Efficiency(0.5), Efficiency(0.5, 0.5), Efficiency(ideal=True)):
        found = without_losses(stack, efficiency)
        times = (
            found.forward_launch_s, found.backward_launch_s, found.step_overhead_s, found.micro_batch_overhead_s,
            found.gathered_module_s,
        )  # fmt: skip
        assert times == (0.0, 0.0, 0.0, 0.0, 0.0)
        hidden = {getattr(found.overlap, exchange.replace("-", "_")) for exchange in EXCHANGES}
        assert hidden == {1.0} if efficiency.hides_exchanges else found.overlap == stack.overlap


def test_flat_parameters_have_gradients_of_what_is_frozen_under_zero_3_alone() -> None:
    """Adapters in one flat parameter with the frozen layers; a model that learns as a whole has none beside."""
    for kind, expected in (("lora", [0.0, LAYERS * LINEAR]), ("sft", [0.0, 0.0])):
        made = job(kind=kind, stack="litgpt", **({"lora__rank": 8} if kind == "lora" else {}))
        states = msgspec.structs.replace(made.stack.states, flat_gradients=True)
        made = replace(made, stack=msgspec.structs.replace(made.stack, states=states))
        tensors = Evaluation(made, layouts(dp=2, zero=[2, 3]), Sequences.of_length(np.full(2, 512.0)))
        assert np.broadcast_to(tensors.flat_elements, (2, 2))[0].tolist() == expected


def test_a_pass_is_its_forward_and_both_parts_of_its_backward() -> None:
    assert Passes(*(np.full((3, 1), seconds) for seconds in (1.0, 2.0, 4.0))).total_s.tolist() == [[7.0]] * 3
