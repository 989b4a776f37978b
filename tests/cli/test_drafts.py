"""What a service with speculative decoding says of its drafts on the first screen, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from .conftest import Ran

Cli = Callable[..., Ran]
SERVICE = ("--model", "deepseek-v3", "--gpu", "h200-sxm-141gb", "--nodes", 1, "--tp", 8, "--concurrency", 8,
           "--engine", "sglang", "--precision", "fp8")  # fmt: skip


def drafts(cli: Cli, *more: object) -> list[str]:
    ran = cli("serve", *SERVICE, *more)
    assert ran.code == 0, ran.err
    lines = iter(ran.out.splitlines())
    first = next(line for line in lines if line.startswith("Drafts"))
    return [first.removeprefix("Drafts").strip(), next(lines).strip()]


def test_assumed_acceptance_is_marked(cli: Cli) -> None:
    first, second = drafts(cli, "--draft-tokens", 1)
    words = "1 token a step by the model's own MTP modules, acceptance 0.870 (assumed): 1.87 tokens gained a step"
    assert first == words
    assert "GiB per GPU" in second
    assert "without: " in second


def test_stated_acceptance_is_repeated(cli: Cli) -> None:
    first, _ = drafts(cli, "--draft-tokens", 3, "--acceptance-rate", "0.8,0.6")
    assert "acceptance 0.800, 0.600, 0.600: 2.57 tokens gained" in first


def test_words_of_the_prompt_take_nothing(cli: Cli) -> None:
    _, second = drafts(cli, "--speculative", "ngram")
    assert second.startswith("without: ")


def test_without_drafts_nothing_is_said(cli: Cli) -> None:
    assert "Drafts" not in cli("serve", *SERVICE).out
    off = cli("serve", *SERVICE, "--draft-tokens", 3, "--speculative", "none", "--format", "json")
    assert json.loads(off.out)["speculation"] is None


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--speculative", "egle3"), "did you mean 'eagle3'"),
        (("--draft-tokens", 3, "--acceptance-rate", "0.8,1.6"), "item 2 of 'acceptance_rate' must be at most 1"),
        (("--draft-tokns", 3), "did you mean '--draft-tokens'"),
    ],
)
def test_mistakes_are_named(cli: Cli, flags: tuple[object, ...], words: str) -> None:
    ran = cli("serve", *SERVICE, *flags)
    assert ran.code == 2
    assert words in ran.err
