"""What each rule of the search space removed: how many parallel groupings, how many layouts."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import chain, product
from typing import TYPE_CHECKING

from xe_sizer.result.studies import Rule
from xe_sizer.training.space import (
    context_options,
    divisors,
    layout_chunks,
    pipeline_options,
    raw_sizes,
    replica_options,
    tensor_options,
)

if TYPE_CHECKING:
    from xe_sizer.training.space import (
        Rules,
    )

GROUPINGS, LAYOUTS = "groupings", "layouts"


def removed_by_rules(rules: Rules, counts: Collection[int]) -> tuple[Rule, ...]:
    """The rules in the order in which they are applied; each counts what the rules before it left.

    Groupings are the ways to write a number of GPUs as tp x cp x pp x dp; layouts add the other choices to those that
    are left.
    """
    tests = (
        ("tensor-parallel", "tp divides the attention heads and stays inside a node", tensor_options(rules)),
        ("context-parallel", "cp needs sequences of fixed, divisible length and the stack's support",
         context_options(rules)),
        ("pipeline", "pp divides the layers and needs the stack's support", pipeline_options(rules)),
        ("batch", "dp divides the global batch", replica_options(rules, chain.from_iterable(map(divisors, counts)))),
    )  # fmt: skip
    allowed = [frozenset(options) for _, _, options in tests]
    removed = [0] * len(tests)
    for sizes in _groupings(counts):
        failed = next((index for index, size in enumerate(sizes) if size not in allowed[index]), None)
        if failed is not None:
            removed[failed] += 1
    found = [Rule(name, reason, lost, GROUPINGS) for (name, reason, _), lost in zip(tests, removed, strict=True)]
    raw = raw_sizes(rules, counts)
    legal = sum(len(chunk) for chunk in layout_chunks(rules, counts, 1 << 18))
    reason = "whole micro-batches; chunks of whole layers; ZeRO 2 and 3 without pipelines; even expert and ZeRO groups"
    return (*found, Rule("between fields", reason, raw - legal, LAYOUTS))


def _groupings(counts: Collection[int]) -> Iterator[tuple[int, int, int, int]]:
    """Every tp, cp, pp, dp with a product among the counts."""
    for count in counts:
        for tp in divisors(count):
            for cp, pp in product(divisors(count // tp), repeat=2):
                if count // tp % (cp * pp) == 0:
                    yield tp, cp, pp, count // (tp * cp * pp)
