"""Tables of names: every entry leads to something that exists."""

from typing import get_args

import pytest

from xe_sizer.evidence.names import Recipes, RecordRegistry, choose_stack, names, recipes, stack_rules
from xe_sizer.evidence.records import Batch, LayoutStated, Record
from xe_sizer.evidence.training_scenario import build_scenario
from xe_sizer.fields import names_of
from xe_sizer.profiles.catalogue import Registry, load_stack
from xe_sizer.profiles.finder import BUILT_IN, releases
from xe_sizer.profiles.yaml_reader import load_yaml
from xe_sizer.scenario import schema
from xe_sizer.training.methods import METHODS


def record(stack: str | None, framework: str | None = None, **more: object) -> Record:
    return Record(id="r", job="sft", stack=stack, framework=framework, **more)  # type: ignore[arg-type]


def test_words_stand_for_what_scenarios_know() -> None:
    table = names()
    assert {*table.jobs.values(), *table.jobs_by_task.values()} <= set(METHODS)
    for words, choices in (
        (table.precisions, schema.Precision),
        (table.offload, schema.Offload),
        (table.recompute, schema.Recompute),
        (table.attention, schema.Attention),
        (table.padding, schema.Padding),
        (table.tasks, schema.Task),
        (table.schedules, schema.Schedule),
    ):
        known = names_of(choices.__metadata__) or get_args(get_args(choices)[0])
        assert set(words.values()) <= set(known)


def test_optimizers_are_known() -> None:
    assert {*names().optimizers.values(), *names().optimizers_in_words.values()} <= set(BUILT_IN.names("optimizer"))


def test_hardware_and_families_exist() -> None:
    table, registry = names(), Registry()
    for name in table.gpus.values():
        assert registry.accelerator(name).name == name
    for name in table.families.values():
        assert registry.model(name).experts is None


def test_no_entry_of_the_table_of_stacks_is_dead() -> None:
    """Each does something that the tables without it would not do."""
    rules = stack_rules()
    shipped = {alias: name for name in BUILT_IN.names("stack") for alias in (name, *load_stack(name).aliases)}
    for rule in rules.refinements:
        made = record(rule.stack, " and ".join(rule.framework) or None, compile=rule.compiled)
        unrefined = shipped.get(rule.stack)
        found = choose_stack(made)
        assert found.plain_name == rule.use[0]
        assert (rule.use[0], len(rule.use) > 1) != (unrefined, False)
    for rule in rules.nearest:
        assert rule.stack not in shipped
        assert choose_stack(record(rule.stack)).assumed
    for stack, release in rules.undated.items():
        older = releases(load_yaml(BUILT_IN.path("stack", stack)))
        assert any(row.follows(release) for row in older), stack
    assert set(rules.released_as) <= set(BUILT_IN.names("stack"))
    for stack, recipe in rules.recipes.items():
        parent = load_stack(stack).parent
        assert parent is not None
        assert recipes(record(stack), stack) == recipe != recipes(record(parent), parent)


@pytest.mark.parametrize(
    ("stack", "expected"), [("nemo-2025", "nemo"), ("megatron-bridge", "nemo"), ("primus", "megatron-lm")]
)
def test_what_is_made_of_a_framework_leaves_open_what_that_does(stack: str, expected: str) -> None:
    assert recipes(record(stack), stack) == stack_rules().recipes[expected]
    assert recipes(record(None), stack) == stack_rules().recipes[expected]
    assert recipes(record("hf-trainer"), "hf-trainer") == Recipes()


def test_every_rule_ends_in_a_stack_that_loads() -> None:
    rules = stack_rules()
    for rule in (*rules.refinements, *(rule for rule in rules.nearest if rule.stack not in BUILT_IN.names("stack"))):
        found = choose_stack(record(rule.stack, " ".join(rule.framework), compile=rule.compiled))
        assert load_stack(found.plain_name).kernels == found.stack.kernels or "@" in found.name
        assert bool(found.assumed) or not rule.because, rule.stack


@pytest.mark.parametrize(
    ("stack", "framework", "predicted_as"),
    [
        ("nemo", "nemo-24.07", "nemo@24.07"),
        ("nemo", None, "nemo@25.02"),
        ("nemo", "megatron-bridge-26.08", "megatron-bridge@26.08"),
        ("nemo", "NeMo framework containers (2023)", "nemo@2023"),
        ("hf-trainer", "hf-trainer-deepspeed-zero3", "deepspeed"),
        ("primus", None, "primus"),
        ("hf-trainer", "hf-trainer (torch 2.0, transformers 4.26.1)", "hf-trainer@4.26.1"),
        ("TRL", "TRL 0.29.1, transformers 5.5", "trl@0.29.1"),
        ("Megatron_LM", None, "megatron-lm"),
        ("somebody's own", "no words that help", "generic"),
        (None, None, "generic"),
    ],
)
def test_stacks_by_name_and_framework(stack: str | None, framework: str | None, predicted_as: str) -> None:
    found = choose_stack(record(stack, framework))
    assert found.name == predicted_as
    plain = (stack or "").lower().replace("_", "-")
    stated = found.name == predicted_as and plain == found.plain_name
    assert bool(found.assumed) == (not stated or (framework is None and "@" in predicted_as))


