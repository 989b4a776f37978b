"""The same suite for every engine that ships, and engines of a user's own."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from serving_cases import asked, engine_file, problems, served

from xe_sizer.errors import InputError, Problem
from xe_sizer.profiles.catalogue import load_engine
from xe_sizer.profiles.finder import BUILT_IN
from xe_sizer.software import engine as engines
from xe_sizer.software.number_formats import FORMATS

OWN = """\
name: mine
parent: vllm
describes: The next release, half the host.
host: {step_ms: 0.25}
narrow:
  int4: {bandwidth_share: 1.0}
"""


def refused(name: str) -> Problem:
    with pytest.raises(InputError) as caught:
        load_engine(name)
    return caught.value.problems[0]


def test_the_shipped_files_are_the_known_names() -> None:
    files = {path.stem for path in Path(engines.__file__).parent.joinpath("engines").glob("*.yaml")}
    assert (
        set(BUILT_IN.names("engine"))
        == files
        >= {"vllm", "sglang", "tensorrt-llm", "tgi", "hf-transformers", "lmdeploy"}
    )


@pytest.mark.parametrize("name", BUILT_IN.names("engine"))
def test_an_engine_says_what_it_is_and_where_from(name: str) -> None:
    engine = load_engine(name)
    assert engine.name == name
    assert len(engine.describes) > 20
    assert len(engine.source) > 10
    assert set(engine.narrow) <= {*FORMATS, *(one.family for one in FORMATS.values())}
    assert {*engine.stores, *engine.stores.values()} <= set(FORMATS)


@pytest.mark.parametrize("name", BUILT_IN.names("engine"))
def test_parents_lead_to_the_root(name: str) -> None:
    seen = [name]
    while parent := load_engine(seen[-1]).parent:
        assert parent not in seen
        seen.append(parent)
    assert seen[-1] == "generic-engine"


@pytest.mark.parametrize("name", ["tensorrt-llm", "tensorrt-llm-2023", "nemo-export", "lmdeploy"])
def test_an_engine_of_one_vendor_warns_on_another(name: str) -> None:
    words = f"{name} runs on accelerators of NVIDIA"
    for gpu, warned in (("mi300x", True), ("h200-sxm-141gb", False)):
        said = asked(gpu=gpu, serve__engine=name).warnings
        assert any(words in warning for warning in said) is warned


def _static(name: str) -> bool:
    return load_engine(name).batching.batching == "static"


WRITERS = [name for name in BUILT_IN.names("engine") if load_engine(name).batching.answers]


@pytest.mark.parametrize("name", WRITERS)
def test_an_engine_serves_a_batch(name: str) -> None:
    found = served(serve__engine=name, serve__batch=4)
    point = found.point
    assert found.fits
    assert found.minimum == 1
    assert found.choice.holds >= 4
    assert 0 < point.tpot_s < point.ttft_s < point.request_s < 100
    assert point.requests_per_s == pytest.approx(4 / point.request_s, rel=1e-9)


@pytest.mark.parametrize("load", [{}, {"serve__concurrency": 8}, {"serve__request_rate": 0.05}])
@pytest.mark.parametrize("name", [name for name in WRITERS if not _static(name)])
def test_an_engine_serves_requests_that_come_and_go(name: str, load: dict[str, object]) -> None:
    found = served(serve__engine=name, **load)
    point = found.point
    assert found.fits
    assert found.minimum == 1
    assert found.choice.holds > 10
    assert 0 < point.tpot_s < point.ttft_s < point.request_s < 100
    assert 0 < point.requests_per_s <= found.choice.top_rate


@pytest.mark.parametrize("load", ["concurrency", "request_rate"])
@pytest.mark.parametrize("name", [name for name in WRITERS if _static(name)])
def test_an_engine_of_one_batch_takes_no_requests_that_come_and_go(name: str, load: str) -> None:
    found = problems(serve__engine=name, **{f"serve__{load}": 4})
    assert len(found) == 1
    assert load in found[0]
    assert served(serve__engine=name).resolved.load == "batch"


@pytest.mark.parametrize("name", sorted({*BUILT_IN.names("engine")} - {*WRITERS}))
def test_an_engine_of_embeddings_alone_writes_no_answers(name: str) -> None:
    (found,) = problems(serve__engine=name, serve__batch=4)
    assert f"{name} embeds and scores texts and writes no answers" in found
    assert served(serve__engine=name, serve__batch=4, serve__output_tokens=0).fits


@pytest.mark.parametrize("name", WRITERS)
def test_the_fixed_parts_leave_room_on_the_card(name: str) -> None:
    memory = served(serve__engine=name, serve__batch=4).memory
    fixed = sum(float(size[0]) for size in memory.fixed.values())
    assert 0 < fixed + memory.pool_bytes[0] <= memory.usable_bytes


@pytest.mark.parametrize("name", WRITERS)
def test_settings_of_the_scenario_replace_those_of_the_engine(name: str) -> None:
    given: dict[str, object] = {
        "serve__max_sequences": 7,
        "serve__max_step_tokens": 777,
        "serve__gpu_memory_utilization": 0.7,
    }
    resolved = asked(serve__engine=name, **given)
    engine = resolved.job.engine
    assert engine.batching.max_sequences == 7
    assert engine.batching.max_step_tokens == 777
    assert engine.memory.utilization == 0.7
    assert engine.kernels == load_engine(name).kernels
    assert asked(serve__engine=name).values.serve.max_sequences == load_engine(name).batching.max_sequences


def test_a_stack_that_is_an_engine_is_taken_and_vllm_is_the_default() -> None:
    assert asked(stack="sglang").job.engine.name == "sglang"
    assert asked().job.engine.name == "vllm"
    assert asked(stack="sglang", serve__engine="tgi").job.engine.name == "tgi"


@pytest.mark.parametrize(("name", "meant"), [("vlm", "vllm"), ("tensorrt", "tensorrt-llm"), ("sglong", "sglang")])
def test_an_unknown_engine_gets_a_hint(name: str, meant: str) -> None:
    with pytest.raises(InputError) as caught:
        asked(serve__engine=name)
    assert name in str(caught.value)
    assert meant in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert "nowhere.yaml" in refused(str(tmp_path / "nowhere.yaml")).message


def test_a_users_engine_overrides_what_differs(tmp_path: Path) -> None:
    path = engine_file(tmp_path, OWN)
    engine, parent = load_engine(path), load_engine("vllm")
    assert (engine.name, engine.parent) == ("mine", "vllm")
    assert engine.step_s == 0.25e-3
    assert engine.host.launch_us == parent.host.launch_us
    assert engine.kernels == parent.kernels
    own, usual_kernel = engine.narrow_kernel(FORMATS["int4"]), parent.narrow_kernel(FORMATS["int4"])
    assert own == msgspec.structs.replace(usual_kernel, bandwidth_share=1.0) != usual_kernel
    assert engine.narrow_kernel(FORMATS["nf4"]) == parent.narrow_kernel(FORMATS["nf4"])
    faster, usual = (served(serve__batch=1, serve__engine=one, serve__weights="int4").point for one in (path, "vllm"))
    assert faster.tpot_s < usual.tpot_s


def test_a_users_engine_is_read_anew_every_time(tmp_path: Path) -> None:
    path = engine_file(tmp_path, OWN)
    assert load_engine(path).step_s == 0.25e-3
    engine_file(tmp_path, OWN.replace("0.25", "0.5"))
    assert load_engine(path).step_s == 0.5e-3


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (OWN.replace("step_ms", "stepms"), 4, "stepms"),
        (OWN.replace("0.25", "-1"), 4, "step_ms"),
        (OWN.replace("0.25", "soon"), 4, "soon"),
        (OWN.replace("parent: vllm", "parent: vlm"), 2, "vlm"),
        (OWN.replace("parent: vllm\n", ""), 1, "missing"),
        (OWN + "colour: blue\n", 7, "colour"),
        (OWN + "kernels: {attention: quick}\n", 7, "attention"),
        (OWN + "memory: {utilization: 1.5}\n", 7, "utilization"),
    ],
)
def test_a_bad_engine_is_refused_with_its_place(tmp_path: Path, text: str, line: int, words: str) -> None:
    path = engine_file(tmp_path, text)
    problem = refused(path)
    assert problem.location is not None
    assert (problem.location.name, problem.location.line) == (path, line)
    assert words in str(problem)


@pytest.mark.parametrize("text", ["- vllm\n", "vllm\n", "", "5\n"])
def test_a_file_that_is_no_table_is_refused(tmp_path: Path, text: str) -> None:
    assert "mine.yaml" in str(refused(engine_file(tmp_path, text)))
