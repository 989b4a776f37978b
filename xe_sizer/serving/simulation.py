"""A test of one replica, step by step: its scheduler takes up requests, cuts prompts, and decodes until all are done.

Steps that are alike follow each other until a request comes, is taken up or ends: these are passed over at once.
"""

from __future__ import annotations

import math
from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.serving.memory import request_bytes
from xe_sizer.serving.simulation_offered import Outcome
from xe_sizer.serving.simulation_prices import Reach, step_prices

if TYPE_CHECKING:
    from xe_sizer.serving.job import ServingJob
    from xe_sizer.serving.layout import ReplicaLayouts
    from xe_sizer.serving.memory import ServingMemory
    from xe_sizer.serving.simulation_offered import Offered
    from xe_sizer.serving.simulation_prices import StepPrices
    from xe_sizer.serving.traffic import Traffic

NEVER = math.inf
TICK_S, LEAST_TOKENS = 1e-9, 1e-6  # what is smaller is nothing


def simulate(
    job: ServingJob, placement: ReplicaLayouts, memory: ServingMemory, traffic: Traffic, load: Offered
) -> Outcome:
    """What each request of a test sees of one replica.

        now = sum of step_time(what the scheduler puts into the step)
        ttft = now at the end of the prompt - arrival,  tpot = (finish - first) / (outputs - 1)

    In every step the engine's scheduler first gives a token to each sequence that decodes (where prompts share steps)
    and fills what the step has left with prompts, in the order in which they came: of those that are taken up already,
    then of those for which there is a place and cache. Where prompts stop the decodes, such a step holds prompts alone.
    A cache that is given out as it is used may run out: then the request that was taken up last loses its own, and
    begins again with what it has. A static batch is taken up once the one before has ended, and ends together.

    Parameters
    ----------
    job, placement, memory : the job, one placement, and its pool of shape (1,) [bytes]
    traffic : prefix hits and speculation; lengths are those of the requests
    load : requests, their lengths and times

    Returns
    -------
    Outcome, shape (requests,), seconds [s]

    Source: schedulers of the engines in their published source code (vLLM v1/core/sched/scheduler.py; SGLang
    managers/scheduler.py and schedule_policy.py; TensorRT-LLM _torch/pyexecutor/py_executor.py); what differs between
    them stands in the engines' files. Steps take what `step_time` says.
    """
    batching, longest = job.engine.batching, float((load.inputs + load.outputs).max())
    clients = load.concurrency or len(load.inputs)
    most = min(clients, len(load.inputs), batching.max_sequences * float(job.groups(placement)[0]))
    tokens = max(min(batching.max_step_tokens, most * longest), longest)
    reach = Reach(most, tokens, float(load.inputs.min()), longest)
    return _Replica(job, placement, memory, traffic, load, step_prices(job, placement, traffic, reach)).outcome()


