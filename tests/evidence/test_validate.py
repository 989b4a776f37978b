"""Predictions for whole records: the path of a scenario, gaps that are said, and the shipped evidence."""

from pathlib import Path

import msgspec
import pytest

import xe_sizer.evidence
from xe_sizer.evidence.calibrate import collect_peaks
from xe_sizer.evidence.names import RecordRegistry
from xe_sizer.evidence.predict import predict_record, validate
from xe_sizer.evidence.records import Batch, LayoutStated, Measured, Record, read_records
from xe_sizer.profiles.catalogue import Registry
from xe_sizer.result.accuracy import QUANTITIES, Prediction
from xe_sizer.result.common import memory_word
from xe_sizer.scenario.read import read_scenario
from xe_sizer.studies.estimate import estimate

DATA = Path(xe_sizer.evidence.__file__).parent / "data"
KNOWN = Record(
    id="known",
    job="pretrain",
    stack="megatron-lm",
    model="llama-2-13b",
    gpu="a100-sxm-80gb",
    gpus=16,
    gpus_per_node=16,
    precision="bf16",
    layout=LayoutStated(tp=4, pp=2, vpp=1, cp=1, dp=2, zero=1, sequence_parallel=True),
    batch=Batch(micro=1, total=64),
    seq_len=4096,
    recompute="none",
    optimizer="adamw",
    attention="flash",
    measured=Measured(step_time_s=10.0, peak_memory_gib=40.0),
)


def predicted(record: Record) -> dict[str, Prediction]:
    return {prediction.quantity: prediction for prediction in validate([record]).records}


def test_a_record_is_predicted_as_the_same_scenario() -> None:
    flags = {
        "model": "llama-2-13b", "gpu": "a100-sxm-80gb", "gpus": 16, "job": "pretrain", "stack": "megatron-lm",
        "layout.tp": 4, "layout.pp": 2, "layout.vpp": 1, "layout.dp": 2, "layout.zero": 1, "layout.recompute": "none",
        "train.micro_batch": 1, "train.global_batch": 64, "train.seq_len": 4096,
    }  # fmt: skip
    result = estimate(read_scenario(None, flags, {}), Registry())
    found = predicted(msgspec.structs.replace(KNOWN, gpus_per_node=8))
    assert found["step_time"].predicted == pytest.approx(result.time.step_s.expected, rel=1e-9)
    assert (found["step_time"].low, found["step_time"].high) == (result.time.step_s.low, result.time.step_s.high)
    assert found["peak_memory"].predicted == pytest.approx(result.memory.device_bytes, rel=1e-9)
    assert found["oom"].predicted is (not result.verdict.fits)


def test_verdict_and_probability_are_of_one_layout() -> None:
    """Megatron's recipes recompute what memory needs: a run fits with whatever recomputation that takes."""
    long = msgspec.structs.replace(KNOWN, recompute=None, batch=Batch(micro=12, total=96), measured=Measured(oom=False))
    (verdict,) = [one for one in validate([long]).records if one.quantity == "oom"]
    found = predict_record(long, RecordRegistry())
    as_asked, recomputed = found.sized, found.judged
    assert (as_asked.fits, recomputed.fits, verdict.predicted) == (False, True, False)
    assert verdict.fit_probability == recomputed.fit_probability
    assert as_asked.fit_probability is not None
    assert as_asked.fit_probability < (verdict.fit_probability or 0.0)
    assert verdict.memory == memory_word(verdict.fit_probability, fits=True)
    (peak,) = collect_peaks([long])
    assert peak.room == recomputed.usable_bytes / recomputed.peak_bytes >= 1.0


def test_nothing_is_assumed_where_everything_is_stated() -> None:
    found = predicted(msgspec.structs.replace(KNOWN, gpus=8, layout=msgspec.structs.replace(KNOWN.layout, dp=1)))
    assert found["step_time"].assumed == ()
    assert found["peak_memory"].assumed == ("memory metric not stated: between allocated and nvidia-smi",)


def test_what_was_measured_does_not_move_the_prediction() -> None:
    other = msgspec.structs.replace(
        KNOWN, id="other", source={"title": "t"}, measured=Measured(step_time_s=1.0, peak_memory_gib=1.0)
    )
    for quantity, prediction in predicted(KNOWN).items():
        assert predicted(other)[quantity].predicted == prediction.predicted


def test_gaps_are_said() -> None:
    bare = Record(id="bare", job="lora", model="llama-2-7b", gpu="a100-sxm-80gb", gpus=8, measured=Measured(oom=True))
    text = " ".join(predicted(bare)["oom"].assumed)
    for words in (
        "predicted as generic",
        "lengths not stated",
        "128 sequences a step",
        "precision bf16",
        "chosen by the search",
    ):
        assert words in text


