"""`xe-sizer export`: the chosen plan as what another tool runs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xe_sizer.cli.command import Invocation, answer_to, answering, given_scenario
from xe_sizer.cli.options import EXPORTING
from xe_sizer.cli.output import one_file, one_line, write_stderr, write_texts
from xe_sizer.cli.text import TextCommand
from xe_sizer.errors import EXIT_DOES_NOT_FIT, EXIT_OK, InputError, Location, Problem
from xe_sizer.profiles.text import told
from xe_sizer.scenario.scenario import Scenario, serves

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.interop.write import Exported, Exporter, Plan
    from xe_sizer.profiles.catalogue import Registry
    from xe_sizer.result.common import Sized

app = typer.Typer(add_completion=False)
_HELP = """Write the chosen plan of a scenario as what another tool runs: a configuration or a launch command.

What the tool has no setting for is told; where the tool would run another plan, nothing is written.
All options of 'estimate' and 'serve' change the scenario. 'xe-sizer import' reads the files back.

\b
Examples:
  xe-sizer export job.yaml --to axolotl -o axolotl.yml
  xe-sizer export job.yaml --to slurm --gpus 16 --samples 20000
  xe-sizer export service.yaml --to vllm
  xe-sizer export service.yaml --to dynamo -o graph.yaml
"""
RATES = "--learning-rates"
_RATE = re.compile(r"[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]{1,3})?")
_ENDINGS = ((".yaml", ".yml"), (".sh", ".bash", ".slurm", ".sbatch"))  # of the same kind of file
ScenarioArgument = Annotated[str | None, typer.Argument(metavar="SCENARIO.yaml", help="The scenario file; - is stdin.")]
ToOption = Annotated[str | None, typer.Option("--to", metavar="TOOL", help="The tool that is to run the plan.")]
OutputOption = Annotated[
    list[str] | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write to FILE, and what it names beside it."),
]

AutoscaleOption = Annotated[
    bool,
    typer.Option("--autoscale", help="Replicas follow the requests in flight, up to those of the plan, by KEDA."),
]

RatesOption = Annotated[
    str | None,
    typer.Option("--learning-rates", metavar="RATES", help="Try these, 1e-5,3e-5: a run for each, as an array."),
]


@app.command("export", cls=TextCommand, help=_HELP)
@answering(EXPORTING, without=("format_", "output", "color", "brief", "explain", "exit_zero"))
def export_command(
    *,
    scenario: ScenarioArgument = None,
    to: ToOption = None,
    output: OutputOption = None,
    autoscale: AutoscaleOption = False,
    learning_rates: RatesOption = None,
    flags: Mapping[str, object],
    how: Invocation,
) -> int:
    from xe_sizer.interop.write import exporter_named, exporters

    if to is None:
        raise InputError(Problem("a tool is missing", Location("--to"), f"one of {', '.join(exporters())}"))
    if scenario is None and all(value is None for value in flags.values()):
        raise InputError(Problem("a scenario file is missing", hint=f"xe-sizer export job.yaml --to {to}"))
    exporter, file = exporter_named(to), one_file(output)
    _check_ending(exporter, file)
    asked = given_scenario(Path(scenario) if scenario else None, flags, os.environ, how.registry, None, brief=False)
    _check_wing(exporter, asked)
    if autoscale and not serves(asked):
        raise InputError(Problem("replicas are of services: this is training", Location("--autoscale")))
    rates = _rates(learning_rates)
    if rates and serves(asked):
        raise InputError(Problem("learning rates are of training: this is a service", Location(RATES)))
    answer = answer_to(asked, how.registry, details=serves(asked))  # pools and hours are details
    if not answer.verdict.fits:
        write_stderr(f"nothing is written: {_reasons(answer)}")
        return EXIT_DOES_NOT_FIT
    plan, exported = exported_plan(exporter, asked, answer, how.registry, autoscale, rates)
    again, notes = _what_came_back(exporter, exported, plan, asked, answer, how.registry)
    if again is not None and not again.verdict.fits:
        _say_that_it_does_not_fit(exporter, answer, again, notes)
        return EXIT_DOES_NOT_FIT
    _write(exported, file)
    _say_another_length(plan, answer)
    _say(exported, exporter, answer)
    for note in notes:
        write_stderr(f"note: {one_line(note)}")
    if exported.written.run:
        write_stderr(f"run: {exported.written.run.replace('FILE', str(file or f'FILE{exporter.ending}'))}")
    return EXIT_OK


def _rates(said: str | None) -> tuple[str, ...]:
    """Learning rates as they are written. Raises InputError: a word that is none, or one twice."""
    words = tuple(word.strip() for word in said.split(",")) if said is not None else ()
    problems = [
        Problem(f"'{word}' is no learning rate", Location(RATES), "numbers above 0, such as 1e-5,3e-5")
        for word in words
        if _RATE.fullmatch(word) is None or float(word) <= 0
    ]
    if not problems and len({float(word) for word in words}) < len(words):
        problems = [Problem("a learning rate stands there twice", Location(RATES))]
    if problems:
        raise InputError(problems)
    return words


def _check_ending(exporter: Exporter, file: Path | None) -> None:
    """Raises InputError where the name of a file says that it holds something else than the tool's files do."""
    alike = next((each for each in _ENDINGS if exporter.ending in each), (exporter.ending,))
    if file is not None and file.suffix and file.suffix.lower() not in alike:
        hint = f"name it {file.with_suffix(exporter.ending).name}"
        what = f"files for {exporter.title} end in {' or '.join(alike)}, not in {file.suffix}"
        raise InputError(Problem(what, Location("--output"), hint))


