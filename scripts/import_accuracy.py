"""How right the importers are: labels written by hand against what is read from the files that they are of.

    python scripts/import_accuracy.py CONFIGS [--labels tests/importers/labels] [--tool NAME] [--wrong] [--round-trip]

CONFIGS is the folder that the paths in the labels start at. Every file below it is read too, for the share that is
read without an error; a number of GPUs is passed, since most configurations do not say it.

With --round-trip every file of a tool that is also written is imported, exported to the same tool and imported again:
what comes back otherwise, is told or is refused is counted, and listed.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from xe_sizer.cli.command import answer_to
from xe_sizer.cli.export import exported_plan
from xe_sizer.cli.read_back import differences, is_same, other_estimate, read_back
from xe_sizer.errors import InputError
from xe_sizer.immutable import Immutable
from xe_sizer.interop.read import Imported, all_tools, read_foreign
from xe_sizer.interop.source import Asked
from xe_sizer.interop.write import exporters, is_elsewhere
from xe_sizer.profiles.catalogue import Registry
from xe_sizer.profiles.finder import Finder
from xe_sizer.scenario.read import read_scenario
from xe_sizer.software.adapter_targets import SYNONYMS

GPUS = 8
MORE = (8, 64, 512)
BESIDE = "companions"  # a folder of files that others name
REGISTRY = Registry()
OTHERWISE = "llama-3.1-8b"  # in place of a model that is not in the catalogue


class Label(Immutable):
    """What one file says, as somebody read it."""

    tool: str
    file: str
    said: Mapping[str, Any]

    def part(self, name: str) -> dict[str, Any]:
        """Facts or defaults by scenario key."""
        return dict(self.said.get(name) or {})


def labels_below(folder: Path) -> Iterator[Label]:
    """All labels, tool by tool."""
    for path in sorted(folder.glob("*.yaml")):
        for said in yaml.safe_load(path.read_text(encoding="utf-8")):
            yield Label(path.stem, said["file"], said)


def imported(path: Path, gpus: int | None, given: Mapping[str, Any]) -> Imported:
    """The import of one file. Raises InputError."""
    hardware = {} if gpus is None else {"gpus": gpus}
    variables = {name: str(value) for name, value in given.items()}
    return read_foreign([path], Asked(hardware=hardware, given=variables))


def same(key: str, wanted: Any, found: Any) -> bool:
    """Whether a value is the one of the label, whatever its spelling."""
    if key == "model":
        return _model(wanted) == _model(found)
    if key in ("stack", "serve.engine", "gpu", "server"):
        return str(wanted).lower() == str(found).lower() or _called(key, wanted) == _called(key, found)
    if isinstance(wanted, list) or isinstance(found, list | tuple):
        return _words(wanted) == _words(found)
    if isinstance(wanted, bool) or isinstance(found, bool):
        return bool(wanted) == bool(found)
    if isinstance(wanted, int | float) and isinstance(found, int | float):
        return abs(wanted - found) <= 1e-6 * max(abs(wanted), 1)
    return str(wanted).lower() == str(found).lower()


def _model(name: object) -> object:
    """The profile of a name, else the last part of the name."""
    try:
        return REGISTRY.model(str(name)).name
    except (InputError, OSError):
        return str(name).rstrip("/").rpartition("/")[2].lower()


def _called(key: str, name: object) -> object:
    kind = {"serve.engine": "engine"}.get(key, key)
    try:
        return Finder().called(kind, str(name))
    except (InputError, KeyError):
        return str(name)


def _words(value: Any) -> frozenset[str]:
    listed = value if isinstance(value, list | tuple) else [value]
    return frozenset(SYNONYMS.get(str(word), str(word)) for word in listed)


def told(key: str, found: Imported) -> bool:
    """Whether a key that is lost is named among those that may change something."""
    wanted = _plain(key)
    names = [_plain(each.key) for each in found.ignored if each.effect != "none"]
    return any(name == wanted or name.endswith(f".{wanted}") or wanted.endswith(f".{name}") for name in names)


def _plain(key: str) -> str:
    return key.lstrip("-").replace("-", "_").removeprefix("cfg.").lower()


def measure(label: Label, configs: Path, count: Counter[str]) -> list[str]:
    """Count what is right of one label; what is wrong, in words."""
    try:
        found = imported(configs / label.file, label.said.get("gpus"), label.said.get("set") or {})
    except InputError as error:
        count.update({f"all {part}": len(label.part(part)) for part in ("facts", "defaults")})
        count["all losses"] += len(label.said.get("losses") or [])
        return [f"not read: {error.problems[0]}"]
    wrong: list[str] = []
    for part in ("facts", "defaults"):
        for key, wanted in label.part(part).items():
            fact = found.facts.get(key)
            right = fact is not None and same(key, wanted, fact.value)
            count[f"all {part}"] += 1
            count[part] += right
            if not right:
                wrong.append(f"{part[:-1]} {key}: {wanted} labelled, {fact.value if fact else 'nothing'} read")
    for key in label.said.get("losses") or []:
        count["all losses"] += 1
        count["losses"] += told(key, found)
        if not told(key, found):
            wrong.append(f"loss {key}: not told")
    return wrong


def share_read(configs: Path) -> tuple[int, int, list[str]]:
    """Files that are read, of how many, and what is said of the others."""
    problems: list[str] = []
    files = [path for path in sorted(configs.glob("*/*")) if path.is_file() and path.suffix != ".md"]
    for path in files:
        try:
            imported(path, GPUS, {})
        except InputError as error:
            problems.append(str(error.problems[0]))
    return len(files) - len(problems), len(files), problems


def is_known(model: object) -> bool:
    """Whether a model is in the catalogue."""
    try:
        return bool(REGISTRY.model(str(model)))
    except (InputError, OSError):
        return False


def round_trip(path: Path, tool: str | None, gpus: int | None) -> tuple[str, list[str]] | None:
    """What becomes of a file that is imported, exported to its tool and imported again: a word, and what it is about.

    None for files of tools that are not written, and of those that say no whole job.
    """
    found = imported(path, gpus, {})
    if found.fact_of("model") is not None and not is_known(found.fact_of("model")):
        found = read_foreign([path], Asked(hardware={"gpus": gpus, "model": OTHERWISE}))
    exporter = next((each for each in exporters().values() if each.title == found.tool.title), None)
    if exporter is None or found.missing or tool not in (None, found.tool.name):
        return None
    scenario = read_scenario(path, {}, {}, lambda _: found.document())
    try:
        answer = answer_to(scenario, REGISTRY)
        plan, exported = exported_plan(exporter, scenario, answer, REGISTRY)
    except InputError as error:
        return "refused", [str(problem) for problem in error.problems]
    named = {key: found.fact_of(key) for key in ("server", "gpu") if found.fact_of(key)}
    again = read_back(exported, exporter, named | {"gpus": plan.peek("gpus")})
    if again is None:
        return "not read", []
    told = dict(exported.unsaid)
    wrong = [f"{key}: {wanted} became {value}" for key, wanted, value in differences(plan, exported, again, REGISTRY)]
    for key, fact in found.facts.items():
        silent = key not in told and not fact.aside and not is_elsewhere(key)
        if silent and not is_same(key, fact.written, again, plan, REGISTRY):
            wrong.append(f"{key}: {fact.written} read, {again.fact_of(key)} read back")
    wrong += [f"not known: {each.key}" for each in again.unknown]
    if answer.verdict.fits and not told:
        wrong += filter(None, [other_estimate(again, scenario, answer, REGISTRY)])
    if wrong:
        return "otherwise", [*wrong, *(f"  told {key}: {value}" for key, value in told.items())]
    return ("told" if told else "the same"), [f"{key}: {value}" for key, value in told.items()]


def round_trips(configs: Path, tool: str | None) -> None:
    """Print how many files come back the same, and what the others are about."""
    count: Counter[str] = Counter()
    for path in sorted(configs.glob("*/*")):
        if path.is_file() and path.suffix != ".md":
            became = None
            for gpus in (None, *MORE):  # as many as the file says, else as its layout needs
                try:
                    became = round_trip(path, tool, gpus)
                except InputError as error:
                    became = "broken", [str(error.problems[0])]
                if became is not None and became[0] not in ("refused", "broken"):
                    break
            if became is not None:
                count[became[0]] += 1
                if became[1]:
                    print(f"{path.relative_to(configs)}: {became[0]}", *(f"  {line}" for line in became[1]), sep="\n")
    print(", ".join(f"{number} {word}" for word, number in count.most_common()))


def main() -> None:
    """Print the shares, and with --wrong what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("configs", type=Path)
    parser.add_argument("--labels", type=Path, default=Path("tests/importers/labels"))
    parser.add_argument("--tool")
    parser.add_argument("--wrong", action="store_true")
    parser.add_argument("--round-trip", action="store_true")
    options = parser.parse_args()
    if options.round_trip:
        round_trips(options.configs, options.tool)
        return
    read, files, problems = share_read(options.configs)
    print(f"tools: {', '.join(all_tools())}")
    print(f"read: {read} of {files} files")
    if options.wrong:
        print(*(f"  {problem}" for problem in problems), sep="\n")
    total: Counter[str] = Counter()
    by_tool: dict[str, Counter[str]] = {}
    for label in labels_below(options.labels):
        if options.tool not in (None, label.tool):
            continue
        count: Counter[str] = Counter()
        wrong = measure(label, options.configs, count)
        total += count
        by_tool[label.tool] = by_tool.get(label.tool, Counter()) + count
        if options.wrong and wrong:
            print(label.file, *(f"  {line}" for line in wrong), sep="\n")
    for tool, counted in [*by_tool.items(), ("all", total)]:
        shares = (f"{part} {counted[part]}/{counted[f'all {part}']}" for part in ("facts", "defaults", "losses"))
        print(f"{tool:22} {'  '.join(shares)}")


if __name__ == "__main__":
    main()