class _Replica:
    """A replica at a moment of a test: what waits, what is in its prefill, what decodes, and what its cache holds.

    now, before : seconds since the begin of the test, and at the begin of the last step
    step : decode steps so far; running, tokens : sequences that decode, and tokens before all of them
    used, growing : cache that is taken, and that a further token of all that decode takes [bytes]
    coming, waiting, prefilling : requests that have not reached the scheduler, have not been taken up, have begun
    polled, waited : decode steps since the scheduler looked at arrivals, and since prompts wait for others
    """

    def __init__(
        self,
        job: ServingJob,
        placement: ReplicaLayouts,
        memory: ServingMemory,
        traffic: Traffic,
        load: Offered,
        prices: StepPrices,
    ) -> None:
        batching, groups = job.engine.batching, float(job.groups(placement)[0])
        self.load, self.prices, self.batching, self.groups = load, prices, batching, groups
        self.mixed, self.chunked = batching.mixed_steps, batching.chunked_prefill
        self.static, self.longest = batching.batching == "static", 0.0
        self.behind = batching.first_token == "decode"
        self.most = batching.max_sequences * groups
        self.gained, self.each = traffic.tokens_per_step, traffic.draft_tokens + 1.0
        self.new_share, self.request_s = 1.0 - traffic.prefix_hit_share, job.request_s
        self.now, self.before, self.step, self.running, self.tokens = 0.0, 0.0, 0, 0, 0.0
        self.used = self.growing = 0.0
        self.polled, self.waited, self.done, self.preempted = 0, 0, 0, 0
        self.stalled_s, self.stalled = 0.0, 0  # what decodes have waited for prompts, and how many do
        self.gaps: list[tuple[float, float]] = []
        self._hold(job, placement, memory)
        self._enter(len(load.inputs))

    def _hold(self, job: ServingJob, placement: ReplicaLayouts, memory: ServingMemory) -> None:
        """What each request takes of the cache as it starts, and with every further token of its answer [bytes]."""
        load = self.load
        whole = request_bytes(job, placement, load.inputs + load.outputs)
        prompt = request_bytes(job, placement, load.inputs)
        reserved = job.engine.batching.reserves == "whole"
        self.pool = math.inf if job.engine.memory.grows else float(memory.pool_bytes[0]) * float(placement.dp[0])
        self.held: list[float] = (whole if reserved else prompt).tolist()
        self.growth: list[float] = ((whole - prompt) / load.outputs * (not reserved)).tolist()

    def _enter(self, count: int) -> None:
        """Requests before the test: those of a closed loop's clients come first, each later one as one is answered."""
        load = self.load
        self.prompt: list[float] = load.inputs.tolist()
        self.left: list[float] = load.outputs.tolist()
        self.arrival: list[float] = load.arrivals_s.tolist()
        self.start, self.first, self.finish = [NEVER] * count, [NEVER] * count, [NEVER] * count
        self.todo, self.past = [0.0] * count, [0.0] * count  # tokens of a prompt: to be processed, and cached
        self.begun, self.end = [0] * count, [-1] * count  # steps in which an answer began and ends
        self.asked = count if load.concurrency is None else min(load.concurrency, count)
        self.coming, self.waiting, self.prefilling = deque(range(self.asked)), deque[int](), deque[int]()
        self.ends: list[tuple[int, int]] = []  # a heap of the steps in which answers end
        self.order: list[int] = []  # in which they began
        self.unanswered: list[int] = []  # whose first token comes with the next decode step

    def outcome(self) -> Outcome:
        """Run the test to its end."""
        count = len(self.prompt)
        while self.done < count:
            self._receive()
            pieces = self._pieces()
            if pieces:
                self._prompt_steps(pieces)
            elif self.running:
                self._decode_steps()
            else:
                self.now = max(self.now, self.arrival[self.coming[0]] + self.request_s)
        gaps = np.array(self.gaps).reshape(-1, 2)
        return Outcome(
            arrival_s=np.array(self.arrival),
            start_s=np.array(self.start),
            first_s=np.array(self.first),
            finish_s=np.array(self.finish),
            inputs=self.load.inputs,
            outputs=self.load.outputs,
            gap_s=gaps[:, 0],
            gap_counts=gaps[:, 1],
            preempted=self.preempted,
        )

    def _receive(self) -> None:
        """Requests that have arrived come to the scheduler, where it looks at them."""
        if self.running and self.polled < self.batching.scheduler_recv_interval:
            return
        self.polled = 0
        busy = self.batching.overlaps and (self.running or self.prefilling)
        coming, latest = self.coming, (self.before if busy else self.now) - self.request_s + TICK_S
        while coming and self.arrival[coming[0]] <= latest:
            self.waiting.append(coming.popleft())

    def _pieces(self) -> list[tuple[int, float]]:
        """Requests with the tokens of their prompts that the next step takes: first of those begun, then new ones."""
        if self.static and not self.running and not self.prefilling:
            self._begin_batch()
        limit = float(self.batching.max_step_tokens)
        decoding = self.running * self.each if self.mixed else 0.0
        room = limit * self.groups - decoding
        cut = limit - decoding / self.groups if self.chunked else NEVER
        taken: list[tuple[int, float]] = []
        for request in self.prefilling:
            if room <= 0.0:
                break
            taken.append((request, min(self.todo[request], room, cut)))
            room -= taken[-1][1]
        while self.waiting and room > 0.0 and self._admits(self.waiting[0], room, bool(taken)):
            request = self._begin_prompt()
            tokens = self.todo[request]
            taken.append((request, min(tokens, room, cut) if self.chunked else tokens))
            room -= taken[-1][1]
        return taken

    def _admits(self, request: int, room: float, beside: bool) -> bool:
        """Whether a request is taken up: there is a place and cache for it, and room for a prompt that is not cut.

        A replica always runs one request, and a step takes one prompt, however long they are.
        """
        if self.static or not self._has_place(request):
            return False
        if not self.running and not self.prefilling:
            return True
        if not self.chunked and beside and self.prompt[request] * self.new_share > room:
            return False
        return not self._holds_back(room)

    def _has_place(self, request: int) -> bool:
        inside = self.running + len(self.prefilling)
        return not inside or (inside < self.most and self.used + self.held[request] <= self.pool)

    def _begin_batch(self) -> None:
        """All that wait and have a place begin together; the longest answer says when they end."""
        begun = []
        while self.waiting and self._has_place(self.waiting[0]):
            begun.append(self._begin_prompt())
        self.longest = max((self.left[request] for request in begun), default=0.0)

    def _holds_back(self, room: float) -> bool:
        """Whether prompts wait until there are more of them, while others decode."""
        if not self.running or self.waited >= self.batching.batch_wait_iters:
            return False
        return sum(self.prompt[request] for request in self.waiting) * self.new_share < room

    def _begin_prompt(self) -> int:
        """The first that waits is taken up, with cache for its prompt."""
        request = self.waiting.popleft()
        if self.start[request] == NEVER:
            self.start[request] = self.now
        new = max(self.prompt[request] * self.new_share, 1.0)
        self.todo[request], self.past[request] = new, self.prompt[request] - new
        self.used += self.held[request]
        self.prefilling.append(request)
        if len(self.waiting) == 0:
            self.waited = 0
        return request

    def _prompt_steps(self, pieces: list[tuple[int, float]]) -> None:
        """A step with prompts, or several alike where one prompt fills them."""
        running, repeats = self.running if self.mixed else 0, self._repeats(pieces)
        further = (repeats - 1) / 2.0
        total = sum(tokens for _, tokens in pieces)
        before = sum(tokens * (self.past[request] + tokens / 2.0) for request, tokens in pieces) / total
        before += further * total - total / len(pieces) / 2.0
        past = self.tokens / running + self.gained * further if running else 0.0
        step_s = self.prices.prompt_s(len(pieces), total, before, running, past)
        self._pass(step_s, repeats)
        self.polled = self.batching.scheduler_recv_interval
        if running:
            self._advance(repeats, step_s)
        elif self.running:
            self.stalled_s, self.stalled = self.stalled_s + step_s * repeats, self.stalled or self.running
        for request, tokens in pieces:
            self.todo[request] -= tokens * repeats
            self.past[request] += tokens * repeats
            if self.todo[request] < LEAST_TOKENS:
                self.prefilling.remove(request)
                self._begin_answer(request)

    def _pass(self, step_s: float, steps: int) -> None:
        """Time passes in steps that are alike."""
        self.now += step_s * steps
        self.before = self.now - step_s

    def _repeats(self, pieces: list[tuple[int, float]]) -> int:
        """Steps in a row that one prompt fills alone, while as many others decode."""
        request, tokens = pieces[0]
        if len(pieces) > 1 or self.groups > 1.0:
            return 1
        steps = max(int(self.todo[request] / tokens), 1)
        return min(steps, self._steps_left()) if self.mixed and self.running else steps

    def _begin_answer(self, request: int) -> None:
        """The prompt of a request is done: its first token is there, or comes with the next decode step."""
        if self.behind:
            self.unanswered.append(request)
        elif self.first[request] == NEVER:
            self.first[request] = self.now
        answer = self.longest if self.static else self.left[request]
        steps = math.ceil((answer - (not self.behind)) / self.gained - LEAST_TOKENS)
        self.running += 1
        self.tokens += self.prompt[request]
        self.growing += self.growth[request]
        self.begun[request], self.end[request] = self.step, self.step + steps
        heappush(self.ends, (self.step + steps, request))
        self.order.append(request)
        self._end_answers()

    def _steps_left(self) -> int:
        """Steps until the next answer ends, or the cache runs out; one where a first token comes with it."""
        steps = self.ends[0][0] - self.step
        if self.growing and math.isfinite(self.pool):
            steps = min(steps, int((self.pool - self.used) / (self.growing * self.gained)))
        return 1 if self.unanswered else max(steps, 1)

    def _decode_steps(self) -> None:
        """Steps of decodes alone, until something else can happen."""
        steps, past, batching = self._steps_left(), self.tokens / self.running, self.batching
        step_s = self.prices.decode_s(self.running, past)
        if self.coming and batching.scheduler_recv_interval > 1:
            steps = min(steps, max(batching.scheduler_recv_interval - self.polled, 1))
        elif self.coming and not (self.waiting and self.running >= self.most):
            until_s = self.arrival[self.coming[0]] + self.request_s - self.now
            steps = min(steps, max(math.ceil(until_s / step_s) + self.batching.overlaps, 1))
        if self.waiting and self.waited < batching.batch_wait_iters:
            steps = min(steps, batching.batch_wait_iters - self.waited)
            self.waited += steps
        if steps > 1:
            step_s = self.prices.decode_s(self.running, past + self.gained * (steps - 1) / 2.0)
        self._pass(step_s, steps)
        self.polled += steps
        self._advance(steps, step_s)

    def _advance(self, steps: int, step_s: float) -> None:
        """All that decode gain the tokens of some steps; answers end, and the cache may run out."""
        running, stalled = self.running, min(self.stalled, self.running)
        if stalled:
            self.gaps.append((self.stalled_s + step_s, stalled))
        if running * steps > stalled:
            self.gaps.append((step_s, running * steps - stalled))
        self.stalled_s, self.stalled = 0.0, 0
        self.step += steps
        self.tokens += running * steps * self.gained
        self.used += self.growing * steps * self.gained
        for request in self.unanswered:
            self.first[request] = min(self.first[request], self.now)
        self.unanswered.clear()
        self._end_answers()
        while self.used > self.pool and self.running > 1:
            self._preempt()

    def _end_answers(self) -> None:
        """Answers whose last step is over are with their clients, who ask again."""
        ends = self.ends
        while ends and ends[0][0] <= self.step:
            end, request = heappop(ends)
            if self.end[request] != end:
                continue  # of an answer that was cut off and has begun again
            self._release(request)
            self.finish[request] = self.now
            self.done += 1
            if self.asked < len(self.prompt):
                self.arrival[self.asked] = self.now
                self.coming.append(self.asked)
                self.asked += 1

    def _release(self, request: int) -> float:
        """A sequence leaves those that decode, with its cache; tokens that it gained in its steps."""
        gained = (self.step - self.begun[request]) * self.gained
        self.end[request] = -1
        self.running -= 1
        self.tokens -= self.prompt[request] + gained
        self.growing -= self.growth[request]
        self.used -= self.held[request] + self.growth[request] * gained
        return gained

    def _preempt(self) -> None:
        """The request that was taken up last loses its cache: it waits first in line, with its answer in its prompt."""
        request = self.order.pop()
        if self.end[request] < 0:
            return
        gained = self._release(request) + (not self.behind)
        self.prompt[request] += gained
        self.left[request] -= gained
        self.held[request] += self.growth[request] * gained
        self.waiting.appendleft(request)
        self.preempted += 1
