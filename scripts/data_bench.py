"""How fast and how exact `xe-sizer data` is, on files of samples that are generated here.

Text is put together from what every machine has: prose from the documentation strings of Python's library, code
from its sources, and Chinese as words of a made-up vocabulary. The tokenizer is trained on the same text unless one is
named.

    python scripts/data_bench.py --gigabytes 2 --tokenizer tokenizer.json
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import resource
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from xe_sizer.datasets.profile import Asked, Measured, measure

Corpus = list[str]
MEDIAN_CHARS, SIGMA = 1800, 1.0  # of a sample: log-normal, as conversations are
EXACT_MB = 200  # how much is tokenised in full, to compare with


def library(most_files: int = 1200) -> tuple[Corpus, Corpus]:
    """Paragraphs of prose and pieces of code from Python's own library."""
    prose, code = [], []
    for file in islice(sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py")), most_files):
        try:
            text = file.read_text(encoding="utf-8")
            tree = ast.parse(text)
        except (SyntaxError, UnicodeDecodeError, OSError, RecursionError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                prose += (ast.get_docstring(node) or "").split("\n\n")
        code += text.split("\n\n")
    return [one for one in prose if len(one) > 60], [one for one in code if len(one) > 60]


def chinese(rng: random.Random, sentences: int = 20_000) -> Corpus:
    """Sentences of words from a made-up vocabulary, some of them common and most rare."""
    words = ["".join(chr(rng.randint(0x4E00, 0x6FFF)) for _ in range(rng.choice((1, 2, 2, 3)))) for _ in range(8000)]
    shares = [1 / (place + 3) for place in range(len(words))]
    return ["".join(rng.choices(words, shares, k=rng.randint(6, 30))) + "。" for _ in range(sentences)]


def samples(kind: str, rng: random.Random, corpora: dict[str, Corpus]) -> Iterator[dict[str, Any]]:
    """Rows without end, of one kind."""
    while True:
        language = "prose" if kind == "chat" else rng.choice(list(corpora))
        median, sigma = {"short": (120, 0.5), "long": (60_000, 1.2)}.get(kind, (MEDIAN_CHARS, SIGMA))
        text = _text(rng, corpora[language], rng.lognormvariate(0, sigma) * median)
        cut = max(len(text) // 5, 1)
        if kind in ("chat", "mixed"):
            turns = [("user", text[:cut]), ("assistant", text[cut:])]
            yield {"messages": [{"role": role, "content": each} for role, each in turns]}
        else:
            yield {"text": text}


def _text(rng: random.Random, corpus: Corpus, chars: float) -> str:
    parts: list[str] = []
    size = 0.0
    while size < chars:
        parts.append(rng.choice(corpus))
        size += len(parts[-1]) + 1
    return "\n".join(parts)[: max(int(chars), 1)]


def written(path: Path, rows: Iterator[dict[str, Any]], size_bytes: float) -> None:
    with path.open("w", encoding="utf-8") as out:
        size = 0
        for row in rows:
            line = json.dumps(row, ensure_ascii=False) + "\n"
            out.write(line)
            size += len(line.encode())
            if size >= size_bytes:
                return


def trained(path: Path, corpora: dict[str, Corpus]) -> Path:
    """A byte-level BPE tokenizer of 32k tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=32_000, initial_alphabet=alphabet, show_progress=False)
    made.train_from_iterator((one for corpus in corpora.values() for one in corpus[:20_000]), trainer)
    made.save(str(path))
    return path


def timed(say: str, run: Callable[[], Measured]) -> Measured:
    start = time.perf_counter()
    found = run()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"  {say}: {time.perf_counter() - start:.1f} s, peak {peak:.0f} MiB, {found.sequences:,} samples")
    return found


def compared(estimate: Measured, exact: Measured) -> str:
    """Errors of an estimate, relative."""
    names = ("p5", "p50", "p90", "p95", "p99")
    pairs = [("mean", estimate.mean[1], exact.mean[1])]
    pairs += zip(names, estimate.histogram.quantiles, exact.histogram.quantiles, strict=True)
    pairs += [("longest", estimate.longest.tokens, exact.longest.tokens)]
    return ", ".join(f"{name} {100 * (mine / theirs - 1):+.2f} %" for name, mine, theirs in pairs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--exact-mb", type=float, default=EXACT_MB)
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--full", action="store_true", help="tokenise all gigabytes too, to compare")
    parser.add_argument("--kinds", default="chat,mixed,short,long")
    parser.add_argument("--seeds", type=int, default=3)
    asked = parser.parse_args()
    rng = random.Random(1)
    prose, code = library()
    corpora = {"prose": prose, "code": code, "chinese": chinese(rng)}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "samples.jsonl"
        tokenizer = asked.tokenizer or trained(Path(folder) / "tokenizer.json", corpora)
        for kind in filter(None, asked.kinds.split(",")):
            print(f"{kind}, {asked.exact_mb:.0f} MB")
            written(file, samples(kind, rng, corpora), asked.exact_mb * 1e6)
            for seed in range(asked.seeds):
                _one(file, tokenizer, seed)
        if asked.gigabytes:
            written(file, samples("mixed", rng, corpora), asked.gigabytes * 1e9)
            print(f"mixed, {asked.gigabytes:g} GB")
            by_command(file, tokenizer, full=asked.full)
    return 0


def by_command(file: Path, tokenizer: Path, *, full: bool) -> None:
    """Time and peak memory of the command in a process of its own; errors against all tokenised where asked."""
    found = [_answered(file, tokenizer, more) for more in ([], ["--full"])[: 1 + full]]
    if full:
        pairs = [("mean", *(each["mean_tokens"]["expected"] for each in found))]
        pairs += [(name, *(each["percentiles"][name] for each in found)) for name in found[0]["percentiles"]]
        pairs += [("longest", *(each["longest"]["tokens"] for each in found))]
        print("    " + ", ".join(f"{name} {100 * (mine / theirs - 1):+.2f} %" for name, mine, theirs in pairs))


def _answered(file: Path, tokenizer: Path, more: list[str]) -> Any:
    start = time.perf_counter()
    command = [sys.executable, "-m", "xe_sizer", "data", str(file), "--tokenizer", str(tokenizer), "--format", "json"]
    ran = subprocess.run([*command, *more], stdout=subprocess.PIPE, check=True)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024  # of the largest so far
    print(f"  {' '.join(more) or 'a sample tokenised'}: {time.perf_counter() - start:.1f} s, peak {peak:.0f} MiB")
    return json.loads(ran.stdout)


_exact: dict[Path, tuple[float, Measured]] = {}


def _one(file: Path, tokenizer: Path, seed: int) -> None:
    changed = file.stat().st_mtime
    if file not in _exact or _exact[file][0] != changed:
        full = timed("all tokenised", lambda: measure([file], Asked(tokenizer, sample=None), lambda *_: None))
        _exact[file] = changed, full
    estimate = timed("a sample tokenised", lambda: measure([file], Asked(tokenizer, seed=seed), lambda *_: None))
    print(f"    {compared(estimate, _exact[file][1])}")


if __name__ == "__main__":
    sys.exit(main())
