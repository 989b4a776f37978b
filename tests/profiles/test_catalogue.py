"""Names to files: built-in and user folders, paths, unknown names."""

from pathlib import Path

import pytest

from xe_sizer.errors import InputError, Location
from xe_sizer.profiles import finder as module
from xe_sizer.profiles.catalogue import Registry
from xe_sizer.profiles.finder import built_in_folder
from xe_sizer.units import GIB

WHERE = Location("job.yaml", 2, 6)
MINE = """\
name: my-gpu
vendor: NVIDIA
generation: hopper
memory_gib: 40
memory_bandwidth_gb_per_s: 2000
peak_tflops: {bf16: 500}
pcie: {gen: 5, lanes: 16}
source: {title: mine}
"""
MY_SERVER = """\
name: my-server
vendor: me
gpu: my-gpu
gpus: 2
scale_up: {kind: pcie}
source: {title: mine}
"""


def problem(call, *arguments) -> str:
    with pytest.raises(InputError) as caught:
        call(*arguments)
    return str(caught.value)


@pytest.fixture(params=["gpu_profiles", "."])
def user_folder(tmp_path: Path, request) -> Path:
    gpus = tmp_path / request.param
    (gpus / "servers").mkdir(parents=True)
    (gpus / "my-gpu.yaml").write_text(MINE)
    servers = gpus / "servers" if request.param == "gpu_profiles" else gpus
    (servers / "my-server.yaml").write_text(MY_SERVER)
    return tmp_path


def test_user_folder_adds_profiles_that_borrow_from_the_built_in_ones(user_folder):
    node = Registry([user_folder]).server("my-server")
    assert node.accelerator.name == "my-gpu"
    assert node.accelerator.laws.assumed == "h100-sxm-80gb"


def test_user_folder_wins(tmp_path):
    (tmp_path / "gpu_profiles").mkdir()
    text = MINE.replace("my-gpu", "b200")
    (tmp_path / "gpu_profiles" / "b200.yaml").write_text(text)
    assert Registry([tmp_path]).accelerator("b200").memory_bytes == 40 * 2**30
    assert Registry().accelerator("b200").memory_bytes > 100 * 2**30


def test_changed_copy_of_a_donor_borrows_from_the_original(tmp_path):
    (tmp_path / "h100-sxm-80gb.yaml").write_text(MINE.replace("my-gpu", "h100-sxm-80gb"))
    part = Registry([tmp_path]).accelerator("h100-sxm-80gb")
    assert part.memory_bytes == 40 * 2**30
    assert part.laws.assumed == "h100-sxm-80gb"


def test_names_are_case_insensitive():
    assert Registry().accelerator("H100-SXM-80GB").name == "h100-sxm-80gb"


def test_a_path_names_a_file(tmp_path):
    path = tmp_path / "my-gpu.yaml"
    path.write_text(MINE)
    assert Registry().accelerator(str(path)).name == "my-gpu"
    assert "no such file" in problem(Registry().accelerator, str(tmp_path / "other.yaml"))


def test_unknown_name_is_located_with_the_nearest_ones():
    text = problem(Registry().accelerator, "h100-smx-80gb", WHERE)
    assert text.startswith("job.yaml:2:6: unknown gpu 'h100-smx-80gb'")
    assert "did you mean 'h100-sxm-80gb'" in text
    assert "xe-sizer profiles list" in text


def test_short_name_suggests_the_parts_that_begin_with_it():
    text = problem(Registry().accelerator, "a100")
    assert "'a100-pcie-80gb'" in text
    assert "'a100-sxm-80gb'" in text
    assert "'b100'" not in text


def test_a_part_of_a_name_suggests_the_names_that_hold_it():
    assert "'dell-xe9680-h100'" in problem(Registry().server, "XE9680")
    assert "'rtx-4090'" in problem(Registry().accelerator, "409")


def test_server_named_as_a_gpu_says_so():
    assert "server: dell-xe9680-h100" in problem(Registry().accelerator, "dell-xe9680-h100")
    assert "gpu: h100-sxm-80gb" in problem(Registry().server, "h100-sxm-80gb")


