"""One scenario answered: what `estimate` and `serve` do with the options that they share."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from xe_sizer.cli.options import CommandKind, given_scenario, profile_folders
from xe_sizer.cli.output import check_topics, gate, output_from
from xe_sizer.profiles.registry import Registry
from xe_sizer.report.registry import known_format, render
from xe_sizer.result.serving import Answer
from xe_sizer.scenario.read import Given


@dataclass(frozen=True, eq=False)
class Asked:
    """The scenario file, the flags by dotted key, and how the answer is to be written, all as given."""

    scenario: str | None
    flags: Mapping[str, object]
    profiles: list[str] | None
    format: str | None
    output: str | None
    color: str
    explain: list[str] | None
    exit_zero: bool

    def answered(self, asking: CommandKind, answer: Callable[[Given, Registry], Answer]) -> int:
        """Write what `answer` says; its verdict is the exit code. Output options are checked before anything is priced.

        Raises InputError.
        """
        target = output_from(self.format, self.output, self.color)
        known_format(target.format)
        topics = check_topics(tuple(self.explain or ()))
        registry = Registry(profile_folders(self.profiles, os.environ))
        path = Path(self.scenario) if self.scenario else None
        result = answer(given_scenario(path, self.flags, os.environ, registry, asking), registry)
        target.write(render(result, target.format, target.options(topics, about=self.scenario)))
        return gate(result.verdict.ok, self.exit_zero)
