"""How close a job is to its limits of memory, and how the memory goes over the step."""

import re
import xml.etree.ElementTree as ET
from typing import Any

import msgspec
import pytest

from xe_sizer.report.document import EXPLAINABLE, Options
from xe_sizer.report.format import memory_of
from xe_sizer.report.registry import render
from xe_sizer.result.check import answered, check_result
from xe_sizer.result.common import Limit, Reason
from xe_sizer.result.training import Result

GIB = 1024**3
TIGHT = "tight: memory suffices with a probability of 62 %"
SETTLED = ("micro-batch 1 instead of 2: 90 %", "a run of 2 steps shows the peak")


def with_memory(result: Result, **changes: Any) -> Result:
    return msgspec.structs.replace(result, memory=msgspec.structs.replace(result.memory, **changes))


@pytest.fixture
def tight(lora: Result) -> Result:
    """The LoRA job with 74 of 75 GiB used."""
    said = {"memory": "tight", "margin": "tight", "fit_probability": 0.62, "settled_by": SETTLED}
    verdict = msgspec.structs.replace(lora.verdict, **said)
    changed = msgspec.structs.replace(lora, verdict=verdict)
    return with_memory(changed, peak_bytes=74.0 * GIB, usable_bytes=75.0 * GIB, headroom_bytes=1.0 * GIB)


def with_limit(result: Result, gib: float, ok: bool) -> Result:
    limit = Limit(name="min_headroom_gib", limit=gib, value=1.0, ok=ok)
    verdict = msgspec.structs.replace(result.verdict, limits=(limit,), meets_limits=ok)
    return msgspec.structs.replace(result, verdict=verdict)


def test_tight_has_its_word_its_reason_and_what_settles_it(tight: Result) -> None:
    first, second = render(tight, "table", Options()).splitlines()[:2]
    assert first.startswith("TIGHT  LoRA of llama-2-70b")
    assert second == f"  - {TIGHT}; {'; '.join(SETTLED)}"


def test_tight_has_its_colour(tight: Result, lora: Result, too_big: Result) -> None:
    words = [render(result, "table", Options(color=True)).split("  ")[0] for result in (lora, tight, too_big)]
    assert words == ["\x1b[1;32mFITS\x1b[0m", "\x1b[1;33mTIGHT\x1b[0m", "\x1b[1;31mDOES NOT FIT\x1b[0m"]


def test_the_word_for_memory_stands_before_a_missed_limit(tight: Result) -> None:
    missed = render(with_limit(tight, 3.0, ok=False), "table", Options())
    assert missed.startswith("TIGHT, MISSES LIMITS  ")
    assert TIGHT in missed


def test_a_tight_no_is_a_no(tight: Result) -> None:
    """Over the card by the cautious peak, and as likely to run as not."""
    over = msgspec.structs.replace(tight.verdict, fits=False, margin="over", fit_probability=0.5)
    result = msgspec.structs.replace(tight, verdict=over)
    assert render(result, "table", Options()).startswith("TIGHT, OVER  LoRA of llama-2-70b")
    assert result.exit_code == 1


def test_results_of_older_versions_have_words_too(lora: Result, too_big: Result) -> None:
    assert memory_of(lora.verdict) == "fits"
    assert memory_of(msgspec.structs.replace(lora.verdict, margin="tight")) == "tight"
    assert memory_of(too_big.verdict) == "does-not-fit"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("markdown", "### ⚠️ TIGHT\n"),
        ("html", '<h1 class="caution">TIGHT</h1>'),
        ("github", "::warning title=xe-sizer%3A tight::LoRA of llama-2-70b"),
        ("junit", "tight: memory suffices"),
        ("csv", "verdict,memory,tight,\n"),
    ],
)
def test_every_format_says_tight(tight: Result, name: str, shown: str) -> None:
    text = render(tight, name, Options())
    assert shown in text
    assert name == "csv" or SETTLED[0] in text


def test_tight_passes_a_check_and_is_named(tight: Result, lora: Result) -> None:
    batch = check_result((answered("roomy.yaml", lora), answered("narrow.yaml", tight)))
    text = render(batch, "table", Options())
    assert text.startswith("PASS  2 scenarios: 2 passed (1 tight), 0 failed, 0 with bad input\n")
    assert re.search(r"^narrow\.yaml +TIGHT ", text, re.MULTILINE)
    assert f"- narrow.yaml: {TIGHT}" in text
    assert "roomy.yaml: tight" not in text
    assert ET.fromstring(render(batch, "junit", Options())).get("failures") == "0"


