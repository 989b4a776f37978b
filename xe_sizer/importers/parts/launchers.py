"""Launchers: how many GPUs and nodes a launch command starts.

torchrun and torch.distributed.launch (pytorch docs, elastic/run), accelerate launch, the deepspeed launcher, mpirun,
srun with sbatch directives (Slurm), and variables that launchers and tools read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from xe_sizer.frozen import frozen
from xe_sizer.importers.readers.shell import Word, flags_of, unwrapped
from xe_sizer.importers.written import Written

if TYPE_CHECKING:
    from xe_sizer.importers.draft import Draft
    from xe_sizer.importers.readers.shell import Command, Flag, Script

_GRES = re.compile(r"(?:gres/)?gpu(?::[\w.-]+)?[:=](\d+)")
_COUNT = re.compile(r"(?:[\w.-]+:)?(\d+)")
_DEVICES = (
    "CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
)  # fmt: skip
_NODES_OF = ("NNODES", "NUM_NODES", "PET_NNODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES", "WORLD_NODES", "N_NODES")
_PER_NODE_OF = (
    "NPROC_PER_NODE", "GPUS_PER_NODE", "PET_NPROC_PER_NODE", "NUM_GPUS_PER_NODE", "N_GPUS_PER_NODE", "NGPU",
    "NUM_GPUS", "NPROC", "GPU_NUM",
)  # fmt: skip


@frozen
class Hardware:
    """What a launch says of hardware; None where it says nothing.

    nodes, per_node : nodes, and GPUs of each; total : GPUs, or processes, of all nodes
    """

    nodes: Written | None = None
    per_node: Written | None = None
    total: Written | None = None

    def __or__(self, other: Hardware) -> Hardware:
        """What this says, and where it says nothing, the other."""
        return Hardware(self.nodes or other.nodes, self.per_node or other.per_node, self.total or other.total)


def state_gpus(draft: Draft, said: Hardware) -> None:
    """State the number of GPUs, and of nodes where only these are known."""
    nodes = _number(said.nodes) or 1
    if said.total is not None:
        draft.state("gpus", _number(said.total), said.total)
    elif said.per_node is not None:
        note = f"{nodes} nodes of {said.per_node.value} GPUs" if nodes > 1 else ""
        draft.state("gpus", nodes * (_number(said.per_node) or 1), said.per_node, note)
    if said.nodes is not None and (nodes > 1 or "gpus" in draft.facts):
        draft.state("nodes", nodes, said.nodes)


def hardware_of(script: Script, command: Command) -> Hardware:
    """What the launchers of a command, its variables and the directives of its script say, the nearest first."""
    launch = unwrapped(command)
    found = Hardware()
    for runner in reversed((*command.within, *launch.runners)):
        found |= _of_runner(runner)
    variables = {name: word for name, word in script.variables.items() if isinstance(word, Word)}
    variables |= command.environment
    return found | _of_variables(variables) | _of_directives(script.directives) | _visible(variables)


def _of_runner(runner: Command) -> Hardware:
    """A launcher's own flags."""
    name = runner.words[0].text.rpartition("/")[2]
    flags = flags_of(runner.words[1:]).flags
    if name == "accelerate":
        return Hardware(_flag(flags, "num_machines"), None, _flag(flags, "num_processes"))
    if name.startswith("deepspeed"):
        return Hardware(_flag(flags, "num_nodes"), _flag(flags, "num_gpus")) | _included(flags)
    if name in ("mpirun", "mpiexec"):
        return Hardware(None, None, _flag(flags, "np", "n"))
    if name in ("srun", "sbatch", "salloc"):
        return _of_directives({flag: values.values[0] for flag, values in flags.items() if values.values})
    return Hardware(_flag(flags, "nnodes", "nnode"), _flag(flags, "nproc_per_node", "nproc-per-node"))


def _flag(flags: Mapping[str, Flag], *names: str) -> Written | None:
    found = next((flags[name] for name in names if name in flags and flags[name].values), None)
    return _whole(found.values[0]) if found is not None else None


def _included(flags: Mapping[str, Flag]) -> Hardware:
    """GPUs of `--include localhost:0,1@worker-1:0,1`."""
    flag = flags.get("include")
    if flag is None or not flag.values or flag.values[0].unknown:
        return Hardware()
    hosts = [host.partition(":")[2] for host in flag.values[0].text.split("@")]
    total = sum(len([gpu for gpu in host.split(",") if gpu.strip()]) for host in hosts)
    return Hardware(total=Written(total, flag.values[0].where)) if total else Hardware()


def _of_variables(variables: Mapping[str, Word]) -> Hardware:
    return Hardware(_first(variables, _NODES_OF), _first(variables, _PER_NODE_OF))


def _visible(variables: Mapping[str, Word]) -> Hardware:
    """GPUs that a variable makes visible, all of which a tool then uses."""
    word = next((variables[name] for name in _DEVICES if name in variables and not variables[name].unknown), None)
    listed = [part for part in word.text.split(",") if part.strip().isdecimal()] if word is not None else []
    return Hardware(per_node=Written(len(listed), word.where)) if word is not None and listed else Hardware()


def _of_directives(directives: Mapping[str, Word]) -> Hardware:
    """#SBATCH lines, and srun's flags of the same names."""
    named = {name.replace("-", "_"): word for name, word in directives.items()}
    nodes = _first(named, ("nodes", "N"))
    for name, pattern in (("gpus_per_node", _COUNT), ("gres", _GRES), ("G", _COUNT)):
        word = named.get(name)
        found = pattern.fullmatch(word.text) if word is not None else None
        if found and word is not None:
            return Hardware(nodes, Written(int(found[1]), word.where))
    return Hardware(nodes, None, _first(named, ("gpus",)))


def _first(variables: Mapping[str, Word], names: Iterable[str]) -> Written | None:
    return next((found for name in names if name in variables and (found := _whole(variables[name]))), None)


def _whole(word: Word) -> Written | None:
    """A whole number; of a range such as 1:4 the largest. None for `gpu`, `auto` and what is not known."""
    text = word.text.rpartition(":")[2].strip()
    return Written(int(text), word.where) if text.isdecimal() and int(text) > 0 else None


def _number(written: Written | None) -> int | None:
    return written.value if written is not None and isinstance(written.value, int) else None
