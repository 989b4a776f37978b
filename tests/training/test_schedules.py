"""Schedules of a pipeline against simulations of their passes, and against what their authors' scheduler makes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from xe_sizer.graph.operators import Array
from xe_sizer.training.layout import ROWS, SCHEDULES, Passes, bubble_time_s, micro_batches_in_flight

Op = tuple[str, int]  # F or B of a micro-batch
Made = tuple[float, list[int]]  # bubble of the slowest stage, and the most micro-batches that each stage held


def bubble(
    name: str, pp: int, micro_batches: int, forward: float, backward: float, weight: float, vpp: int = 1
) -> float:
    passes = Passes(*(np.full((3, 1), seconds) for seconds in (forward, backward, weight)))
    code = np.array([SCHEDULES.index(name)])
    sizes = (np.array([float(size)]) for size in (pp, vpp, micro_batches))
    return float(bubble_time_s(code, *sizes, passes, np.array([max(pp - 2.0, 0.0)]))[0])


def held(name: str, pp: int, micro_batches: int, vpp: int = 1) -> list[float]:
    sizes = (np.array([float(size)]) for size in (pp, vpp, micro_batches))
    made: Array = micro_batches_in_flight(np.array([SCHEDULES.index(name)]), *sizes)
    return [float(stage) for stage in made[:, 0]]


def in_turn(warmup: int, micro_batches: int) -> list[Op]:
    """Forwards until `warmup` are under way, then a backward and a forward in turn, then the rest."""
    first = min(warmup, micro_batches)
    order: list[Op] = [("F", one) for one in range(first)]
    for one in range(micro_batches):
        order.append(("B", one))
        if first + one < micro_batches:
            order.append(("F", first + one))
    return order


class Simulation:
    """Every stage runs its passes in order, each as soon as its input is there.

    most : micro-batches that a stage may hold; weight gradients fill what it waits, or make room for a forward. None:
    they run in the backward.
    """

    def __init__(self, orders: Sequence[list[Op]], times: tuple[float, float, float], most: int | None) -> None:
        self.orders, self.times, self.most = orders, times, most
        self.ends: dict[tuple[str, int, int], float] = {}
        stages = len(orders)
        self.busy_until, self.began = [0.0] * stages, [-1.0] * stages
        self.positions, self.waiting, self.alive, self.peaks = ([0] * stages for _ in range(4))

    def run(self) -> Made:
        for _ in range(sum(map(len, self.orders))):
            self.step(*min(self.ready()))
        weight = self.times[2]
        done = [until + waiting * weight for until, waiting in zip(self.busy_until, self.waiting, strict=True)]
        whole = max(end - start * (self.most is not None) for end, start in zip(done, self.began, strict=True))
        return whole - len(self.orders[0]) / 2 * sum(self.times), self.peaks

    def ready(self) -> Iterator[tuple[float, int]]:
        """When each stage could start its next pass."""
        for stage, order in enumerate(self.orders):
            if self.positions[stage] < len(order):
                kind, one = order[self.positions[stage]]
                neighbour = stage - 1 if kind == "F" else stage + 1
                if 0 <= neighbour < len(self.orders):
                    arrived = self.ends.get((kind, one, neighbour))
                else:
                    arrived = 0.0 if kind == "F" else self.ends.get(("F", one, stage))
                if arrived is not None:
                    yield max(arrived, self.busy_until[stage]), stage

    def weights(self, stage: int) -> None:
        self.busy_until[stage] += self.times[2]
        self.waiting[stage] -= 1
        self.alive[stage] -= 1

    def step(self, start: float, stage: int) -> None:
        kind, one = self.orders[stage][self.positions[stage]]
        while self.waiting[stage] and self.busy_until[stage] + self.times[2] <= start + 1e-9:
            self.weights(stage)
        while kind == "F" and self.alive[stage] == self.most and self.waiting[stage]:
            self.weights(stage)
        start = max(start, self.busy_until[stage])
        self.began[stage] = start if self.began[stage] < 0 else self.began[stage]
        self.positions[stage] += 1
        self.busy_until[stage] = self.ends[kind, one, stage] = start + self.times["FB".index(kind)]
        if kind == "F":
            self.alive[stage] += 1
            self.peaks[stage] = max(self.peaks[stage], self.alive[stage])
            return
        self.waiting[stage] += 1
        if self.most is None:
            self.weights(stage)
            self.ends[kind, one, stage] = self.busy_until[stage]


def simulated(orders: Sequence[list[Op]], times: tuple[float, float, float], most: int | None) -> Made:
    return Simulation(orders, times, most).run()


TIMES = [(1.0, 1.0, 1.0), (1.0, 1.2, 0.8), (1.0, 1.3, 1.0), (1.0, 2.0, 1.0)]


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("pp", [2, 4, 8])
def test_1f1b_and_gpipe_as_simulated(pp: int, times: tuple[float, float, float]) -> None:
    """Both fill and drain alike; what they differ in is what they hold."""
    micro_batches = 3 * pp
    turns = [in_turn(pp - stage, micro_batches) for stage in range(pp)]
    idle, peaks = simulated(turns, times, None)
    assert bubble("1f1b", pp, micro_batches, *times) == pytest.approx(idle, rel=1e-9)
    assert held("1f1b", pp, micro_batches) == [peaks[0], peaks[-1]] == [pp, 1]
    idle, peaks = simulated([in_turn(micro_batches, micro_batches)] * pp, times, None)
    assert bubble("gpipe", pp, micro_batches, *times) == pytest.approx(idle, rel=1e-9)
    assert held("gpipe", pp, micro_batches) == [peaks[0], peaks[-1]] == [micro_batches] * 2


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("pp", [2, 4, 8])
@pytest.mark.parametrize(("name", "most"), [("zb-h1", 1), ("zb-h2", 2)])
def test_deferred_weight_gradients_as_simulated(
    name: str, most: int, pp: int, times: tuple[float, float, float]
) -> None:
    """ZB-H1 starts as 1F1B and holds pp micro-batches everywhere, ZB-H2 runs 2 (pp - stage) - 1 forwards first."""
    micro_batches, limit = 4 * pp, most * (pp - 1) + 1
    warmups = [most * (pp - stage - 1) + 1 for stage in range(pp)]
    idle, peaks = simulated([in_turn(warmup, micro_batches) for warmup in warmups], times, limit)
    assert bubble(name, pp, micro_batches, *times) == pytest.approx(idle, abs=0.1 * sum(times))
    assert held(name, pp, micro_batches) == [limit, limit]
    assert peaks[0] == limit


def test_interleaved_chunks_share_the_bubble() -> None:
    """Narayanan et al. 2021, section 2.2: (pp - 1) t / v."""
    assert bubble("1f1b-interleaved", 8, 32, 1.0, 1.0, 1.0, vpp=4) == pytest.approx(7 * 3 / 4)
    assert held("1f1b-interleaved", 8, 32, vpp=4) == [8 + 7 / 4, 8 - 7 / 4]


# Bubbles of what zerobubble/scheduler/zbv.py and zbv_greedy.py of sail-sg/zero-bubble-pipeline-parallelism
# make (May 2025), with F = 1: pp, micro-batches, B, W, and the bubbles of ZB-V, V-half and V-min.
SCHEDULED = [
    (4, 8, 1.0, 1.0, 0.0, 2.5, 5.5), (4, 16, 1.2, 0.8, 0.8, 3.9, 15.2), (4, 16, 1.5, 0.5, 2.75, 9.0, 29.75),
    (8, 16, 1.0, 1.0, 0.0, 8.5, 13.5), (8, 16, 1.2, 0.8, 2.4, 11.5, 23.7), (8, 32, 1.2, 0.8, 2.4, 11.5, 33.3),
    (8, 16, 1.3, 1.0, 1.95, 11.65, 24.3), (8, 32, 2.0, 1.0, 6.5, 32.0, 81.5), (8, 16, 1.1, 0.7, 2.45, 10.9, 21.7),
]  # fmt: skip


@pytest.mark.parametrize(("pp", "micro_batches", "backward", "weight", "zb_v", "v_half", "v_min"), SCHEDULED)
def test_v_shaped_schedules_as_their_authors_make_them(
    pp: int, micro_batches: int, backward: float, weight: float, zb_v: float, v_half: float, v_min: float
) -> None:
    for name, expected in (("zb-v", zb_v), ("v-half", v_half), ("v-min", v_min)):
        made = bubble(name, pp, micro_batches, 1.0, backward, weight, vpp=2)
        assert made == pytest.approx(expected, abs=0.5, rel=0.04), name


@pytest.mark.parametrize(("pp", "half", "third"), [(4, 3, 2), (8, 5, 4), (16, 9, 6)])
def test_v_shaped_schedules_hold_less(pp: int, half: int, third: int) -> None:
    """(p + 2) // 2 and (p + 4) // 3 micro-batches, ZB-V p: table of the authors' description."""
    assert held("v-half", pp, 64, vpp=2) == [half, half]
    assert held("v-min", pp, 64, vpp=2) == [third, third]
    assert held("zb-v", pp, 64, vpp=2) == [pp, pp]


