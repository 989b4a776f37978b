"""The one place that turns exceptions into messages on stderr and exit codes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from xe_sizer.cli.output import one_line, print_problems, silence_stdout, write_stderr
from xe_sizer.errors import EXIT_BAD_INPUT, EXIT_DEFECT, EXIT_INTERRUPTED, EXIT_OK, InputError


@dataclass
class CommandLine:
    """State of one command line that outlives its parsing."""

    debug: bool = False


def exit_code_of(command: Callable[[], Any], line: CommandLine) -> int:
    """Run `command`; its return value (None is 0) or what it raised becomes an exit code."""
    try:
        code = command()
        sys.stdout.flush()
        return code if isinstance(code, int) else EXIT_OK
    except InputError as error:
        print_problems(error.problems)
        return EXIT_BAD_INPUT
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        silence_stdout()
        return EXIT_OK
    except Exception as error:  # noqa: BLE001  what nobody foresaw is said as such, with exit code 3
        if _is_usage_error(error):
            error.show()  # type: ignore[attr-defined]
            return EXIT_BAD_INPUT
        return _report_defect(error, line)


def _is_usage_error(error: Exception) -> bool:
    """Whether the option parser raised it. The parser's base class moved between typer's releases."""
    return hasattr(error, "show") and hasattr(error, "format_message")


def _report_defect(error: Exception, line: CommandLine) -> int:
    if line.debug:
        import traceback

        traceback.print_exception(error)
    what = one_line(f"{type(error).__name__}: {error}")
    write_stderr(f"xe-sizer: internal error: {what}. Please report it with the command line.")
    if not line.debug:
        write_stderr("  hint: 'xe-sizer --debug COMMAND ...' prints where it happened")
    return EXIT_DEFECT