def test_a_layout_that_the_stack_lacks_keeps_the_stack_and_gives_it_that() -> None:
    found = choose_stack(record("hf-trainer", "transformers 4.51", layout=LayoutStated(tp=4, ep=2)))
    assert found.plain_name == "hf-trainer"
    assert found.assumed == ("hf-trainer has no tp, ep: predicted as if it had",)
    assert found.stack.supports.tensor_parallel
    assert found.stack.supports.expert_parallel
    assert not found.stack.supports.pipeline_parallel
    assert found.stack.kernels == load_stack("hf-trainer@4.51").kernels
    ordered = choose_stack(record("nanotron", layout=LayoutStated(pp=2), pipeline_schedule="zb-v"))
    assert ordered.plain_name == "nanotron"
    assert "zb-v" in ordered.stack.supports.schedules


def test_a_variant_that_can_do_the_layout_comes_before_a_stack_that_is_given_what_it_lacks() -> None:
    assert choose_stack(record("megatron-deepspeed", layout=LayoutStated(zero=3))).name == "megatron-deepspeed-zero3"
    deferring = choose_stack(record("megatron-lm", layout=LayoutStated(pp=2), pipeline_schedule="zb-v"))
    assert deferring.name == "megatron-zero-bubble"


def test_steps_of_some_frameworks_are_micro_batches() -> None:
    assert choose_stack(record("litgpt", "lit-gpt commit 8641822")).counts_micro_batches
    assert not choose_stack(record("litgpt", "litgpt")).counts_micro_batches


@pytest.mark.parametrize(
    ("compiled", "framework", "name"),
    [(False, "torchtitan", "torchtitan-eager"), (None, "torchtitan", "torchtitan"), (True, "torchtitan", "torchtitan")],
)
def test_compilation_chooses_between_variants(compiled: bool | None, framework: str, name: str) -> None:
    assert load_stack(choose_stack(record("torchtitan", framework, compile=compiled)).name).name == name


@pytest.mark.parametrize(
    ("stack", "framework", "name"),
    [
        ("hf-trainer", "hf-trainer-fsdp (torch 2.0.0, transformers 4.26.1)", "hf-trainer@4.26.1"),
        ("megatron-lm", "megatron-lm + lumen (rocm 7.2.4, torch 2.13)", "megatron-lm"),
        ("megatron-lm", "megatron-core-0.8", "megatron-lm@0.8"),
        ("megatron-lm", "megatron-lm-2021", "megatron-lm@2021"),
        ("megatron-lm", "megatron-core-2024-04", "megatron-lm@2024.04"),
        ("nemo", "nemo-2023-11-30", "nemo@2023.11"),
        ("nemo", "NeMo Framework NVIDIA Release 24.04; PyTorch NVIDIA Release 23.09", "nemo@24.04"),
        ("nemo", "nemo (2023, NeMo framework containers)", "nemo@2023"),
    ],
)
def test_a_release_is_the_number_behind_the_frameworks_own_name(stack: str, framework: str, name: str) -> None:
    assert choose_stack(record(stack, framework)).name == name


@pytest.mark.parametrize(
    ("said", "release"),
    [
        ({"date": "2023-11"}, "hf-trainer@2023.11"),
        ({"date": "2024"}, "hf-trainer@2024.06"),
        ({"source": {"title": "a report", "date": "2026-07-14"}}, "hf-trainer@4.40"),  # no source chooses anything
        ({"framework": "transformers 4.30", "date": "2026-01"}, "hf-trainer@4.30"),
    ],
)
def test_a_release_that_is_not_named_is_that_of_the_record_s_month(said: dict[str, object], release: str) -> None:
    assert choose_stack(record("hf-trainer", **said)).name == release  # type: ignore[arg-type]


def test_a_release_without_a_month_is_a_usual_one_and_said() -> None:
    base = {"model": "llama-2-7b", "gpu": "a100-sxm-80gb", "gpus": 1, "seq_len": 2048, "batch": Batch(micro=1)}
    silent = build_scenario(record("hf-trainer", **base), RecordRegistry())
    assert "release 4.40 of hf-trainer: none stated" in silent.assumed
    dated = build_scenario(record("hf-trainer", **base, date="2024-05"), RecordRegistry())
    assert "hf-trainer of 2024.05, when the record was made: release not named" in dated.assumed
