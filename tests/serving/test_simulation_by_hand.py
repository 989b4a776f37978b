"""The simulation of a test against a plain one that goes step by step, token by token, with prices made up for it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace
from serving_cases import job

from xe_sizer.serving.job import ReplicaLayouts, ServingJob, Traffic
from xe_sizer.serving.memory import serving_memory
from xe_sizer.serving.simulation import Offered, Outcome, simulate

ONE = ReplicaLayouts.of()
TOKEN = 2 * 32 * 8 * 128 * 2  # bytes of a token of Llama 3.1 8B
MANY = 10**9


@dataclass
class Prices:
    """Linear prices: whatever is averaged over steps must come to the sum of its steps."""

    past_s: float = 1e-6

    def decode_s(self, decodes: float, past: float) -> float:
        return 1e-3 + 1e-4 * decodes + self.past_s * decodes * past

    def prompt_s(self, pieces: float, tokens: float, past: float, decodes: float, decode_past: float) -> float:
        beside_s = 2e-4 * decodes + self.past_s * decodes * decode_past
        return 2e-3 + 3e-4 * pieces + 1e-5 * tokens + 1e-8 * tokens * past + beside_s


@dataclass
class Rules:
    """What the plain scheduler goes by."""

    step_tokens: int = 512
    places: int = 8
    mixed: bool = True
    chunked: bool = True
    whole: bool = False
    behind: bool = False
    pool_tokens: float = MANY
    interval: int = 1
    wait_iters: int = 0
    request_s: float = 0.0
    hit: float = 0.0


@dataclass
class Request:
    number: int
    prompt: int
    answer: int
    arrival: float
    todo: int = 0
    cached: int = 0
    made: int = 0
    start: float = np.inf
    first: float = np.inf
    finish: float = np.inf


@dataclass
class Plain:
    """One step after the other; the answers begin in the order of `decoding`."""

    rules: Rules
    prices: Prices
    requests: list[Request]
    clients: int | None
    now: float = 0.0
    polled: int = 0
    waited: int = 0
    lost: int = 0
    waiting: deque[Request] = field(default_factory=deque)
    prefilling: list[Request] = field(default_factory=list)
    decoding: list[Request] = field(default_factory=list)

    def run(self) -> None:
        self.coming = deque(self.requests[: self.clients or len(self.requests)])
        self.later = deque(self.requests[len(self.coming) :])
        while any(np.isinf(one.finish) for one in self.requests):
            if not self.decoding or self.polled >= self.rules.interval:
                self.polled = 0
                while self.coming and self.coming[0].arrival + self.rules.request_s <= self.now + 1e-9:
                    self.waiting.append(self.coming.popleft())
            pieces = self.pieces()
            if pieces:
                self.prompt_step(pieces)
            elif self.decoding:
                self.decode_step()
            else:
                self.now = self.coming[0].arrival + self.rules.request_s

    def tokens(self, one: Request) -> int:
        """Of the cache that a request has: all that it will need, or what it has so far."""
        return one.prompt + one.answer if self.rules.whole else one.prompt + max(one.made, 0)

    def used(self) -> float:
        return sum(self.tokens(one) for one in (*self.prefilling, *self.decoding))

    def pieces(self) -> list[tuple[Request, int]]:
        rules, taken = self.rules, []
        room = rules.step_tokens - (len(self.decoding) if rules.mixed else 0)
        for one in self.prefilling:
            if room > 0:
                taken.append((one, min(one.todo, room)))
                room -= taken[-1][1]
        while self.waiting and room > 0:
            one = self.waiting[0]
            if (self.decoding or self.prefilling) and not self.admitted(one, room, bool(taken)):
                break
            self.waiting.popleft()
            one.start = min(one.start, self.now)
            one.todo = max(int(one.prompt * (1.0 - rules.hit)), 1)
            one.cached = one.prompt - one.todo
            self.prefilling.append(one)
            self.waited = self.waited if self.waiting else 0
            taken.append((one, min(one.todo, room) if rules.chunked else one.todo))
            room -= taken[-1][1]
        return taken

    def admitted(self, one: Request, room: int, beside: bool) -> bool:
        rules = self.rules
        if len(self.decoding) + len(self.prefilling) >= rules.places:
            return False
        if self.used() + self.tokens(one) > rules.pool_tokens:
            return False
        if not rules.chunked and beside and one.prompt * (1.0 - rules.hit) > room:
            return False
        patient = self.decoding and self.waited < rules.wait_iters
        return not patient or sum(other.prompt for other in self.waiting) * (1.0 - rules.hit) >= room

    def prompt_step(self, pieces: list[tuple[Request, int]]) -> None:
        beside = self.decoding if self.rules.mixed else []
        total = sum(tokens for _, tokens in pieces)
        before = sum(tokens * (one.cached + tokens / 2) for one, tokens in pieces) / total - total / len(pieces) / 2
        past = sum(one.prompt + one.made for one in beside) / len(beside) if beside else 0.0
        self.now += self.prices.prompt_s(len(pieces), total, before, len(beside), past)
        self.polled = self.rules.interval
        self.gain(list(beside))
        for one, tokens in pieces:
            one.todo -= tokens
            one.cached += tokens
            if not one.todo:
                self.prefilling.remove(one)
                self.decoding.append(one)
                if not self.rules.behind:
                    one.first = min(one.first, self.now)
                    self.end(one, one.answer == 1)

    def decode_step(self) -> None:
        running = list(self.decoding)
        past = sum(one.prompt + one.made for one in running) / len(running)
        if self.waiting and self.waited < self.rules.wait_iters:
            self.waited += 1
        self.now += self.prices.decode_s(len(running), past)
        self.polled += 1
        self.gain(running)

    def gain(self, running: list[Request]) -> None:
        for one in running:
            one.made += 1
            one.first = min(one.first, self.now)
        for one in sorted(running, key=lambda one: one.number):
            self.end(one, one.made >= one.answer - (not self.rules.behind))
        while running and self.used() > self.rules.pool_tokens and len(self.decoding) > 1:
            last = self.decoding.pop()
            gained = last.made + (not self.rules.behind)
            last.prompt, last.answer, last.made = last.prompt + gained, last.answer - gained, 0
            self.waiting.appendleft(last)
            self.lost += 1

    def end(self, one: Request, over: bool) -> None:
        if over:
            one.finish = self.now
            self.decoding.remove(one)
            if self.later:
                following = self.later.popleft()
                following.arrival = self.now
                self.coming.append(following)


def engine(rules: Rules) -> ServingJob:
    made = job()
    batching = msgspec.structs.replace(
        made.engine.batching,
        max_step_tokens=rules.step_tokens, max_sequences=rules.places, mixed_steps=rules.mixed,
        chunked_prefill=rules.chunked, reserves="whole" if rules.whole else "used", batching="continuous",
        overlaps=False,
        first_token="decode" if rules.behind else "prefill", scheduler_recv_interval=rules.interval,
        batch_wait_iters=rules.wait_iters,
    )  # fmt: skip
    memory = msgspec.structs.replace(made.engine.memory, block_tokens=1)
    host = msgspec.structs.replace(made.engine.host, request_ms=1e3 * rules.request_s)
    return replace(made, engine=msgspec.structs.replace(made.engine, batching=batching, memory=memory, host=host))


def both(monkeypatch: pytest.MonkeyPatch, rules: Rules, load: Offered, prices: Prices) -> tuple[Outcome, Plain]:
    monkeypatch.setattr("xe_sizer.serving.simulation.step_prices", lambda *_: prices)
    made = engine(rules)
    memory = replace(serving_memory(made, ONE), pool_bytes=np.array([rules.pool_tokens * TOKEN]))
    found = simulate(made, ONE, memory, Traffic(1.0, 1.0, prefix_hit_share=rules.hit), load)
    requests = [
        Request(number, int(prompt), int(answer), float(at))
        for number, (prompt, answer, at) in enumerate(zip(load.inputs, load.outputs, load.arrivals_s, strict=True))
    ]
    plain = Plain(rules, prices, requests, load.concurrency)
    plain.run()
    return found, plain


def same(found: Outcome, plain: Plain) -> None:
    for name in ("arrival", "start", "first", "finish"):
        expected = [getattr(one, name) for one in plain.requests]
        assert getattr(found, f"{name}_s").tolist() == pytest.approx(expected, rel=1e-9, abs=1e-9), name
    assert found.preempted == plain.lost


def lengths(seed: int, count: int, prompts: tuple[int, int], answers: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return random.integers(*prompts, count).astype(float), random.integers(*answers, count).astype(float)


ENGINES = {
    "mixed": Rules(),
    "whole": Rules(whole=True, pool_tokens=2500),
    "short of cache": Rules(pool_tokens=1700, places=20),
    "apart": Rules(mixed=False, chunked=False),
    "apart, cut": Rules(mixed=False),
    "first token by a decode": Rules(mixed=False, chunked=False, behind=True),
    "uncut beside decodes": Rules(chunked=False, behind=True, pool_tokens=4000),
    "one at a time": Rules(places=1),
    "host": Rules(request_s=0.004),
    "one long wait": Rules(wait_iters=6),
}


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_all_at_once(name: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, outputs = lengths(seed, 24, (20, 900), (1, 60))
    same(*both(monkeypatch, ENGINES[name], Offered(inputs, outputs, np.zeros(24)), Prices()))


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize(("seed", "clients"), [(4, 1), (5, 4), (6, 11)])
def test_a_closed_loop(name: str, seed: int, clients: int, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, outputs = lengths(seed, 30, (20, 700), (1, 50))
    same(*both(monkeypatch, ENGINES[name], Offered(inputs, outputs, np.zeros(30), clients), Prices(past_s=0.0)))


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize(("seed", "rate"), [(7, 10.0), (8, 40.0), (9, 200.0)])
def test_requests_at_their_times(name: str, seed: int, rate: float, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, outputs = lengths(seed, 30, (20, 700), (1, 50))
    arrivals = np.cumsum(np.random.default_rng(seed).exponential(1 / rate, 30))
    same(*both(monkeypatch, ENGINES[name], Offered(inputs, outputs, arrivals), Prices(past_s=0.0)))


@pytest.mark.parametrize("interval", [2, 7])
@pytest.mark.parametrize("mixed", [True, False])
def test_a_scheduler_that_looks_up_rarely(interval: int, mixed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, outputs = lengths(10, 30, (20, 700), (1, 50))
    arrivals = np.cumsum(np.random.default_rng(10).exponential(1 / 60, 30))
    rules = Rules(interval=interval, mixed=mixed)
    same(*both(monkeypatch, rules, Offered(inputs, outputs, arrivals), Prices(past_s=0.0)))


def test_gaps_between_tokens_are_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt that stops two decodes is a gap of each of them; all other gaps are steps of decodes."""
    prices = Prices(past_s=0.0)
    load = Offered(np.array([100.0, 100.0, 300.0]), np.array([21.0, 21.0, 4.0]), np.array([0.0, 0.0, 0.0125]))
    found, plain = both(monkeypatch, Rules(mixed=False, chunked=False), load, prices)
    same(found, plain)
    assert found.gap_counts.sum() == 20 + 20 + 3
    stop = prices.prompt_s(1, 300, 0, 0, 0) + prices.decode_s(3, 0)
    assert found.gap_s.max() == pytest.approx(stop)
    assert found.gap_counts[found.gap_s.argmax()] == 2
    assert (found.gap_s * found.gap_counts).sum() == pytest.approx((found.finish_s - found.first_s).sum())