def test_a_layout_that_misses_the_card_is_predicted_all_the_same() -> None:
    big = msgspec.structs.replace(KNOWN, layout=LayoutStated(tp=1, pp=1, dp=16, zero=0), batch=Batch(micro=4, total=64))
    found = predicted(big)
    assert found["oom"].predicted is True
    assert found["step_time"].predicted > 0


def test_impossible_parts_of_a_layout_are_given_up_one_by_one() -> None:
    odd = msgspec.structs.replace(KNOWN, layout=LayoutStated(tp=3, pp=2, dp=2), gpus=16)
    predicted = predict_record(odd, RecordRegistry())
    assert any(text.startswith("layout.tp 3") for text in predicted.assumed)


def test_stages_of_different_sizes_cost_their_fullest() -> None:
    even, uneven = (
        predict_record(
            msgspec.structs.replace(
                KNOWN, model="llama-2-7b", layout=LayoutStated(tp=1, pp=pp, vpp=1, dp=2, zero=1), gpus=2 * pp
            ),
            RecordRegistry(),
        )
        for pp in (8, 6)
    )
    assert int(uneven.sized.layouts.pp[0]) == 6
    # Eight stages hold 4 of the 32 layers, the last one the head too. Six spread 34 places with the ends: a middle one
    # has 6 layers, the last 4 and the head.
    head_in_layers = 32000 / (4 * 4096 + 3 * 11008)
    ratio = uneven.sized.timeline.components["forward"][0] / even.sized.timeline.components["forward"][0]
    assert ratio == pytest.approx(6 / (4 + head_in_layers), rel=0.02)


def test_without_a_number_of_gpus_there_is_no_verdict() -> None:
    loose = msgspec.structs.replace(KNOWN, gpus=None, gpus_per_node=None, layout=LayoutStated())
    assert set(predicted(loose)) == {"step_time", "peak_memory"}


def test_what_cannot_be_predicted_is_skipped_with_the_reason() -> None:
    found = validate([
        msgspec.structs.replace(KNOWN, id="a", job="juggling"),
        msgspec.structs.replace(KNOWN, id="b", model="nothing-known"),
        msgspec.structs.replace(KNOWN, id="c", gpu="abacus"),
        msgspec.structs.replace(KNOWN, id="d", measured=Measured()),
    ])  # fmt: skip
    reasons = {entry.id: entry.reason for entry in found.skipped}
    assert set(reasons) == {"a", "b", "c", "d"}
    assert "no equation" in reasons["a"]
    assert "nothing-known" in reasons["b"]
    assert "abacus" in reasons["c"]
    assert not found.records


def test_only_the_quantities_asked_for() -> None:
    assert {p.quantity for p in validate([KNOWN], ("oom",)).records} == {"oom"}


def test_shipped_evidence_is_predicted_in_full() -> None:
    records = [record for path in sorted(DATA.glob("*.yaml")) for record in read_records(path).records]
    found = validate(records)
    assert found.skipped == ()
    assert {p.id for p in found.records} == {record.id for record in records}
    assert {p.quantity for p in found.records} <= set(QUANTITIES)
    # Published: 70B SFT does not fit into one server, OPT-30B ran out of memory; everything else ran.
    assert {p.id for p in found.records if p.quantity == "oom" and p.measured} == {
        "dell-table-9-llama-2-70b-sft-8-gpus",
        "opt-alpaca-opt-30b-8-gpus",
    }
    verdicts = [p for p in found.records if p.quantity == "oom" and p.fit_probability is not None]
    assert verdicts
    for one in verdicts:
        assert one.predicted == ((one.fit_probability or 0.0) < 0.5), one.id


SKIPPED = ("unknown model", "unknown gpu", "nothing measured", "no legal layout")


def test_a_tenth_of_all_shipped_records_is_predicted() -> None:
    """Every kind of record: of training, services, encoders, pictures, preferences and answers of the model itself."""
    records = [record for file in sorted(DATA.iterdir()) for record in read_records(file).records[::10]]
    found = validate(records)
    assert all(entry.reason.startswith(SKIPPED) for entry in found.skipped)
    skipped = {entry.id for entry in found.skipped}
    assert len(skipped) < 0.1 * len(records)
    assert {p.id for p in found.records} | skipped == {record.id for record in records}
    assert {p.quantity for p in found.records} == set(QUANTITIES)
    assert len({summary.group for summary in found.summary if summary.group.startswith("source:")}) > 40


def test_times_of_dell_table_9_are_met_by_one_set_of_assumptions() -> None:
    """Without the data model, with the mean length in place of the padded one, all would be far too fast."""
    ratios = [p.ratio for p in validate(read_records(DATA / "dell-table-9.yaml").records, ("step_time",)).records]
    errors = sorted(abs((ratio or 0.0) - 1.0) for ratio in ratios)
    assert len(errors) == 19
    assert errors[9] < 0.12
    assert errors[-1] < 0.40
