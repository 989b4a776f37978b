"""`xe-sizer import`: configurations and launch commands of other tools as a scenario."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xe_sizer.cli.command import profile_folders, read_flags, say_what_is_lost
from xe_sizer.cli.options import ProfilesOption
from xe_sizer.cli.output import check_choice, one_file, print_problems, write_stdout, write_texts
from xe_sizer.cli.text import TextCommand
from xe_sizer.errors import EXIT_BAD_INPUT, EXIT_OK, InputError, Location, Problem
from xe_sizer.interop.source import JSON, YAML, Asked

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

app = typer.Typer(add_completion=False)
_HELP = """Read the configuration or launch command of another tool as a scenario.

Every value says where it comes from: a line of the file, a default of the tool, or an assumption. Keys that change
memory or time and have no counterpart are listed. What the files do not say has to be passed, usually --gpus.
Several files of one job are read together. estimate, plan, serve and check take such files directly too.

\b
Examples:
  xe-sizer import axolotl.yml --gpus 8 -o job.yaml
  xe-sizer import train.sh --set NNODES=4 --server dell-xe9680-h200
  xe-sizer import serve.sh --from vllm --format json
"""
FilesArgument = Annotated[
    list[str] | None, typer.Argument(metavar="FILE...", help="Configurations and launch scripts of one job.")
]
FromOption = Annotated[
    str | None,
    typer.Option("--from", metavar="TOOL[@VERSION]", help="The tool whose file it is, and its release."),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="VAR=VALUE", help="Value of a variable in a script or template; may be repeated."),
]
FormatOption = Annotated[
    str | None, typer.Option("--format", "-f", metavar="yaml|json", help="A scenario file, or JSON with the origins.")
]
OutputOption = Annotated[
    list[str] | None, typer.Option("--output", "-o", metavar="FILE", help="Write to FILE instead of stdout.")
]


def _hardware(name: str, metavar: str, text: str) -> object:
    return typer.Option(f"--{name}", metavar=metavar, help=text)


@app.command("import", cls=TextCommand, help=_HELP)
def import_command(
    files: FilesArgument = None,
    from_: FromOption = None,
    model: Annotated[str | None, _hardware("model", "NAME", "Model, where the files name none.")] = None,
    gpus: Annotated[str | None, _hardware("gpus", "N", "Number of GPUs.")] = None,
    nodes: Annotated[str | None, _hardware("nodes", "N", "Number of servers.")] = None,
    gpu: Annotated[str | None, _hardware("gpu", "NAME", "Accelerator.")] = None,
    server: Annotated[str | None, _hardware("server", "NAME", "Server; instead of a GPU.")] = None,
    set_: SetOption = None,
    format_: FormatOption = None,
    output: OutputOption = None,
    profiles: ProfilesOption = None,
) -> int:
    if not files:
        raise InputError(Problem("a file is missing", hint="xe-sizer import axolotl.yml --gpus 8"))
    file = one_file(output)
    kind = check_choice("--format", format_ or _ending(file), (YAML, JSON))
    profile_folders(profiles, os.environ)
    hardware = read_flags({"model": model, "gpus": gpus, "nodes": nodes, "gpu": gpu, "server": server})
    tool, _, version = (from_ or "").partition("@")
    return _import(files, Asked(tool or None, version or None, hardware, _variables(set_ or ())), kind, file)


def _variables(texts: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise InputError(Problem(f"'{text}' sets no variable", Location("--set"), "as in --set NNODES=4"))
        found[name.strip()] = value
    return found


def _ending(file: Path | None) -> str:
    return JSON if file is not None and file.suffix.lower() == ".json" else YAML


def _import(files: Sequence[str], asked: Asked, kind: str, file: Path | None) -> int:
    """Write the scenario; where something is missing only JSON on stdout, which says so too.

    Raises InputError: a value of the files is none that a scenario can have.
    """
    from xe_sizer.interop.read import as_yaml, read_foreign
    from xe_sizer.scenario.read import read_scenario

    imported = read_foreign([Path(name) for name in files], asked)
    place = Location(str(imported.path))
    problems = [
        Problem(f"'{each.key}' is missing: {each.why}", place, f"pass {each.hint}") for each in imported.missing
    ]
    if problems:
        if kind == JSON and file is None:
            write_stdout(imported.as_json())
        print_problems(problems)
        return EXIT_BAD_INPUT
    read_scenario(imported.path, {}, {}, lambda _: imported.document())
    write_texts([(file, imported.as_json() if kind == JSON else as_yaml(imported))])
    say_what_is_lost(imported)
    return EXIT_OK
