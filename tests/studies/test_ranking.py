"""Which plan is the best, on candidates made for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from cases import layouts

from xe_sizer.laws.hardware import Offer
from xe_sizer.result.common import certainty_of
from xe_sizer.studies.plan import Ranking, servers
from xe_sizer.training.search import GPUS_ERROR
from xe_sizer.units import BARE_SERVER


def candidate(gpus: int, hours: float, sure: float = 0.95, price: float | None = None, **more: Any) -> Any:
    """A plan on servers of eight; `sure` is the probability of its one limit."""
    accelerator = SimpleNamespace(name="card", tdp_w=None)
    name = more.get("server", "box")
    bare = name.startswith(BARE_SERVER)
    fabric = SimpleNamespace(topology="")
    server = SimpleNamespace(
        name=name, bare=bare, accelerators=8, accelerator=accelerator, fabric=fabric, liquid_cooled=False
    )
    offer = None if "kind" not in more else Offer(more["kind"])
    own = None if "capex" not in more else SimpleNamespace(capex=more["capex"])
    tariff = SimpleNamespace(currency=more.get("currency", "USD"), offer=offer, own=own, sold_together=8)
    return SimpleNamespace(
        gpus=gpus, billed_gpus=-(-gpus // 8) * 8, total_s=hours, gpu_hours=hours * gpus, cost=price,
        ok=more.get("ok", True), shortfall=hours,
        fit_probability=more.get("fit", 0.99), confidence=more.get("confidence"),
        limits=(SimpleNamespace(certainty=certainty_of(sure)),), layouts=layouts(tp=more.get("tp", 1)),
        resolved=SimpleNamespace(job=SimpleNamespace(server=server), tariff=tariff),
    )  # fmt: skip


def best(objective: str, *sized: Any) -> int:
    return Ranking(tuple(sized), objective).order[0]


def test_a_bare_gpu_is_bought_by_itself() -> None:
    assert servers(candidate(9, 1.0)) == 2
    assert servers(candidate(9, 1.0, server="generic-8x-card")) == 9


def test_the_fewest_servers_then_the_fastest_on_them() -> None:
    assert best("servers", candidate(16, 1.0), candidate(4, 5.0), candidate(8, 3.0)) == 2


def test_on_as_many_servers_what_surely_keeps_the_limits_goes_first() -> None:
    fast, sure = candidate(8, 3.0, sure=0.6), candidate(4, 5.0, sure=0.95)
    assert best("servers", fast, sure) == 1
    assert best("servers", fast, sure, candidate(16, 1.0)) == 1  # more servers do not buy certainty


def test_on_as_many_servers_what_likely_fits_goes_before_what_is_faster() -> None:
    tight, roomy = candidate(8, 1.0, fit=0.6), candidate(8, 3.0, fit=0.9)
    assert best("servers", tight, roomy) == 1
    assert best("servers", tight, candidate(16, 1.0)) == 1  # a plan is bought: it likely fits, or costs a server more
    assert best("servers", candidate(8, 1.0, fit=0.6, confidence=0.5), candidate(16, 1.0, confidence=0.5)) == 0


def test_of_as_many_servers_the_lowest_sum_to_buy_goes_first() -> None:
    fast, cheap = candidate(16, 4.0, capex=480e3, server="b"), candidate(16, 7.0, capex=340e3, server="h")
    more = candidate(24, 3.0, capex=200e3, server="a")
    assert best("servers", fast, cheap, more) == 1
    assert best("capex", fast, cheap, more) == 2  # 600,000 against 680,000
    assert best("time", fast, cheap, candidate(24, 6.0, capex=200e3)) == 0
    foreign = candidate(16, 7.0, capex=340e3, server="h", currency="EUR")
    assert best("servers", fast, foreign) == 0  # sums in two currencies do not compare


def test_of_what_is_rented_more_servers_for_less_time_may_be_the_cheapest() -> None:
    few, many = candidate(16, 18.0, price=2026.0), candidate(32, 4.2, price=919.0)
    ranking = Ranking((few, many, candidate(64, 3.0, price=1000.0, ok=False)), "servers")
    assert ranking.order[0] == 0
    assert ranking.cheapest_rented([0, 1, 2]) == 1
    owned = Ranking((candidate(16, 18.0, price=2026.0, capex=1.0),), "servers")
    assert owned.cheapest_rented([0]) is None


@pytest.mark.parametrize(("beyond", "chosen"), [(0.9, 1), (1.1, 0)])
def test_times_within_the_error_of_the_model_are_equal_and_fewer_gpus_win(beyond: float, chosen: int) -> None:
    large, small = candidate(16, 1.0), candidate(8, 1.0 + beyond * GPUS_ERROR)
    assert best("time", large, small) == chosen


def test_of_plans_alike_the_plainer_layout() -> None:
    assert best("time", candidate(8, 1.0, tp=2), candidate(8, 1.01)) == 1


def test_what_has_no_price_is_no_cheapest() -> None:
    ranking = Ranking((candidate(8, 1.0, server="dear"), candidate(8, 2.0, price=9.0)), "cost")
    assert (ranking.answers.cheapest, ranking.order[0]) == (1, 1)
    assert list(ranking.unpriced()) == ["no price for dear: only plans with a price are compared by price"]
    without = Ranking((candidate(8, 1.0), candidate(16, 1.0)), "cost")
    assert (without.answers.cheapest, without.answers.fewest_gpu_hours, list(without.unpriced())) == (None, 0, [])


def test_prices_in_two_currencies_are_not_compared() -> None:
    ranking = Ranking((candidate(8, 2.0, price=1.0, currency="EUR"), candidate(8, 1.0, price=2.0)), "cost")
    assert (ranking.answers.cheapest, ranking.order[0]) == (None, 1)
    assert list(ranking.unpriced()) == ["prices are in several currencies: GPU-hours are compared instead"]


def test_prices_of_several_kinds_are_not_ranked_as_equals() -> None:
    """On demand goes before the block that costs less, and a price of the user's compares with any."""
    block = candidate(8, 1.0, price=1.0, server="block", kind="capacity-block")
    listed, own = candidate(16, 1.0, price=5.0, kind="on-demand"), candidate(16, 1.0, price=4.0)
    ranking = Ranking((block, listed), "cost")
    assert (ranking.answers.cheapest, ranking.order[0]) == (1, 1)
    told = (
        "prices of different kinds do not compare: only on-demand ones are ranked, not that of block (capacity-block)"
    )
    assert list(ranking.unpriced()) == [told]
    assert Ranking((block, listed, own), "cost").answers.cheapest == 2
    assert Ranking((block, own), "cost").answers.cheapest == 0
    spot = candidate(8, 1.0, price=0.5, kind="spot")
    assert Ranking((spot, block, block), "cost").answers.cheapest == 1  # the commonest where none is on demand


