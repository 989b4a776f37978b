"""Users who come back: what the GPU and the host keep of their sessions, how many find theirs, how soon they read."""

from __future__ import annotations

import math
from collections import OrderedDict
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from serving_cases import asked, job, problems, served

from xe_sizer.serving import search
from xe_sizer.serving.job import ReplicaLayouts, Traffic
from xe_sizer.serving.memory import fetch_s, hit_shares, serving_memory, sessions_in_host, sessions_on_gpu
from xe_sizer.serving.summary import summarise

GIB = 2**30
H100S = "dell-xe9680-h100"
TALK: dict[str, object] = {
    "model": "llama-3.1-70b", "server": H100S, "gpus": 8, "layout__tp": 8, "serve__users": 300,
    "serve__think_time_s": 60.0, "serve__input_tokens": 8000.0, "serve__output_tokens": 300.0,
    "serve__prefix_hit_share": 0.9,
}  # fmt: skip


def test_copies_add_no_room_on_the_gpu() -> None:
    """Of 200 idle sessions 50 are on the GPU; a host with room for 120 has those too."""
    found = hit_shares(200.0, 50.0, 120.0, "copies")
    assert (float(found.gpu), float(found.host), float(found.both)) == pytest.approx((0.25, 0.35, 0.6))


def test_what_was_evicted_adds_to_what_is_on_the_gpu() -> None:
    found = hit_shares(200.0, 50.0, 120.0, "evicted")
    assert (float(found.gpu), float(found.host)) == pytest.approx((0.25, 0.6))


def test_nobody_finds_more_than_there_is() -> None:
    found = hit_shares(np.array([0.0, 10.0]), 50.0, 0.0, "copies")
    assert found.both.tolist() == [1.0, 1.0]


def test_a_simulated_cache_of_the_last_used_finds_as_many() -> None:
    """400 users think exponential times; the cache keeps the 150 sessions that were used last."""
    draw, users, room = np.random.default_rng(5), 400, 150
    back = draw.exponential(60.0, users)
    kept: OrderedDict[int, None] = OrderedDict()
    hits = []
    for _ in range(60_000):
        user = int(np.argmin(back))
        hits.append(user in kept)
        kept[user] = None
        kept.move_to_end(user)
        if len(kept) > room:
            kept.popitem(last=False)
        back[user] += draw.exponential(60.0)
    assert float(np.mean(hits[5_000:])) == pytest.approx(float(hit_shares(users, room, 0.0, "copies").gpu), rel=0.02)


def test_room_on_the_gpu_is_what_running_requests_leave() -> None:
    """Llama 3.1 8B: 131,072 bytes a token, blocks of 16 tokens."""
    made, one, traffic = job(server=H100S), ReplicaLayouts.of(), Traffic(inputs=4000.0, outputs=200.0)
    memory = serving_memory(made, one, traffic.inputs)
    running = 10 * 131_072 * math.ceil((4000 + 100) / 16) * 16
    expected = (float(memory.pool_bytes[0]) - running) / (131_072 * 3600)
    assert sessions_on_gpu(made, one, memory, traffic, 10.0, 3600.0)[0] == pytest.approx(expected)
    assert sessions_on_gpu(made, one, memory, traffic, 1e6, 3600.0)[0] == 0.0


def test_room_in_the_host_is_that_of_all_ranks() -> None:
    """8 ranks of Llama 3.1 70B keep 320 KiB a token together; latent caches are kept once on each rank."""
    made = job("llama-3.1-70b", server=H100S)
    assert sessions_in_host(made, ReplicaLayouts.of(tp=8), 100.0 * GIB, 3200.0)[0] == 100 * GIB / (327_680 * 3200)
    latent = job("deepseek-v3", server=H100S)
    found = sessions_in_host(latent, ReplicaLayouts.of(tp=8, ep=8), 100.0 * GIB, 3200.0)
    assert found[0] == pytest.approx(100 * GIB / (8 * 61 * 576 * 2 * 3200))


def test_a_session_comes_back_over_the_buses_of_all_ranks() -> None:
    """PCIe 5 x16: 0.88 of the line rate, an eighth of the cache each."""
    made = job("llama-3.1-70b", server=H100S)
    expected = 327_680 * 3200 / 8 / (0.88 * made.server.pcie_bytes_per_s)
    assert fetch_s(made, ReplicaLayouts.of(tp=8), 3200.0)[0] == pytest.approx(expected)


