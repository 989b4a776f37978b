"""`xe-sizer profiles`: what is known, where it comes from, and whether your own files are sound."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from xe_sizer.cli import catalogue
from xe_sizer.cli.invocation import Invocation, answering, profile_folders
from xe_sizer.cli.options import ColorOption, FileOption, ProfilesOption
from xe_sizer.cli.output import Target, check_choice, one_file, output_from, write_texts
from xe_sizer.cli.streams import print_problems, write_stderr
from xe_sizer.cli.text import TextCommand, TextGroup
from xe_sizer.errors import EXIT_BAD_INPUT, EXIT_OK, InputError, Location, Problem, did_you_mean
from xe_sizer.profiles.finder import KINDS
from xe_sizer.profiles.registry import Registry
from xe_sizer.profiles.source import load_yaml
from xe_sizer.profiles.text_file import YAML_ENDINGS, read_text
from xe_sizer.report.document import Options
from xe_sizer.report.format import plural
from xe_sizer.report.formats import json
from xe_sizer.report.registry import formats

app = typer.Typer(
    cls=TextGroup,
    add_completion=False,
    no_args_is_help=True,
    help="List, show and validate profiles; print JSON Schemas.",
)
_SCHEMAS = (
    "scenario",
    "result",
    *KINDS,
    "plan",
    "comparison",
    "sensitivity",
    "scaling",
    "sweep",
    "serve-result",
)
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


SOURCE = "yaml"  # the format of `profiles show` that is the file as it stands
ShowFormatOption = Annotated[
    str | None,
    typer.Option("--format", "-f", metavar="FORMAT", help="table, markdown, html, json, or yaml: the file itself."),
]
KindArgument = Annotated[
    str | None,
    typer.Argument(metavar="|".join(KINDS), help="Only this kind, or a part of a name."),
]
PartArgument = Annotated[str | None, typer.Argument(metavar="PART", help="Only names with PART in them.")]


@app.command("list", cls=TextCommand, help="List profiles with their key figures.")
@answering(without=("download", "brief", "explain", "exit_zero"))
def list_command(*, kind: KindArgument = None, part: PartArgument = None, how: Invocation) -> int:
    if kind is not None and part is not None:
        check_choice("profiles list", kind, tuple(KINDS))
    kinds = (kind,) if kind in tuple(KINDS) else tuple(KINDS)
    wanted = part or ("" if kind is None or kind in tuple(KINDS) else kind)
    found, problems = catalogue.entries(how.registry, kinds, wanted)
    code = how.write(found)
    if problems:
        print_problems(problems)
        write_stderr("note: files with problems are not listed; 'xe-sizer profiles validate' checks them")
    _say_unused(how.registry, kinds)
    return code


def _say_unused(registry: Registry, kinds: Iterable[str]) -> None:
    """Names that several files have, to stderr."""
    for kind in kinds:
        for used, unused in registry.unused(kind):
            write_stderr(f"note: {kind} '{used.stem}' is {used}; {unused} is not used")


@app.command("show", cls=TextCommand, help="Show every figure of a profile with its source.")
def show_command(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="A name, an alias or a file.")] = None,
    profiles: ProfilesOption = None,
    format_: ShowFormatOption = None,
    output: FileOption = None,
    color: ColorOption = "auto",
) -> int:
    if name is None:
        raise InputError(Problem("a profile name is missing", hint="'xe-sizer profiles list' prints all"))
    kind, path = catalogue.locate(Registry(profile_folders(profiles, os.environ)), name)
    file = one_file(output)
    _check_showable(format_, file)
    if format_ == SOURCE or (format_ is None and file is not None and file.suffix.lower() in YAML_ENDINGS):
        write_texts([(file, read_text(path))])
        return EXIT_OK
    write_texts(
        (target.file, target.format.render(_shown(kind, path, target), target.options(color)))
        for target in output_from(format_, output, color).targets
    )
    return EXIT_OK


def _shown(kind: str, path: Path, target: Target) -> Any:
    """What the format lays out: all that the file says, or a document of it."""
    return load_yaml(path).value if target.format.whole else catalogue.show_document(kind, path)


def _check_showable(format_: str | None, file: Path | None) -> None:
    """A profile has neither verdicts nor rows, but its own file. Raises InputError for any other format or ending."""
    showing = [each for each in formats() if each.shows in ("answer", "document")]
    if format_ is not None:
        names = sorted((*(each.name for each in showing), SOURCE))
        if format_ not in names:
            hint = did_you_mean(format_, names) or f"one of {', '.join(names)}"
            raise InputError(Problem(f"'{format_}' cannot show a profile", Location("--format"), hint))
    elif file is not None and file.suffix:
        endings = sorted((*(ending for each in showing for ending in each.endings), *YAML_ENDINGS))
        if file.suffix.lower() not in endings:
            hint = f"known are {', '.join(endings)}; or name a format with --format"
            message = f"a profile cannot be shown in a file with the ending '{file.suffix}'"
            raise InputError(Problem(message, Location("--output"), hint))


@app.command("validate", cls=TextCommand, help="Check profile files as an estimate would read them.")
def validate_command(
    files: Annotated[list[str] | None, typer.Argument(metavar="FILE|all", help="Files, or all that are known.")] = None,
    profiles: ProfilesOption = None,
) -> int:
    if not files:
        raise InputError(Problem("a file is missing", hint="xe-sizer profiles validate all"))
    registry = Registry(profile_folders(profiles, os.environ))
    paths = _known_files(registry) if files == ["all"] else [(None, Path(name)) for name in files]
    bad = 0
    for kind, path in paths:
        try:
            catalogue.check(registry, kind or catalogue.kind_of(registry, path), path)
        except InputError as error:
            print_problems(error.problems)
            bad += 1
    if files == ["all"]:
        _say_unused(registry, KINDS)
    print(f"{plural(len(paths), 'profile')} read, {bad} with problems")
    return EXIT_BAD_INPUT if bad else EXIT_OK


def _known_files(registry: Registry) -> list[tuple[str | None, Path]]:
    known = [(kind, registry.path(kind, name)) for kind in KINDS for name in registry.names(kind)]
    return [*known, *((None, file) for file in registry.unreadable())]


@app.command("schema", cls=TextCommand, help="Print the JSON Schema of a kind of file, for editors and CI.")
def schema_command(
    what: Annotated[str | None, typer.Argument(metavar="|".join(_SCHEMAS))] = None,
    output: FileOption = None,
) -> int:
    if what is None:
        raise InputError(Problem("a kind of file is missing", hint=f"one of {', '.join(_SCHEMAS)}"))
    kind = check_choice("profiles schema", what, _SCHEMAS)
    file = one_file(output)
    if file is not None and file.suffix and file.suffix.lower() not in json.ENDINGS:
        hint = f"a schema is JSON; known is {', '.join(json.ENDINGS)}"
        raise InputError(Problem(f"a schema cannot have the ending '{file.suffix}'", Location("--output"), hint))
    schema = _schema(kind)
    text = json.render({"$schema": _DIALECT, "title": f"xe-sizer {kind}", **schema}, Options())
    write_texts([(file, text)])
    return EXIT_OK


def _schema(kind: str) -> dict[str, Any]:
    from xe_sizer.profiles.dataset import DatasetProfile
    from xe_sizer.profiles.fabric import FabricProfile
    from xe_sizer.profiles.fields import json_schema
    from xe_sizer.profiles.gpu_schema import GpuProfile
    from xe_sizer.profiles.model_schema import ModelProfile
    from xe_sizer.profiles.server import ServerProfile
    from xe_sizer.result.serving import ServeResult
    from xe_sizer.result.studies import Comparison, PlanResult, Scaling, Sensitivity, SweepResult
    from xe_sizer.result.training import Result
    from xe_sizer.scenario.schema import scenario_json_schema
    from xe_sizer.software.engine import Engine
    from xe_sizer.software.optimizer import Optimizer
    from xe_sizer.software.quantiser import Quantiser
    from xe_sizer.software.stack import Stack

    if kind == "scenario":
        return scenario_json_schema()
    hardware = {"gpu": GpuProfile, "server": ServerProfile, "fabric": FabricProfile}
    software = {"stack": Stack, "optimizer": Optimizer, "quantiser": Quantiser, "engine": Engine}
    kinds = {**hardware, "model": ModelProfile, "dataset": DatasetProfile, **software}
    answers = {"plan": PlanResult, "comparison": Comparison, "sensitivity": Sensitivity, "scaling": Scaling}
    types = {**kinds, **answers, "result": Result, "sweep": SweepResult, "serve-result": ServeResult}
    return json_schema(types[kind])
