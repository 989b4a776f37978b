"""What an estimate says of a chosen layout, and what a job counts: by hand."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from cases import ask, job, layouts
from msgspec.structs import replace

from xe_sizer.laws.collectives import ALL_GATHER, collective_time_s
from xe_sizer.laws.matmul import MatmulLaw
from xe_sizer.training.estimate import TrainingEstimate
from xe_sizer.training.evaluation import Evaluation
from xe_sizer.training.job import Job
from xe_sizer.training.layout import Layouts
from xe_sizer.training.optimizer_step import newton_schulz_time_s, orthogonalisation_bytes
from xe_sizer.training.rank import graph_inputs, rank_shapes, synchronised_every_micro_batch
from xe_sizer.training.search import LAYOUT_ERROR, TIE, preferred, size
from xe_sizer.training.step_time import matrix_work
from xe_sizer.training.summary import summarise
from xe_sizer.training.token_lengths import constant_lengths, histogram_lengths

GIB, HIDDEN = 2**30, 4096


# --- what a job reads and sends


def test_samples_read_by_padding() -> None:
    """10 steps of 16: 160 samples; packed to 4,096 tokens each sequence has two samples of 2,048 on average."""
    made = replace(job(), steps=10, global_batch=16, seq_len=4096, lengths=constant_lengths(2048))
    packed, padded = replace(made, padding="packed"), replace(made, padding="to-seq-len")
    assert (packed.samples_read, padded.samples_read) == (320, 160)
    assert (packed.read_tokens, padded.read_tokens) == (320 * 2048, 160 * 2048)
    pairs = replace(padded, method=replace(padded.method, sequences_per_sample=2))
    assert pairs.read_tokens == 2 * 160 * 2048


@pytest.mark.parametrize(
    ("stack", "kind", "precision", "casts"),
    [
        ("hf-trainer@4.40", "sft", "bf16", True),  # autocast of float32 weights
        ("hf-trainer@4.40", "sft", "fp32", False),  # nothing to cast to
        ("hf-trainer@4.40", "lora", "bf16", False),  # frozen weights are in 16 bit
        ("hf-trainer@4.40", "qlora", "bf16", False),
        ("hf-bf16", "sft", "bf16", False),
        ("megatron-lm", "sft", "bf16", False),  # no autocast: a master copy
    ],
)
def test_who_casts_weights_in_every_micro_batch(stack: str, kind: str, precision: str, casts: bool) -> None:
    assert job(kind=kind, stack=stack, precision=precision).casts_weights is casts


def test_float32_frozen_weights_are_cast_but_quantised_ones_never() -> None:
    for kind, casts in (("lora", True), ("qlora", False)):
        made = job(kind=kind, stack="hf-trainer@4.40")
        states = msgspec.structs.replace(made.stack.states, frozen_bytes=4.0)
        assert replace(made, stack=msgspec.structs.replace(made.stack, states=states)).casts_weights is casts


@pytest.mark.parametrize(("stack", "expected"), [("deepspeed", [0, 0, 1, 1]), ("hf-bf16", [0, 0, 0, 1])])
def test_when_ranks_meet_in_every_micro_batch(stack: str, expected: list[int]) -> None:
    """Where layers are gathered, and under ZeRO-2 where gradients are reduced each time."""
    assert synchronised_every_micro_batch(job(stack=stack), layouts(zero=[0, 1, 2, 3])).tolist() == expected


def test_weights_that_pass_through_memory_beside_the_products() -> None:
    """Autocast reads 4 and writes 2 bytes, under ZeRO-3 of a rank's eighth; gradients are summed: read and written."""
    made = job(stack="hf-trainer@4.40")
    inputs = graph_inputs(made, layouts(dp=8, zero=[0, 2, 3]), np.array([512.0]))
    assert inputs.weight_forward_bytes.tolist() == [6, 6, 6 / 8]
    assert inputs.weight_backward_bytes.tolist() == [8, 8, 8]
    frozen = graph_inputs(job(kind="lora", stack="megatron-lm"), layouts(), np.array([512.0]))
    assert (float(frozen.weight_forward_bytes[0]), float(frozen.weight_backward_bytes[0])) == (0, 0)


def shapes_of(made: Job, **sizes: object) -> int:
    chosen = layouts(**sizes)
    return int(rank_shapes(made, chosen, np.full(len(chosen), 512.0))[0].inputs.rank.tp.size)


