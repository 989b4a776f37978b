"""Tables of steps and searches over two kinds of replicas, against sums made by hand."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace
from serving_cases import asked, job, served

from xe_sizer.serving.disaggregation import Kinds, Pools, decoding_only, prompts_of
from xe_sizer.serving.job import ReplicaLayouts, Traffic
from xe_sizer.serving.memory import serving_memory
from xe_sizer.serving.queueing import Curve
from xe_sizer.serving.search import choose_pools, decode_curve, guess_pools, pareto_front
from xe_sizer.serving.simulation import Prompts, Reach, StepPrices, Table, geometric, step_prices
from xe_sizer.serving.step_time import Work, step_time

H100S = "dell-xe9680-h100"
ONE = ReplicaLayouts.of()


def line(slope: float, base: float = 0.0) -> Table:
    return Table([0.0, 1.0, 1000.0], [], [[base], [base + slope], [base + 1000 * slope]])


def grid(x: float, y: float, base: float = 0.0) -> Table:
    values = [[base + x * a + y * b for b in (0.0, 10.0)] for a in (0.0, 100.0)]
    return Table([0.0, 100.0], [0.0, 10.0], values)


def prices(**changes: object) -> StepPrices:
    """Tables of straight lines: a tenth of a second a sequence, and so on."""
    return replace(
        StepPrices(
            decode=grid(0.1, 0.01, 1.0),
            starting=line(0.0),
            beside=grid(0.05, 0.02),
            piece=grid(0.001, 0.003),
            piece_s=0.7,
            start_s=0.3,
            head=line(0.004),
            mixed=Prompts(line(0.02, 2.0), line(0.5)),
            apart=Prompts(line(0.03, 1.0), line(0.25)),
            groups=1.0,
            each=1.0,
            drafting=0.0,
            step_s=0.0,
            sequence_s=0.0,
            overlaps=False,
            all_logits=False,
        ),
        **changes,
    )


# Tables


def test_tables_are_linear_between_their_places_and_beyond() -> None:
    one = Table([1.0, 2.0, 4.0], [], [[10.0], [20.0], [60.0]])
    assert [one.at(x) for x in (0.0, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0)] == [0, 10, 15, 20, 40, 60, 80]
    two = Table([1.0, 2.0, 4.0], [0.0, 10.0, 30.0], [[0, 1, 2], [10, 21, 32], [20, 41, 62]])
    assert two.at(1.0, 0.0) == 0.0
    assert two.at(2.0, 10.0) == 21.0
    assert two.at(3.0, 20.0) == pytest.approx((21 + 32 + 41 + 62) / 4)
    assert two.at(1.5, 5.0) == pytest.approx((0 + 1 + 10 + 21) / 4)
    assert two.at(4.0, 50.0) == pytest.approx(62 + 21)


def test_places_are_whole_and_close_together_where_they_are_small() -> None:
    assert geometric(1.0, 8.0, 4).tolist() == [1, 2, 4, 8]
    assert geometric(1.0, 100.0, 3).tolist() == [1, 10, 100]
    assert geometric(1.0, 10.5, 2).tolist() == [1, 10.5]
    assert geometric(5.0, 5.0, 2).tolist() == [5, 8.5]  # lengths alike: half as much again, and one
    assert geometric(2.5, 100.0, 3)[0] == 2.5


# Steps out of tables


def test_a_decode_out_of_its_table() -> None:
    assert prices().decode_s(20.0, 5.0) == pytest.approx(1.0 + 2.0 + 0.05)
    assert prices(drafting=0.3).decode_s(20.0, 5.0) == pytest.approx(3.05 * 1.3)
    assert prices(groups=4.0).decode_s(20.0, 5.0) == pytest.approx(1.0 + 0.5 + 0.05)
    assert prices(groups=4.0).decode_s(2.0, 0.0) == pytest.approx(1.1)


def test_a_decode_waits_for_the_host() -> None:
    """Starting takes 4 s where the accelerator takes 3.05; 0.1 s and 20 sequences of 0.01 s lie between the steps."""
    eager = {"starting": line(0.2), "step_s": 0.1, "sequence_s": 0.01}
    assert prices(**eager).decode_s(20.0, 5.0) == pytest.approx(4.0 + 0.3)
    assert prices(**eager, overlaps=True).decode_s(20.0, 5.0) == pytest.approx(4.3)
    replayed = {**eager, "starting": line(0.0)}
    assert prices(**replayed).decode_s(20.0, 5.0) == pytest.approx(3.05 + 0.3)
    assert prices(**replayed, overlaps=True).decode_s(20.0, 5.0) == pytest.approx(3.05)


def test_prompts_apart_out_of_their_tables() -> None:
    """Two pieces of 30 on 5 tokens: 1 + 60 x 0.03, a further piece, 0.3 once, 60 x (0.03 + 0.015), two logits."""
    device = 1.0 + 1.8 + 0.7 + 0.3 + 60 * (0.03 + 0.015) + 2 * 0.004
    hidden = prices(apart=Prompts(line(0.03, 1.0), line(0.05)))  # 60 x 0.05 is less
    assert hidden.prompt_s(2, 60, 5.0, 0, 0.0) == pytest.approx(device)
    assert prices().prompt_s(2, 60, 5.0, 0, 0.0) == pytest.approx(60 * 0.25)
    assert prices(sequence_s=0.1).prompt_s(2, 60, 5.0, 0, 0.0) == pytest.approx(60 * 0.25 + 0.2)
    every = replace(hidden, all_logits=True).prompt_s(2, 60, 5.0, 0, 0.0)
    assert every == pytest.approx(device + 58 * 0.004)


def test_prompts_beside_decodes_out_of_their_tables() -> None:
    """Ten decodes on 4 tokens: ten further tokens, 10 x 0.05 + 4 x 0.02 of their attention, ten further logits."""
    device = 2.0 + 70 * 0.02 + 0.7 + 0.3 + 60 * (0.03 + 0.015) + 12 * 0.004 + 0.58
    hidden = {"mixed": Prompts(line(0.02, 2.0), line(0.01))}
    assert prices(**hidden).prompt_s(2, 60, 5.0, 10, 4.0) == pytest.approx(device)
    assert prices().prompt_s(2, 60, 5.0, 10, 4.0) == pytest.approx(70 * 0.5)
    assert prices(**hidden, sequence_s=0.1).prompt_s(2, 60, 5.0, 10, 4.0) == pytest.approx(device + 1.2)
    drafts = prices(**hidden, each=3.0, drafting=0.2).prompt_s(2, 60, 5.0, 10, 4.0)
    device += 20 * 0.02 + 20 * 0.004
    assert drafts == pytest.approx(device + 0.2 * (2.0 + 0.04) * 1.2)


def test_groups_share_the_pieces() -> None:
    """Four pieces of 30 in two groups are two pieces a step, one piece is one."""
    two = prices(groups=2.0)
    assert two.prompt_s(4, 120, 5.0, 0, 0.0) == pytest.approx(prices().prompt_s(2, 60, 5.0, 0, 0.0))
    assert two.prompt_s(1, 30, 5.0, 0, 0.0) == pytest.approx(prices().prompt_s(1, 30, 5.0, 0, 0.0))


@pytest.mark.parametrize("engine", ["vllm", "hf-transformers"])
def test_drafts_are_priced_as_the_law_has_them(engine: str) -> None:
    made = job(serve__engine=engine, server=H100S)
    traffic = Traffic(1000.0, 100.0, draft_tokens=3, acceptance_rate=0.5, draft_cost=0.1)
    found = step_prices(made, ONE, traffic, Reach(64, 4096, 1000, 1100))
    law = step_time(made, ONE, Work(decodes=16, decode_past=1050, decode_tokens=4)).total_s[0]
    assert found.decode_s(16, 1050) == pytest.approx(law * 1.3, rel=2e-3)
    beside = step_time(
        made, ONE, Work(decodes=16, decode_past=1050, decode_tokens=4, prefills=1, prefill_tokens=800)
    ).total_s[0]
    assert found.prompt_s(1, 800, 0.0, 16, 1050) == pytest.approx(beside + 0.3 * 1.3 * law, rel=0.02)


# Two kinds of replicas


def test_a_point_that_another_beats_is_left_out() -> None:
    """(2, 2) is beaten by (1, 2); of two that are equal the first stays."""
    kept = pareto_front(np.array([1.0, 2.0, 3.0, 1.0]), np.array([2.0, 2.0, 1.0, 2.0]))
    assert kept.tolist() == [True, False, True, False]
    assert pareto_front(np.array([1.0, 2.0]), np.array([2.0, 1.0])).tolist() == [True, True]
    assert pareto_front(np.array([1.0, 1.0]), np.array([2.0, 2.0])).tolist() == [True, False]


def services(load: dict[str, object], prefills: float, decodes: float) -> Pools:
    """Llama 3.1 8B on pairs of single GPUs."""
    resolved = asked(
        server=H100S, serve__prefill_replicas="auto", serve__input_tokens=2000, serve__output_tokens=200, **load
    )
    made, traffic = resolved.job, resolved.traffic

    found = decode_curve(made, ONE, serving_memory(made, ONE, traffic.inputs), traffic)
    kinds = Kinds(ONE, prompts_of(made, ONE, traffic), ONE, found)
    zero = np.zeros(1, dtype=int)
    return Pools(resolved, kinds, zero, zero, np.array([prefills]), np.array([decodes]))


def test_the_slowest_of_reading_sending_and_answering_decides() -> None:
    few, many = services({"serve__request_rate": 1.0}, 2.0, 3.0), services({"serve__request_rate": 1.0}, 20.0, 3.0)
    read, answer = 1.0 / few.each_s[0], few.found.top_rate[0]
    assert few.top_rate[0] == pytest.approx(0.999 * min(2 * read, 3 * answer, 2 / few.sent_s[0]))
    assert many.top_rate[0] == pytest.approx(0.999 * min(20 * read, 3 * answer, 3 / many.sent_s[0]))
    assert few.gpus[0] == 5
    assert few.links[0] == 2
    assert many.links[0] == 3


def test_latencies_of_two_kinds_add_up() -> None:
    one = services({"serve__request_rate": 1.0}, 2.0, 3.0)
    rate = 0.5 * one.top_rate[0]
    stages, at = one.stages_s(rate), one.latencies(rate)
    alone, each, sent = float(one.alone_s[0]), float(one.each_s[0]), float(one.sent_s[0])
    queue = min(rate / 2 * alone, 1.0) * alone / 2 / (1 - rate / 2 * each)
    link = rate / 2 * sent * sent / 2 / (1 - rate / 2 * sent)
    assert stages["queue"][0] == pytest.approx(queue)
    assert stages["prefill"][0] == pytest.approx(alone + one.resolved.job.request_s)
    assert stages["transfer"][0] == pytest.approx(sent + link)
    ttft = sum(float(stages[name][0]) for name in ("queue", "prefill", "transfer", "decode"))
    assert at.ttft_s[0] == pytest.approx(ttft)
    assert at.request_s[0] == pytest.approx(ttft + 199 * at.tpot_s[0])
    assert np.isinf(one.latencies(1.001 * one.top_rate).ttft_s[0])
    assert np.isfinite(one.latencies(one.top_rate).ttft_s[0])


@pytest.mark.parametrize("load", [{"serve__concurrency": 40}, {"serve__users": 300}])
def test_closed_loads_of_two_kinds_are_rate_times_time(load: dict[str, object]) -> None:
    one = services(load, 2.0, 3.0)
    amount = one.resolved.amount
    rate, at = one.under(amount)
    assert rate[0] * (at.request_s[0] + one.resolved.think_s) == pytest.approx(amount, rel=1e-6)
    full, late = one.under(1e6)
    assert full[0] == pytest.approx(one.top_rate[0], rel=1e-6)
    assert full[0] * (late.request_s[0] + one.resolved.think_s) == pytest.approx(1e6, rel=1e-6)
    busy = one.latencies(full)
    assert late.ttft_s[0] - busy.ttft_s[0] == pytest.approx(late.request_s[0] - busy.request_s[0], rel=1e-9)
    assert late.ttft_s[0] > busy.ttft_s[0]


def test_long_prompts_are_sent_longer() -> None:
    """One in twenty prompts of spread 1 is exp(1.645 sigma) / sqrt(2) times as long, sigma^2 = ln 2."""
    one = services({"serve__request_rate": 1.0, "serve__input_spread": 1.0}, 2.0, 3.0)
    mean, late = one.stages_s(1e-9), one.stages_s(1e-9, 95.0)
    longer = np.exp(1.6448536269514722 * np.sqrt(np.log(2.0))) / np.sqrt(2.0)
    assert late["transfer"][0] == pytest.approx(longer * mean["transfer"][0], rel=1e-6)
    prefill = float(one.alone_s[0])
    assert late["prefill"][0] - mean["prefill"][0] == pytest.approx((longer - 1) * prefill, rel=1e-6)


def test_the_rate_of_two_kinds_within_a_limit_meets_it() -> None:
    one = services({"serve__request_rate": 1.0, "limits__max_ttft_s": 0.2, "limits__max_tpot_s": 0.02}, 2.0, 3.0)
    rate = one.rate_within(None)
    at = one.latencies(rate)
    assert 0 < rate[0] <= one.top_rate[0]
    assert at.ttft_s[0] <= 0.2
    assert at.tpot_s[0] <= 0.02
    above = one.latencies(rate * 1.01)
    assert above.ttft_s[0] > 0.2 or above.tpot_s[0] > 0.02
    free = replace(one, resolved=asked(serve__batch=1))
    assert free.rate_within(None)[0] == one.top_rate[0]


def test_a_guess_gives_each_kind_what_its_part_takes() -> None:
    """30 a second: 30 prompts' time, and 30 over what a decode replica answers at the most."""
    one = services({"serve__request_rate": 30.0}, 1.0, 1.0)
    reads, answers = guess_pools(one.resolved, one)
    tpot = one.found.states.tpot_s[:, 0]
    allowed = one.resolved.limits.max_tpot_s or np.inf
    place = int((tpot <= allowed).sum()) - 1
    assert reads[0] == pytest.approx(30 * one.each_s[0])
    assert answers[0] == pytest.approx(30 / one.found.rates[place, 0])
    flight = services({"serve__concurrency": 64}, 1.0, 1.0)
    place = int((flight.found.states.tpot_s[:, 0] <= (flight.resolved.limits.max_tpot_s or np.inf)).sum()) - 1
    inside, rate = flight.found.states.running[place, 0], flight.found.rates[place, 0]
    guessed = 64 / (flight.alone_s[0] + flight.sent_s[0] + inside / rate)
    reads, answers = guess_pools(flight.resolved, flight)
    assert reads[0] == pytest.approx(guessed * flight.each_s[0])
    assert answers[0] == pytest.approx(guessed / rate)


