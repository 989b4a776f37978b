"""The table, as a terminal shows it."""

import re
import shlex
from pathlib import Path

import msgspec
import pytest

from xe_sizer.cli.render import read_answer
from xe_sizer.report.answers import reporter
from xe_sizer.report.document import EXPLAINABLE, Column, Document, Figure, Options, Table
from xe_sizer.report.format import number
from xe_sizer.report.registry import render
from xe_sizer.report.terminal import continued
from xe_sizer.report.terminal import render as render_document
from xe_sizer.report.text_charts import chart
from xe_sizer.result.accuracy import Accuracy
from xe_sizer.result.common import Reason
from xe_sizer.result.studies import Comparison, PlanResult
from xe_sizer.result.training import Result

FIXTURES = Path(__file__).parent / "fixtures"
ANSI = re.compile(r"\x1b\[[0-9;]*m")


def table(result: Result, **options: object) -> str:
    return render(result, "table", Options(**options))  # type: ignore[arg-type]


def test_verdict_comes_first(lora: Result, too_big: Result) -> None:
    assert table(lora).splitlines()[0] == ("FITS  LoRA of llama-2-70b on 16 x h100-sxm-80gb (2 x dell-xe9680-h100)")
    assert table(too_big).splitlines()[0] == (
        "DOES NOT FIT  SFT of llama-2-70b on 8 x h100-sxm-80gb (1 x dell-xe9680-h100): "
        "80.0 GiB too much on every GPU; optimizer states are 96.4 GiB of it"
    )


def test_a_missed_limit_is_named_in_the_verdict(lora: Result) -> None:
    limits = (msgspec.structs.replace(lora.verdict.limits[0], limit=2, ok=False),)
    verdict = msgspec.structs.replace(lora.verdict, meets_limits=False, limits=limits)
    first = table(msgspec.structs.replace(lora, verdict=verdict)).splitlines()[0]
    assert first.startswith("FITS, MISSES LIMITS  LoRA of llama-2-70b")
    assert first.endswith(": misses max_hours (limit 2 h, estimate 2.64 h)")


@pytest.mark.parametrize("width", [60, 80, 100, 160])
@pytest.mark.parametrize("explain", [(), EXPLAINABLE])
def test_nothing_is_wider_than_the_terminal(
    lora: Result, too_big: Result, width: int, explain: tuple[str, ...]
) -> None:
    for result in (lora, too_big):
        assert all(len(line) <= width for line in table(result, width=width, explain=explain).splitlines())


def test_commands_stand_on_one_line_off_a_terminal(too_big: Result) -> None:
    lines = {line.strip() for line in table(too_big).splitlines()}
    assert {advice.command for advice in too_big.advice} <= lines


@pytest.mark.parametrize("width", [30, 60, 80, 400])
@pytest.mark.parametrize("quoted", ["'my model.yaml'", '"a  b"', "x'y z'w"])
def test_a_command_that_goes_on_is_the_same_to_a_shell(width: int, quoted: str) -> None:
    command = f"xe-sizer estimate {quoted} --gpus 24 --sequence-parallel --job=sft --note '' --tp 8 --zero 1"
    lines = continued(command, width)
    assert shlex.split("\n".join(lines).replace("\\\n", "")) == shlex.split(command)  # as a shell reads line ends
    assert all(len(line) <= width for line in lines)
    assert all(line.endswith(" \\") for line in lines[:-1])


def test_nothing_is_wrapped_or_cut_off_a_terminal(lora: Result) -> None:
    formula = "sum over terms " * 60
    first = msgspec.structs.replace(lora.memory.components[0], formula=formula)
    memory = msgspec.structs.replace(lora.memory, components=(first, *lora.memory.components[1:]))
    text = table(msgspec.structs.replace(lora, memory=memory, warnings=("w" * 500,)), explain=("memory",))
    assert formula.strip() in text
    assert "w" * 500 in text


def test_color_only_when_asked(lora: Result) -> None:
    assert not ANSI.search(table(lora))
    colored = table(lora, color=True, width=80)
    assert ANSI.search(colored)
    plain = "\n".join(line.rstrip() for line in ANSI.sub("", colored).splitlines())
    assert plain == table(lora, width=80).rstrip("\n")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "no-such-encoding"])
def test_plain_signs_where_the_encoding_has_no_others(lora: Result, encoding: str) -> None:
    text = table(lora, encoding=encoding, explain=EXPLAINABLE)
    assert text.isascii()
    assert "####" in text
    assert "?" not in text


def test_user_text_is_shown_not_interpreted(lora: Result) -> None:
    scenario = lora.scenario | {"model": "[bold]m[/bold] :smile: \x1b[31mred"}
    text = table(msgspec.structs.replace(lora, scenario=scenario), color=True)
    assert "[bold]m[/bold] :smile:" in ANSI.sub("", text)
    assert "\x1b[31mred" not in text


