"""Everything that is said of a scenario key is said where the schema declares it."""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from pathlib import Path
from typing import get_type_hints

import pytest

from xe_sizer.fields import fields_of, is_struct
from xe_sizer.scenario.keys import Keys
from xe_sizer.scenario.schema import KEYS, SECTIONS, SERVING, TRAINING, ScenarioFile

sys.path.append(str(Path(__file__).parents[2] / "scripts"))
keys = importlib.import_module("keys")


def test_the_keywords_of_the_python_functions_are_what_the_schema_says() -> None:
    assert keys.FILE.read_text(encoding="utf-8") == keys.page(), "write it anew: python scripts/keys.py"


def test_every_key_of_the_file_is_known() -> None:
    names = set()
    for field in fields_of(ScenarioFile).values():
        section = field.type if is_struct(field.type) else None
        names |= {f"{field.key}.{name}" for name in fields_of(section)} if section else {field.key}
    assert names == set(KEYS)
    assert {name.partition(".")[0] for name in KEYS if "." in name} == SECTIONS
    assert set(get_type_hints(Keys)) == {name.partition(".")[0] for name in KEYS}


def test_no_two_keys_have_one_option() -> None:
    options = Counter(key.option for key in KEYS.values() if key.option)
    assert options.most_common(1)[0][1] == 1


@pytest.mark.parametrize(
    ("name", "option", "panel", "wing"),
    [
        ("train.micro_batch", "micro-batch", "Training", TRAINING),
        ("data.profile", "dataset", "Data", TRAINING),
        ("lora.alpha", None, "Method", TRAINING),
        ("layout.tp", "tp", "Layout", None),
        ("layout.stages", "stages", "Layout", TRAINING),
        ("rollout.tp", "rollout-tp", "Job", TRAINING),
        ("serve.kv_cache", "kv-cache", "Formats", SERVING),
        ("limits.max_hours", "max-hours", "Limits and prices", TRAINING),
        ("limits.max_gpus", "max-gpus", "Limits and prices", None),
    ],
)
def test_what_a_key_leaves_out_is_as_its_section_has_it(
    name: str, option: str | None, panel: str, wing: str | None
) -> None:
    key = KEYS[name]
    assert (key.option, key.panel, key.wing) == (option, panel, wing)


@pytest.mark.parametrize(
    ("name", "kind", "choices"),
    [
        ("model", str, ()),
        ("gpus", int, ()),
        ("layout.zero", int, (0, 1, 2, 3)),
        ("train.batch_ramp_up", tuple, ()),
        ("serve.prefill_replicas", int, ()),
        ("cost.price_per_gpu_hour", float, ()),
        ("efficiency.ideal", bool, ()),
        ("layout.recompute", str, ("none", "selective", "full")),
    ],
)
def test_the_form_of_a_value_is_that_of_its_type(name: str, kind: type, choices: tuple[object, ...]) -> None:
    assert KEYS[name].form() == (kind, choices)


def test_lists_of_numbers_are_told_from_lists_of_words() -> None:
    lists = {name for name, key in KEYS.items() if key.lists_numbers()}
    assert lists == {
        "serve.hourly_load",
        "serve.acceptance_rate",
        "train.batch_ramp_up",
        "layout.stages",
        "cost.api_price_per_million",
    }


def test_prices_are_one_number_or_one_for_each_name() -> None:
    assert {name for name, key in KEYS.items() if key.by_name} == {"cost.price_per_gpu_hour", "cost.capex_per_server"}
