"""The finder: every kind by name from the user's folders and the built-in ones, paths, kinds of files, duplicates."""

from pathlib import Path

import pytest

from xe_sizer.errors import InputError, Location
from xe_sizer.profiles.catalogue import load_dataset, load_engine, load_optimizer, load_stack
from xe_sizer.profiles.finder import BUILT_IN, KINDS, Finder

FILES = {
    "stack": ("my-stack", "parent: hf-trainer\ndescribes: ours\nsource: ours\nuncertainty: 0.9\n"),
    "optimizer": ("my-optimizer", "parent: sgd\nlabel: ours\ndescribes: ours\nsource: ours\nhost_bytes: 24\n"),
    "engine": ("my-engine", "parent: vllm\ndescribes: ours\nsource: ours\nuncertainty: 0.9\n"),
    "dataset": ("my-data", "samples: 10\nmean_tokens: 20\nsource: {title: counted}\n"),
}
LOADERS = {"stack": load_stack, "optimizer": load_optimizer, "engine": load_engine, "dataset": load_dataset}


def write(folder: Path, kind: str, flat: bool) -> str:
    name, text = FILES[kind]
    place = folder if flat else folder / KINDS[kind].folder
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{name}.yaml").write_text(f"name: {name}\n{text}")
    return name


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("kind", FILES)
def test_a_users_folder_adds_a_profile_of_any_kind(tmp_path: Path, kind: str, flat: bool) -> None:
    name = write(tmp_path, kind, flat)
    finder = Finder([tmp_path])
    assert LOADERS[kind](name, None, finder).name == name
    assert set(finder.names(kind)) == {name, *BUILT_IN.names(kind)}
    with pytest.raises(InputError, match=f"unknown {KINDS[kind].title} '{name}'"):
        LOADERS[kind](name)


def test_files_of_several_kinds_in_one_folder_are_told_apart(tmp_path: Path) -> None:
    for kind in FILES:
        write(tmp_path, kind, flat=True)
    finder = Finder([tmp_path])
    for kind in KINDS:
        mine = set(finder.names(kind)) - set(BUILT_IN.names(kind))
        assert mine == ({FILES[kind][0]} if kind in FILES else set())


@pytest.mark.parametrize("kind", KINDS)
def test_every_built_in_file_is_of_its_kind(kind: str) -> None:
    assert BUILT_IN.names(kind)
    for name in BUILT_IN.names(kind):
        assert BUILT_IN.kind_of(BUILT_IN.path(kind, name)) == kind


@pytest.mark.parametrize("kind", KINDS)
def test_an_unknown_name_suggests_the_nearest_at_its_place(kind: str) -> None:
    name = BUILT_IN.names(kind)[0]
    with pytest.raises(InputError) as caught:
        BUILT_IN.path(kind, f"{name}x", Location("--it"))
    (problem,) = caught.value.problems
    assert str(problem.location) == "--it"
    assert f"unknown {KINDS[kind].title} '{name}x'" in problem.message
    assert f"'{name}'" in (problem.hint or "")


@pytest.mark.parametrize(
    ("kind", "name", "hint"),
    [
        ("stack", "vllm", "'vllm' is an engine: write serve.engine: vllm"),
        ("engine", "nemo", "'nemo' is a stack: write stack: nemo"),
        ("gpu", "alpaca", "'alpaca' is a data set: write data.profile: alpaca"),
        ("gpu", "p5.48xlarge", "'p5.48xlarge' is a server: write server: aws-p5.48xlarge"),
        ("stack", "vLLM", "'vLLM' is an engine: write serve.engine: vLLM"),
    ],
)
def test_a_name_of_another_kind_says_so(kind: str, name: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        BUILT_IN.path(kind, name)
    assert caught.value.problems[0].hint == hint


@pytest.mark.parametrize(
    ("name", "part", "devices"),
    [("trainium1", "trainium1-neuroncore", 2), ("AWS Trainium 2", "trainium2-neuroncore", 4)],
)
def test_a_chip_of_several_devices_says_what_to_count(name: str, part: str, devices: int) -> None:
    with pytest.raises(InputError) as caught:
        BUILT_IN.path("gpu", name)
    hint = f"software sees {devices} devices in each: write {part}, and {devices} x as many gpus"
    assert caught.value.problems[0].hint == hint


def test_parents_tell_the_kind_however_far_and_a_circle_tells_none(tmp_path: Path) -> None:
    write(tmp_path, "engine", flat=True)
    (tmp_path / "grandchild.yaml").write_text("name: grandchild\nparent: my-engine\n")
    (tmp_path / "a.yaml").write_text("parent: b\n")
    (tmp_path / "b.yaml").write_text("parent: a\n")
    finder = Finder([tmp_path])
    assert finder.kind_of(tmp_path / "grandchild.yaml") == "engine"
    assert finder.kind_of(tmp_path / "a.yaml") is None


def test_of_several_files_of_a_name_the_first_is_used_and_the_others_are_told(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        write(folder, "stack", flat=True)
    (second / "generic.yaml").write_text("name: generic\nparent: generic\nsupports: {}\n")
    finder = Finder([first, second])
    assert finder.path("stack", "my-stack") == first / "my-stack.yaml"
    unused = {(used.relative_to(tmp_path).as_posix(), other.name) for used, other in finder.unused("stack")}
    assert unused == {("first/my-stack.yaml", "my-stack.yaml"), ("second/generic.yaml", "generic.yaml")}
    assert BUILT_IN.unused("stack") == []


def test_what_lies_beside_profiles_is_not_listed_but_named_it_says_what_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("model: llama-2-7b\ngpus: 8\n")
    (tmp_path / "broken.yaml").write_text("a: [\n")
    finder = Finder([tmp_path])
    assert all(finder.names(kind) == BUILT_IN.names(kind) for kind in KINDS)
    assert finder.unreadable() == [tmp_path / "broken.yaml"]
    with pytest.raises(InputError, match=r"job.yaml:1:1: missing key 'samples'"):
        load_dataset("job", None, finder)
    with pytest.raises(InputError, match=r"broken.yaml:2:1: not valid YAML"):
        load_dataset("broken", None, finder)
