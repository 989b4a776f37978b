"""What only a process of its own shows: start-up, pipes, terminals, encodings."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from xe_sizer import __version__

from .conftest import FIXTURES

ROOT = Path(__file__).parents[2]
RENDER = [sys.executable, "-m", "xe_sizer", "render", str(FIXTURES / "lora.json")]


def run(*command: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    return subprocess.run(command, capture_output=True, env=environment, timeout=60, check=False)


def test_version() -> None:
    ran = run(sys.executable, "-m", "xe_sizer", "--version")
    assert (ran.returncode, ran.stdout) == (0, f"xe-sizer {__version__}\n".encode())


def test_help_lists_every_command() -> None:
    ran = run(sys.executable, "-m", "xe_sizer", "--help")
    assert ran.returncode == 0
    assert all(name in ran.stdout for name in (b"estimate", b"check", b"profiles", b"render"))


def test_without_arguments_it_is_usage() -> None:
    assert run(sys.executable, "-m", "xe_sizer").returncode == 2


def test_json_needs_no_heavy_import() -> None:
    code = (
        "import sys; from xe_sizer.cli.main import main\n"
        f"code = main(['render', {str(FIXTURES / 'lora.json')!r}, '-f', 'json', '-o', {os.devnull!r}])\n"
        "heavy = {'rich', 'pydantic', 'scipy', 'jsonschema', 'xml'} & set(sys.modules)\n"
        "sys.exit(f'{code} {heavy}' if code or heavy else 0)"
    )
    ran = run(sys.executable, "-c", code)
    assert (ran.returncode, ran.stderr) == (0, b"")


JOB = "--model llama-2-7b --gpu h100-sxm-80gb"


@pytest.mark.parametrize(
    ("command", "needless"),
    [
        (
            f"estimate {JOB} --gpus 8 -f json",
            "xe_sizer.serving xe_sizer.report.answers.estimate csv",
        ),
        (f"estimate {JOB} --gpus 8 -f json", "xe_sizer.report.formats.html xe_sizer.report.terminal rich xml"),
        (f"estimate {JOB} --gpus 8 -f markdown", "xe_sizer.report.answers.serve xe_sizer.report.formats.html rich xml"),
        (f"estimate {JOB} --gpus 8 -f junit", "xe_sizer.report.formats.table rich"),
        (
            f"estimate {JOB} --gpus 8",
            "xe_sizer.report.svg xe_sizer.report.shapes xe_sizer.report.foot xe_sizer.report.formats.html html",
        ),
        (f"estimate {JOB} --gpus 8", "xe_sizer.serving xe_sizer.evidence xe_sizer.studies.plan xe_sizer.cli.plan"),
        (
            f"estimate {JOB} --gpus 8",
            "xe_sizer.scenario.foreign_words xe_sizer.interop pydantic",
        ),
        (f"serve {JOB} -f json", "xe_sizer.training.step_time xe_sizer.training.resolve rich"),
    ],
)
def test_a_command_imports_what_it_needs(command: str, needless: str) -> None:
    code = (
        "import sys; from xe_sizer.cli.main import main\n"
        f"code = main({command.split()!r})\n"
        f"loaded = {set(needless.split())!r} & set(sys.modules)\n"
        "sys.exit(f'{code} {loaded}' if code or loaded else 0)"
    )
    ran = run(sys.executable, "-c", code)
    assert (ran.returncode, ran.stderr) == (0, b"")


def test_numpy_gets_one_thread() -> None:
    code = (
        "import os, sys; from xe_sizer.cli import main\n"
        "main.main = lambda arguments: int(os.environ['OPENBLAS_NUM_THREADS'] != '1')\n"
        "main.run()"
    )
    assert run(sys.executable, "-c", code).returncode == 0
    assert run(sys.executable, "-c", code, OPENBLAS_NUM_THREADS="3").returncode == 1


def test_a_reader_that_leaves_is_no_error() -> None:
    render = " ".join(f"'{word}'" for word in RENDER)
    ran = run("bash", "-c", f"{render} --format html | head -c 1 >/dev/null; exit ${{PIPESTATUS[0]}}")
    assert (ran.returncode, ran.stderr) == (0, b"")


def test_a_terminal_of_ascii_gets_ascii() -> None:
    ran = run(*RENDER, PYTHONIOENCODING="ascii")
    assert ran.returncode == 0
    assert ran.stdout.isascii()
    assert b"####" in ran.stdout


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a pseudo terminal")
@pytest.mark.parametrize(("variables", "colored"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
def test_a_terminal_gets_color_unless_it_says_no(variables: dict[str, str], colored: bool) -> None:
    assert (b"\x1b[" in _on_a_terminal(variables)) is colored


def _on_a_terminal(variables: dict[str, str]) -> bytes:
    """Output of `render` on a pseudo terminal of 80 columns."""
    ours, theirs = os.openpty()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "80", **variables}
    environment.pop("NO_COLOR", None) if "NO_COLOR" not in variables else None
    with subprocess.Popen(RENDER, stdout=theirs, stderr=subprocess.DEVNULL, env=environment) as process:
        os.close(theirs)
        seen = b""
        try:
            while piece := os.read(ours, 65536):
                seen += piece
        except OSError:  # the other end closed: how Linux says that a terminal is gone
            pass
    os.close(ours)
    assert process.returncode == 0
    return seen
