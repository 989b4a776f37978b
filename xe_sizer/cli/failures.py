"""The one place that turns exceptions into messages on stderr and exit codes."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from xe_sizer.cli.streams import one_line, print_problems, silence_stdout, unwritten, write_stderr
from xe_sizer.errors import EXIT_BAD_INPUT, EXIT_DEFECT, EXIT_INTERRUPTED, EXIT_OK, InputError

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


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
            _show_usage(error)
            return EXIT_BAD_INPUT
        if _is_full(error):
            print_problems(unwritten(error).problems)
            return EXIT_BAD_INPUT
        return _report_defect(error, line)


def _is_full(error: Exception) -> bool:
    """Whether a disk has no room for what stdout was to get."""
    return isinstance(error, OSError) and error.errno in _NO_ROOM


def _is_usage_error(error: Exception) -> bool:
    """Whether the option parser raised it. The parser's base class moved between typer's releases."""
    return hasattr(error, "show") and hasattr(error, "format_message")


def _show_usage(error: Any) -> None:
    with suppress(OSError):
        error.show()


def _report_defect(error: Exception, line: CommandLine) -> int:
    if line.debug:
        import traceback

        traceback.print_exception(error)
    what = one_line(f"{type(error).__name__}: {error}")
    write_stderr(f"xe-sizer: internal error: {what}. Please report it with the command line.")
    if not line.debug:
        write_stderr("  hint: 'xe-sizer --debug COMMAND ...' prints where it happened")
    return EXIT_DEFECT
