"""What an answer gives reason to say, from which thresholds on, and the figures in it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cases import REGISTRY, ask
from msgspec.structs import replace

from xe_sizer.errors import InputError
from xe_sizer.scenario.read import read_scenario
from xe_sizer.training import resolve as resolving
from xe_sizer.training import summary
from xe_sizer.training.estimate import TrainingEstimate
from xe_sizer.training.resolve import resolve
from xe_sizer.training.run import start_up_s
from xe_sizer.training.search import size

LLAMA = {"model": "llama-2-7b", "job": "lora", "stack": "hf-bf16", "gpus": 8, "train.seq_len": 2048}


def sized(**flags: object) -> TrainingEstimate:
    given = {**LLAMA, **{key.replace("__", "."): value for key, value in flags.items()}}
    return size(ask({key: value for key, value in given.items() if value is not None}))


def in_use(**figures: object) -> Any:
    """A job of 100 fixed steps of 64 sequences of 2,048 tokens on 8 ranks, of 0.8 million real tokens."""
    known: dict[str, Any] = {
        "padding": 0.9, "fits": True, "packs": True, "longest": 2048.0, "steps": 100, "fixed_steps": True,
        "tokens": 819_200.0, "dp": 8, "micro": 2, "fixed": {}, "batch": 4, "compares": False,
    }  # fmt: skip
    known.update(figures)
    made = SimpleNamespace(
        stack=SimpleNamespace(name="stack"), packs=known["packs"],
        method=SimpleNamespace(compares=known["compares"], kind=SimpleNamespace(rollout=None)),
        seq_len=2048, global_batch=known["batch"], steps=known["steps"], read_tokens=known["tokens"],
    )  # fmt: skip
    sequences = SimpleNamespace(padding_share=np.array([known["padding"]]), longest_tokens=np.array([known["longest"]]))
    caller = SimpleNamespace(settings=lambda keys: " ".join(f"{key}={value}" for key, value in keys.items()))
    resolved = SimpleNamespace(
        job=made, fixed_steps=known["fixed_steps"], fixed=known["fixed"], scenario=SimpleNamespace(caller=caller)
    )
    layouts = SimpleNamespace(micro_batch=np.array([known["micro"]]), dp=np.array([known["dp"]]))
    return SimpleNamespace(
        fits=known["fits"], resolved=resolved, choice=SimpleNamespace(sequences=sequences), layouts=layouts
    )


def test_packed_steps_read_the_same_tokens() -> None:
    """819,200 tokens are 400 sequences of 2,048: 100 batches of 4; of 1,000 tokens 819.2, in 204.8 batches."""
    assert summary.packed_steps(in_use(), 2048) == 100
    assert summary.packed_steps(in_use(), 1000) == 205
    assert summary.packed_steps(in_use(batch=6), 2048) == 67
    assert summary.packed_steps(in_use(batch=7), 2048) == 57
    assert summary.packed_steps(in_use(batch=7, fixed_steps=False), 2048) == 58  # a last batch that is not full
    assert summary.packed_steps(in_use(batch=1000), 2048) == 0


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        # 400 sequences in 100 steps are 4, at least one for each of 8 ranks: 50 steps
        ({}, "50 with a global batch of 8"),
        ({"dp": 2}, "a global batch of 4 keeps the number of steps"),
        ({"dp": 1}, "a global batch of 4 keeps the number of steps"),
        ({"dp": 3}, "134 with a global batch of 3"),
        ({"dp": 2, "fixed": {"micro_batch": 2}}, "a global batch of 4 keeps the number of steps"),
        ({"dp": 4, "fixed": {"micro_batch": 2}}, "50 with a global batch of 8"),
        ({"dp": 1, "steps": 91}, "a global batch of 4 keeps the number of steps"),  # 100 of 91: within a tenth
        ({"dp": 1, "steps": 90}, "100 with a global batch of 4"),
        ({"dp": 1, "steps": 90, "tokens": 396 * 2048.0}, "a global batch of 4 keeps the number of steps"),  # 99 of 90
        ({"dp": 1, "steps": 110}, "a global batch of 4 keeps the number of steps"),
        ({"dp": 1, "steps": 112}, "100 with a global batch of 4"),
        ({"dp": 1000}, "1 with a global batch of 1,000"),
    ],
)
def test_the_batch_that_keeps_the_steps(figures: dict[str, object], words: str) -> None:
    assert summary.kept_steps_words(in_use(**figures), 2048) == words


def padding_words(**figures: object) -> list[str]:
    return list(summary.warn_of_padding(in_use(**figures)))


def test_padding_is_told_from_half_on() -> None:
    assert padding_words(padding=0.5) == []
    assert padding_words(fits=False) == []
    (told,) = padding_words(padding=0.51)
    assert told == (
        "51 % of the processed tokens are padding: packing the same samples (train.padding=packed train.steps=100) "
        "saves most of it"
    )


def test_packing_into_what_memory_holds_now() -> None:
    """Sequences of at most 1,024 tokens are 800, 200 batches of 4."""
    (told,) = padding_words(longest=1024.7)
    assert told.endswith(
        "(train.padding=packed train.seq_len=1024 train.steps=200) saves most of it, in 200 instead of 100 optimizer "
        "steps; a global batch of 8 keeps the number of steps"
    )
    (passes,) = padding_words(longest=1024.7, fixed_steps=False)
    assert "(train.padding=packed train.seq_len=1024) saves" in passes


def test_the_warning_packs_as_the_advice_does() -> None:
    """Into sequences of the job where the longest sample nearly fills them, so that no two figures contradict."""
    for longest, settings in ((2000.0, {"train.padding": "packed"}), (1024.0, {"train.seq_len": 1024})):
        sized = in_use(longest=longest)
        assert settings.items() <= summary.packed_settings(sized).items()
        assert ("train.seq_len" in summary.packed_settings(sized)) == (longest == 1024.0)
        (told,) = padding_words(longest=longest)
        assert ("train.seq_len" in told) == (longest == 1024.0)


def test_padding_that_cannot_be_packed() -> None:
    assert padding_words(packs=False) == [
        "90 % of the processed tokens are padding: a stack that packs samples would save most of it, stack does not"
    ]
    assert padding_words(packs=False, compares=True) == [
        "90 % of the processed tokens are padding: a stack that packs answers would save most of it, stack does not"
    ]
    assert padding_words(batch=1000) == [
        "90 % of the processed tokens are padding: packed, the samples fill less than one batch of 1,000"
    ]


def test_many_passes_over_few_samples() -> None:
    """3,100 steps of 8 samples are 24,800: 31 times 800."""
    few = sized(train__steps=3100, train__global_batch=8, data__samples=800)
    assert list(summary.warn_of_many_epochs(few.resolved)) == [
        "3,100 steps read the 800 samples 31 times; --epochs 3 sizes three passes"
    ]
    assert few.resolved.epochs == 31.0
    enough = sized(train__steps=3000, train__global_batch=8, data__samples=800)
    assert list(summary.warn_of_many_epochs(enough.resolved)) == []
    unknown = sized(train__steps=3000, train__global_batch=8)
    assert unknown.resolved.epochs is None
    assert list(summary.warn_of_many_epochs(unknown.resolved)) == []
    one = sized(train__steps=1, train__global_batch=800, data__samples=8)
    assert next(iter(summary.warn_of_many_epochs(one.resolved))).startswith("1 step reads the 8 samples 100 times")


def test_sequences_that_nothing_fills() -> None:
    """Samples of 100 tokens in sequences of at most 2,048; of 150 and less it is worth no word."""

    def told(seq_len: int | None, padding: str = "longest-in-micro-batch") -> list[str]:
        short = sized(
            train__seq_len=seq_len, train__padding=padding, data__samples=1000, data__mean_tokens=100,
            data__max_tokens=100,
        )  # fmt: skip
        return list(summary.warn_of_unreached_lengths(short))

    assert told(2048) == ["the longest sample has 100 tokens: memory is for that, not for 2,048"]
    assert told(151) != []
    assert told(150) == []
    assert told(None) == []
    assert told(2048, "packed") == told(2048, "to-seq-len") == []


def test_a_start_that_is_a_tenth_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    found = sized(train__steps=100, train__global_batch=8)
    before_s = start_up_s(found.resolved.job)

    def told(total_s: float, fits: bool = True) -> list[str]:
        lasts: Any = SimpleNamespace(resolved=found.resolved, fits=fits, total_s=total_s)
        return list(summary.slow_start(lasts))

    assert told(10.01 * before_s) == []
    assert told(9.99 * before_s, fits=False) == []
    minutes = before_s / 60
    assert told(4 * before_s) == [
        f"start-up comes on top: about {minutes:.1f} min, 25 % of the time of the steps (assumed)"
    ]
    monkeypatch.setattr(summary, "NOTICEABLE", 0.125)
    assert told(8 * before_s) == []


def test_several_gpus_for_a_stack_on_one() -> None:
    found = sized(stack="unsloth", gpus=1)
    assert list(summary.cautions(found)) == []
    (told,) = summary.cautions(replace(found, gpus=2))
    assert told == "unsloth trains on one GPU; the times of 2 are those of plain data parallelism"
    assert list(summary.cautions(sized(gpus=2))) == []


def test_experts_one_after_another() -> None:
    """Transformers 4 loops over every mixture, 5 over those alone whose classes split sorted tokens."""

    def told(model: str, stack: str, job: str = "lora") -> list[str]:
        return list(summary.warn_of_looped_experts(ask({"model": model, "job": job, "stack": stack})))

    (words,) = told("mixtral-8x7b", "hf-trainer@4.57")
    assert words == (
        "hf-trainer computes the 8 experts of a layer one after the other; "
        "--fused-kernels grouped-experts estimates grouped products"
    )
    assert told("mixtral-8x7b", "hf-trainer") == told("llama-2-7b", "hf-trainer@4.57") == []
    assert len(told("granite-3.0-3b-a800m", "hf-trainer", "sft")) == 1


def test_passes_over_data_that_nobody_knows() -> None:
    """An epoch of how much?"""
    (told,) = summary.warn_of_epochs_of_nothing(sized(train__epochs=3).resolved)
    assert told == (
        "--epochs 3 has no effect without the data: "
        "--samples 50000, for example, or --dataset says how much an epoch is"
    )
    assert list(summary.warn_of_epochs_of_nothing(sized(train__epochs=3, data__samples=100).resolved)) == []
    assert list(summary.warn_of_epochs_of_nothing(sized(train__steps=3).resolved)) == []


def test_weights_of_a_narrow_format_are_taken_as_16_bit() -> None:
    def told(model: str, quantised: bool = False) -> list[str]:
        made = SimpleNamespace(model=SimpleNamespace(name="plain"), method=SimpleNamespace(quantised=quantised))
        caller = SimpleNamespace(setting=lambda key, value: f"{key}={value}")
        given = SimpleNamespace(values=SimpleNamespace(model=model), caller=caller)
        return list(summary.warn_of_unpacked_weights(SimpleNamespace(job=made, scenario=given)))  # type: ignore[arg-type]

    assert told("plain") == told("Some/Model-7B") == []
    assert told("plain-bf16") == []
    (eight,) = told("plain-fp8")
    assert eight == (
        "plain-fp8 names 8-bit weights (fp8), which are taken as 16-bit ones here; job=qlora keeps them in 4 bit"
    )
    assert told("plain-fp8", quantised=True) == ["plain-fp8 names 8-bit weights (fp8), which are held in 4 bit here"]
    assert told("plain-AWQ", quantised=True) == []
    assert "16-bit ones" in told("plain-AWQ")[0]


def test_all_that_is_worth_a_word_is_said_in_order() -> None:
    few = sized(gpus=12, train__steps=3100, train__global_batch=24, data__samples=800, data__mean_tokens=100,
                data__max_tokens=1000, train__padding="to-seq-len", cost__price_per_gpu_hour=None)  # fmt: skip
    found = list(summary.warnings(few))
    starts = [words.split()[0] for words in found if "padding" in words or "times;" in words]
    assert starts == [f"{100 * float(few.choice.sequences.padding_share[0]):.0f}", "3,100"]
    unpriced = replace(few, resolved=replace(few.resolved, tariff=replace(few.resolved.tariff, per_gpu_hour=None)))
    priced = replace(few, resolved=replace(few.resolved, tariff=replace(few.resolved.tariff, per_gpu_hour=2.0)))
    more = [words for words in summary.warnings(priced) if words not in list(summary.warnings(unpriced))]
    assert len(more) == 1
    assert "16 GPUs" in more[0]


# --- checkpoints and evaluations of a scenario


@pytest.mark.parametrize(
    ("known", "padding", "samples"),
    [
        (10_000.0, "to-seq-len", 500),  # a twentieth
        (1e6, "to-seq-len", 6400),  # at most a hundred global batches of 64
        (None, "to-seq-len", None),  # nobody says how much data there is
        (1e6, "packed", 25_600),  # of which four go into a sequence
        (5.0, "to-seq-len", 1),
        (10_000.0, "packed", 500),
    ],
)
def test_samples_of_an_evaluation(known: float | None, padding: str, samples: int | None) -> None:
    work: Any = SimpleNamespace(
        seq_len=2048, lengths=SimpleNamespace(mean=512.0), padding=padding, global_batch=64, known_samples=known
    )
    assert resolving.guess_evaluated_samples(work) == samples


def test_pauses_of_a_scenario() -> None:
    flags = {"train.evaluate_every": 10, "train.evaluate_samples": 99, "storage.write_gb_per_s": 2.5,
             "train.checkpoint_every": 50, "train.async_checkpoint": True,
             "train.failures_per_gpu_day": 0.01}  # fmt: skip
    asked = ask({**LLAMA, **flags}).job.pauses
    assert (asked.evaluate_every, asked.evaluated_samples, asked.write_bytes_per_s) == (10, 99.0, 2.5e9)
    assert (asked.checkpoint_every, asked.asynchronous, asked.failures_per_gpu_day) == (50, True, 0.01)
    plain = ask(LLAMA).job.pauses
    assert (plain.evaluated_samples, plain.write_bytes_per_s, plain.failures_per_gpu_day) == (0.0, None, 0.0)
    assert not plain.any


# --- a scenario that cannot be trained


def test_inference_is_asked_of_another_command(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the job is inference"):
        ask({**LLAMA, "job": "inference"})
    served = tmp_path / "served.yaml"
    served.write_text("model: llama-2-7b\ngpu: h100-sxm-80gb\nserve: {concurrency: 4}\n")
    with pytest.raises(InputError, match="a scenario with a 'serve' section and no job is inference"):
        resolve(read_scenario(served, {}, {}), REGISTRY)


def test_no_layout_is_legal_on_so_many_gpus() -> None:
    asked = ask({**LLAMA, "layout.tp": 1, "layout.recompute": "full", "train.global_batch": 8})
    one = asked.no_layout((12,))
    assert one.message == ("no legal layout on 12 GPUs for a global batch of 8 with tp 1, recompute full")
    assert asked.no_layout((1, 2, 1024)).message.startswith("no legal layout on 1 to 1,024 GPUs for")
    bare = ask({**LLAMA, "train.global_batch": 1000}).no_layout((7,))
    assert bare.message == "no legal layout on 7 GPUs for a global batch of 1,000"


def test_a_vocabulary_that_nobody_pads_slows_the_head() -> None:
    """Granite's 49,155 tokens on an H100, 5.3 times as long as measured; Megatron-LM pads, Llama's are a multiple."""
    asked = {"gpu": "h100-sxm-80gb", "gpus": 1, "model": "granite-3.0-2b", "job": "sft"}
    odd = sized(**asked)
    (said,) = summary.warn_of_odd_vocabulary(odd.resolved)
    assert said.startswith("49,155 tokens are no multiple of 8: products of the head take 5.3 times as long on h100")
    assert not list(summary.warn_of_odd_vocabulary(sized(**asked, stack="megatron-lm").resolved))
    assert not list(summary.warn_of_odd_vocabulary(sized(**asked | {"model": "llama-3.2-1b"}).resolved))
    assert not list(summary.warn_of_odd_vocabulary(sized(**asked | {"gpu": "a100-sxm-80gb"}).resolved))
    padded = replace(odd.resolved.job, model=replace(odd.resolved.job.model, vocab=49_216))
    even = size(replace(odd.resolved, job=padded))
    assert odd.step_s > 1.05 * even.step_s
