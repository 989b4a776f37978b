"""Programs that only start another one: what they are told, and what they start."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from xe_sizer.frozen import frozen
from xe_sizer.importers.readers.shell.flags import Word

if TYPE_CHECKING:
    from xe_sizer.errors import Location

_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL | re.ASCII)
_MAX_RUNNERS = 50
_PYTHON = re.compile(r"(python|pypy)[\d.]*|ipython")
_PROGRAM = re.compile(r".+\.(py|sh)|python[\d.]*|torchrun|deepspeed|accelerate|bash|sh")


@frozen
class Command:
    """One command.

    `environment` holds what was exported before it and what stands in front of it, `within` the commands whose
    text or file it comes from, outermost first (`srun`, `sbatch`).
    """

    words: tuple[Word, ...]
    environment: Mapping[str, Word]
    within: tuple[Command, ...] = ()

    @property
    def where(self) -> Location:
        """Where its first word stands."""
        return self.words[0].where


@frozen
class Launch:
    """What is started in the end, from a script's or module's name on, and what starts it, outermost first."""

    runners: tuple[Command, ...]
    command: Command


class _Runner(NamedTuple):
    """How the flags of a runner are told from the program it starts.

    `switches` take no value, all others one; where `valued` is given, only those take one. `subcommands` follow
    the name, `skipped` words the flags.
    """

    switches: frozenset[str] = frozenset()
    valued: frozenset[str] | None = None
    subcommands: tuple[str, ...] = ()
    skipped: int = 0


def _of(switches: str = "", valued: str | None = None, subcommands: tuple[str, ...] = (), skipped: int = 0) -> _Runner:
    return _Runner(
        frozenset(switches.split()), None if valued is None else frozenset(valued.split()), subcommands, skipped
    )


_MPI = _of(
    "--allow-run-as-root --oversubscribe --tag-output --display-map --report-bindings --verbose -v -q -oversubscribe "
    "-allow-run-as-root --display-allocation --nooversubscribe -l -prepend-rank --prepend-rank --timestamp-output "
    "-tag-output --use-hwthread-cpus --do-not-launch --debug-devel -bycore -bynode -byslot --map-by-node --bind-to-none"
)
_TORCHRUN = _of("--standalone --no-python --no_python --run-path --run_path -m --module --use-env --use_env")
_RUNNERS: Mapping[str, _Runner] = {
    "sudo": _of(valued="-u -g -h -p -C -r -t -U"),
    "nohup": _of(valued=""),
    "exec": _of(valued="-a"),
    "time": _of(valued="-f -o"),
    "command": _of(valued=""),
    "builtin": _of(valued=""),
    "setsid": _of(valued=""),
    "nice": _of(valued="-n --adjustment"),
    "ionice": _of(valued="-c -n -p"),
    "stdbuf": _of(valued="-i -o -e"),
    "unbuffer": _of(valued=""),
    "timeout": _of(valued="-k -s --kill-after --signal", skipped=1),
    "gtimeout": _of(valued="-k -s", skipped=1),
    "taskset": _of(valued="", skipped=1),
    "numactl": _of(valued="-C -N -m -i -p -P --cpunodebind --membind --physcpubind --interleave --preferred"),
    "env": _of(valued="-u -C --unset --chdir"),
    "srun": _of(
        "-l --label --exclusive --overlap --unbuffered -u --pty -K --kill-on-bad-exit --no-kill -k -v --verbose -Q "
        "--quiet --overcommit -O --contiguous --export-env --exact --no-container-mount-home --container-mount-home "
        "--container-writable --container-remap-root --no-container-remap-root --container-readonly -s --oversubscribe "
        "--wait-all-nodes --requeue --no-requeue -I --use-min-nodes -H --hold --multi-prog -E --disable-status -X "
        "--no-container-entrypoint --container-entrypoint --whole"
    ),
    "mpirun": _MPI,
    "mpiexec": _MPI,
    "orterun": _MPI,
    "nsys": _of(valued="-o -t -s -c -f -e -w -x -n -d -y -p --output --trace", subcommands=("profile", "launch")),
    "ncu": _of(valued="-o -k -c -s -f --set --target-processes --export"),
    "rocprof": _of("--stats --hip-trace --hsa-trace --sys-trace --roctx-trace"),
    "rocprofv3": _of("--kernel-trace --hip-trace --stats --sys-trace --runtime-trace --summary -s -r --"),
    "uv": _of(
        "--no-sync --frozen --locked --isolated --active --no-project --all-extras --verbose -v --offline "
        "--all-groups --no-dev --dev --no-default-groups -q --quiet --exact --no-cache -n",
        subcommands=("run",),
    ),
    "uvx": _of("--isolated --verbose -v -q"),
    "poetry": _of(valued="", subcommands=("run",)),
    "pipenv": _of(valued="", subcommands=("run",)),
    "conda": _of(valued="-n -p --name --prefix --cwd", subcommands=("run",)),
    "mamba": _of(valued="-n -p --name --prefix", subcommands=("run",)),
    "micromamba": _of(valued="-n -p --name --prefix", subcommands=("run",)),
    "singularity": _of("--nv --rocm --no-home --cleanenv -e -c -C --writable --fakeroot", None, ("exec",), 1),
    "apptainer": _of("--nv --rocm --no-home --cleanenv -e -c -C --writable --fakeroot", None, ("exec",), 1),
    "docker": _of(
        "--rm -it -i -t -d --privileged --init --detach --interactive --tty -ti -itd -dit -P", None, ("run",), 1
    ),
    "podman": _of("--rm -it -i -t -d --privileged --init --detach", None, ("run",), 1),
    "ray": _of(
        "--no-wait --verbose -v --log-color-always", None, ("job", "submit")
    ),
    "torchrun": _TORCHRUN,
    "torch.distributed.run": _TORCHRUN,
    "torch.distributed.launch": _TORCHRUN,
    "deepspeed": _of(
        "--module --no_python --no_local_rank --no_ssh --no_ssh_check --force_multi --save_pid --elastic_training "
        "--bind_cores_to_rank -v"
    ),
    "accelerate": _of(
        "--multi_gpu --multi-gpu --use_deepspeed --use-deepspeed --use_fsdp --use-fsdp --use_megatron_lm "
        "--use-megatron-lm --use_parallelism_config --cpu --tpu --mps --use_mps_device --use_xpu --quiet -q --debug -m "
        "--module --no_python --no-python --same_network --standalone --fp8_use_autocast_during_eval --aws_only "
        "--tpu_cluster --no_tpu_cluster --tpu_use_cluster --tpu_use_sudo --dynamo_use_dynamic --dynamo_use_fullgraph "
        "--dynamo_use_regional_compilation --enable_cpu_affinity --fp8_override_linear_precision",
        subcommands=("launch",),
    ),
}  # fmt: skip
_PYTHON_RUNNER = _of("-u -B -O -OO -s -S -E -I -v -q -m")


def unwrapped(command: Command) -> Launch:
    """The program that a command starts in the end; `srun torchrun train.py` is `train.py` started by two runners.

    A command that only starts something, with nothing behind, is its own program.
    """
    runners = list(command.within)
    environment = dict(command.environment)
    words = command.words
    while True:
        words = _without_assignments(words, environment)
        count = _own_words(words)
        if not 0 < count < len(words) or len(runners) >= _MAX_RUNNERS:
            break
        runners.append(Command(words[:count], environment))
        words = words[count:]
    words = words or command.words
    return Launch(tuple(runners), Command(words, environment, command.within))


def _without_assignments(words: tuple[Word, ...], environment: dict[str, Word]) -> tuple[Word, ...]:
    """`env A=1 program`: what stands in front of the program belongs to its environment."""
    at = 0
    while at < len(words) - 1 and (match := _ASSIGNED.fullmatch(words[at].text)):
        environment[match[1]] = Word(match[2], words[at].where, words[at].unknown)
        at += 1
    return words[at:]


def _own_words(words: tuple[Word, ...]) -> int:
    """How many words belong to the runner in front; 0 where the first word is no runner."""
    name = posixpath.basename(words[0].text)
    if words[0].unknown and words[0].text == f"${{{words[0].unknown[0]}}}":
        return 1  # `$LAUNCHER program`: whatever it is, what follows is what is started
    runner = _PYTHON_RUNNER if _PYTHON.fullmatch(name) else _RUNNERS.get(name)
    if runner is None:
        return 0
    start = 1 + _subcommands(words, runner)
    if start == 1 and runner.subcommands:
        return 0
    return _flags_end(words, start, runner) + runner.skipped


def _subcommands(words: tuple[Word, ...], runner: _Runner) -> int:
    """How many words the runner's subcommand has; 0 where another one stands there."""
    following = [word.text for word in words[1 : 1 + max(2, len(runner.subcommands))]]
    if runner.subcommands == ("job", "submit"):
        return 2 if tuple(following) == runner.subcommands else 0
    return 1 if following and following[0] in runner.subcommands else 0


def _flags_end(words: tuple[Word, ...], start: int, runner: _Runner) -> int:
    at = start
    while at < len(words) and words[at].text.startswith("-"):
        text = words[at].text
        at += 1
        if text == "--":
            break
        if text == "-c" and runner is _PYTHON_RUNNER:
            return 0
        if "=" not in text and _takes_value(text, runner) and at < len(words):
            at += not words[at].text.startswith("-") and not _is_program(words, at, runner)
    return at


def _takes_value(flag: str, runner: _Runner) -> bool:
    return flag in runner.valued if runner.valued is not None else flag not in runner.switches


def _is_program(words: tuple[Word, ...], at: int, runner: _Runner) -> bool:
    """Whether a word behind a flag that nobody lists is the program already."""
    return runner.valued is None and at + 1 < len(words) and bool(_PROGRAM.fullmatch(words[at].text))
