"""Write what the commands answer, to the last digit, and compare it with an earlier run.

python scripts/freeze.py write FOLDER [--configs FOLDER] [--evidence]
python scripts/freeze.py compare EARLIER LATER

`--configs` adds what `import` reads in a folder of other tools' configurations and what `export` writes from it;
`--evidence` adds `validate` over the shipped records, which takes minutes. A commit that changes no answer leaves the
two folders alike; `compare` names each value that differs and ends with exit code 1 where one does.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
EXAMPLES = Path("examples")
LORA = EXAMPLES / "lora-llama-2-70b.yaml"
QUESTIONS = "questions.yaml"  # plans ask them, it is no scenario
EXPLAINED = ("--explain", "all", "--format", "markdown")
UNREPEATABLE = re.compile(r'(?m)^( +"date": | {4}"seconds": |.*[Ww]ritten by ).*$')  # days, and seconds of a search
MOST_SHOWN = 40
OTHER: dict[str, tuple[str | Path, ...]] = {
    "compare": ("compare", LORA, "server=dell-xe9680-h100", "server=dell-xe9680-h200", "job=qlora"),
    "sensitivity": ("sensitivity", LORA),
    "sweep": ("plan", LORA, "--grid", "gpus=8,16,32", "--grid", "seq-len=1024,4096"),
    "check": ("check", *sorted(EXAMPLES.glob("dell-table-9/*.yaml")), *sorted(EXAMPLES.glob("serve/*.yaml"))),
    "layout-open": ("estimate", *shlex.split("--model gemma-2-9b --job qlora --gpu l4 --gpus 4 --steps 9")),
    "out-of-memory": ("estimate", *shlex.split("--model llama-3.1-70b --job sft --server dgx-h100 --gpus 8 --steps 9")),
    "mixture": ("estimate", *shlex.split("--model deepseek-v3 --job pretrain --server dgx-h100 --gpus 2048 --steps 9")),
    "profiles": ("profiles", "list"),
}  # fmt: skip


def commands() -> Iterator[tuple[str, tuple[str | Path, ...]]]:
    """The name of each frozen answer, and the command line that gives it."""
    for path in sorted(EXAMPLES.rglob("*.yaml")):
        if path.name == QUESTIONS:
            continue
        name = "-".join(path.with_suffix("").parts[1:])
        if "plan" in path.parts:
            yield name, ("plan", path, "--format", "json")
        else:
            command = "serve" if "serve" in path.parts else "estimate"
            yield name, (command, path, "--format", "json")
            yield f"{name}-explained", (command, path, *EXPLAINED)
    for name, arguments in OTHER.items():
        yield name, (*arguments, "--format", "json")


def configurations(folder: Path) -> Iterator[tuple[str, tuple[str | Path, ...]]]:
    """What `import` reads in each configuration of a folder, and what `export` writes of it for two tools."""
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        name = "-".join(path.relative_to(folder).parts)
        yield f"import-{name}", ("import", path, "--format", "json")
        for tool in ("axolotl", "megatron"):
            yield f"export-{tool}-{name}", ("export", path, "--to", tool)


def answer(arguments: Sequence[str | Path]) -> str:
    """What a command writes, with its exit code; the date of the run is left out."""
    from xe_sizer.cli.main import main

    written, err = io.BytesIO(), io.StringIO()
    with redirect_stdout(io.TextIOWrapper(written, encoding="utf-8")) as out, redirect_stderr(err):
        code = main([str(each) for each in arguments])
        out.flush()
    text = written.getvalue().decode()
    text = UNREPEATABLE.sub("", text)
    return f"{text}{err.getvalue()}\nexit code {code}\n"


def write(folder: Path, configs: Path | None, evidence: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    asked = [*commands(), *(configurations(configs) if configs else ())]
    if evidence:
        asked.append(("validate", ("validate", "--format", "json")))
    for name, arguments in asked:
        (folder / f"{name}.txt").write_text(answer(arguments), encoding="utf-8")
    print(f"{len(asked)} answers in {folder}", file=sys.stderr)


def compare(earlier: Path, later: Path) -> int:
    """Print each value that differs; return how many answers do."""
    names = sorted({each.name for folder in (earlier, later) for each in folder.glob("*.txt")})
    differing = 0
    for name in names:
        paths = (earlier / name, later / name)
        texts = [path.read_text(encoding="utf-8") if path.exists() else "" for path in paths]
        if texts[0] == texts[1]:
            continue
        differing += 1
        lines = list(_differences(*texts))
        print(f"{name}: {len(lines)} values differ", *lines[:MOST_SHOWN], sep="\n  ")
    print(f"{len(names)} answers, {differing} differ", file=sys.stderr)
    return differing


def _differences(before: str, after: str) -> Iterator[str]:
    """Values of JSON by their path, lines of anything else."""
    first, second = _leaves(before), _leaves(after)
    for place in [*first, *(each for each in second if each not in first)]:
        if first.get(place) != second.get(place):
            yield f"{place}: {first.get(place, '-')} -> {second.get(place, '-')}"


def _leaves(text: str) -> dict[str, str]:
    try:
        return dict(_walk("", json.loads(text[: text.rindex("\nexit code")])))
    except ValueError:
        return {f"line {number}": line for number, line in enumerate(text.splitlines(), 1)}


def _walk(place: str, value: Any) -> Iterator[tuple[str, str]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if items is None:
        yield place, repr(value)
        return
    for key, item in items:
        yield from _walk(f"{place}.{key}" if place else str(key), item)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    writing = verbs.add_parser("write")
    writing.add_argument("folder", type=Path)
    writing.add_argument("--configs", type=lambda text: Path(text).resolve())
    writing.add_argument("--evidence", action="store_true")
    comparing = verbs.add_parser("compare")
    comparing.add_argument("earlier", type=Path)
    comparing.add_argument("later", type=Path)
    asked = parser.parse_args()
    if asked.verb == "compare":
        return int(compare(asked.earlier, asked.later) > 0)
    folder = asked.folder.resolve()
    os.chdir(ROOT)
    write(folder, asked.configs, asked.evidence)
    return 0


if __name__ == "__main__":
    sys.exit(main())