def test_the_share_that_is_found_is_what_the_service_leaves() -> None:
    """A fixed point: the sessions that are idle at the latencies of the answer find what the answer says."""
    sized = served(**TALK, serve__kv_host_gib=500.0)
    shown = summarise(sized).session_cache
    assert shown is not None
    assert shown.sessions == pytest.approx(300.0 - sized.point.in_flight)
    assert shown.in_host == pytest.approx(500 * GIB / (327_680 * 7200))
    assert shown.hit_gpu == pytest.approx(shown.on_gpu / shown.sessions)
    assert shown.hit_gpu + shown.hit_host == pytest.approx(shown.in_host / shown.sessions)
    assert shown.missed == pytest.approx(1.0 - shown.hit_gpu - shown.hit_host)
    assert sized.resolved.traffic.prefix_hit_share == pytest.approx(0.9 * (1.0 - shown.missed), abs=0.005)
    assert sized.resolved.job.fetch_s == pytest.approx(shown.hit_host * shown.fetch_s, rel=0.02)
    kinds = (
        (shown.ttft_gpu_s, shown.hit_gpu),
        (shown.ttft_host_s, shown.hit_host),
        (shown.ttft_missed_s, shown.missed),
    )
    assert sum(ttft_s * share for ttft_s, share in kinds) == pytest.approx(sized.point.ttft_s, rel=0.1)
    assert shown.ttft_host_s - shown.ttft_gpu_s == pytest.approx(shown.fetch_s)
    assert shown.ttft_missed_s - shown.ttft_gpu_s == pytest.approx(shown.recompute_s)


def test_host_memory_keeps_a_service_from_computing_sessions_again() -> None:
    without, held = (served(**TALK, serve__kv_host_gib=gib) for gib in (0.0, 1000.0))
    told = [summarise(one).session_cache for one in (without, held)]
    assert told[0] is not None
    assert told[1] is not None
    assert told[0].missed > 0.5
    assert told[1].missed == 0.0
    assert held.ok
    assert not without.ok
    assert summarise(served(**TALK)).session_cache is None


def test_more_than_the_server_has_is_warned_of() -> None:
    server = asked(**TALK).job.server
    assert server.host_usable_bytes is not None
    much = 2.0 * server.host_usable_bytes / GIB
    assert any("host memory that" in warning for warning in summarise(served(**TALK, serve__kv_host_gib=much)).warnings)
    assert not any("host memory that" in one for one in summarise(served(**TALK, serve__kv_host_gib=100.0)).warnings)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"serve__users": 5}, "needs 'prefix_hit_share'"),
        ({"serve__request_rate": 5, "serve__prefix_hit_share": 0.5}, "needs 'users'"),
        ({"serve__users": 5, "serve__prefix_hit_share": 0.5, "serve__engine": "tgi"}, "keeps no cache in host memory"),
        ({"serve__users": 5, "serve__prefix_hit_share": 0.5, "serve__prefill_replicas": 1}, "do not go together"),
    ],
)
def test_what_does_not_go_together_is_refused(flags: dict[str, object], words: str) -> None:
    assert any(words in problem for problem in problems(**flags, serve__kv_host_gib=10.0))


@pytest.mark.parametrize(
    ("least", "enough", "chosen"),
    [(3, 3, 3), (3, 4, 4), (3, 11, 11), (3, 12, 12), (3, 13, 13), (2, 128, 128), (2, 129, 2), (2, 10**9, 2)],
)
def test_the_fewest_replicas_that_find_enough(
    monkeypatch: pytest.MonkeyPatch, least: int, enough: int, chosen: int
) -> None:
    """More replicas find more; where 64 times as many do not keep the limits, the fewest are as good as any."""
    tried: list[int] = []

    def settle(resolved: object, asked: object, cases: object, replicas: int) -> object:
        tried.append(replicas)
        return SimpleNamespace(replicas=replicas, keeps_limits=[replicas >= enough])

    monkeypatch.setattr(search, "_settle", settle)
    open_, given = SimpleNamespace(gpus=None), SimpleNamespace(gpus=8)
    found: Any = search._least_replicas(open_, None, None, least)  # type: ignore[arg-type]
    assert found.replicas == chosen
    assert len(tried) <= 2 * math.log2(64) + 2
    assert max(tried) <= 64 * least
    as_given: Any = search._least_replicas(given, None, None, least)  # type: ignore[arg-type]
    assert as_given.replicas == least
