"""Options as the text they were given.

The scenario layer turns text into values and reports all problems at once. Typer's own conversion would stop
at the first, and imports pydantic for it (even to find that --help was not asked for), which takes longer than
all the rest of the start-up.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from typer.core import TyperCommand, TyperGroup

from xe_sizer.errors import InputError, Problem, did_you_mean
from xe_sizer.immutable import Immutable

_YES, _NO = ("true", "yes", "on"), ("false", "no", "off")


def as_text(parameter: Any) -> Any:
    """Make `parameter` (an option or argument of typer) pass on text, flags and lists without conversion."""

    def process_value(ctx: Any, value: Any) -> Any:
        several = parameter.nargs == -1 or getattr(parameter, "multiple", False)
        if not isinstance(value, str | bool | list | tuple):
            value = () if several else None  # older parsers mark "not given" in ways of their own
        return parameter.callback(ctx, parameter, value) if parameter.callback else value

    def complete(ctx: Any, begun: str) -> list[Completion]:
        from xe_sizer.cli.options import completions

        found = completions(parameter, begun)  # None: no words are known, so the shell completes file names
        return [Completion(begun, "file")] if found is None else list(map(Completion, found))

    vars(parameter)["process_value"] = process_value
    vars(parameter)["shell_complete"] = complete
    vars(parameter)["display_type_rich"] = lambda ctx: _value_word(parameter)
    return parameter


class Completion(Immutable):
    """A word for a shell. Typer looks at these attributes; its own class is not where older releases have it."""

    value: str
    type: str = "plain"
    help: str | None = None


def _value_word(parameter: Any) -> str | None:
    """What help shows beside an option: the word for its value, where typer would show Python's types.

    Nothing for switches, and for arguments, whose name is that word.
    """
    if getattr(parameter, "is_flag", False) or parameter.param_type_name == "argument":
        return None
    return str(parameter.metavar or "VALUE")


class _AsText:
    """Before a command class of typer: its options and arguments all arrive as text, flags or lists."""

    params: list[Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for parameter in self.params:
            as_text(parameter)

    def get_help_option(self, ctx: Any) -> Any:
        option = super().get_help_option(ctx)  # type: ignore[misc]  # of the class behind
        return as_text(option) if option else None


class TextGroup(_AsText, TyperGroup):
    """A group of commands with its own options as text."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Raises InputError for a command that the group does not have."""
        known = self.list_commands(ctx)
        if args[0] not in known and not args[0].startswith("-") and not ctx.resilient_parsing:
            written = " ".join((*ctx.command_path.split()[1:], args[0]))
            hint = did_you_mean(args[0], known) or f"the commands are {', '.join(known)}"
            raise InputError(Problem(f"there is no command '{written}'", hint=hint))
        return super().resolve_command(ctx, args)


class TextCommand(_AsText, TyperCommand):
    """A command with its options and arguments as text."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Raises InputError for an option that the command does not have: other tools may call it so."""
        try:
            return super().parse_args(ctx, list(self._plain_switches(args)))
        except Exception as error:
            if not hasattr(error, "possibilities"):
                _refuse_several_files(args, error)
                raise
            from xe_sizer.scenario.foreign_words import unknown_option
            from xe_sizer.scenario.options import OPTIONS, SERVE_OPTIONS

            known = (name for parameter in self.params for name in (*parameter.opts, *parameter.secondary_opts))
            written, others = str(getattr(error, "option_name", "")), {"serve": SERVE_OPTIONS, "estimate": OPTIONS}
            raise unknown_option(written, ctx.command_path, known, others) from None

    def _plain_switches(self, args: list[str]) -> Iterator[str]:
        """Arguments where switches have no value: `--ideal true` is --ideal, and `no` puts a switch off."""
        switches = [parameter for parameter in self.params if getattr(parameter, "is_flag", False)]
        off = {name: switch.secondary_opts for switch in switches for name in switch.opts}
        rest = list(args)
        while rest:
            name, equals, value = rest.pop(0).partition("=")
            said = value if equals else rest[0] if rest else ""
            if name not in off or said.lower() not in (*_YES, *_NO):
                yield name + equals + value
                continue
            if not equals:
                rest.pop(0)
            yield from (name,) if said.lower() in _YES else off[name][:1]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Help; which formats there are is looked up here, as no other run needs to know."""
        for parameter in self.params:
            if "--format" in parameter.opts and not parameter.help:
                parameter.help = _formats()
            if getattr(parameter, "secondary_opts", None):  # a column of their own would leave no room for words
                parameter.help = f"{parameter.help} {parameter.secondary_opts[0]} turns it off."
                parameter.secondary_opts = []
        super().format_help(ctx, formatter)


def _refuse_several_files(args: list[str], error: Exception) -> None:
    """Raises InputError where several files stand for the one that a command takes."""
    from pathlib import Path

    said = error.format_message() if hasattr(error, "format_message") else ""
    files = [word for word in args if not word.startswith("-") and Path(word).is_file()]
    if "unexpected extra argument" in said and len(files) > 1:
        import shlex

        named = shlex.join(files)
        hint = f"files of one job become one scenario first: xe-sizer import {named} -o job.yaml"
        raise InputError(Problem(f"one file is taken, not {len(files)}", hint=f"{hint}; compare takes several jobs"))


def _formats() -> str:
    from xe_sizer.report.registry import DEFAULT, format_names

    return f"{', '.join(format_names())}. Default: by the extension of FILE, else {DEFAULT}."
