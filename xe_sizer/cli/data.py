"""`xe-sizer data`: token lengths of files of samples."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xe_sizer.cli.command import Invocation
from xe_sizer.cli.options import BriefOption, ColorOption, FileOption, FormatOption
from xe_sizer.cli.output import Progress, write_texts
from xe_sizer.cli.text import TextCommand
from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.profiles.text import YAML_ENDINGS, at_home

app = typer.Typer(add_completion=False)
_HELP = """Count the tokens of a data set: JSON Lines, JSON or Parquet.

Reads chats, instructions, texts, prompts with completions, preference pairs and token ids.
With a tokenizer, 1,000 sequences and the longest are tokenised; the others follow from their bytes.
Without one, tokens are assumed from bytes.

\b
Examples:
  xe-sizer data train.jsonl
  xe-sizer data train.jsonl --tokenizer models/llama-3.1-8b -o my-data.yaml
  xe-sizer data shard-*.parquet --tokenizer tokenizer.json --full
  xe-sizer estimate job.yaml --dataset my-data.yaml
"""
_MOST = {"sample": 1_000_000, "seed": 2**63 - 1, "tokens-per-message": 10_000}
_SAMPLE = 1000
FilesArgument = Annotated[
    list[str] | None, typer.Argument(metavar="FILE...", help="Files of samples, read as one data set.")
]
TokenizerOption = Annotated[
    str | None,
    typer.Option(
        "--tokenizer", metavar="PATH", help="A tokenizer.json, or a folder with one; its chat template is applied."
    ),
]
FullOption = Annotated[bool, typer.Option("--full", help="Tokenise every sequence.")]
SampleOption = Annotated[
    str | None, typer.Option("--sample", metavar="N", help="Sequences to tokenise. Default: 1,000.")
]
SeedOption = Annotated[str | None, typer.Option("--seed", metavar="N", help="Of the sample. Default: 0.")]
FieldOption = Annotated[
    str | None, typer.Option("--field", metavar="NAME", help="Key of a row that holds its text, messages or token ids.")
]
PerMessageOption = Annotated[
    str | None,
    typer.Option(
        "--tokens-per-message", metavar="N", help="Added to each message in place of a chat template. Default: 5."
    ),
]


@app.command("data", cls=TextCommand, help=_HELP)
def data_command(
    files: FilesArgument = None,
    tokenizer: TokenizerOption = None,
    full: FullOption = False,
    sample: SampleOption = None,
    seed: SeedOption = None,
    field: FieldOption = None,
    tokens_per_message: PerMessageOption = None,
    format_: FormatOption = None,
    output: FileOption = None,
    color: ColorOption = "auto",
    brief: BriefOption = False,
) -> int:
    profiles = [name for name in output or () if name.lower().endswith(YAML_ENDINGS)]
    reports = [name for name in output or () if name not in profiles]
    how = Invocation.of(format_, reports or None, color, brief=brief)
    if not files:
        raise InputError(Problem("a file of samples is missing", hint="xe-sizer data train.jsonl"))
    if full and sample is not None:
        raise InputError(Problem("--full tokenises every sequence", Location("--full"), "leave out --sample"))
    numbers = {"sample": sample, "seed": seed, "tokens-per-message": tokens_per_message}
    given = {name: _number(name, text) for name, text in numbers.items() if text is not None}
    names = [_profile_name(file) for file in profiles]

    from xe_sizer.datasets.profile import Asked, build_profile, measure, profile_yaml
    from xe_sizer.studies.data import data_statistics

    asked = Asked(
        tokenizer=None if tokenizer is None else at_home(tokenizer),
        field=field,
        per_message=given.get("tokens-per-message"),
        sample=None if full else given.get("sample", _SAMPLE),
        seed=given.get("seed", 0),
    )
    with Progress() as progress:
        measured = measure([Path(file) for file in files], asked, progress.bytes)
    answer = data_statistics(measured)
    texts = [profile_yaml(build_profile(measured, name), answer.warnings) for name in names]
    write_texts(zip(map(Path, profiles), texts, strict=True))
    return how.write(answer, about=files[0] if len(files) == 1 else None)


def _number(option: str, text: str) -> int:
    """A whole number. Raises InputError."""
    least = 40 if option == "sample" else 0
    plain = text.strip().replace(",", "")
    if not (plain.isascii() and plain.isdigit()) or not least <= int(plain[:20]) <= _MOST[option]:
        message = f"'{text}' is no whole number from {least} to {_MOST[option]:,}"
        raise InputError(Problem(message, Location(f"--{option}")))
    return int(plain)


def _profile_name(file: str) -> str:
    """The name of a profile, which is that of its file. Raises InputError: no profile can have it."""
    from xe_sizer.datasets.profile import NAME, profile_name

    stem = Path(file).stem
    if NAME.fullmatch(stem) is None:
        hint = f"for example {profile_name(Path(file))}{Path(file).suffix}"
        raise InputError(Problem(f"'{stem}' cannot be the name of a profile", Location("--output"), hint))
    return stem
