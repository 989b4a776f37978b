"""Legal layouts: every rule alone, and the whole list against a brute force over all combinations."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from cases import REGISTRY

from xe_sizer.graph.model import ModelShape
from xe_sizer.profiles.catalogue import load_stack
from xe_sizer.software.stack import Stack
from xe_sizer.training.layout import RECOMPUTE, Layouts
from xe_sizer.training.search_space import FIELDS, Rules, divisors, gpu_counts, legal_layouts

LLAMA, MIXTRAL, GEMMA = (REGISTRY.model(name) for name in ("llama-2-7b", "mixtral-8x7b", "gemma-2-9b"))


def rules(model: ModelShape = LLAMA, stack: str = "generic", **changes: object) -> Rules:
    values = {
        "model": model, "stack": load_stack(stack), "node_ranks": 8, "global_batch": 16, "seq_len": 8192,
        "splits_sequences": True, "fixed": {},
    }  # fmt: skip
    return Rules(**{**values, **changes})  # type: ignore[arg-type]


def rows(found: Layouts) -> list[tuple[int, ...]]:
    return list(zip(*(getattr(found, name).tolist() for name in FIELDS), strict=True))


def is_legal(one: dict[str, int], asked: Rules, gpus: int) -> bool:
    """The rules in words: groups that divide what they split, whole batches, and what the stack can do."""
    stack, model = asked.stack, asked.model
    shards, experts = one["dp"] * one["cp"], model.experts
    sequence_parallel = int(stack.defaults.sequence_parallel and one["tp"] > 1)
    zeros = [0] if shards == 1 else [z for z in stack.defaults.zero if one["pp"] == 1 or z < 2] or [0]
    return all((
        one["tp"] * one["pp"] * one["cp"] * one["dp"] == gpus,
        one["micro_batch"] * one["grad_accum"] * one["dp"] == asked.global_batch,
        one["tp"] == 1 or (stack.supports.tensor_parallel and model.heads % one["tp"] == 0),
        asked.node_ranks % one["tp"] == 0,
        one["pp"] == 1 or (stack.supports.pipeline_parallel and model.layers % one["pp"] == 0),
        one["vpp"] == 1 or (one["pp"] > 1 and model.layers % (one["pp"] * one["vpp"]) == 0),
        one["vpp"] == 1 or one["grad_accum"] % one["pp"] == 0,
        one["cp"] == 1
        or (stack.supports.context_parallel and stack.defaults.splits_sequences and asked.splits_sequences),
        one["cp"] == 1 or (asked.seq_len % (2 * one["cp"]) == 0 and asked.seq_len // one["cp"] >= 2048),
        one["ep"] == 1 or (experts is not None and experts.count % one["ep"] == 0 and stack.supports.expert_parallel),
        one["tp"] * shards % one["ep"] == 0,
        one["zero"] in zeros,
        one["sequence_parallel"] == sequence_parallel,
        one["offload"] == 0,
    ))  # fmt: skip


def brute_force(asked: Rules, gpus: int) -> set[tuple[int, ...]]:
    """All combinations of small numbers, one by one."""
    sizes = range(1, 17)
    degrees = [size for size in sizes if gpus % size == 0]
    batches = [size for size in sizes if asked.global_batch % size == 0]
    chunks = [size for size in range(1, asked.model.layers + 1) if asked.model.layers % size == 0]
    space = {
        "tp": degrees, "pp": degrees, "vpp": chunks, "cp": [d for d in degrees if d in (1, 2, 4, 8, 16)],
        "ep": [1, 2, 4, 8], "dp": degrees, "zero": [0, 1, 2, 3], "micro_batch": batches, "grad_accum": batches,
        "recompute": [RECOMPUTE.index(name) for name in asked.stack.supports.recompute],
        "offload": [0], "sequence_parallel": [0, 1], "schedule": [0], "zero_group": [0], "expert_tp": [0],
    }  # fmt: skip
    assert tuple(space) == FIELDS
    found = set()
    for groups in product(*(space[name] for name in ("tp", "pp", "cp", "dp"))):
        if np.prod(groups) != gpus:
            continue
        for others in product(*(space[name] for name in FIELDS if name not in ("tp", "pp", "cp", "dp"))):
            rest = iter(others)
            named = dict(zip(("tp", "pp", "cp", "dp"), groups, strict=True))
            one = {name: named[name] if name in named else next(rest) for name in FIELDS}
            if is_legal(one, asked, gpus):
                found.add(tuple(one.values()))
    return found


@pytest.mark.parametrize(
    ("model", "stack", "gpus", "batch"),
    [
        (LLAMA, "generic", 2, 4),
        (GEMMA, "megatron-lm", 4, 4),
        (MIXTRAL, "generic", 2, 2),
        (LLAMA, "hf-trainer", 4, 8),
        (LLAMA, "deepspeed", 2, 4),
    ],
)
def test_the_list_is_the_brute_force(model: ModelShape, stack: str, gpus: int, batch: int) -> None:
    asked = rules(model, stack, global_batch=batch)
    found = rows(legal_layouts(asked, (gpus,)))
    assert len(found) == len(set(found))
    assert set(found) == brute_force(asked, gpus)


@pytest.mark.parametrize("stack", ["generic", "hf-trainer", "deepspeed", "megatron-lm", "nemo"])
@pytest.mark.parametrize("model", [LLAMA, MIXTRAL, GEMMA], ids=lambda model: model.name)
def test_every_layout_keeps_the_rules(model: ModelShape, stack: str) -> None:
    asked = rules(model, stack, global_batch=24)
    for gpus in (1, 8, 12, 48):
        for row in rows(legal_layouts(asked, (gpus,))):
            assert is_legal(dict(zip(FIELDS, row, strict=True)), asked, gpus), row


@pytest.mark.parametrize(
    ("fixed", "model"),
    [
        ({"tp": 4}, LLAMA),
        ({"pp": 4, "vpp": 2}, LLAMA),
        ({"vpp": 3}, LLAMA),
        ({"vpp": 2}, LLAMA),
        ({"zero": 3}, LLAMA),
        ({"zero": 2}, LLAMA),
        ({"ep": 8}, MIXTRAL),
        ({"dp": 2, "micro_batch": 4}, LLAMA),
        ({"micro_batch": 3}, LLAMA),
        ({"recompute": 2}, LLAMA),
    ],
    ids=str,
)
def test_what_the_user_fixed_stays_and_breaks_no_other_rule(fixed: dict[str, int], model: ModelShape) -> None:
    """A fixed field may leave nothing; it never pairs with values that it excludes."""
    found = legal_layouts(rules(model, fixed=fixed), (1, 4, 8, 16))
    for name, value in fixed.items():
        assert np.all(getattr(found, name) == value)
    assert np.all(found.micro_batch * found.grad_accum * found.dp == 16)
    assert np.all((found.vpp == 1) | ((found.pp > 1) & (model.layers % (found.pp * found.vpp) == 0)))
    assert np.all((found.pp == 1) | (found.zero < 2))
    assert np.all(found.tp * found.cp * found.dp % found.ep == 0)
    impossible = fixed in ({"vpp": 3}, {"micro_batch": 3})
    assert (len(found) == 0) is impossible


def test_offloaded_parameters_need_sharding() -> None:
    found = legal_layouts(rules(stack="deepspeed", fixed={"offload": 2}), (1, 8))
    assert np.all((found.zero == 3) | (found.dp * found.cp == 1))
    assert {1, 8} == set(found.gpus.tolist())


def test_no_gpus_no_layouts() -> None:
    assert len(legal_layouts(rules(global_batch=1), (3,))) == 0
    assert len(legal_layouts(rules(), ())) == 0


def test_thrifty_layouts_are_those_with_the_smallest_micro_batch() -> None:
    asked = rules()
    everything, few = legal_layouts(asked, (8,)), legal_layouts(asked, (8,), least_memory=True)
    assert set(rows(few)) == {
        row for row in rows(everything) if row[FIELDS.index("micro_batch")] == row[FIELDS.index("vpp")] == 1
    }


def test_sequences_that_cannot_be_split_have_no_context_parallelism() -> None:
    assert set(legal_layouts(rules(splits_sequences=False), (8,)).cp.tolist()) == {1}
    assert set(legal_layouts(rules(seq_len=8191), (8,)).cp.tolist()) == {1}
    assert set(legal_layouts(rules(seq_len=8192), (8,)).cp.tolist()) == {1, 2, 4}


def test_divisors() -> None:
    for number in (1, 7, 12, 36, 97, 1024):
        assert divisors(number) == tuple(d for d in range(1, number + 1) if number % d == 0)


def test_counts_are_powers_of_two_in_a_node_then_whole_nodes() -> None:
    assert gpu_counts(8, 50, parts=True) == (1, 2, 4, 8, 16, 24, 32, 40, 48)
    assert gpu_counts(8, 50, parts=False) == (8, 16, 24, 32, 40, 48)
    assert gpu_counts(8, 3, parts=True) == (1, 2)
    assert gpu_counts(1, 4, parts=False) == (1, 2, 3, 4)
    assert gpu_counts(8, 4096, parts=False)[-5:] == (1024, 1536, 2048, 3072, 4096)


def test_rules_take_any_stack() -> None:
    """A stack that can do nothing leaves data parallelism."""
    stack: Stack = load_stack("hf-trainer")
    found = legal_layouts(rules(stack=stack.name), (8,))
    assert set(found.dp.tolist()) == {8}