def test_what_misses_a_limit_comes_last_and_the_nearest_is_taken_where_all_do() -> None:
    assert best("time", candidate(8, 1.0, ok=False), candidate(8, 9.0)) == 1
    all_late = Ranking((candidate(8, 3.0, ok=False), candidate(8, 2.0, ok=False)), "time")
    assert (all_late.answers.chosen, all_late.answers.nearest) == (1, 1)


@pytest.mark.parametrize(("fit", "chosen"), [(0.77, 0), (0.74, 1), (None, 1)])
def test_what_is_not_likely_to_fit_is_not_recommended(fit: float | None, chosen: int) -> None:
    """Also where it is the smaller and the faster; it is taken where nothing else fits."""
    doubtful, roomy = candidate(8, 1.0, fit=fit), candidate(16, 1.0 + 1.1 * GPUS_ERROR)
    assert best("time", doubtful, roomy) == chosen
    answers = Ranking((doubtful, roomy), "time").answers
    assert (answers.smallest, answers.fastest) == (chosen, chosen)
    assert best("time", doubtful, candidate(16, 2.0, fit=0.6)) == 0


def test_a_plan_that_a_smaller_one_matches_within_the_error_is_not_on_the_front() -> None:
    """1.05 h on 8 against 1 h on 16 GPUs is no gain; against what misses it by more than the error, it is."""
    small, odd = candidate(8, 1.05), candidate(16, 1.0, tp=2)
    assert Ranking((small, odd), "time").pareto == [True, False]
    assert Ranking((candidate(8, 1.05, tp=2), candidate(16, 1.0)), "time").pareto == [True, True]  # a plainer layout
    assert Ranking((candidate(8, 1.0 + 1.1 * GPUS_ERROR), odd), "time").pareto == [True, True]


def test_what_loses_a_tie_does_not_beat_others() -> None:
    """Each is within the error of the next, the first is not within that of the last."""
    chain = tuple(candidate(8 * gpus, 1.14 - 0.07 * place) for place, gpus in enumerate((1, 2, 3)))
    assert Ranking(chain, "time").pareto == [True, False, True]


def test_what_surely_keeps_the_limits_is_bought_before_what_costs_less_and_does_not() -> None:
    """Whatever stands beside them: a rented kind, as many servers of it, moves neither."""
    doubtful = candidate(16, 18.4, sure=0.7, capex=290_000)
    better = candidate(16, 7.0, sure=0.95, capex=340_000)
    rented = candidate(16, 18.4, sure=0.7, price=2_000.0)
    dearer = candidate(16, 4.0, sure=0.95, capex=480_000)
    assert best("servers", rented, doubtful, better) == 2
    assert best("servers", doubtful, better) == 1
    assert best("servers", rented, better, dearer) == 1
    assert best("servers", rented, doubtful) == 1
