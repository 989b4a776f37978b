"""Options of the command line and environment variables, each with the scenario key that it sets."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from xe_sizer.scenario.caller import CommandLine
from xe_sizer.scenario.schema import KEYS, SERVING, TRAINING


def _options(*wings: str | None) -> Mapping[str, str]:
    return MappingProxyType({each.option: each.name for each in KEYS.values() if each.option and each.wing in wings})


OPTIONS = _options(TRAINING, None)
"""Option name (without dashes in front) to scenario key, for the command line and the environment."""
SERVE_OPTIONS = _options(SERVING, None)
"""The same of the command that sizes inference."""
ALL_OPTIONS = _options(TRAINING, SERVING, None)
OPTION_OF: Mapping[str, str] = MappingProxyType({key: option for option, key in ALL_OPTIONS.items()})
"""The option of every key that has one."""
SERVE_ALONE = frozenset(
    each.name for each in KEYS.values() if each.wing == SERVING and not each.name.startswith("serve.")
)
"""Limits and hardware that inference alone knows."""
COMMAND_LINE = CommandLine(OPTION_OF, frozenset(each.name for each in KEYS.values() if each.two_way))

PREFIX = "XE_SIZER_"
OTHER_VARIABLES = frozenset({"XE_SIZER_PROFILES"})


def variable_name(option: str) -> str:
    """The environment variable of an option: micro-batch is XE_SIZER_MICRO_BATCH."""
    return PREFIX + option.upper().replace("-", "_")


@cache
def variables() -> Mapping[str, str]:
    """Environment variable -> scenario key."""
    return {variable_name(option): key for option, key in ALL_OPTIONS.items()}