@pytest.mark.parametrize("name", ["..", "a..b", "", "--", "h1\n00", "ｈ100"])
def test_names_that_no_profile_has_are_refused(name):
    assert "cannot be the name of a gpu" in problem(Registry().path, "gpu", name)


def test_unknown_gpu_of_a_server_points_into_its_file(tmp_path):
    (tmp_path / "my-server.yaml").write_text(MY_SERVER)
    text = problem(Registry([tmp_path]).server, "my-server")
    assert "my-server.yaml:3:6: unknown gpu 'my-gpu'" in text


def test_looking_up_a_known_name_lists_no_folder(monkeypatch):
    def no_listing(self, pattern):
        raise AssertionError("listed a folder")

    monkeypatch.setattr(Path, "glob", no_listing)
    assert Registry().server("nvidia-dgx-h100").accelerators == 8


def test_names_of_models_leave_out_the_other_files():
    names = Registry().names("model")
    assert "llama-2-70b" in names
    assert "aliases" not in names


def test_model_is_delegated():
    assert Registry().model("llama-2-70b").layers == 80


def test_built_in_folder_prefers_the_installed_catalogue(tmp_path, monkeypatch):
    package = tmp_path / "xe_sizer"
    (package / "profiles").mkdir(parents=True)
    monkeypatch.setattr(module, "PACKAGE", package)
    assert built_in_folder() == tmp_path
    (package / "catalogue").mkdir()
    assert built_in_folder() == package / "catalogue"


@pytest.mark.parametrize(
    ("gpu", "donors"),
    [
        ("v100-sxm-32gb", ("a100-sxm-80gb",)),
        ("l40", ("l40s",)),
        ("rtx-4080", ("rtx-4090", "l40s")),
        ("rtx-5090", ("rtx-pro-6000-blackwell", "l40s")),
        ("rtx-5080", ("rtx-5090", "rtx-pro-6000-blackwell", "l40s")),
        ("rtx-pro-5000-blackwell", ("rtx-pro-6000-blackwell", "l40s")),
        ("gb200", ("b200",)),
        ("mi250", ("mi300x", "h100-sxm-80gb")),
        ("h100-sxm-80gb", ()),
        ("mi350x", ("mi355x", "h100-sxm-80gb")),
        ("gaudi2", ("h100-sxm-80gb",)),
        ("tpu-v5p", ("tpu-v6e", "h100-sxm-80gb")),
    ],
)
def test_laws_are_lent_by_generation_then_vendor(gpu, donors):
    assert Registry().donors_of(gpu) == donors
    assert not donors or Registry().accelerator(donors[-1]).laws.assumed is None


@pytest.mark.parametrize("name", ["rtx-pro-4500-blackwell", "rtx-pro-5000-blackwell", "rtx-5080", "rtx-4080", "l20"])
def test_a_card_that_power_does_not_hold_reaches_most_of_its_peak(name):
    """RTX PRO 6000, 5090, 5060 Ti, 4090 and L20 reach 0.9 or more in products; the L40S, held by its power, 0.57."""
    assert Registry().accelerator(name).laws.matmul["bf16"].flops_efficiency > 0.9


@pytest.mark.parametrize(
    ("vendor", "donors"), [("AMD", ("mi300x", "h100-sxm-80gb")), ("Intel", ("gaudi3", "h100-sxm-80gb")),
                           ("NVIDIA", ("h100-sxm-80gb",)), ("ACME", ("h100-sxm-80gb",))],
)  # fmt: skip
def test_a_new_generation_borrows_from_its_vendor_then_from_whoever_lends_to_any(tmp_path, vendor, donors):
    text = MINE.replace("hopper", "brand-new").replace("NVIDIA", vendor)
    (tmp_path / "my-gpu.yaml").write_text(text)
    assert Registry([tmp_path]).donors_of("my-gpu") == donors


