"""What does not fit never runs: no report shows a time, a cost or a limit on them as if it did."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable

from .conftest import Ran

Cli = Callable[..., Ran]
HARDWARE = "--server dell-xe9680-h100 --gpus 8 --offload none"
JOB = f"--model llama-3.1-70b {HARDWARE} --max-hours 100 --price-per-gpu-hour 3"
A_RUN = ("time per step", "total time", "GPU-hours", "price", "energy", "model FLOPs utilisation", "bound by")


def section(text: str, title: str) -> list[str]:
    """The lines below a title, up to the next empty one."""
    lines = text.splitlines()
    start = lines.index(title) + 1
    return lines[start : lines.index("", start)]


def test_an_estimate_of_what_does_not_fit_shows_no_time_and_no_cost(cli: Cli) -> None:
    ran = cli(*shlex.split(f"estimate {JOB} --job sft --max-gpus 16"))
    assert ran.code == 1
    whole = section(ran.out, "Whole job")
    assert whole[-1] == "no time and no cost: the job does not fit"
    assert not [line for line in whole if line.startswith(A_RUN)]
    assert "Time of a step" not in ran.out
    limits = {line.split()[0]: " ".join(line.split()) for line in section(ran.out, "Limits")}
    assert limits["max_hours"] == "max_hours 100 h (4.2 d) - not judged, as it does not fit -"
    assert limits["max_gpus"] == "max_gpus 16 8 met -"
    assert "Limits  max_hours 100 h (4.2 d): not judged, as it does not fit" in ran.out
    assert "missing (backward" in ran.out.splitlines()[0]  # of one stage there is no number to say


def test_json_keeps_its_fields_and_the_verdict_tells(cli: Cli) -> None:
    answer = json.loads(cli(*shlex.split(f"estimate {JOB} --job sft --format json")).out)
    assert answer["verdict"]["fits"] is False
    assert answer["time"]["total_s"]["expected"] > 0
    assert answer["cost"]["price"]["expected"] > 0


def test_a_limit_on_the_time_of_what_does_not_fit_is_a_skipped_case(cli: Cli) -> None:
    ran = cli(*shlex.split(f"estimate {JOB} --job sft --format junit"))
    case = ran.out.split('name="limit max_hours"')[1].split("</testcase>")[0]
    assert "skipped" in case
    assert "not judged, as it does not fit" in case


def test_a_comparison_shows_times_and_costs_of_what_fits_alone(cli: Cli) -> None:
    ran = cli(*shlex.split(f"compare {JOB} job=sft job=lora job=qlora"))
    for line in section(ran.out, "Side by side"):
        if line.startswith(A_RUN):
            cells = line.split("  ")
            values = [cell.strip() for cell in cells[1:] if cell.strip()]
            assert values[0] == "-", line
            assert "-" not in values[1:], line
    parts = section(ran.out, "Where they differ")
    recompute = [line for line in parts if line.startswith("recompute")]
    assert recompute == []  # which only SFT would do
    alone = cli(*shlex.split(f"compare {JOB} job=sft job=lora")).out
    assert "Where they differ" not in alone


def test_the_fewest_that_fit_say_that_they_offload(cli: Cli) -> None:
    """On the screen of an estimate that offloads nothing unasked, in words that lead to the plan of so few."""
    job = "--model llama-3.1-70b --job sft --server dell-xe9680-h100"
    ran = cli(*shlex.split(f"estimate {job}"))
    gpus = next(line for line in ran.out.splitlines() if line.startswith("GPUs "))
    assert gpus.split("  ", 1)[1].strip() == "24 in 3 nodes; the fewest that fit: 8 with offloading (slower: see plan)"
    plan = json.loads(cli(*shlex.split(f"plan {job} --max-gpus 64 --format json")).out)
    fewest = plan["candidates"][plan["answers"]["smallest"]]
    assert fewest["gpus"] == 8
    assert fewest["layout"]["offload"] != "none"


def test_more_gpus_under_another_layout_come_before_another_method(cli: Cli) -> None:
    """One replica of tp 8 and pp 1 is no more than 8 GPUs, whatever is added."""
    job = "--model llama-3.1-70b --job sft --server dell-xe9680-h100 --gpus 8 --tp 8 --pp 1 --dp 1"
    advice = json.loads(cli(*shlex.split(f"estimate {job} --format json")).out)["advice"]
    changes = [one["change"] for one in advice]
    more = next(place for place, change in enumerate(changes) if change.startswith("32 GPUs instead of 8 with "))
    assert more < next(place for place, change in enumerate(changes) if "instead of full fine-tuning" in change)
    assert cli(*shlex.split(advice[more]["command"].removeprefix("xe-sizer "))).code == 0


def test_another_card_is_not_advised_at_the_price_of_the_one_asked_for(cli: Cli) -> None:
    def cards(prices: str) -> list[str]:
        job = f"--model llama-3.1-70b --job sft {HARDWARE} {prices} --format json"
        changes = [one["change"] for one in json.loads(cli(*shlex.split(f"estimate {job}")).out)["advice"]]
        return [change for change in changes if "instead of h100-sxm-80gb" in change]

    (one,) = cards("--price-per-gpu-hour 3")
    assert one.endswith(", not at the price given")
    assert cards("") == cards("--price h100-sxm-80gb=3") == [one.removesuffix(", not at the price given")]


def test_a_replica_alone_shares_no_states(cli: Cli) -> None:
    """No search ends on a stage that has nothing to share, and one that was asked for is said to do nothing."""
    job = "--model llama-3.1-8b --gpu h100-sxm-80gb --gpus 1 --stack deepspeed --host-memory-gib 500"
    for command in (f"estimate {job} --job lora", f"plan {job} --job lora", f"plan {job} --job sft"):
        answer = json.loads(cli(*shlex.split(f"{command} --format json")).out)
        for layout in [one["layout"] for one in answer.get("candidates", [answer])]:
            assert layout["zero"] == 0 or layout["offload"] != "none"
    asked = cli(*shlex.split(f"estimate {job} --job lora --zero 3")).out
    assert "Layout  ZeRO 3 without effect (dp 1), micro-batch" in asked


def test_a_layout_fits_whether_it_is_left_open_or_written_down(cli: Cli) -> None:
    """QLoRA whose hidden state is 16 bit under ZeRO-3 alone, where weights are gathered so."""
    asked = (
        "estimate --model gemma-2-9b --gpu l4 --gpus 4 --job qlora --stack hf-trainer --seq-len 3584 --global-batch 4 "
        "--micro-batch 1 --steps 10 --padding to-seq-len --recompute full --offload none --format json"
    )
    answers = [json.loads(cli(*shlex.split(f"{asked} {more}")).out) for more in ("", "--zero 3")]
    assert [answer["verdict"]["fits"] for answer in answers] == [True, True]
    assert answers[0]["layout"] == answers[1]["layout"]
    assert answers[0]["time"]["step_s"] == answers[1]["time"]["step_s"]
    assert answers[0]["memory"]["peak_bytes"] == answers[1]["memory"]["peak_bytes"]


def test_more_gpus_than_asked_for_have_a_reason_where_the_groups_are_fixed(cli: Cli) -> None:
    job = "--model llama-3.1-405b --server dell-xe9680-h100 --gpus 112 --job pretrain --stack megatron-lm --steps 9"
    fixed = "--global-batch 512 --micro-batch 1 --seq-len 8192 --tp 8 --pp 14 --recompute none"
    ran = cli(*shlex.split(f"estimate {job} {fixed} --brief"))
    assert ran.code == 1
    (line,) = [line for line in ran.out.splitlines() if line.startswith("GPUs ")]
    assert "the fewest that fit with this tp/pp: 224" in line
    assert line.endswith(", as more GPUs leave each fewer micro-batches in flight")
