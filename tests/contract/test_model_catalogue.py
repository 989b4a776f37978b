"""Every model profile that ships: it loads, and its shape has exactly the parameters that it states."""

from __future__ import annotations

from pathlib import Path

import pytest

from xe_sizer.graph.weights import count_parameters
from xe_sizer.profiles.convert import convert
from xe_sizer.profiles.finder import BUILT_IN
from xe_sizer.profiles.model import ModelProfile, load_model_profile
from xe_sizer.profiles.yaml_reader import load_yaml

ROOT = Path(__file__).resolve().parents[2]
NAMES = BUILT_IN.names("model")


def profile_path(name: str) -> Path:
    return ROOT / "model_profiles" / f"{name}.yaml"


def table(name: str) -> dict[str, object]:
    value = load_yaml(profile_path(name)).value
    assert isinstance(value, dict)
    return value


def test_the_catalogue_has_at_least_two_hundred_models() -> None:
    assert len(NAMES) >= 200


@pytest.mark.parametrize("name", NAMES)
def test_profile_states_the_parameters_of_its_shape(name: str) -> None:
    document = load_yaml(profile_path(name))
    profile = convert(document.value, ModelProfile, document.locate)
    count = count_parameters(load_model_profile(profile_path(name)))
    stated = (profile.parameters.total, profile.parameters.active)
    if profile.parameters_note:
        assert count.total == pytest.approx(stated[0], rel=0.02)
    else:
        assert (count.total, count.active) == stated


def test_few_profiles_excuse_their_count() -> None:
    excused = [name for name in NAMES if "parameters_note:" in profile_path(name).read_text(encoding="utf-8")]
    assert excused == ["decilm-7b"]


def test_aliases_lead_to_known_models_and_hide_none() -> None:
    known = set(NAMES)
    aliases = table("aliases")
    assert {target for target in aliases.values() if target not in known} == set()
    assert known & set(aliases) == set()
