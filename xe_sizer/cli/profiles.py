"""`xe-sizer profiles`: what is known, where it comes from, and whether your own files are sound."""

from __future__ import annotations

import csv
import io
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from xe_sizer.cli import catalogue
from xe_sizer.cli.failures import print_problems
from xe_sizer.cli.options import ColorOption, FileOption, ProfilesOption, profile_folders
from xe_sizer.cli.output import Output, check_choice, output_from
from xe_sizer.cli.text import TextCommand, TextGroup
from xe_sizer.errors import EXIT_BAD_INPUT, EXIT_OK, InputError, Problem
from xe_sizer.profiles.finder import KINDS
from xe_sizer.profiles.registry import Registry
from xe_sizer.report.document import Document
from xe_sizer.report.format import plural
from xe_sizer.result.common import SCHEMA_VERSION

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


@app.command("list", cls=TextCommand, help="List profiles with their key figures.")
def list_command(
    kind: Annotated[
        str | None,
        typer.Argument(metavar="|".join(KINDS), help="Only this kind, or a part of a name."),
    ] = None,
    part: Annotated[str | None, typer.Argument(metavar="PART", help="Only names with PART in them.")] = None,
    profiles: ProfilesOption = None,
    format_: Annotated[str | None, typer.Option("--format", "-f", metavar="table|json|csv")] = None,
    output: FileOption = None,
    color: ColorOption = "auto",
) -> int:
    target = output_from(format_, output, color)
    check_choice("--format", target.format, ("table", "json", "csv"))
    if kind is not None and part is not None:
        check_choice("profiles list", kind, tuple(KINDS))
    kinds = (kind,) if kind in tuple(KINDS) else tuple(KINDS)
    wanted = part or ("" if kind is None or kind in tuple(KINDS) else kind)
    registry = Registry(profile_folders(profiles, os.environ))
    found = catalogue.entries(registry, kinds, wanted)
    target.write(_list_text(found, target))
    _say_unused(registry, kinds)
    return EXIT_OK


def _say_unused(registry: Registry, kinds: Iterable[str]) -> None:
    """Names that several files have, to stderr."""
    for kind in kinds:
        for used, unused in registry.unused(kind):
            print(f"note: {kind} '{used.stem}' is {used}; {unused} is not used", file=sys.stderr)


def _list_text(found: tuple[catalogue.Entry, ...], target: Output) -> str:
    if target.format == "table":
        return _table_text(catalogue.list_document(found), target)
    rows = [{"kind": entry.kind, "name": entry.name, **_flat(entry)} for entry in found]
    if target.format == "json":
        return _json_text({"schema_version": SCHEMA_VERSION, "profiles": rows})
    out = io.StringIO()
    writer = csv.DictWriter(out, list(dict.fromkeys(key for row in rows for key in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _flat(entry: catalogue.Entry) -> dict[str, Any]:
    return {key.replace(".", "_"): value for key, value in entry.figures.items()}


@app.command("show", cls=TextCommand, help="Show every figure of a profile with its source.")
def show_command(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="A name, an alias or a file.")] = None,
    profiles: ProfilesOption = None,
    format_: Annotated[str | None, typer.Option("--format", "-f", metavar="table|json|yaml")] = None,
    output: FileOption = None,
    color: ColorOption = "auto",
) -> int:
    from xe_sizer.profiles.source import load_yaml, read_text

    target = output_from(format_, output, color)
    check_choice("--format", target.format, ("table", "json", "yaml"))
    if name is None:
        raise InputError(Problem("a profile name is missing", hint="'xe-sizer profiles list' prints all"))
    kind, path = catalogue.locate(Registry(profile_folders(profiles, os.environ)), name)
    if target.format == "yaml":
        target.write(read_text(path))
    elif target.format == "json":
        target.write(_json_text(load_yaml(path).value))
    else:
        target.write(_table_text(catalogue.show_document(kind, path), target))
    return EXIT_OK


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
    return [(kind, registry.path(kind, name)) for kind in KINDS for name in registry.names(kind)]


@app.command("schema", cls=TextCommand, help="Print the JSON Schema of a kind of file, for editors and CI.")
def schema_command(
    what: Annotated[str | None, typer.Argument(metavar="|".join(_SCHEMAS))] = None,
    output: FileOption = None,
) -> int:
    target = output_from("json", output, "never")
    if what is None:
        raise InputError(Problem("a kind of file is missing", hint=f"one of {', '.join(_SCHEMAS)}"))
    kind = check_choice("profiles schema", what, _SCHEMAS)
    schema = _schema(kind)
    target.write(_json_text({"$schema": _DIALECT, "title": f"xe-sizer {kind}", **schema}))
    return EXIT_OK


def _schema(kind: str) -> dict[str, Any]:
    from xe_sizer.profiles.convert import json_schema
    from xe_sizer.profiles.dataset import DatasetProfile
    from xe_sizer.profiles.fabric import FabricProfile
    from xe_sizer.profiles.gpu_schema import GpuProfile
    from xe_sizer.profiles.model_schema import ModelProfile
    from xe_sizer.profiles.server import ServerProfile
    from xe_sizer.result.serving import ServeResult
    from xe_sizer.result.studies import Comparison, PlanResult, Scaling, Sensitivity, SweepResult
    from xe_sizer.result.training import Result
    from xe_sizer.scenario.read import scenario_json_schema
    from xe_sizer.software.engine import Engine
    from xe_sizer.software.stack import Stack

    if kind == "scenario":
        return scenario_json_schema()
    hardware = {"gpu": GpuProfile, "server": ServerProfile, "fabric": FabricProfile}
    kinds = {**hardware, "model": ModelProfile, "dataset": DatasetProfile, "stack": Stack, "engine": Engine}
    answers = {"plan": PlanResult, "comparison": Comparison, "sensitivity": Sensitivity, "scaling": Scaling}
    types = {**kinds, **answers, "result": Result, "sweep": SweepResult, "serve-result": ServeResult}
    return json_schema(types[kind])


def _table_text(document: Document, target: Output) -> str:
    from xe_sizer.report.formats.table import render_document

    return render_document(document, target.options())


def _json_text(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"
