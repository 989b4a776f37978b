"""What a yes hides is said where users look first: on the first screen and in `check`."""

from __future__ import annotations

from cases import REGISTRY
from serving_cases import served

from xe_sizer.report.answers.serve import caution
from xe_sizer.report.document import Options
from xe_sizer.report.registry import render
from xe_sizer.result.check import answered, check_result
from xe_sizer.serving.summary import summarise
from xe_sizer.studies.estimate import serving_wing
from xe_sizer.units import three_digits


def test_a_batch_that_does_not_run_at_once_says_so() -> None:
    """An L40S has room for about 150 requests of 1,280 tokens beside 16 GB of weights; 500 come in waves."""
    result = summarise(served(gpu="l40s", gpus=1, serve__batch=500))
    running = int(result.replicas.running_requests)
    assert 140 <= running <= 180
    assert caution(result) == f"in waves: {running} of the 500 requests of the batch run at once"
    assert "in waves" in "\n".join(render(result, "table", Options()).splitlines()[:3])
    assert caution(summarise(served(gpu="l40s", gpus=1, serve__batch=50))) == ""


def test_check_says_how_a_limit_without_a_unit_was_read() -> None:
    result = summarise(served(serve__request_rate=5.0, limits__max_tpot_s=50))
    text = render(check_result((answered("chat.yaml", result),)), "table", Options())
    assert "max_tpot_s 50 is read as 50 s per token: for milliseconds write" in text
    assert "is read as" in render(check_result((answered("chat.yaml", result),)), "github", Options())


def test_tight_names_what_is_left_and_what_shows_it() -> None:
    """Free memory outside of the engine's share is no room for its cache."""
    found = served("llama-3.1-70b", gpus=2, serve__concurrency=4, serve__gpu_memory_utilization=0.88)
    verdict = serving_wing().settled(summarise(found).verdict, found, REGISTRY)
    assert verdict.margin == verdict.memory == "tight"
    free = three_digits((found.pool_bytes - found.request_bytes) / 2**30)
    first, second = verdict.settled_by
    assert first == f"{free} GiB free beside one request"
    assert second == "the engine allocates its cache as it starts: a start shows it"


def warnings_about_servers(**flags: object) -> list[str]:
    found = summarise(served(server="dell-xe9680-h100", **flags)).warnings
    return [text for text in found if "in one server" in text]


def test_a_server_that_fails_takes_its_replicas_with_it() -> None:
    """Replicas of 4 GPUs, two in a server of 8: of six in three servers four are left, of two none."""
    six: dict[str, object] = {"model": "llama-3.1-70b", "gpus": 24, "layout__tp": 4, "layout__pp": 1}
    (text,) = warnings_about_servers(**six, serve__request_rate=40.0)
    assert text.startswith("2 of the 6 replicas are in one server: if it fails, the others take ")
    assert text.endswith(" of 40 (--gpus 32 on 4 servers keeps the service up)")
    assert warnings_about_servers(**six, serve__request_rate=4.0) == []
    (text,) = warnings_about_servers(**{**six, "gpus": 8}, serve__request_rate=4.0)
    assert "both replicas are in one server: if it fails, nothing serves" in text
    assert warnings_about_servers(**{**six, "gpus": 8}) == []
    assert warnings_about_servers(**{**six, "gpus": 32}, serve__request_rate=40.0) == []


def test_spare_replicas_are_enough() -> None:
    """What the warning advises is warned of no more."""
    flags: dict[str, object] = {"model": "llama-3.1-70b", "layout__tp": 4, "layout__pp": 1}
    (text,) = warnings_about_servers(**flags, serve__request_rate=12.0)
    assert "--spare-replicas 2" in text
    assert warnings_about_servers(**flags, serve__request_rate=12.0, serve__spare_replicas=2) == []
