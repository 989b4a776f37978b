"""Ranges of times where the kernels were measured on the user's own machine; expected numbers by hand."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from cases import REGISTRY
from msgspec.structs import replace

from xe_sizer.evidence.names import RecordRegistry
from xe_sizer.evidence.predict import predict_record
from xe_sizer.evidence.records import SHIPPED, read_records
from xe_sizer.laws.hardware import MeasuredHere, Server
from xe_sizer.laws.matmul import grouped_law
from xe_sizer.laws.network import network
from xe_sizer.result.common import Basis, Bias
from xe_sizer.scenario.read import read_scenario
from xe_sizer.software.uncertainty import Uncertainty
from xe_sizer.training.device import build_device
from xe_sizer.training.estimate import TrainingEstimate
from xe_sizer.training.resolve import resolve
from xe_sizer.training.search import size
from xe_sizer.training.uncertainty import KNOWN_MACHINE, Share, of_measured_laws, shares_of_laws

GPU = "h100-sxm-80gb"
BIAS = Bias(runs=9, publications=3, median=0.8, slowest=1.1, fastest=0.5)
PUBLISHED = Uncertainty(
    0.5, 3.0, "40 of 50 runs lie inside", True, basis=Basis(runs=50, publications=9, inside=40, bias=BIAS)
)
MEASURED = MeasuredHere("2026-11-27", ("matmul.bf16",))
EXACT = (Share("products", 1.0, 0.0),)


def ranged(told: Uncertainty = PUBLISHED, from_python: bool = True, shares: tuple[Share, ...] = EXACT) -> Uncertainty:
    return of_measured_laws(told, MEASURED, from_python, shares)


def test_laws_without_error_leave_what_runs_on_a_known_machine_differ_by() -> None:
    found = ranged()
    assert (found.low, found.high) == pytest.approx(KNOWN_MACHINE)
    assert found.evidence.startswith(
        "kernels measured on your machine, 2026-11-27; the errors of their laws come to less "
    )


def test_stacks_that_are_not_like_those_runs_keep_the_published_range() -> None:
    found = ranged(from_python=False)
    assert (found.low, found.high) == pytest.approx((0.5, 3.0))


def test_so_do_machines_of_which_collectives_alone_were_measured() -> None:
    found = of_measured_laws(PUBLISHED, replace(MEASURED, laws=("collectives.all_reduce",)), True, EXACT)
    assert (found.low, found.high) == pytest.approx((0.5, 3.0))


def test_errors_of_laws_widen_the_range_by_their_share_of_the_step() -> None:
    """hypot(0.5 ln 1.3, 0.3 ln 1.1) = hypot(0.1312, 0.0286) = 0.1343 beside ln 0.92 = -0.0834, ln 1.15 = 0.1398."""
    found = ranged(shares=(Share("products", 0.5, 0.3), Share("attention", 0.3, 0.1)))
    assert found.low == pytest.approx(math.exp(-math.hypot(0.0834, 0.1343)), rel=1e-3)
    assert found.high == pytest.approx(math.exp(math.hypot(0.1398, 0.1343)), rel=1e-3)
    assert "come to 14 % of this step, most of it from products;" in found.evidence


def test_a_bad_law_of_small_weight_hardly_counts() -> None:
    found = ranged(shares=(Share("products", 0.98, 0.0), Share("memory-bound kernels", 0.02, 1.5)))
    assert (found.low, found.high) == pytest.approx(KNOWN_MACHINE, rel=0.005)


def test_kernels_err_one_by_one() -> None:
    """Four of a quarter of the step each: half of what one of the whole step comes to, sqrt(4 / 16)."""
    whole, parts = (ranged(replace(PUBLISHED, low=1.0, high=1.0), False, one) for one in (
        (Share("products", 1.0, 0.2),), (Share("products", 0.25, 0.2),) * 4))  # fmt: skip
    assert math.log(whole.high) == pytest.approx(math.log(1.2))
    assert math.log(parts.high) == pytest.approx(0.5 * math.log(1.2))


def test_a_law_that_nobody_measured_errs_as_published_runs_do() -> None:
    """A fifth of the step, ln 3 = 1.0986: 0.2197."""
    found = ranged(shares=(Share("products", 0.8, 0.0), Share("exchanges", 0.2, None)))
    assert found.high == pytest.approx(math.exp(math.hypot(0.1398, 0.2197)), rel=1e-3)
    assert "most of it from unmeasured exchanges" in found.evidence


def test_a_published_range_that_is_narrower_stays() -> None:
    narrow = replace(PUBLISHED, low=0.97, high=1.1)
    found = ranged(narrow)
    assert (found.low, found.high) == pytest.approx((0.97, 1.1))


def test_bias_of_other_machines_is_said_where_the_range_rests_on_them() -> None:
    python, graphs = (ranged(from_python=one).basis for one in (True, False))
    assert python is not None
    assert graphs is not None
    assert (python.measured_on, python.bias) == ("2026-11-27", None)
    assert (graphs.measured_on, graphs.bias) == ("2026-11-27", BIAS)


# What a step consists of.


def on(server: Server, **flags: object) -> TrainingEstimate:
    """LoRA of an 8B model on so many GPUs, each kernel of which has a law with an error."""
    given = {name.replace("__", "."): value for name, value in flags.items()}
    given = {"model": "llama-3.1-8b", "gpu": GPU, "job": "lora", "stack": "hf-trainer", "train.micro_batch": 1, **given}
    resolved = resolve(read_scenario(None, given, {}), REGISTRY)
    job = resolved.job
    made = replace(
        job,
        server=server,
        network=network(server),
        device=build_device(server.accelerator, job.stack, job.method, job.precision, resolved.efficiency),
    )
    return size(replace(resolved, job=made))


def with_errors(matmul: float, attention: float, moving: float, exchanges: float | None = 0.1) -> Server:
    usual = REGISTRY.bare_server(REGISTRY.accelerator(GPU))
    laws = usual.accelerator.laws
    gpu = replace(
        usual.accelerator,
        measured=MEASURED,
        laws=replace(
            laws,
            matmul={name: replace(law, p90_error=matmul) for name, law in laws.matmul.items()},
            attention={name: replace(law, p90_error=attention) for name, law in laws.attention.items()},
            collectives={name: replace(law, p90_error=exchanges) for name, law in laws.collectives.items()},
            memory_bound_error=moving,
        ),
    )
    return replace(usual, accelerator=gpu)


def of_laws(found: TrainingEstimate) -> float:
    """What laws add to the range, in log: e of high^2 = ln(1.15)^2 + e^2."""
    return math.sqrt(math.log(found.uncertainty.high) ** 2 - math.log(KNOWN_MACHINE[1]) ** 2)


def test_every_second_of_kernels_and_exchanges_has_a_law() -> None:
    """The rest of the step is the host's and the overhead's; on one GPU nothing is sent."""
    for flags in (
        {"gpus": 1},
        {"gpus": 8, "layout__tp": 2, "stack": "megatron-lm", "job": "sft"},
        {"gpus": 8, "layout__pp": 2, "stack": "megatron-lm", "job": "sft"},
    ):
        found = on(with_errors(0.1, 0.1, 0.1), **flags)
        parts = {name: float(seconds[0]) for name, seconds in found.timeline.components.items()}
        beyond = ("host", "step overhead", "offload", "transfers to and from host memory")
        shares = list(shares_of_laws(found.timeline))
        priced = sum(parts.values()) - sum(parts[name] for name in beyond)
        assert sum(one.share for one in shares) == pytest.approx(priced / sum(parts.values()))
        sent = sum(one.share for one in shares if one.kind == "exchanges")
        assert (sent > 0) == (flags["gpus"] > 1)
        assert all(one.error == 0.1 for one in shares)


@pytest.mark.parametrize("kernel", ["flash", "eager"])
def test_each_kernel_has_the_error_of_its_own_law(kernel: str) -> None:
    shares = shares_of_laws(on(with_errors(0.1, 0.2, 0.3), gpus=1, attention=kernel).timeline)
    found = {(one.kind, one.error) for one in shares if one.share}
    assert found == {("products", 0.1), ("attention", 0.2), ("memory-bound kernels", 0.3)}


def test_a_bad_law_of_attention_widens_long_sequences_more() -> None:
    """An error of 5 % in all laws, or one of 100 % in that of attention; ln 2 / ln 1.05 = 14.2 at most."""
    short, long = (
        of_laws(on(with_errors(0.05, 1.0, 0.05), gpus=1, train__seq_len=length))
        / of_laws(on(with_errors(0.05, 0.05, 0.05), gpus=1, train__seq_len=length))
        for length in (1024, 16384)
    )
    assert 1.0 < short < 3.0
    assert 2.0 * short < long < 14.2


def test_a_bad_law_of_products_widens_every_job() -> None:
    """ln 1.8 / ln 1.05 = 12.05 of what is all products."""
    bad, good = (of_laws(on(with_errors(error, 0.05, 0.05), gpus=1)) for error in (0.8, 0.05))
    assert 8.0 < bad / good < 12.05


def test_exchanges_between_nodes_rest_on_the_network() -> None:
    """Sixteen GPUs are two nodes: with a network that nobody measured its share errs as published runs do."""
    inside = with_errors(0.02, 0.02, 0.02)
    for gpus, error in ((8, 0.1), (16, None)):
        line = on(inside, gpus=gpus, job="sft").timeline
        assert {one.error for one in shares_of_laws(line) if one.kind == "exchanges" and one.share} == {error}
    known = replace(inside, scale_out_error=0.3)
    line = on(known, gpus=16, job="sft").timeline
    assert {one.error for one in shares_of_laws(line) if one.kind == "exchanges" and one.share} == {0.3}


def test_grouped_products_have_an_error_of_their_own() -> None:
    law = replace(REGISTRY.accelerator(GPU).laws.matmul["bf16"], p90_error=0.1)
    assert grouped_law(law).p90_error is None
    assert grouped_law(replace(law, grouped_error=0.2)).p90_error == 0.2


LAUNCHES = """
name: h100-sxm-80gb
inherits: h100-sxm-80gb
laws: {host: {launch_us: 11, source: notes of the records}}
source: {title: notes of the records}
"""
MEASURED_HERE = Path(__file__).parents[2] / "benchmarks" / "measured"


def test_the_runs_on_a_known_machine_are_those_that_ship(tmp_path: Path) -> None:
    """One in ten of them took less than the first times the prediction, one in ten more than the second."""
    (tmp_path / "h100-sxm-80gb.yaml").write_text(LAUNCHES)
    machines = {
        "xe-h100": tmp_path,
        "nvidia-h200": MEASURED_HERE / "nvidia-h200",
        "nvidia-h100": MEASURED_HERE / "nvidia-h100",
    }
    records = read_records(SHIPPED / "measured.jsonl").records
    ratios = []
    for machine, folder in machines.items():
        registry = RecordRegistry((folder,))
        ran = [record for record in records if record.id.startswith(machine) and record.measured.step_time_s]
        ratios += [record.measured.step_time_s / predict_record(record, registry).sized.step_s for record in ran]
    assert len(ratios) >= 60
    assert np.quantile(ratios, [0.1, 0.9]) == pytest.approx(KNOWN_MACHINE, abs=0.03)
