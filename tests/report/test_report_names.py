"""What reports call profiles that a path names, and the parts of memory on accelerators of other vendors."""

import msgspec
import pytest

from xe_sizer.report.document import Options
from xe_sizer.report.registry import render
from xe_sizer.result.training import Result

NAMES = {"model": "my-model", "server": "my-server", "gpu": "my-gpu", "vendor": "NVIDIA", "job": "LoRA"}


def named(result: Result, **changes: object) -> Result:
    scenario = result.scenario | {"model": "./my-model/config.json", "gpu": "./g.yaml", "server": "./s.yaml"}
    return msgspec.structs.replace(result, scenario=scenario | {"names": {**NAMES, **changes}})


def test_the_headline_has_names_and_the_facts_have_paths(lora: Result) -> None:
    text = render(named(lora), "table", Options())
    assert text.startswith("FITS  LoRA of my-model on 16 x my-gpu (2 x my-server)\n")
    for path in ("./my-model/config.json", "./g.yaml", "./s.yaml"):
        assert text.count(path) == 1


def test_a_saved_result_without_names_shows_what_the_scenario_says(lora: Result) -> None:
    bare = msgspec.structs.replace(lora, scenario={key: v for key, v in lora.scenario.items() if key != "names"})
    assert "lora of llama-2-70b on 16 x h100-sxm-80gb (2 x dell-xe9680-h100)" in render(bare, "table", Options())


@pytest.mark.parametrize(("vendor", "neutral"), [("NVIDIA", False), ("AMD", True), ("Intel", True)])
def test_words_of_one_vendor_are_kept_for_its_own_accelerators(lora: Result, vendor: str, neutral: bool) -> None:
    result = named(lora, vendor=vendor)
    text = render(result, "table", Options(explain=("memory",)))
    assert text.count("device context") == text.count("collective library buffers") == (2 if neutral else 0)
    assert ("CUDA context" in text) is ("NCCL buffers" in text) is not neutral
