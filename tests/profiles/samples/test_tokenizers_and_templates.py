"""Tokens by a user's tokenizer, with its chat template, which is code of somebody else."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from sample_files import lines, measured, tokenizer_of_words

from xe_sizer.datasets import tokens
from xe_sizer.datasets.profile import Asked, Measured
from xe_sizer.errors import InputError

CHAT = {"messages": [{"role": "user", "content": "one two"}, {"role": "assistant", "content": "three"}]}
LOOP = "{% for message in messages %}{{ message['role'] }} {{ message['content'] }} {% endfor %}"


def with_template(folder: Path, text: Any, row: Any = CHAT, **config: Any) -> Measured:
    tokenizer = tokenizer_of_words(folder / "tokenizer")
    (tokenizer / "tokenizer_config.json").write_text(json.dumps({"chat_template": text, **config}))
    return measured(lines(folder / "chat.jsonl", [row]), Asked(tokenizer))


def test_words_are_tokens_of_a_tokenizer_of_words(tmp_path: Path) -> None:
    tokenizer = tokenizer_of_words(tmp_path / "tokenizer")
    file = lines(tmp_path / "texts.jsonl", [{"text": "word " * size} for size in (3, 5, 10)])
    for path in (tokenizer, tokenizer / "tokenizer.json"):
        found = measured(file, Asked(path))
        assert found.counted
        assert (found.mean[1], found.shortest.tokens, found.longest.tokens, found.tokenised) == (6, 3, 10, 3)
    assert measured(file, Asked(tokenizer, sample=None)).mean[1] == 6


def test_a_chat_template_is_applied(tmp_path: Path) -> None:
    assert with_template(tmp_path, LOOP).mean[1] == 5
    named = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": LOOP}]
    assert with_template(tmp_path, named).mean[1] == 5
    assert with_template(tmp_path, "{{ bos_token }} " + LOOP, bos_token={"content": "begin"}).mean[1] == 6
    marked = "{% generation %}" + LOOP + "{% endgeneration %}"
    assert with_template(tmp_path, marked).mean[1] == 5


def test_the_file_of_a_template_is_preferred(tmp_path: Path) -> None:
    tokenizer_of_words(tmp_path / "tokenizer")
    (tmp_path / "tokenizer" / "chat_template.jinja").write_text("only this")
    assert with_template(tmp_path, LOOP).mean[1] == 2


def test_without_a_template_tokens_are_added_to_each_message(tmp_path: Path) -> None:
    tokenizer = tokenizer_of_words(tmp_path / "tokenizer")
    file = lines(tmp_path / "chat.jsonl", [CHAT])
    assert measured(file, Asked(tokenizer)).mean[1] == 3 + 2 * 5
    assert measured(file, Asked(tokenizer, per_message=2)).mean[1] == 3 + 2 * 2
    (tokenizer / "chat_template.jinja").write_text("only this")
    assert measured(file, Asked(tokenizer, per_message=0)).mean[1] == 3


@pytest.mark.parametrize(
    "text",
    [
        "{{ raise_exception('roles must alternate') }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{% for",
        "{{ 'x' * 10000000 }}",
        "{% include '/etc/passwd' %}",
    ],
)
def test_what_a_template_refuses_is_counted_without_it(tmp_path: Path, text: str) -> None:
    found = with_template(tmp_path, text)
    assert found.tokenizer
    assert sum(found.tokenizer.refused.values()) == 1
    assert found.mean[1] == 3 + 2 * 5


def test_a_template_that_hangs_is_given_up_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "SECONDS", 1.0)
    tokenizer = tokenizer_of_words(tmp_path / "tokenizer")
    loop = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    (tokenizer / "chat_template.jinja").write_text(loop)
    found = measured(lines(tmp_path / "chat.jsonl", [CHAT] * 20), Asked(tokenizer))
    assert found.tokenizer
    assert list(found.tokenizer.refused.values()) == [20]
    assert found.mean[1] == 3 + 2 * 5


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[" * 100_000, b"\x00\xff", b'{"version": "1.0", "model": {"type": "x"}}']
)
def test_what_is_no_tokenizer_is_bad_input(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    file = lines(tmp_path / "texts.jsonl", ["a"])
    with pytest.raises(InputError, match="tokenizer"):
        measured(file, Asked(tmp_path))


@pytest.mark.parametrize("content", ["[1]", "no json", "[" * 100_000])
def test_what_is_no_configuration_is_bad_input(tmp_path: Path, content: str) -> None:
    tokenizer = tokenizer_of_words(tmp_path / "tokenizer")
    (tokenizer / "tokenizer_config.json").write_text(content)
    with pytest.raises(InputError, match=r"tokenizer_config\.json"):
        measured(lines(tmp_path / "texts.jsonl", ["a"]), Asked(tokenizer))


def test_pairs_are_two_sequences(tmp_path: Path) -> None:
    tokenizer = tokenizer_of_words(tmp_path / "tokenizer")
    row = {"prompt": "a b ", "chosen": "c d e", "rejected": "f"}
    found = measured(lines(tmp_path / "pairs.jsonl", [row]), Asked(tokenizer))
    assert (found.scan.samples, found.sequences) == (1, 2)
    assert (found.shortest.tokens, found.longest.tokens) == (3, 5)


@pytest.mark.parametrize("seed", range(3))
def test_a_sample_is_as_good_as_all_of_mixed_text(tmp_path: Path, seed: int) -> None:
    """Words of unequal length in Latin and Chinese characters: the longest is exact, mean and p99 within a per cent."""
    rng = random.Random(seed)
    words = ["".join(rng.choices("etaoinshrdlu", k=rng.randint(1, 12))) for _ in range(500)]
    words += ["".join(chr(rng.randint(0x4E00, 0x6FFF)) for _ in range(rng.randint(1, 4))) for _ in range(200)]
    rows = [{"text": " ".join(rng.choices(words, k=int(rng.lognormvariate(4.5, 1)) + 1))} for _ in range(9000)]
    tokenizer = tokenizer_of_words(tmp_path / "tokenizer")
    file = lines(tmp_path / "texts.jsonl", rows)
    found, whole = (measured(file, Asked(tokenizer, sample=size, seed=seed)) for size in (1000, None))
    assert not found.counted
    assert found.tokenised < 2000
    assert found.longest.tokens == whole.longest.tokens
    assert found.mean[1] == pytest.approx(whole.mean[1], rel=0.01)
    assert found.histogram.quantiles[-1] == pytest.approx(whole.histogram.quantiles[-1], rel=0.02)


def test_a_name_on_the_hub_is_no_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        measured(lines(tmp_path / "texts.jsonl", ["a"]), Asked(Path("meta-llama/Llama-3.1-8B")))
    (problem,) = caught.value.problems
    assert problem.message == "no such file"
    assert problem.hint == "give a local tokenizer.json, or the folder that has it"
