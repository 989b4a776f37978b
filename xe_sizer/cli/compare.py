"""`xe-sizer compare`: jobs or services side by side, on several GPUs, methods, stacks, formats or layouts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xe_sizer.cli.command import Invocation, answering
from xe_sizer.cli.options import EITHER, option_and_value
from xe_sizer.cli.render import from_outside, read_answer
from xe_sizer.cli.text import TextCommand
from xe_sizer.errors import InputError, Location, Problem, collecting, did_you_mean
from xe_sizer.interop.files import is_foreign
from xe_sizer.profiles.text import STDIN, YAML_ENDINGS
from xe_sizer.result.common import Sized
from xe_sizer.scenario.options import ALL_OPTIONS
from xe_sizer.scenario.read import flags_with
from xe_sizer.scenario.scenario import Scenario

if TYPE_CHECKING:
    from xe_sizer.result.common import Answer

AS_ASKED = "as asked"
app = typer.Typer(add_completion=False)
_HELP = """Compare alternatives side by side: verdict, GPUs, memory, time, cost, and the parts that differ most.

An alternative is a scenario file or one of another tool, a saved result (JSON of estimate or serve), or changes of the
job that the first of these files and the options describe. A file is an alternative too:
compare job.yaml server=dell-xe9680-h200 gpus=16,stack=nemo
unless it names no hardware and every change does: compare job.yaml server=dell-xe9680-h100 server=dell-xe9680-h200
What the options ask is the first alternative, "as asked", unless all others set what the options leave open:
compare --job sft ... job=lora, compare ... kv_cache=fp8 engine=sglang, but not compare ... weights=bf16 weights=fp8
Jobs that leave the GPUs open get as many as the others: those that one names, else the most that one needs.
Services are compared by what they take for their load: engine=vllm engine=sglang weights=fp8. All options of serve are
taken.

\b
Examples:
  xe-sizer compare job.yaml --gpus 16 job=sft job=lora job=qlora
  xe-sizer compare job.yaml gpu=h100-sxm-80gb gpu=b200 -o compared.html
  xe-sizer compare --model llama-3.1-70b --gpu h200 --users 500 --input-tokens 2000 weights=bf16 weights=fp8
"""
AlternativesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="A B...", help="Scenario files, saved results, or OPTION=VALUE[,OPTION=VALUE]."),
]


@app.command("compare", cls=TextCommand, help=_HELP)
@answering(EITHER)
def compare_command(*, alternatives: AlternativesArgument = None, flags: Mapping[str, object], how: Invocation) -> int:
    if not alternatives or (len(alternatives) < 2 and not _adds_what_was_asked(alternatives, flags)):
        hint = "xe-sizer compare --model llama-2-7b --gpus 8 gpu=h100-sxm-80gb gpu=a100-sxm-80gb"
        files = [text for text in alternatives or () if _is_saved(text) or _is_scenario(text)]
        missing = [Problem("no such file", Location(text)) for text in files if not Path(text).exists()]
        raise InputError([*missing, Problem("name at least two alternatives", hint=hint)])
    asked = _asked(alternatives, flags, how)

    from xe_sizer.studies.compare import compare, on_equal_gpus
    from xe_sizer.studies.estimate import answer_to

    with from_outside(list(filter(_is_saved, alternatives))):
        results = on_equal_gpus(asked, how.registry, answer_to)
        (name, first), *others = results
        if name == AS_ASKED and len(others) > 1 and any(_question(one) == _question(first) for _, one in others):
            results, asked = others, asked[1:]  # one of the others asks the same
        return how.write(compare(results, [one for _, one in asked]))


def _asked(
    alternatives: Sequence[str], flags: Mapping[str, object], how: Invocation
) -> list[tuple[str, Scenario | Sized]]:
    """Every alternative read. Raises InputError with the problems of all of them."""
    found: list[tuple[str, Scenario | Sized]] = []
    problems: list[Problem] = []
    base = next((text for text in alternatives if _is_scenario(text)), None)
    if _adds_what_was_asked(alternatives, flags):
        with collecting(problems):
            found.append((AS_ASKED, how.scenario(EITHER, None, flags)))
    for text in alternatives:
        with collecting(problems):
            found.append(_alternative(text, base, flags, how))
    if problems:
        raise InputError(list(dict.fromkeys(problems)))
    return [one for one in found if not _lacks_hardware(*one, base, alternatives)]


def _lacks_hardware(name: str, one: Scenario | Sized, base: str | None, alternatives: Sequence[str]) -> bool:
    """Whether the changes are made to it, the file or the options, and the hardware is what all of them bring."""
    if not isinstance(one, Scenario) or name != (AS_ASKED if base is None else Path(base).stem):
        return False
    changes = [text for text in alternatives if not _is_scenario(text) and not _is_saved(text)]
    named = [{key for key, _ in _changes(text)} & {"gpu", "server"} for text in changes]
    return one.values.gpu is None and one.values.server is None and len(changes) > 1 and all(named)


def _question(one: Sized) -> dict[str, object]:
    """What was sized: the resolved keys without where they come from."""
    return {key: value for key, value in one.scenario.items() if key not in ("origin", "names", "written_as")}


def _adds_what_was_asked(alternatives: Sequence[str], flags: Mapping[str, object]) -> bool:
    """Whether what the options ask is an alternative too, as a file is: not where all set what they leave open."""
    if any(_is_saved(text) or _is_scenario(text) for text in alternatives):
        return False
    changed = [{ALL_OPTIONS.get(option_and_value(part)[0]) for part in text.split(",")} for text in alternatives]
    return len(changed) == 1 or all(flags.get(key) is not None for key in set.intersection(*changed) if key)


def _alternative(
    text: str, base: str | None, flags: Mapping[str, object], how: Invocation
) -> tuple[str, Scenario | Sized]:
    """Name of one alternative with what it asks, or its result; changes are made to the scenario file `base`."""
    if _is_saved(text):
        answer: Answer = read_answer(text)
        if not isinstance(answer, Sized):
            raise InputError(Problem(f"this is a result of {answer.question}, not of estimate", Location(text)))
        return Path(text).stem, answer
    if _is_scenario(text):
        return Path(text).stem, how.scenario(EITHER, text, flags)
    return text, how.scenario(EITHER, base, flags_with(flags, dict(_changes(text))))


def _is_saved(text: str) -> bool:
    return Path(text).suffix.lower() == ".json" and not is_foreign(Path(text))


def _is_scenario(text: str) -> bool:
    """Whether an alternative is a scenario file, or a file of another tool where one is taken too."""
    return Path(text) == STDIN or Path(text).suffix.lower() in YAML_ENDINGS or is_foreign(Path(text))


def _changes(text: str) -> Iterator[tuple[str, str]]:
    """Scenario keys and values of `gpus=8,stack=nemo`. Raises InputError."""
    for part in text.split(","):
        name, equals, value = option_and_value(part)
        if not equals or name not in ALL_OPTIONS:
            hint = did_you_mean(name, ALL_OPTIONS) or "a scenario file, a saved result, or for example gpus=16"
            raise InputError(Problem(f"'{part}' is not an alternative", Location(text), hint))
        yield ALL_OPTIONS[name], value.strip()