def test_drafts_end_answers_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tokens a step: 20 further tokens take ten steps, 21 eleven."""
    prices = Prices(past_s=0.0)
    monkeypatch.setattr("xe_sizer.serving.simulation.step_prices", lambda *_: prices)
    made = engine(Rules())
    memory = serving_memory(made, ONE)
    traffic = Traffic(1.0, 1.0, prefix_hit_share=0.75, draft_tokens=1, acceptance_rate=1.0)
    found = simulate(made, ONE, memory, traffic, Offered(np.array([400.0]), np.array([21.0]), np.zeros(1)))
    first = prices.prompt_s(1, 100, 300, 0, 0)
    assert found.first_s[0] == pytest.approx(first)
    assert found.finish_s[0] == pytest.approx(first + 10 * prices.decode_s(1, 0))
    odd = simulate(made, ONE, memory, traffic, Offered(np.array([400.0]), np.array([22.0]), np.zeros(1)))
    assert odd.finish_s[0] == pytest.approx(first + 11 * prices.decode_s(1, 0))


@pytest.mark.parametrize(
    "rules",
    [
        Rules(step_tokens=64, places=6),
        Rules(step_tokens=64, places=6, mixed=False),
        Rules(step_tokens=100, places=4, pool_tokens=6000),
        Rules(step_tokens=64, places=6, behind=True),
    ],
)
def test_long_prompts_take_many_steps(rules: Rules, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, outputs = lengths(11, 16, (100, 3000), (1, 200))
    same(*both(monkeypatch, rules, Offered(inputs, outputs, np.zeros(16)), Prices()))
    same(*both(monkeypatch, rules, Offered(inputs, outputs, np.zeros(16), 3), Prices(past_s=0.0)))


@pytest.mark.parametrize(
    "rules",
    [
        Rules(hit=0.5),
        Rules(hit=0.5, mixed=False, chunked=False),
        Rules(hit=0.5, wait_iters=9),
        Rules(hit=0.75, places=3),
    ],
)
def test_cached_parts_of_prompts_are_not_processed(rules: Rules, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, outputs = lengths(12, 24, (5, 300), (1, 60))
    arrivals = np.cumsum(np.random.default_rng(12).exponential(1 / 100, 24))
    same(*both(monkeypatch, rules, Offered(4.0 * inputs, outputs, arrivals), Prices(past_s=0.0)))


def test_drafts_leave_prompts_less_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that decode two tokens each leave 6 of 10 tokens: a prompt of 13 is 6, 6 and 1."""
    taken: list[tuple[float, float]] = []

    class Noted(Prices):
        def prompt_s(self, pieces: float, tokens: float, past: float, decodes: float, decode_past: float) -> float:
            taken.append((tokens, decodes))
            return 1e-3

    prices = Noted(past_s=0.0)
    monkeypatch.setattr("xe_sizer.serving.simulation.step_prices", lambda *_: prices)
    made = engine(Rules(step_tokens=10))
    traffic = Traffic(1.0, 1.0, draft_tokens=1, acceptance_rate=1.0)
    load = Offered(np.array([5.0, 5.0, 13.0]), np.array([100.0, 100.0, 5.0]), np.array([0.0, 0.0, 0.005]))
    simulate(made, ONE, serving_memory(made, ONE), traffic, load)
    assert taken == [(10.0, 0), (6.0, 2), (1.0, 2)]  # two alike are priced once