def _check_wing(exporter: Exporter, scenario: Scenario) -> None:
    """Raises InputError where the tool does not do what the scenario asks for."""
    serving = serves(scenario)
    if not (exporter.serving if serving else exporter.training):
        what = "training" if serving else "services"
        raise InputError(Problem(f"files for {exporter.title} are written for {what} alone", Location("--to")))


def exported_plan(
    exporter: Exporter,
    scenario: Scenario,
    answer: Sized,
    registry: Registry,
    autoscale: bool = False,
    rates: Sequence[str] = (),
) -> tuple[Plan, Exported]:
    """The plan that answers a scenario, and its files.

    autoscale : whether replicas are to follow the requests in flight
    rates : learning rates of which each is to have a run

    Raises
    ------
    InputError : the tool would run another plan
    """
    from msgspec import to_builtins

    from xe_sizer.interop.write import build_plan, export
    from xe_sizer.profiles.catalogue import published_as
    from xe_sizer.studies.estimate import length_to_start_with

    said = to_builtins(answer)
    repository = _repository(said["scenario"], registry)
    served = said["scenario"].get("serve") or {}
    if drafter := served.get("draft_model"):
        served["draft_model"] = published_as(drafter, registry) or drafter
    if served and (length := length_to_start_with(scenario, registry)) is not None:
        served["max_model_len"] = length
    asked = {key: to_builtins(attrgetter(key)(scenario.values)) for key in scenario.origin}
    whole = {key: value for key, value in asked.items() if value is not None and not isinstance(value, dict)}
    if autoscale and not (said.get("per_replica") or {}).get("concurrency"):
        what = "how many requests of a replica are in flight is not known: they wait longer and longer, or none arrives"
        raise InputError(Problem(what, Location("--autoscale"), "give --request-rate, --users or --concurrency"))
    shape = _shape(scenario, registry)
    plan = build_plan(said, repository, whole, shape, lambda key: _place(scenario, key), autoscale, rates)
    return plan, export(plan, exporter)


def _place(scenario: Scenario, key: str) -> Location | None:
    """Where the user wrote a key; None where he did not."""
    return scenario.locate(tuple(key.split("."))) if key in scenario.origin else None


def _shape(scenario: Scenario, registry: Registry) -> ModelShape:
    """The shape of the model, which may be one of the user's own."""
    from xe_sizer.profiles.model import inline_model
    from xe_sizer.scenario.provenance import relative

    model = scenario.values.model
    if not isinstance(model, str):
        return inline_model(model, scenario.locate)
    return registry.model(relative(scenario, "model", model))


def _repository(scenario: Mapping[str, Any], registry: Registry) -> str | None:
    """Where the model lies on the Hub: as the user named it, else as its profile says."""
    from xe_sizer.profiles.catalogue import published_as
    from xe_sizer.profiles.finder import is_repository

    written = (scenario.get("written_as") or {}).get("model")
    if written and "/" in written and is_repository(written):
        return str(written)
    return published_as(str(scenario["model"]), registry)


