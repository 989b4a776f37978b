"""The file of samples: it grows, survives, and is of one machine."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from measured_cases import CARD, products, samples
from msgspec.structs import replace

from xe_sizer.errors import InputError
from xe_sizer.measure.samples import SAMPLES, Samples, drift, points, read_samples


def test_samples_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    file = Samples(tmp_path / SAMPLES, CARD)
    made = samples(products()[:3])
    for sample in made:
        file.add(sample)
    machines, found = read_samples(tmp_path / SAMPLES)
    assert (machines, list(found)) == ((CARD,), made)


def test_a_second_run_adds_to_the_first(tmp_path: Path) -> None:
    first, second = samples(products()[:2]), samples(products()[:2], slower=1.2)
    file = Samples(tmp_path / SAMPLES, CARD)
    for sample in first:
        file.add(sample)
    again = Samples(tmp_path / SAMPLES, replace(CARD, date="2026-11-28"))
    assert again.times(first[0].kernel) == 1
    for sample in second:
        again.add(sample)
    found = points(read_samples(tmp_path / SAMPLES)[1])
    assert len(found) == 2
    assert found[0].seconds == pytest.approx(1.1 * first[0].seconds)  # the median of two is their mean
    assert found[0].apart == pytest.approx(1.2)
    assert drift(again.samples) == pytest.approx(0.2)


def test_a_line_that_was_cut_off_is_passed_over(tmp_path: Path) -> None:
    file = Samples(tmp_path / SAMPLES, CARD)
    file.add(samples(products()[:1])[0])
    with (tmp_path / SAMPLES).open("ab") as out:
        out.write(b'{"sample": {"kernel"')
    assert len(read_samples(tmp_path / SAMPLES)[1]) == 1


def test_a_run_goes_on_behind_a_line_that_was_cut_off(tmp_path: Path) -> None:
    one, two = samples(products()[:2])
    Samples(tmp_path / SAMPLES, CARD).add(one)
    with (tmp_path / SAMPLES).open("ab") as out:
        out.write(b'{"sample": {"kernel"')
    Samples(tmp_path / SAMPLES, CARD).add(two)
    assert read_samples(tmp_path / SAMPLES) == ((CARD, CARD), (one, two))


def test_a_line_that_is_no_sample_is_named(tmp_path: Path) -> None:
    (tmp_path / SAMPLES).write_text("{}\nnothing\n{}\n")
    with pytest.raises(InputError) as caught:
        read_samples(tmp_path / SAMPLES)
    assert str(caught.value.problems[0]).endswith("2: this is no sample: JSON is malformed: invalid character (byte 4)")


@pytest.mark.parametrize("other", [{"device": "NVIDIA L4"}, {"software": "torch 2.9.0, CUDA 12.8"}])
def test_samples_of_another_machine_are_not_mixed(tmp_path: Path, other: dict[str, str]) -> None:
    Samples(tmp_path / SAMPLES, CARD)
    with pytest.raises(InputError) as caught:
        Samples(tmp_path / SAMPLES, replace(CARD, **other))
    (problem,) = caught.value.problems
    assert "its samples are of NVIDIA H100 80GB HBM3 with torch 2.11.0" in problem.message
    assert "another folder" in str(problem.hint)


def test_a_full_disk_is_one_sentence_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = Samples(tmp_path / SAMPLES, CARD)
    one, two = samples(products()[:2])
    file.add(one)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("xe_sizer.measure.samples.os.fsync", full)
    with pytest.raises(InputError) as caught:
        file.add(two)
    assert caught.value.problems[0].message == "cannot write: No space left on device"
    monkeypatch.undo()
    assert one in read_samples(tmp_path / SAMPLES)[1]
