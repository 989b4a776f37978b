"""Accelerator profiles: checks of the file, conversion, and laws completed from donors."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from xe_sizer.errors import InputError
from xe_sizer.laws.hardware import Accelerator
from xe_sizer.profiles import gpu
from xe_sizer.profiles.catalogue import Registry
from xe_sizer.profiles.gpu import GpuProfile, Pcie, load_gpu_profile, pcie_bytes_per_s

LINK = Registry().fabric("nvlink4")

GOOD = """\
name: new-gpu
vendor: ACME
generation: mark-1
memory_gib: 10
memory_bandwidth_gb_per_s: 1000
peak_tflops: {bf16: 100, fp8: 200}
tdp_w: 300
pcie: {gen: 4, lanes: 8}
link: {kind: nvlink4, one_way_gb_per_s: 450}
laws:
  matmul:
    bf16: {floor_us: 4, flops_efficiency: 0.8, sustained_flops_efficiency: 0.7, memory_efficiency: 0.9, \
sharpness: 2, median_error: 0.05}
  attention:
    flash-2: {floor_us: 10, flops_efficiency: 0.5, backward_flops_efficiency: 0.4, memory_efficiency: 0.6}
  collectives:
    all_reduce: {ranks: [2, 8], alpha_us: [5, 10], bus_gb_per_s: [300, 400], root_us_per_sqrt_mb: [4, 8]}
  memory_bound: {efficiency: 0.85}