def test_one_stage_waits_for_none_and_holds_one() -> None:
    for row in ROWS:
        assert bubble(row.name, 1, 8, 1.0, 1.0, 1.0) == 0.0
        assert held(row.name, 1, 8) == [1.0, 1.0]


# Passes of a rank in the order of deepseek-ai/DualPipe (dualpipe/dualpipe.py, step), each with the way of its
# micro-batch: F, B, b (its weight gradients wait), W (one of them), and FB, a forward beside a backward of the other
# way.


def both_ways(rank: int, pp: int, micro_batches: int) -> list[tuple[str, int]]:
    half, near = pp // 2, min(rank, pp - 1 - rank)
    order = [("F", 0)] * (2 * (half - near - 1)) + [("F", 0), ("F", 1)] * (near + 1)
    order += [("b", 1), ("W", 0), ("F", 1)] * (half - near - 1)
    first = [("F", 0), ("B", 1)] if rank in (half - 1, half) else [("FB", 0)]
    order += [*first, ("FB", 1), *[("FB", 0), ("FB", 1)] * (micro_batches // 2 - pp + near)]
    order += [("B", 1), ("FB", 1)] * (half - near - 1)
    order += [("b" if place > near else "B", 1 - place % 2) for place in range(2 * (near + 1))]
    order += [("W", 0), ("b", 0)] * (half - near - 1)
    return order if rank < half else [(kind, 1 - way) for kind, way in order]


def simulated_both_ways(pp: int, micro_batches: int, forward: float, backward: float, weight: float) -> Made:
    """Idle time of a rank, and the most micro-batches that each held."""
    seconds = {"F": forward, "b": backward, "W": weight, "B": backward + weight, "FB": forward + backward + weight}
    orders = [both_ways(rank, pp, micro_batches) for rank in range(pp)]
    ends: dict[tuple[str, int, int, int], float] = {}
    places, busy_until, waiting, alive, peaks = [0] * pp, [0.0] * pp, [0] * pp, [0] * pp, [0] * pp
    counts = [{(kind, way): 0 for kind in "FB" for way in (0, 1)} for _ in range(pp)]

    def arrived(kind: str, way: int, rank: int) -> float | None:
        before = rank + (1 if (kind == "F") == (way == 1) else -1)
        one = counts[rank][kind, way]
        if 0 <= before < pp:
            return ends.get((kind, way, one, before))
        return 0.0 if kind == "F" else ends.get(("F", way, one, rank))

    while any(place < len(order) for place, order in zip(places, orders, strict=True)):
        for rank, order in enumerate(orders):
            while places[rank] < len(order):
                kind, way = order[places[rank]]
                parts = {"FB": [("F", way), ("B", 1 - way)], "W": []}.get(kind, [(kind.upper(), way)])
                inputs = [arrived(*part, rank) for part in parts]
                if None in inputs:
                    break
                busy_until[rank] = max([busy_until[rank], *(at for at in inputs if at)]) + seconds[kind]
                places[rank] += 1
                for part in parts:
                    ends[(*part, counts[rank][part], rank)] = busy_until[rank]
                    counts[rank][part] += 1
                alive[rank] += ("F" in kind) - (kind == "W")
                peaks[rank] = max(peaks[rank], alive[rank])
                alive[rank] -= "B" in kind
                waiting[rank] += (kind == "b") - (kind == "W")
    done = [until + left * weight for until, left in zip(busy_until, waiting, strict=True)]
    return max(done) - micro_batches * (forward + backward + weight), peaks


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("pp", [2, 4, 8, 16])
def test_both_ways_as_their_authors_order_them(pp: int, times: tuple[float, float, float]) -> None:
    """(pp / 2 - 1)(F&B + B - 3 W) of the paper; where passes differ the real order waits up to a pass less."""
    _, backward, weight = times
    micro_batches = 2 * pp + 4
    idle, peaks = simulated_both_ways(pp, micro_batches, *times)
    published = (pp / 2 - 1) * (sum(times) + (backward + weight) - 3 * weight)
    assert bubble("dualpipe", pp, micro_batches, *times) == pytest.approx(published)
    assert published - 1 - 1e-9 <= idle <= published + 1e-9
    assert idle == pytest.approx(published) or times != (1.0, 1.0, 1.0)
    assert held("dualpipe", pp, micro_batches) == [peaks[0], peaks[-1]] == [pp + 1, pp + 1]
    # Cut in half: twice as many stages, two on each rank, and all micro-batches pass both.
    halves = [0.5 * seconds for seconds in times]
    assert bubble("dualpipe-v", pp, micro_batches, *times, vpp=2) == pytest.approx(
        bubble("dualpipe", 2 * pp, 99, *halves)
    )
    assert held("dualpipe-v", pp, micro_batches, vpp=2) == [held("dualpipe", 2 * pp, 99)[0] / 2] * 2
