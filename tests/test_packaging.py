"""What a newcomer meets first stays true: version, examples, links and the documents of the contract."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import msgspec
import pytest

import xe_sizer.training.jobs  # noqa: F401  the names of jobs
from xe_sizer.profiles.catalogue import Registry
from xe_sizer.result.serving import ServeResult
from xe_sizer.result.training import Result
from xe_sizer.scenario.read import read_scenario
from xe_sizer.studies.estimate import estimate
from xe_sizer.training.methods import METHODS

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")])
EXAMPLES = sorted(ROOT.glob("examples/*.yaml"))  # those in folders repeat published tests, failures included


def result_fields(type_: object) -> set[str]:
    """Names of all fields below a struct."""
    names: set[str] = set()
    for field in msgspec.structs.fields(type_):
        names.add(field.name)
        for part in msgspec_structs(field.type):
            names |= result_fields(part)
    return names


def msgspec_structs(type_: object) -> list[object]:
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        return [type_]
    return [found for inner in getattr(type_, "__args__", ()) for found in msgspec_structs(inner)]


@pytest.mark.parametrize("result", [Result, ServeResult])
def test_every_field_of_the_result_is_documented(result: type) -> None:
    text = (ROOT / "docs/reference/result.md").read_text(encoding="utf-8")
    words = set(re.findall(r"[a-z][a-z0-9_]*", " ".join(re.findall(r"`([^`]+)`", text))))
    assert result_fields(result) - words == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8"))
    local = [link for link in links if not link.startswith(("http:", "https:"))]
    assert [link for link in local if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_fits_and_meets_its_limits(path: Path) -> None:
    result = estimate(read_scenario(path, {}, {}), Registry())
    assert result.verdict.ok, result.verdict.reasons


def test_readme_shows_the_example_as_it_is() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    example = (ROOT / "examples/lora-llama-2-70b.yaml").read_text(encoding="utf-8")
    settings = "".join(line for line in example.splitlines(keepends=True) if not line.startswith("#"))
    assert settings in readme


def test_nomenclature_names_every_job() -> None:
    text = (ROOT / "docs/reference/nomenclature.md").read_text(encoding="utf-8")
    assert [name for name in METHODS if f"`{name}`" not in text] == []


def test_wheel_takes_the_catalogue_along() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    forced = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    for folder, place in forced.items():
        assert any((ROOT / folder).rglob("*.yaml"))
        assert place == f"xe_sizer/catalogue/{folder}"
    assert sorted(forced) == ["gpu_profiles", "model_profiles"]