def test_a_gpu_of_a_users_folder_lends_to_its_generation(tmp_path):
    h100 = Registry().path("gpu", "h100-sxm-80gb").read_text()
    lender = h100.replace("h100-sxm-80gb", "big").replace("generation: hopper", "generation: rubin")
    (tmp_path / "big.yaml").write_text(lender.replace("[hopper]", "[rubin]"))
    (tmp_path / "my-gpu.yaml").write_text(MINE.replace("hopper", "rubin"))
    assert Registry([tmp_path]).accelerator("my-gpu").laws.assumed == "big"


def test_a_gpu_may_name_its_lender(tmp_path):
    (tmp_path / "my-gpu.yaml").write_text(MINE + "borrows_from: b200\n")
    assert Registry([tmp_path]).accelerator("my-gpu").laws.assumed == "b200"
    (tmp_path / "my-gpu.yaml").write_text(MINE + "borrows_from: b2000\n")
    assert "my-gpu.yaml:9:15: unknown gpu 'b2000'" in problem(Registry([tmp_path]).accelerator, "my-gpu")


def test_advice_proposes_what_is_marked_by_memory(tmp_path):
    shipped = Registry().suggested_gpus()
    memory = [Registry().accelerator(name).memory_bytes for name in shipped]
    assert [round(size / GIB) for size in memory] == sorted(round(size / GIB) for size in memory)
    assert {"rtx-5090", "rtx-a6000", "h100-sxm-80gb", "h200-sxm-141gb", "b200", "mi300x"} <= set(shipped)
    place = sum(size < 150 * GIB for size in memory)
    (tmp_path / "my-gpu.yaml").write_text(MINE.replace("memory_gib: 40", "memory_gib: 150") + "suggested: true\n")
    assert Registry([tmp_path]).suggested_gpus() == (*shipped[:place], "my-gpu", *shipped[place:])


def test_any_gpu_means_those_that_somebody_measured(tmp_path):
    (tmp_path / "my-gpu.yaml").write_text(MINE + "announced: true\n")
    registry = Registry([tmp_path])
    assert {"my-gpu", "vr200", "mi455x"} <= set(registry.names("gpu")) - set(registry.measured_gpus())
    assert {"gb300", "mi355x", "mi350p"} <= set(registry.measured_gpus())


def test_a_broken_file_that_nobody_names_disturbs_nothing(tmp_path):
    (tmp_path / "broken.yaml").write_bytes(b"\xff\xfe peak_tflops")
    assert Registry([tmp_path]).accelerator("l40").laws.assumed == "l40s"


def test_larger_gpus_of_the_same_segment_come_first() -> None:
    registry = Registry()
    for name, segment in (("rtx-4090", "desktop"), ("l4", "data-centre")):
        card = registry.accelerator(name)
        found = list(registry.larger_gpus(card, 1.1))
        same = [each for each in found if each.segment == segment]
        assert found[: len(same)] == same
        assert len(found) > len(same) > 1
        assert all(each.memory_bytes > 1.1 * card.memory_bytes for each in found)


def test_larger_gpus_are_listed_by_vendor_and_memory() -> None:
    registry = Registry()
    desktop = registry.larger_gpus(registry.accelerator("rtx-4090"), 1.1)
    assert [each.name for each in desktop][:2] == ["rtx-5090", "rtx-a6000"]
    data_centre = [each.name for each in registry.larger_gpus(registry.accelerator("h100-sxm-80gb"), 1.1)]
    assert data_centre[:4] == ["h200-sxm-141gb", "b200", "b300", "mi300x"]


@pytest.mark.parametrize(("name", "vector_tflops"), [("mi210", 22.6), ("mi250", 45.3), ("mi250x", 47.9)])
def test_cdna_2_multiplies_float32_in_its_matrix_units(name: str, vector_tflops: float) -> None:
    """AMD's data sheets: twice the rate of the vector units."""
    assert Registry().accelerator(name).peak_flops_per_s["fp32"] == pytest.approx(2 * vector_tflops * 1e12, rel=0.01)