assumed: ["link rate: a guess"]
source: {title: a data sheet}
"""
BARE = """\
name: new-gpu
vendor: ACME
generation: mark-1
memory_gib: 10
memory_bandwidth_gb_per_s: 1000
peak_tflops: {bf16: 100, fp8: 200}
pcie: {gen: 4, lanes: 8}
source: {title: a data sheet}
"""


def accelerator(profile: GpuProfile, donors: Sequence[GpuProfile] = ()) -> Accelerator:
    return gpu.accelerator(profile, LINK, donors)


def load(tmp_path: Path, text: str, name: str = "new-gpu") -> GpuProfile:
    path = tmp_path / f"{name}.yaml"
    path.write_text(text)
    return load_gpu_profile(path)


def problems(tmp_path: Path, text: str, name: str = "new-gpu") -> list[str]:
    with pytest.raises(InputError) as caught:
        load(tmp_path, text, name)
    return [str(problem).replace(str(tmp_path), "") for problem in caught.value.problems]


def donor(tmp_path: Path, name: str, **changes) -> GpuProfile:
    return msgspec.structs.replace(load(tmp_path, GOOD), name=name, **changes)


def test_units_become_si(tmp_path):
    part = accelerator(load(tmp_path, GOOD))
    assert part.memory_bytes == 10 * 1073741824
    assert part.memory_bandwidth_bytes_per_s == 1e12
    assert part.peak_flops_per_s == {"bf16": 1e14, "fp8": 2e14}
    assert part.pcie_bytes_per_s == pytest.approx(15.75e9, rel=1e-3)
    assert part.link.one_way_bytes_per_s == 450e9
    assert part.assumptions == ("link rate: a guess",)
    assert part.laws.assumed is None
    law = part.laws.collectives["all_reduce"]
    assert law.alpha_s == pytest.approx((5e-6, 10e-6))
    assert law.bus_bytes_per_s == (300e9, 400e9)
    assert law.root_s_per_sqrt_byte == pytest.approx((4e-9, 8e-9))  # us / sqrt(MB) = 1e-6 s / 1e3 sqrt(byte)
    assert part.laws.attention["flash-2"].floor_s == pytest.approx(10e-6)


def test_precision_without_a_law_uses_the_16_bit_one(tmp_path):
    laws = accelerator(load(tmp_path, GOOD)).laws
    assert laws.matmul["fp8"] == laws.matmul["bf16"]
    assert laws.matmul["bf16"].effective_flops_efficiency == 0.7
    assert laws.matmul["bf16"].median_error == 0.05


def test_memory_bound_floor_defaults_to_the_matmul_floor(tmp_path):
    assert accelerator(load(tmp_path, GOOD)).laws.memory_bound_floor_s == pytest.approx(4e-6)


@pytest.mark.parametrize(("gen", "rate_gb_per_s"), [(3, 15.75), (4, 31.5), (5, 63.0)])
def test_pcie_rates(gen, rate_gb_per_s):
    assert pcie_bytes_per_s(Pcie(gen, 16)) == pytest.approx(rate_gb_per_s * 1e9, rel=1e-3)


def test_laws_of_a_donor_are_borrowed_and_marked(tmp_path):
    part = accelerator(load(tmp_path, BARE), [donor(tmp_path, "lender")])
    assert part.laws.assumed == "lender"
    assert part.assumptions == ("laws of lender for matmul, attention, memory-bound operators",)
    assert part.laws.matmul["bf16"].flops_efficiency == 0.8
    assert part.laws.collectives == {}  # the lender's link is not this one's


def test_collectives_are_borrowed_over_the_same_link_only(tmp_path):
    same = accelerator(load(tmp_path, BARE + "link: {kind: nvlink4, one_way_gb_per_s: 450}\n"), [donor(tmp_path, "a")])
    slower = accelerator(
        load(tmp_path, BARE + "link: {kind: nvlink4, one_way_gb_per_s: 200}\n"), [donor(tmp_path, "a")]
    )
    assert set(same.laws.collectives) == {"all_reduce"}
    assert slower.laws.collectives == {}


def test_part_of_a_law_is_completed_and_loses_the_error_of_the_fit(tmp_path):
    own = BARE + "laws: {matmul: {bf16: {flops_efficiency: 0.5, sustained_flops_efficiency: 0.4}}}\n"
    part = accelerator(load(tmp_path, own), [donor(tmp_path, "lender")])
    for precision in ("bf16", "fp8"):  # the narrower precision takes this part's own efficiency too
        law = part.laws.matmul[precision]
        assert (law.flops_efficiency, law.effective_flops_efficiency) == (0.5, 0.4)
        assert (law.floor_s, law.sharpness) == (pytest.approx(4e-6), 2)
        assert law.median_error is None


def test_stated_efficiency_is_not_paired_with_a_donors_sustained_one(tmp_path):
    own = BARE + "laws: {matmul: {bf16: {flops_efficiency: 0.5}}}\n"
    part = accelerator(load(tmp_path, own), [donor(tmp_path, "lender")])
    assert part.laws.matmul["bf16"].effective_flops_efficiency == 0.5


def test_nearer_donor_wins(tmp_path):
    near = GOOD.replace("flops_efficiency: 0.5, backward", "flops_efficiency: 0.45, backward")
    nearest = msgspec.structs.replace(load(tmp_path, near), name="near")
    part = accelerator(load(tmp_path, BARE), [nearest, donor(tmp_path, "far")])
    assert part.laws.attention["flash-2"].flops_efficiency == 0.45
    assert part.laws.assumed == "near"


def test_no_law_and_no_donor_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match=r"laws.matmul.bf16 lacks floor_us, flops_efficiency"):
        accelerator(load(tmp_path, BARE))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("name: new-gpu", "name: other", "/new-gpu.yaml:1:7: name is 'other' but the file is 'new-gpu.yaml'"),
        ("bf16: 100, fp8: 200", "bf61: 100, bf16: 9", "/new-gpu.yaml:6:15: unknown precision 'bf61'"),
        ("bf16: 100, fp8: 200", "fp8: 200", "/new-gpu.yaml:6:1: peak_tflops has neither bf16 nor fp16"),
        ("flash-2:", "flash2:", "/new-gpu.yaml:14:5: unknown kernel family 'flash2'"),
        ("all_reduce:", "allreduce:", "/new-gpu.yaml:16:5: unknown operation 'allreduce'"),
        ("alpha_us: [5, 10]", "alpha_us: [5]", "/new-gpu.yaml:16:43: alpha_us has 1 entries for 2 ranks"),
        ("ranks: [2, 8]", "ranks: [8, 2]", "/new-gpu.yaml:16:25: ranks must ascend"),
        (
            "pcie: {gen: 4, lanes: 8}\n",
            "",
            "/new-gpu.yaml:1:1: exactly one of pcie and pcie_gb_per_s is needed",
        ),
        ("memory_gib: 10", "memory_gib: -10", "/new-gpu.yaml:4:13: "),
        ("tdp_w:", "tdpw:", "/new-gpu.yaml:7:1: "),
    ],
)
def test_mistakes_are_located(tmp_path, old, new, expected):
    assert old in GOOD
    found = problems(tmp_path, GOOD.replace(old, new))
    assert any(text.startswith(expected) for text in found), found


def test_all_mistakes_are_reported_at_once(tmp_path):
    text = GOOD.replace("name: new-gpu", "name: other").replace("flash-2:", "flash-9:").replace("[5, 10]", "[5]")
    assert len(problems(tmp_path, text)) == 3