def test_what_a_run_shows_stands_below_the_ledger(lora: Result) -> None:
    said = (
        "A run typically shows 17.5 GiB allocated, 18.2 reserved, 19.1 in nvidia-smi. "
        "The verdict uses a cautious peak: 19.9."
    )
    assert said in render(lora, "table", Options())
    assert said in render(lora, "html", Options())
    older = with_memory(lora, allocated_bytes=0.0, reserved_bytes=0.0, device_bytes=0.0, moments=())
    text = render(older, "table", Options(explain=EXPLAINABLE))
    assert "eadings" not in text
    assert "Memory over the step" not in text


@pytest.mark.parametrize(("vendor", "monitor"), [("AMD", "rocm-smi"), ("Intel", "the vendor's monitor")])
def test_other_vendors_have_other_monitors(lora: Result, vendor: str, monitor: str) -> None:
    result = msgspec.structs.replace(lora, scenario=lora.scenario | {"names": {"vendor": vendor}})
    text = render(result, "table", Options(explain=("memory",)))
    assert f"19.1 in {monitor}. The verdict" in text
    assert "nvidia-smi" not in text


def bars(result: Result, encoding: str = "utf-8") -> dict[str, str]:
    """The chart's bars by moment."""
    text = render(result, "table", Options(explain=("memory",), encoding=encoding))
    chart = text.split("Memory over the step")[1].split("Memory as a run")[0]
    return dict(re.findall(r"^(\S.*?)  +[\d.]+ +[\d.]+ %   (.*)$", chart, re.MULTILINE))


def test_memory_over_the_step_is_a_chart_with_a_mark(lora: Result, too_big: Result) -> None:
    drawn = bars(lora)
    assert list(drawn) == [*(moment.name for moment in lora.memory.moments), "usable"]
    # 19.94 of 75.19 GiB are 0.265 of 24 cells: 6.36, thus 6 and a half
    assert drawn["loss"] == f"{'█' * 6}▌{' ' * 17}│"
    assert drawn["usable"] == f"{' ' * 24}│"
    # 155.2 GiB fill 24 cells, so the 75.2 that are usable end after 11.6
    assert bars(too_big)["optimizer step"] == f"{'█' * 12}│{'█' * 12}"
    assert bars(lora, "ascii")["loss"] == f"{'#' * 6}+{' ' * 17}|"


def test_the_chart_survives_markdown_and_html(too_big: Result) -> None:
    options = Options(explain=("memory",))
    chart = render(too_big, "markdown", options).split("Memory over the step")[1]
    assert f"| optimizer step | 155 | 206 % | `{'█' * 12}│{'█' * 12}` |" in chart
    assert f"| usable | 75.2 | 100 % | `{'░' * 12}│{'░' * 12}` |" in chart
    page = render(too_big, "html", options)
    assert page.count('<b style="left:48.4%"></b>') == len(too_big.memory.moments) + 1
    assert '<i class="over" style="width:100.0%"></i><b' in page


def test_host_memory_is_shown_where_offloading_needs_it(lora: Result, too_big: Result) -> None:
    assert "Host memory" not in render(lora, "table", Options())
    text = render(too_big, "table", Options())
    block = text.split("Host memory of a node\n")[1].split("Time of a step")[0]
    assert re.search(r"needed +64\.0 +3\.1 % ", block)
    assert re.search(r"available +2,048 +100 %", block)
    unknown = render(with_memory(too_big, host_available_bytes=None), "table", Options())
    assert re.search(r"available +unknown", unknown)
    assert "The host memory of a node is not known." in unknown


def test_a_node_without_enough_memory_is_the_headline(lora: Result) -> None:
    message = "offloading needs 3000 GiB of host memory per node, 2048 GiB available"
    reason = Reason(code="out-of-host-memory", message=message, fix="use 2 nodes")
    verdict = msgspec.structs.replace(lora.verdict, fits=False, reasons=(reason,))
    result = with_memory(lora, host_bytes=3000.0 * GIB, host_available_bytes=2048.0 * GIB)
    text = render(msgspec.structs.replace(result, verdict=verdict), "table", Options())
    lines = text.splitlines()
    assert lines[0].startswith("DOES NOT FIT  LoRA of llama-2-70b")
    assert lines[0].endswith(f": {message}")
    assert lines[1:3] == ["  - Fix: use 2 nodes", ""]
    assert re.search(r"headroom +-952 +-46 %", text)
