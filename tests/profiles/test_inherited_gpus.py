"""Accelerators that inherit from another: what a measured profile is, and what anybody may write."""

from __future__ import annotations

from pathlib import Path

import pytest

from xe_sizer.cli.main import main
from xe_sizer.errors import InputError
from xe_sizer.profiles.catalogue import Registry

MINE = """\
name: h100-sxm-80gb
inherits: h100-sxm-80gb
aliases: [my own card]
laws: {matmul: {bf16: {flops_efficiency: 0.5, sustained_flops_efficiency: 0.4}}}
"""
LOWER = """\
name: my-node
inherits: h100-sxm-80gb
tdp_w: 350
laws: {host: {launch_us: 22}, copies: {gb_per_s: 44}}
"""


def folder_with(tmp_path: Path, **texts: str) -> Path:
    for name, text in texts.items():
        (tmp_path / f"{name.replace('_', '-')}.yaml").write_text(text)
    return tmp_path


def test_keys_at_every_depth_are_inherited(tmp_path: Path) -> None:
    mine = Registry((folder_with(tmp_path, h100_sxm_80gb=MINE),)).accelerator("h100-sxm-80gb")
    law, known = mine.laws.matmul["bf16"], Registry().accelerator("h100-sxm-80gb").laws.matmul["bf16"]
    assert (law.flops_efficiency, law.effective_flops_efficiency) == (0.5, 0.4)
    assert (law.floor_s, law.memory_efficiency, law.sharpness) == (known.floor_s, known.memory_efficiency, 2.99)


def test_names_and_other_names_of_both_mean_it(tmp_path: Path) -> None:
    registry = Registry((folder_with(tmp_path, h100_sxm_80gb=MINE),))
    for name in ("h100", "NVIDIA H100 80GB HBM3", "my own card", "H100 80GB"):
        assert registry.accelerator(name).laws.matmul["bf16"].flops_efficiency == 0.5


def test_a_chain_of_files(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, h100_sxm_80gb=MINE, my_node=LOWER)
    mine = Registry((folder,)).accelerator("my-node")
    assert (mine.tdp_w, mine.name) == (350, "my-node")
    assert mine.laws.matmul["bf16"].flops_efficiency == 0.5
    assert mine.laws.launch_s == pytest.approx(22e-6)
    assert mine.pcie_bytes_per_s == pytest.approx(44e9 / 0.88)  # a copy reaches 0.88 of a line's rate


def test_a_file_of_another_name_has_no_other_names_of_what_it_inherits_from(tmp_path: Path) -> None:
    registry = Registry((folder_with(tmp_path, my_node=LOWER),))
    assert registry.accelerator("NVIDIA H100 80GB HBM3").name == "h100-sxm-80gb"


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"mine": "name: mine\ninherits: mine\n"}, "'inherits' is 'mine', which is this file itself"),
        (
            {"one": "name: one\ninherits: two\n", "two": "name: two\ninherits: one\n"},
            "'inherits' leads back to this file by way of 'one'",
        ),
        ({"mine": "name: mine\ninherits: h100-sxm-08gb\n"}, "'inherits' must be a known gpu, not 'h100-sxm-08gb'"),
        ({"mine": "name: mine\ninherits: h100-sxm-80gb\ntdp: 3\n"}, "unknown key 'tdp'"),
    ],
)
def test_what_cannot_be_inherited_is_refused_with_its_place(
    tmp_path: Path, texts: dict[str, str], message: str
) -> None:
    first = next(iter(texts))
    with pytest.raises(InputError) as caught:
        Registry((folder_with(tmp_path, **texts),)).accelerator(first)
    (problem,) = caught.value.problems
    assert message in problem.message
    assert problem.location is not None
    assert problem.location.line is not None


def test_commands_know_such_profiles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(folder_with(tmp_path, h100_sxm_80gb=MINE, my_node=LOWER))
    assert main(["profiles", "validate", f"{folder}/my-node.yaml", "--profiles", folder]) == 0
    assert main(["profiles", "list", "gpu", "my-node", "--profiles", folder]) == 0
    assert "3,350" in capsys.readouterr().out  # of the bandwidth, which it inherits
    assert main(["profiles", "show", "my-node", "--profiles", folder]) == 0
    shown = capsys.readouterr().out
    assert "Inherited from h100-sxm-80gb" in shown
    own, inherited = shown.split("Inherited from")
    assert "tdp_w" in own
    assert "tdp_w" not in inherited
    assert "memory_gib" in inherited


def test_its_schema_lets_a_file_leave_out_what_it_inherits(capsys: pytest.CaptureFixture[str]) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    import json

    import yaml

    assert main(["profiles", "schema", "gpu"]) == 0
    schema = json.loads(capsys.readouterr().out)
    jsonschema.validate(yaml.safe_load(MINE), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"name": "mine", "tdp_w": 300}, schema)