def test_ranges_without_measurements_are_marked(lora: Result, too_big: Result) -> None:
    verdict = msgspec.structs.replace(too_big.verdict, fits=True)
    assert "uncalibrated" not in table(lora)
    fitting = table(msgspec.structs.replace(too_big, verdict=verdict))
    assert "* uncalibrated: no measurement covers this stack and job" in fitting


def test_a_reason_that_the_verdict_gave_is_not_said_twice(too_big: Result) -> None:
    said = "needs 155.2 GiB per GPU"
    reasons = (Reason(code="memory", message=said, fix="use 24 GPUs"), Reason(code="memory", message=said))
    verdict = msgspec.structs.replace(too_big.verdict, reasons=reasons)
    lines = table(msgspec.structs.replace(too_big, verdict=verdict)).splitlines()
    assert lines[1:3] == ["  - Fix: use 24 GPUs", ""]


def test_every_component_and_its_formula_can_be_asked_for(lora: Result) -> None:
    text = table(lora, explain=("memory", "time"))
    for part in (*lora.memory.components, *lora.time.components):
        assert part.formula in text
        assert part.source in text


def test_explained_data_shows_the_padding_arithmetic(lora: Result) -> None:
    text = table(lora, explain=("data",))
    # 217.6 M processed / 14.656 M real tokens = 14.85
    assert re.search(r"processed per real token +14\.8 ", text)
    assert re.search(r"tokens of a sequence +1,700 ", text)


def test_origins_are_shown(lora: Result) -> None:
    text = table(lora, width=80)
    assert re.search(r"train\.micro_batch +1 +env\n", text)
    assert re.search(r"tp +8 +flag\n", text)


@pytest.mark.parametrize("width", [40, 60, 100])
def test_a_table_that_the_terminal_cannot_hold_becomes_a_list(width: int) -> None:
    """No cell is cut and no column lost, whatever the width."""
    columns = (
        Column("group"),
        *(Column(name, numeric=True) for name in ("fits, rightly", "fits, wrongly", "not, wrongly")),
    )
    content = Table("Does it fit?", columns, (("stack:megatron-deepspeed", "12", "3", "0"),))
    text = render_document(Document("DONE", True, "one table", (), (content,)), Options(width=width))
    assert ("  fits, wrongly 3" in text) == (width < 100)
    assert all(cell in text for cell in (*(column.name for column in columns), *content.rows[0]))
    assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize("width", [60, 66, 80])
@pytest.mark.parametrize("study", ["sensitivity", "validate", "plan"])
def test_figures_fit_the_terminal(study: str, width: int) -> None:
    answer = read_answer(str(FIXTURES / "studies" / f"{study}.json"))
    if isinstance(answer, Accuracy):
        record = msgspec.structs.replace(answer.records[0], quantity="throughput")
        spread = (msgspec.structs.replace(record, measured=10.0**n, predicted=2.0 * 10.0**n) for n in range(5))
        answer = msgspec.structs.replace(answer, records=(*answer.records, *spread))
    if isinstance(answer, PlanResult):
        first = answer.candidates[0]
        spread = (msgspec.structs.replace(first, gpus=2**n, pareto=True) for n in range(5))
        answer = msgspec.structs.replace(answer, candidates=tuple(spread))
    blocks = reporter(study).document(answer, Options(width=width)).in_characters
    lines = [line for block in blocks if isinstance(block, Figure) for line in block.lines]
    assert lines
    assert max(map(len, lines)) <= width


def test_a_chart_is_as_wide_as_the_terminal_and_keeps_its_ends() -> None:
    points = [(10.0**n, 10.0**-n, True) for n in range(5)]
    wide = chart("Time", points, number, number)
    narrow = chart("Time", points, number, number, width=40)
    assert wide is not None
    assert narrow is not None
    assert max(map(len, narrow.lines)) == 40 < max(map(len, wide.lines))
    assert narrow.lines[-1].split() == wide.lines[-1].split() == ["1", "10,000"]
    assert sum(line.count("●") for line in narrow.lines) == 5


@pytest.mark.parametrize("width", [60, 80, 90, 100, 110, 120, 160])
@pytest.mark.parametrize("key", ["server=", "gpu=", "tp=2,server="])
def test_the_heads_of_a_comparison_are_never_cut_within_a_word(key: str, width: int) -> None:
    """Servers by their names alone, as all of them are one; each whole wherever it stands."""
    answer = read_answer(str(FIXTURES / "studies" / "compare.json"))
    assert isinstance(answer, Comparison)
    servers = ("dell-xe9680-h100", "dell-xe9680-h200", "aws-p5.48xlarge", "aws-p5en.48xlarge")
    first = answer.alternatives[0]
    changed = msgspec.structs.replace
    named = tuple(changed(first, name=f"{key}{server}") for server in servers)
    parts = tuple(changed(part, total_s=(part.total_s[0],) * len(named)) for part in answer.differences)
    text = render(changed(answer, alternatives=named, differences=parts), "table", Options(width=width))
    table = ANSI.sub("", text).partition("Side by side")[2]
    alone = "," not in key
    assert {server if alone else f"{key}{server}" for server in servers} <= set(table.split())
    assert (key in table) != alone