def test_layouts_of_one_shape_are_computed_once() -> None:
    """Data-parallel ranks and ZeRO change no shape, but for the share of casts under ZeRO-3."""
    assert shapes_of(job(stack="megatron-lm"), dp=[1, 2, 4, 8], zero=[0, 1, 2, 3]) == 1
    assert shapes_of(job(stack="hf-trainer@4.40"), dp=[1, 2, 4, 8], zero=[0, 1, 3, 3]) == 3
    assert shapes_of(job(), tp=[1, 2], cp=[1, 2]) == shapes_of(job(), micro_batch=[1, 2]) == 2


# --- groups of a layout


@pytest.mark.parametrize(
    ("sizes", "ranks", "replicas", "expert_ranks"),
    [
        ({"dp": 16, "zero": 3, "zero_group": 4}, 4, 4, 4),
        ({"dp": 16, "zero": 0, "zero_group": 4}, 16, 1, 16),
        ({"dp": 16, "zero": 1, "zero_group": 0}, 16, 1, 16),
        ({"dp": 8, "cp": 2, "zero": 3, "zero_group": 8}, 8, 2, 8),
        ({"dp": 16, "ep": 4, "zero": 2, "zero_group": 8}, 8, 2, 2),
        ({"dp": 4, "ep": 4, "zero": 2, "zero_group": 2}, 2, 2, 1),
    ],
)
def test_groups_that_share_states(sizes: dict[str, int], ranks: int, replicas: int, expert_ranks: int) -> None:
    made = layouts(**sizes)
    found = (made.zero_ranks, made.zero_replicas, made.expert_zero_ranks)
    assert [size.tolist() for size in found] == [[ranks], [replicas], [expert_ranks]]


def test_what_offloading_moves() -> None:
    """None, optimizer, weights too; the same with activations."""
    made = layouts(offload=[0, 1, 2, 3, 4, 5])
    assert made.hosts_optimizer.tolist() == [False, True, True] * 2
    assert made.hosts_params.tolist() == [False, False, True] * 2
    assert made.hosts_activations.tolist() == [False] * 3 + [True] * 3


# --- which of some layouts


def preferred_of(made: Layouts, step_s: list[float], peak_bytes: list[float]) -> int:
    return preferred(made, np.array(step_s), np.array(peak_bytes), np.zeros(len(made), dtype=bool))


def test_the_plainest_of_those_as_fast_wins() -> None:
    """Within the error of a comparison the plainer one; beyond it the faster one, however complex."""
    made = layouts(tp=[1, 2])
    assert preferred_of(made, [1.0 + LAYOUT_ERROR - 1e-9, 1.0], [1.0, 1.0]) == 0
    assert preferred_of(made, [1.0 + LAYOUT_ERROR + 1e-9, 1.0], [1.0, 1.0]) == 1


def test_of_equally_plain_ones_the_fastest_or_with_a_tie_the_roomiest() -> None:
    made = layouts(tp=[2, 4, 8])
    assert preferred_of(made, [1.0 + TIE - 1e-9, 1.0, 1.05], [1.0, 2.0, 0.5]) == 0
    assert preferred_of(made, [1.0 + TIE + 1e-9, 1.0, 1.05], [1.0, 2.0, 0.5]) == 1


# --- matrices that are made orthogonal


def test_newton_schulz_is_three_products_an_iteration() -> None:
    """m = 1000, n = 4000, whichever way the matrix lies: 2 m m n + 2 m m m + 2 m m n FLOP, on a sharp roofline."""
    made = job(stack="megatron-lm", optimizer="muon")
    law = MatmulLaw(floor_s=1e-3, flops_efficiency=1.0, memory_efficiency=1.0, sharpness=np.inf)
    device = replace(made.device, scan_matmul=law, attention_peak_flops_per_s=1e9, bandwidth_bytes_per_s=1e15)
    flops = 2 * (2 * 1000**2 * 4000) + 2 * 1000**3
    for rows, columns in ((1000, 4000), (4000, 1000)):
        assert newton_schulz_time_s(rows, columns, 5, device) == pytest.approx(5 * (flops / 1e9 + 3e-3))


