"""Sessions that come back: users with one prompt again and again, and turns whose prompts grow by what was said before.

The cache keeps what was used last, so that what a session left is found again if it comes back soon enough.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

import numpy as np
from msgspec.structs import replace

from xe_sizer.graph.operators import as_array
from xe_sizer.immutable import Immutable
from xe_sizer.serving.memory import Hits, hit_shares

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from xe_sizer.graph.operators import Array
    from xe_sizer.serving.job import Traffic

HALVINGS = 100  # chosen: of the time that blocks stay, which then is exact to a float


class Returning(Protocol):
    """What comes back to its cache.

    size_bytes : of host memory for the cache of one replica; returning : share of requests that come back [-]
    """

    @property
    def size_bytes(self) -> float: ...
    @property
    def returning(self) -> float: ...

    def traffic(self, asked: Traffic, found: float) -> Traffic:
        """The traffic if such a share of what comes back finds its cache."""
        ...

    def seen_tokens(self, asked: Traffic) -> float:
        """Tokens that a session leaves in the cache until it comes back, in the mean [tokens]."""
        ...

    def prompt_tokens(self, asked: Traffic) -> float:
        """Tokens of the prompt that comes back, in the mean [tokens]."""
        ...

    def idle(self, users: float, in_flight: float, requests_per_s: float) -> float:
        """Sessions of a replica that wait to come back [-]."""
        ...

    def hits(self, idle: float, on_gpu: Array, in_host: Array, host_holds: str, requests_per_s: float) -> Hits:
        """Shares of what comes back that find their cache; room for sessions on GPU and in host memory [-]."""
        ...


class HostCache(Immutable, eq=True):
    """Users who come back for ever, to a part of their prompt that was computed before.

    size_bytes : of one replica [bytes]; seen_share : of the tokens of a prompt, in its session's earlier requests [-]
    """

    size_bytes: float
    seen_share: float
    returning: float = 1.0

    def traffic(self, asked: Traffic, found: float) -> Traffic:
        return replace(asked, prefix_hit_share=self.seen_share * found)

    def seen_tokens(self, asked: Traffic) -> float:
        return self.seen_share * asked.inputs

    def prompt_tokens(self, asked: Traffic) -> float:
        return asked.inputs

    def idle(self, users: float, in_flight: float, requests_per_s: float) -> float:
        return max(users - in_flight, 0.0)

    def hits(self, idle: float, on_gpu: Array, in_host: Array, host_holds: str, requests_per_s: float) -> Hits:
        return hit_shares(idle, on_gpu, in_host, host_holds)


class Turns(Immutable, eq=True):
    """Sessions of several turns: chats and agents, each of whose prompts is the whole history and what is new.

    first, added, answer : tokens of the first prompt, of what a user or a tool adds to each further one, of an answer
    spread : standard deviation over mean of what is added [-]
    turns : of a session; gap_s : in the mean between an answer and the next turn, exponential [s]
    size_bytes : of host memory for the cache of one replica; cached : whether the engine has a prefix cache at all
    """

    first: float
    added: float
    answer: float
    spread: float
    turns: int
    gap_s: float
    size_bytes: float = 0.0
    cached: bool = True

    @property
    def prompts(self) -> Array:
        """Tokens of the prompt of each turn: p_k = first + (k - 1) (added + answer), shape (turns,) [tokens]."""
        return as_array(self.first + np.arange(self.turns) * (self.added + self.answer))

    @property
    def seen(self) -> Array:
        """Of these the history, which the turn before left in the cache; 0 of the first, shape (turns,) [tokens]."""
        return as_array(np.where(np.arange(self.turns) > 0, self.prompts - self.added, 0.0))

    @property
    def longest(self) -> float:
        """The last prompt [tokens]."""
        return float(self.prompts[-1])

    @property
    def returning(self) -> float:
        return (self.turns - 1.0) / self.turns

    def traffic(self, asked: Traffic, found: float) -> Traffic:
        """Prompts of the mean turn; what of them is computed varies by turn and with what is found.

        inputs = mean p_k,  hits = (1 - 1/N) found mean(seen) / inputs
        1 + v^2 = (1 + spread^2) mean(w^2) / mean(w)^2,  w: p_k without history, or all of it where it is gone
        """
        prompts, seen, found = self.prompts, self.seen, found * self.cached
        mean = float(prompts.mean())
        work, work_2 = ((found * (prompts - seen) ** n + (1.0 - found) * prompts**n).mean() for n in (1, 2))
        spread = math.sqrt(max((1.0 + self.spread**2) * float(work_2) / float(work) ** 2 - 1.0, 0.0))
        share = self.returning * found * self.seen_tokens(asked) / mean
        return replace(asked, inputs=mean, input_spread=spread, prefix_hit_share=share)

    def seen_tokens(self, asked: Traffic) -> float:
        return float(self.seen[1:].mean())

    def prompt_tokens(self, asked: Traffic) -> float:
        return self.seen_tokens(asked) + self.added

    def idle(self, users: float, in_flight: float, requests_per_s: float) -> float:
        return requests_per_s * self.returning * self.gap_s

    def hits(self, idle: float, on_gpu: Array, in_host: Array, host_holds: str, requests_per_s: float) -> Hits:
        if not self.cached:
            return Hits(np.zeros(np.shape(on_gpu)), np.zeros(np.shape(on_gpu)))
        room = np.maximum(on_gpu, in_host) if host_holds == "copies" else on_gpu + in_host
        gpu, both = (found_share(self.kept_s(each, requests_per_s), self.gap_s) for each in (on_gpu, room))
        return Hits(gpu, np.maximum(both - gpu, 0.0))

    def kept_s(self, room: ArrayLike, requests_per_s: float) -> Array:
        """How long the cache keeps what nobody uses, with room for so many idle sessions [s]."""
        ended = (self.longest + self.answer) / float(self.seen[1:].mean())
        return kept_s(room, requests_per_s / self.turns, self.turns - 1.0, ended, self.gap_s)


def kept_s(room: ArrayLike, sessions_per_s: ArrayLike, waits: float, ended: float, gap_s: float) -> Array:
    """Time for which a cache keeps what nobody uses, as newer sessions push it out.

        r (waits gap (1 - e^(-T / gap)) + ended T) = room

    r sessions begin in a second, each of which waits so many times for an exponential time before it comes back, and
    then leaves a cache that nobody asks for again. The least recently used goes first: whatever was used within T is
    there.

    Parameters
    ----------
    room : idle sessions for which there is room beside the requests that run, shape (placements,) [-]
    sessions_per_s : of a replica [1/s]
    waits : of a session [-]
    ended : size of what a session leaves at its end, over that of an idle one [-]
    gap_s : mean time of a wait [s]

    Returns
    -------
    ndarray of float, shape (placements,) [s]

    Source: Che's approximation of an LRU cache (IEEE JSAC 20, 2002), whose characteristic time T fills the cache;
    Fricker, Robert, Roberts (ITC 24, 2012) show how near it is. Blocks of a session are evicted together here.
    """
    room, rate = np.broadcast_arrays(as_array(room), as_array(sessions_per_s))
    rate = np.maximum(rate, 1e-12)
    low, high = np.zeros(room.shape), room / (rate * ended)
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        waiting = waits * gap_s * found_share(middle, gap_s)
        full = rate * (waiting + ended * middle) > room
        low, high = np.where(full, low, middle), np.where(full, middle, high)
    return low


def found_share(kept: ArrayLike, gap_s: float) -> Array:
    """Share of those that come back within the time that the cache keeps what they left.

        h = 1 - e^(-T / gap)

    Parameters
    ----------
    kept : T, how long the cache keeps what nobody uses [s]
    gap_s : mean of the exponential times after which sessions come back; 0: at once [s]

    Returns
    -------
    ndarray of float, shape of the times [-]

    Source: distribution of an exponential time.
    """
    kept = as_array(kept)
    return np.asarray(kept > 0.0, dtype=float) if gap_s <= 0.0 else -np.expm1(-kept / gap_s)
