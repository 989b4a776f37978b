"""From samples to a profile that every command reads, and to a report beside the catalogue."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from measured_cases import CARD, PROCESSOR, attention, launch, moving, products, samples

from xe_sizer.measure.profile import Written, find_known, profile_yaml, slug, summarise
from xe_sizer.measure.samples import GROUPED, SUSTAINED, Kernel, Sample
from xe_sizer.profiles.catalogue import Registry
from xe_sizer.profiles.gpu import GpuProfile


@pytest.fixture(scope="module")
def card() -> Written:
    registry = Registry()
    kernels = [*products(), *attention("sdpa"), *moving(), launch()]
    return summarise(CARD, samples(kernels), registry, None, find_known(CARD, registry))


@pytest.fixture(scope="module")
def processor() -> Written:
    kernels = [*products(), *products("fp32"), *attention("sdpa"), *attention("float32"), *moving()]
    return summarise(PROCESSOR, samples(kernels), Registry(), None, None)


def registry_with(folder: Path, made: Written) -> Registry:
    (folder / f"{made.profile['name']}.yaml").write_text(profile_yaml(made.profile))
    return Registry((folder,))


def test_a_card_of_the_catalogue_is_found_by_its_driver_s_name() -> None:
    known = find_known(CARD, Registry())
    assert known is not None
    assert known.name == "h100-sxm-80gb"


def test_what_was_measured_takes_the_place_of_the_catalogue_s_and_the_rest_stays(tmp_path: Path, card: Written) -> None:
    assert (card.profile["name"], card.profile["inherits"]) == ("h100-sxm-80gb", "h100-sxm-80gb")
    mine, known = registry_with(tmp_path, card).accelerator("h100-sxm-80gb"), Registry().accelerator("h100-sxm-80gb")
    law = mine.laws.matmul["bf16"]
    assert law.effective_flops_efficiency == pytest.approx(0.6, rel=0.01)  # 0.62 in the catalogue
    assert "measured on 2026-11-27 with torch 2.11.0, CUDA 13.0, SM clock 1755 MHz" in law.source
    assert law.p90_error is not None
    assert mine.laws.attention["sdpa"].flops_efficiency == pytest.approx(0.5, rel=0.05)
    assert mine.laws.memory_bound_efficiency == pytest.approx(0.8, rel=0.02)
    assert mine.laws.launch_s == pytest.approx(5e-6)
    assert mine.laws.matmul["fp8"] == known.laws.matmul["fp8"]
    assert mine.laws.attention["flash-2"] == known.laws.attention["flash-2"]
    assert mine.laws.collectives == known.laws.collectives
    assert (mine.memory_bytes, mine.tdp_w, mine.link) == (known.memory_bytes, 700.0, mine.link)
    assert mine.laws.assumed is None
    assert mine.measured is not None
    assert mine.measured.date == "2026-11-27"
    assert known.measured is None


def test_servers_with_the_card_have_the_measured_laws_too(tmp_path: Path, card: Written) -> None:
    registry = registry_with(tmp_path, card)
    assert registry.server("dell-xe9680-h100").accelerator.measured is not None


def test_the_card_is_still_found_by_other_names(tmp_path: Path, card: Written) -> None:
    registry = registry_with(tmp_path, card)
    assert all(registry.accelerator(name).measured for name in ("NVIDIA H100 80GB HBM3", "H100 Mega 80GB", "H100"))


def test_the_report_says_how_much_slower_than_the_catalogue(card: Written) -> None:
    report = card.report
    (products_row,) = [law for law in report.laws if law.law == "matmul.bf16"]
    assert products_row.before["flops_efficiency"] == pytest.approx(0.62)
    assert products_row.slower is not None
    assert 1.0 < products_row.slower < 1.4
    assert report.inherits == "h100-sxm-80gb"
    assert not report.measured_peaks
    assert {kernel.law for kernel in report.kernels} == {law.law for law in report.laws}
    assert all(kernel.before_s for kernel in report.kernels)


def test_a_device_that_nobody_names_gets_a_whole_profile_with_measured_peaks(
    tmp_path: Path, processor: Written
) -> None:
    """The best product is 0.6 of 989 TFLOP/s, and the law is a fraction of that best one."""
    name = slug(PROCESSOR.device)
    assert processor.profile["name"] == name == "acme-9000-8-cores"
    assert "inherits" not in processor.profile
    gpu = registry_with(tmp_path, processor).accelerator(name)
    assert gpu.peak_flops_per_s["bf16"] == pytest.approx(0.6 * 989e12 / 0.95, rel=0.03)
    law = gpu.laws.matmul["bf16"]
    assert law.effective_flops_efficiency * gpu.peak_flops_per_s["bf16"] == pytest.approx(0.6 * 989e12, rel=0.02)
    assert gpu.memory_bandwidth_bytes_per_s == pytest.approx(0.8 * 3350e9 / 0.95, rel=0.05)
    assert any("the best product that was seen is 0.95 of it" in text for text in gpu.assumptions)
    assert gpu.laws.attention["flash-2"] == gpu.laws.attention["sdpa"]
    assert processor.report.measured_peaks


def test_a_device_without_a_catalogue_is_not_compared_with_one() -> None:
    experts = [
        Kernel(law=GROUPED, name="bf16", sizes={"m": m, "n": 2048, "k": 1024, "copies": 8}) for m in (16, 64, 256, 1024)
    ]
    report = summarise(PROCESSOR, samples([*products(), *moving(), *experts]), Registry(), None, None).report
    assert "grouped.bf16" in {row.law for row in report.laws}
    assert all(row.slower is None and not row.before for row in report.laws)
    assert all(kernel.before_s is None for kernel in report.kernels)


def test_a_product_that_runs_hot_lowers_what_is_sustained(card: Written) -> None:
    registry = Registry()
    hot = Kernel(law=SUSTAINED, name="bf16", sizes={"m": 4096, "n": 4096, "k": 4096})
    warm = Sample(kernel=hot, seconds=1.25e-3, low=1e-3, high=1.3e-3, repeats=100, walk=1)
    made = summarise(CARD, [*samples(products()), warm], registry, None, find_known(CARD, registry))
    law = made.profile["laws"]["matmul"]["bf16"]
    assert law["sustained_flops_efficiency"] == pytest.approx(0.8 * law["flops_efficiency"], rel=0.01)


def test_the_file_is_yaml_as_profiles_are_written(card: Written) -> None:
    value = yaml.safe_load(profile_yaml(card.profile))
    assert value["measured"]["device"] == "NVIDIA H100 80GB HBM3"
    assert set(value) <= set(GpuProfile.__struct_fields__)