def _write(exported: Exported, file: Path | None) -> None:
    """The text, and beside a file what it names; on stdout the text alone."""
    written = exported.written
    if file is not None:
        beside = [(file.with_name(name), text) for name, text in written.beside.items()]
        replaced = _replaced(file, beside)
        write_texts([(file, written.text), *beside])
        for each in replaced:
            write_stderr(f"note: {one_line(str(each))}, which an earlier {one_line(file.name)} named, is replaced")
        return
    write_texts([(None, written.text)])
    if written.beside:
        write_stderr(f"note: {', '.join(written.beside)} belongs beside it; -o FILE writes all of them")


def _replaced(file: Path, beside: Sequence[tuple[Path, str]]) -> list[Path]:
    """Files that are there with another text and that go with an earlier one of the file's name, which names them.

    Raises InputError: others are somebody else's, whom -o does not name.
    """
    there = [each for each, text in beside if each.exists() and _read_text(each) != text]
    earlier = _read_text(file)
    problems = [
        Problem(
            f"{each.name}, which {file.name} is to name, is there and holds something else",
            Location(str(each)),
            "move it away, or export into another folder",
        )
        for each in there
        if each.name not in earlier
    ]
    if problems:
        raise InputError(problems)
    return there


def _read_text(file: Path) -> str:
    """What a file holds; nothing where it is not there, or is no text."""
    try:
        return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    except OSError:
        return ""


def _say_another_length(plan: Plan, answer: Sized) -> None:
    """That the longest sequence is shorter than the model's, for which the engine would not start."""
    key = "max_model_len"
    written, longest = plan.peek(f"serve.{key}"), (answer.scenario.get("serve") or {}).get(key)
    if written is not None and longest is not None and written != longest:
        what = f"the KV cache of a replica does not hold one sequence of {longest:,} tokens (the model's maximum)"
        write_stderr(f"note: serve.{key} is {written:,} in what was written: {what}")


def _say(exported: Exported, exporter: Exporter, answer: Sized) -> None:
    """What is the user's to add, what the tool has no setting for, and what was assumed."""
    from xe_sizer.interop.write import ASSUMED, is_elsewhere

    for each in exported.yours:
        write_stderr(f"note: yours to add: {each}")
    for each in exported.written.told:
        write_stderr(f"note: {one_line(each)}")
    for key, value in exported.unsaid:
        write_stderr(f"note: {exporter.title} has no setting for {key}: {one_line(told(value))}; its own applies")
    assumed = [
        key
        for key, origin in answer.scenario["origin"].items()
        if origin == ASSUMED and key.startswith("train.") and key != "train.steps" and not is_elsewhere(key)
    ]
    if assumed:
        write_stderr(f"note: written as assumed: {', '.join(assumed)}")


def _what_came_back(
    exporter: Exporter, exported: Exported, plan: Plan, scenario: Scenario, answer: Sized, registry: Registry
) -> tuple[Sized | None, list[str]]:
    """The answer to an import of the files, and what it says otherwise than the scenario; None where there is none."""
    from xe_sizer.cli.read_back import answer_again, compared, differences, read_back

    hardware = {key: answer.scenario[key] for key in ("server", "gpu") if key in scenario.origin}
    notes: list[str] = []
    try:
        imported = read_back(exported, exporter, hardware | {"gpus": plan.peek("gpus")})
        if imported is None:
            return None, notes
        for key, wanted, found in differences(plan, exported, imported, registry):
            what = f"{key}, which the scenario leaves open," if wanted is None else f"{key}: {told(wanted)}"
            notes.append(f"{what} is {'not' if found is None else told(found)} in what was written")
        again = answer_again(imported, scenario, registry)
    except InputError as error:
        return None, [*notes, f"what was written is not compared with the scenario: {error.problems[0].message}"]
    other = compared(again, answer)
    return again, notes if other is None else [*notes, other]


def _say_that_it_does_not_fit(exporter: Exporter, answer: Sized, again: Sized, notes: Iterable[str]) -> None:
    """That a plan that fits does not as the tool would run it, and what differs there."""
    write_stderr(f"nothing is written: the plan does not fit as {exporter.title} would run it: {_reasons(again)}")
    for note in notes:
        write_stderr(f"note: {one_line(note.replace('what was written', 'what would be written'))}")
    theirs = again.scenario.get("stack")
    if theirs is not None and theirs != answer.scenario.get("stack"):
        write_stderr(f"hint: --stack {theirs} makes the plan for {exporter.title}")


def _reasons(answer: Sized) -> str:
    """Why a plan does not fit."""
    return one_line("; ".join(reason.message for reason in answer.verdict.reasons) or "the plan does not fit")