def test_matrices_of_a_step_are_divided_among_the_ranks_that_share_their_states() -> None:
    """Llama 2 7B: 4 matrices of 4096 x 4096 and 3 of 4096 x 11008 in each of 32 layers; each of 8 ranks does 1/8."""
    made = job(stack="megatron-lm", optimizer="muon")
    square, wide = (newton_schulz_time_s(4096, columns, 5, made.device) for columns in (4096, 11008))
    alone = matrix_work(Evaluation(made, layouts(pp=[1, 2])))
    whole = 32 * (4 * square + 3 * wide)
    assert alone == pytest.approx([whole, whole / 2], rel=0.05)  # q, k and v as one matrix or three
    sizes = [32 * HIDDEN * columns * 2 for columns in (4096, 4096, 4096, 4096, 11008, 11008, 11008)]
    rates = [float(collective_time_s(ALL_GATHER, size, 8, 8, made.network)) for size in sizes]
    gathered = sum(rates) / made.stack.efficiency.collectives
    shared = matrix_work(Evaluation(made, layouts(dp=8, zero=[0, 1])))
    assert shared == pytest.approx([alone[0], alone[0] / 8 + gathered], rel=0.05)


def test_workspace_of_the_largest_matrix() -> None:
    """The gathered matrix and its next iterate, and two products, in 16 bit: 2 (2 m n + 2 m m)."""
    made = job(stack="megatron-lm", optimizer="muon")
    assert orthogonalisation_bytes(made) == 2 * (2 * HIDDEN * 11008 + 2 * HIDDEN**2)
    assert orthogonalisation_bytes(job(stack="megatron-lm")) == 0


# --- the verdict


def test_an_estimate_of_a_job_that_fits() -> None:
    """Peak, room and hours follow from the ledger, the card and the step."""
    found = size(ask({"model": "llama-2-7b", "job": "lora", "gpus": 1, "train.steps": 100, "train.seq_len": 512}))
    peak = float(found.ledger.peak_bytes[0])
    card = found.resolved.job.server.accelerator.memory_bytes
    assert found.peak_bytes == pytest.approx(peak)
    assert found.headroom_gib == pytest.approx((card - peak) / GIB)
    assert found.total_s == pytest.approx(100 * found.step_s)
    assert found.hours == pytest.approx(100 * found.step_s / 3600)
    assert (found.fits, found.roomy) == (True, True)
    assert found.shortfall == pytest.approx(peak / card)
    batch = found.resolved.job.global_batch
    assert found.samples_per_s == pytest.approx(batch / found.step_s)
    assert found.tokens_per_s == pytest.approx(batch / found.step_s * found.tokens_per_sample)
    assert found.gpu_hours == pytest.approx(found.hours)


def verdict(found: TrainingEstimate) -> tuple[str, str]:
    said = summarise(found).verdict
    return said.memory, said.margin


SHARES = [
    (0.5, ("fits", "headroom")),
    (0.99, ("tight", "tight")),
    (1.01, ("tight", "over")),
    (4.0, ("does-not-fit", "over")),
]


@pytest.mark.parametrize(("share", "words"), SHARES)
def test_how_close_a_verdict_is(share: float, words: tuple[str, str]) -> None:
    """Three words by the probability; the margin says whether the cautious peak fits. Assumed lengths."""
    asked = ask({"model": "llama-2-7b", "job": "lora", "gpus": 1})
    found = size(asked)
    card = replace(asked.job.server.accelerator, memory_bytes=found.peak_bytes / share)
    tight = replace(asked, job=replace(asked.job, server=replace(asked.job.server, accelerator=card)))
    near = replace(found, resolved=tight)
    assert verdict(near) == words
    assert near.roomy == (words[0] == "fits")


@pytest.mark.parametrize(("share", "words"), SHARES)
def test_how_close_a_host_is(share: float, words: tuple[str, str]) -> None:
    """The same of a host's memory less the 4 GiB that it keeps, for an offloaded optimizer."""
    flags = {"model": "llama-2-7b", "job": "sft", "stack": "deepspeed", "gpus": 8, "layout.offload": "optimizer"}
    found = size(ask(flags))
    resolved, held = found.resolved, float(found.ledger.host_bytes[0])
    server = replace(resolved.job.server, host_memory_bytes=held / share + 4 * GIB)
    near = replace(found, resolved=replace(resolved, job=replace(resolved.job, server=server)))
    assert near.host_share == pytest.approx(share)
    assert verdict(near) == words
    unknown = replace(resolved.job.server, host_memory_bytes=None)
    nobody = replace(found, resolved=replace(resolved, job=replace(resolved.job, server=unknown)))
    assert (nobody.host_share, nobody.host_unknown, verdict(nobody)) == (0.0, True, ("tight", "tight"))


def test_lengths_of_a_histogram_are_read_as_they_are() -> None:
    made = replace(job(), steps=2, global_batch=4, padding="none", lengths=histogram_lengths([10, 30], [1, 1]))
    assert made.read_tokens == 2 * 4 * 20