@pytest.mark.parametrize(("gpus", "reading"), [(3, 1), (4, 1), (4, 3)])
def test_given_gpus_are_shared_out(gpus: int, reading: int) -> None:
    found = served(server=H100S, gpus=gpus, serve__prefill_replicas=reading, serve__request_rate=2.0, layout__tp=1,
                   layout__pp=1, serve__prefill_tp=1, serve__prefill_pp=1, serve__input_tokens=2000,
                   serve__output_tokens=200)  # fmt: skip
    prefills = found.choice.prefills
    assert prefills is not None
    assert (prefills.replicas, found.replicas, found.gpus) == (reading, gpus - reading, gpus)
    busy_s = 1.0 / found.point.requests_per_s
    assert found.point.prompt_s == pytest.approx(busy_s * reading / gpus)
    assert found.point.answer_s == pytest.approx(busy_s * (gpus - reading) / gpus)
    one = decoding_only(found.resolved.job, ONE, found.resolved.traffic, max(found.point.running, 1.0))
    assert found.point.decode.total_s[0] == pytest.approx(one.decode.total_s[0])
    assert prefills.utilisation == pytest.approx(
        2.0 / reading * prompts_of(found.resolved.job, ONE, found.resolved.traffic).each_s[0]
    )


def test_no_pair_is_chosen_where_none_fits() -> None:
    resolved = asked("llama-3.1-70b", server=H100S, serve__prefill_replicas="auto", serve__request_rate=1.0)
    assert choose_pools(resolved, ONE, ReplicaLayouts.of(tp=8)) is None
    assert choose_pools(resolved, ReplicaLayouts.of(tp=8), ReplicaLayouts.of(tp=8)) is not None


def test_an_empty_curve_takes_nothing() -> None:
    one = services({"serve__request_rate": 1.0}, 1.0, 1.0)
    assert Curve(one.found.states, np.zeros(1)).top_rate[0] == 0.0
