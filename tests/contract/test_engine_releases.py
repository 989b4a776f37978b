"""Releases of engines: every one that ships can be loaded, and records get the one that their framework names."""

from __future__ import annotations

import msgspec
import pytest
from serving_cases import asked

from xe_sizer.evidence.records import Record
from xe_sizer.evidence.serving_scenario import find_engine
from xe_sizer.profiles.catalogue import load_engine
from xe_sizer.profiles.finder import BUILT_IN, releases
from xe_sizer.profiles.yaml_reader import load_yaml

ROWS = [(name, row) for name in BUILT_IN.names("engine") for row in releases(load_yaml(BUILT_IN.path("engine", name)))]


@pytest.mark.parametrize(("name", "row"), ROWS)
def test_a_release_differs_from_the_one_after_it_and_says_where_from(name: str, row: object) -> None:
    before, dated = (getattr(row, key) for key in ("before", "dated"))
    newer, older = load_engine(f"{name}@{before}"), load_engine(f"{name}@{before}.0".replace(before, _older(before)))
    assert (newer.name, newer.release) == (name, before)
    assert msgspec.structs.replace(older, release=before) != newer
    assert dated
    assert len(row.source) > 10


def _older(release: str) -> str:
    *first, last = release.split(".")
    return ".".join([*first, str(int(last) - 1)])


def test_an_engine_in_a_release_as_people_write_it() -> None:
    for written in ("vllm@0.12", "vLLM 0.12", "vllm==0.12"):
        found = asked(serve__engine=written)
        assert (found.job.engine.name, found.job.engine.release) == ("vllm", "0.12")
        assert str(found.values.serve.engine).lower() == "vllm@0.12"
    assert asked(stack="vllm").job.engine.release is None


@pytest.mark.parametrize(
    ("framework", "engine"),
    [("vllm-0.12.0", "vllm@0.12.0"), ("vllm 0.16 (nightly)", "vllm@0.16"), ("vllm (2026 release)", "vllm@2026")],
)
def test_records_get_the_release_that_their_framework_names(framework: str, engine: str) -> None:
    record = Record(id="one", job="inference", stack="vllm", framework=framework)
    assert find_engine(record)[0] == engine
    assert load_engine(engine).name == "vllm"
