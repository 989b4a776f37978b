"""Settings as YAML, and arguments as a command over several lines."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterable


def yaml_text(values: Mapping[str, Any]) -> str:
    """Settings as YAML, in the given order, without those that are None."""
    return yaml.dump(_plain(values), Dumper=_Plain, sort_keys=False, allow_unicode=True, width=120)


class _Plain(yaml.SafeDumper):
    """Without anchors, which readers of configurations seldom expect."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items() if each is not None}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value


def command_text(words: Iterable[str], flags: Mapping[str, Any], dashes: str = "--") -> str:
    """A command with one flag on each line; a flag that is True stands alone, None and False are left out."""
    lines = [shlex.join(words)]
    for name, value in flags.items():
        if value is None or value is False:
            continue
        values = [] if value is True else [value] if not isinstance(value, list | tuple) else value
        lines.append(shlex.join([f"{dashes}{name}", *map(str, values)]))
    return " \\\n  ".join(lines) + "\n"


def override_text(words: Iterable[str], values: Mapping[str, Any]) -> str:
    """A command with one override of Hydra on each line, as `key=value`; those that are None are left out."""
    lines = [f"{key}={value}" for key, value in values.items() if value is not None]
    return " \\\n  ".join([shlex.join(words), *map(shlex.quote, lines)]) + "\n"
