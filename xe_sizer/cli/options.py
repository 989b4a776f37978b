"""Options of the command line, made from the keys of scenarios as the schema declares them."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer

import xe_sizer.training.jobs  # noqa: F401
from xe_sizer.cli.output import write_stdout
from xe_sizer.errors import InputError, Location, Problem, collecting
from xe_sizer.immutable import Immutable
from xe_sizer.profiles.convert import number_hint
from xe_sizer.profiles.finder import KINDS, Finder
from xe_sizer.profiles.text import parse_scalar
from xe_sizer.scenario.options import ALL_OPTIONS, OPTION_OF, OPTIONS, SERVE_OPTIONS
from xe_sizer.scenario.quantities import quantity
from xe_sizer.scenario.schema import KEYS, Key
from xe_sizer.scenario.schema import SERVING as OF_SERVICES

# What a shell may put in place of a word that is begun: options' words, names of profiles, files.
#
# Imported when a shell asks, never by a command.

_BESIDE = {  # options and arguments that set no key
    "--among": ("gpu", "server"),
    "name": tuple(KINDS),
}
_FIXED = {"--color": ("auto", "always", "never"), "kind": tuple(KINDS)}


def completions(parameter: Any, begun: str) -> list[str] | None:
    """Words that complete what is begun; None where the shell should complete names of files.

    parameter : an option or an argument, as the parser has it
    """
    name = parameter.name if parameter.param_type_name == "argument" else parameter.opts[0]
    words = _words(name)
    if words is None or begun.startswith((".", "/", "~")):
        return None
    first, comma, last = begun.rpartition(",")  # of a list, the item that is begun
    return [f"{first}{comma}{word}" for word in words if word.startswith(last.lower())]


def _words(name: str) -> Iterable[str] | None:
    if name in _FIXED:
        return _FIXED[name]
    if name == "--format":
        from xe_sizer.report.registry import format_names

        return format_names()
    if name in _BESIDE:
        return _profiles(_BESIDE[name])
    option = name.removeprefix("--")
    key = OPTIONS.get(option) or SERVE_OPTIONS.get(option)
    if key is None:
        return None
    kinds = tuple(kind.name for kind in KINDS.values() if kind.scenario_key == key)
    return _profiles(kinds) if kinds else described(key).choices or KEYS[key].item_names()


def _profiles(kinds: Iterable[str]) -> list[str]:
    """Names of profiles, those in the folders of XE_SIZER_PROFILES among them."""
    folders = os.environ.get("XE_SIZER_PROFILES", "").split(os.pathsep)
    finder = Finder([Path(folder) for folder in folders if folder])
    return [name for kind in kinds for name in finder.names(kind)]


FIRST_PANELS = (
    "Job", "Hardware", "Load", "Data", "Training", "Limits and prices",  # what most people set comes first
    "Formats", "Engine", "Speculation", "Prefill and decode apart",
)  # fmt: skip
COMMON = frozenset({
    "model", "job", "adapter", "stack", "precision", "optimizer",
    "server", "gpu", "gpus",
    "dataset", "samples", "mean-tokens", "tokens",
    "steps", "epochs", "global-batch", "micro-batch", "seq-len", "padding",
    "max-hours", "max-cost", "max-gpus", "confidence", "price-per-gpu-hour", "capex-per-server", "kwh-price",
    "tp", "pp", "zero", "recompute", "offload", "lora-rank",
    "request-rate", "concurrency", "users", "think-time", "input-tokens", "output-tokens", "prefix-hit-share", "fit",
    "ttft", "tpot", "objective", "weights", "kv-cache", "engine", "gpu-memory-utilization",
    "max-model-len",
})  # fmt: skip
"""Options that `--help` lists, so that a page fits two screens; `--help-all` and docs/reference/options.md list all."""
FIRST_OF_SERVICES = ("serve.users", "serve.input_tokens", "serve.output_tokens")
TEXT, TEXTS, FLAG = str | None, list[str] | None, bool | None
PRICES = "cost.price_per_gpu_hour"
EXAMPLES = {
    "--price": "h100-sxm-80gb=2.5",
    "--price-per-gpu-hour": "h100-sxm-80gb=2.5",
    "--capex-per-server": "dell-xe9680-h100=290000",
}
_LONGEST_METAVAR = 12
MOST_NAMED = 8  # choices of an option that its help names
_METAVARS = {str: "NAME", int: "N", float: "X", tuple: "A,B,..."}
ScenarioArgument = Annotated[str | None, typer.Argument(metavar="SCENARIO.yaml", help="The scenario file; - is stdin.")]
FormatOption = Annotated[str | None, typer.Option("--format", "-f", metavar="FORMAT", rich_help_panel="Output")]
FileOption = Annotated[
    list[str] | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write to FILE or, say, json:FILE; may be repeated.",
        rich_help_panel="Output",
    ),
]
ColorOption = Annotated[
    str,
    typer.Option(
        "--color",
        metavar="WHEN",
        help="auto, always or never; see also NO_COLOR.",
        rich_help_panel="Output",
        hidden=True,
    ),
]
ExplainOption = Annotated[
    list[str] | None,
    typer.Option(
        "--explain",
        metavar="PART",
        help="How it adds up: memory, time, operators, data, sources or all; may be repeated.",
        rich_help_panel="Output",
    ),
]
BriefOption = Annotated[
    bool,
    typer.Option("--brief", help="The answer in at most 14 lines.", rich_help_panel="Output"),
]
ExitZeroOption = Annotated[
    bool, typer.Option("--exit-zero", help="Return 0 even if the answer is no.", rich_help_panel="Output")
]
PriceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--price",
        metavar="NAME=X",
        help="Price of one GPU for one hour, of this GPU or server; may be repeated.",
        rich_help_panel="Limits and prices",
        hidden=True,
    ),
]
DownloadOption = Annotated[
    bool,
    typer.Option(
        "--download",
        help="Fetch an unknown model's config.json.",
        rich_help_panel="Job",
    ),
]
ProfilesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--profiles",
        metavar="DIR",
        help="Folder of your own profiles; may be repeated.",
        rich_help_panel="Hardware",
    ),
]


def _show_all(ctx: typer.Context, wanted: bool) -> None:
    """Help with the options that it leaves out otherwise."""
    if wanted and not ctx.resilient_parsing:
        for parameter in ctx.command.params:
            vars(parameter)["hidden"] = False
        write_stdout(f"{ctx.get_help()}\n")
        raise typer.Exit


HelpAllOption = Annotated[
    bool,
    typer.Option("--help-all", help="Show all options and exit.", is_eager=True, callback=_show_all),
]


class CommandKind(Immutable):
    """A kind of question: its options with their keys, and what to say where none of them is given.

    serving : whether a service is asked for; None: as the scenario says
    """

    options: Mapping[str, str]
    nothing: str
    hint: str
    serving: bool | None


TRAINING = CommandKind(
    OPTIONS,
    "there is nothing to size",
    "name a scenario file, or start with --model llama-2-7b --gpu h100-sxm-80gb --gpus 8",
    serving=False,
)
SERVING = CommandKind(
    SERVE_OPTIONS,
    "there is nothing to serve",
    "name a scenario file, or start with --model llama-3.1-8b --gpu h100-sxm-80gb --request-rate 5",
    serving=True,
)
EITHER = CommandKind(ALL_OPTIONS, TRAINING.nothing, TRAINING.hint, serving=None)
"""Studies of jobs and of services alike."""
EXPORTING = CommandKind(ALL_OPTIONS, TRAINING.nothing, TRAINING.hint, serving=False)
"""What `export` takes: a job of either wing, as its scenario says."""


class ScenarioOption(Immutable):
    """The option of a scenario key. `kind` is str, int, float, bool or tuple; `choices` are words."""

    key: Key
    name: str
    kind: type
    metavar: str
    help: str
    choices: tuple[str, ...] = ()

    @property
    def parameter(self) -> str:
        return self.name.replace("-", "_")


def scenario_options(asking: CommandKind) -> tuple[ScenarioOption, ...]:
    order = {panel: place for place, panel in enumerate(FIRST_PANELS)}
    options = map(described, asking.options.values())
    return tuple(sorted(options, key=lambda option: order.get(option.key.panel, len(order))))


def option_and_value(text: str) -> tuple[str, str, str]:
    """`tp=8` as (tp, =, 8); options may be written as flags or with underscores."""
    name, equals, value = text.partition("=")
    return name.strip().removeprefix("--").replace("_", "-"), equals, value


def with_names(flags: Mapping[str, object], prices: Sequence[str] | None) -> dict[str, object]:
    """Flags of keys that hold one number or a number for each name: `X`, or every `NAME=X` as one mapping.

    prices : of --price, which takes names alone
    Raises InputError with all that is wrong of them.
    """
    problems: list[Problem] = []
    found = dict(flags)
    for key in (key for key in flags if KEYS[key].by_name):
        texts, option = flags[key], f"--{OPTION_OF[key]}"
        if isinstance(texts, list):
            alone = len(texts) == 1 and "=" not in texts[0]
            found[key] = texts[0] if alone else _by_name(texts, option, f"{option} X alone", problems)
    if prices and flags.get(PRICES) is not None:
        twice = "--price and --price-per-gpu-hour say the same"
        problems.append(Problem(twice, Location("--price"), "give one of them"))
    elif prices:
        found[PRICES] = _by_name(prices, "--price", f"--{OPTION_OF[PRICES]} X", problems)
    if problems:
        raise InputError(problems)
    return found


def _by_name(texts: Sequence[str], option: str, of_all: str, problems: list[Problem]) -> dict[str, object]:
    """Every `NAME=X` as one mapping; what names nothing or gives no number is added to the problems.

    of_all : what gives one number for all names
    """
    found: dict[str, object] = {}
    for text in texts:
        name, _, value = (part.strip() for part in text.rpartition("="))
        with collecting(problems):
            price = found[name] = quantity(value, option, float, share=False)
            if isinstance(price, str):
                price = found[name] = parse_scalar(value)
            if not isinstance(price, int | float):
                meant = number_hint(price) if name and isinstance(price, str) else None
                hint = f"{name}: {meant}" if meant else f"write NAME=PRICE, for example {EXAMPLES[option]}"
                problems.append(Problem(f"'{text}' is no name with a price", Location(option), hint))
            elif not name:
                hint = f"write NAME=PRICE, or use {of_all.replace('X', value)}"
                problems.append(Problem(f"'{text}' is a price without a name", Location(option), hint))
    return found


def declared(option: ScenarioOption, asking: CommandKind) -> inspect.Parameter:
    """The option as a parameter of a command; as its default, which typer reads faster than annotations.

    The help of what takes jobs and services alike lists what of a service most people set, and that of serve the rest.
    """
    flag = option.kind is bool
    rest = asking.serving is None and option.key.wing == OF_SERVICES and option.key.name not in FIRST_OF_SERVICES
    default = typer.Option(
        None,
        f"--{option.name}/--no-{option.name}" if option.key.two_way else f"--{option.name}",
        help=option.help,
        metavar=None if flag else option.metavar,
        rich_help_panel=option.key.panel,
        show_default=False,
        hidden=option.name not in COMMON or rest,
    )
    annotation = FLAG if flag else TEXTS if option.key.by_name else TEXT
    return inspect.Parameter(option.parameter, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


@cache
def described(key: str) -> ScenarioOption:
    """The option of a dotted key that has one."""
    known = KEYS[key]
    kind, choices = known.form()
    metavar, help_ = _METAVARS.get(kind, ""), f"{known.description}."
    if choices:
        metavar = "|".join(str(choice) for choice in choices)
    if len(metavar) > _LONGEST_METAVAR:
        named = choices if len(choices) <= MOST_NAMED else choices[:MOST_NAMED]
        more = " ..." if len(named) < len(choices) else "."
        metavar, help_ = "CHOICE", f"{help_} One of {', '.join(named)}{more}"
    return ScenarioOption(known, OPTION_OF[key], kind, metavar, help_, tuple(map(str, choices)))
