"""docs/adding.md, word for word: its files are written as they stand there, and its commands run.

After each file, `estimate`, `plan` and `check` (for an engine `serve` and `check`) answer a question that names the new
thing. Files of code go into one copy of the package, which processes of their own run.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from xe_sizer.cli.main import main
from xe_sizer.profiles.finder import KINDS
from xe_sizer.scenario.options import OPTIONS, SERVE_OPTIONS

ROOT = Path(__file__).parents[2]
HEADING = re.compile(r"^## (?P<title>[^`\n]*)(?:: `(?P<path>[^`]*)`)?$", re.MULTILINE)
FENCE = re.compile(r"^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
KNOWN = {**OPTIONS, **SERVE_OPTIONS}
# The option of a limit that a section adds is in no table yet.
LIMIT_OPTION = re.compile(r"max-[a-z-]+")


@dataclass(frozen=True)
class Section:
    """A heading with a path, the file below it (or what changes in it), and the commands."""

    title: str
    path: str
    language: str
    texts: tuple[str, ...]
    commands: tuple[tuple[str, ...], ...]
    job: str = ""  # a file of another tool, which the command reads

    @property
    def is_code(self) -> bool:
        return self.path.startswith("xe_sizer/")

    def write(self, root: Path) -> None:
        file = root / self.path
        if self.language == "diff":
            for change in self.texts:
                file.write_text(patched(file.read_text(encoding="utf-8"), change), encoding="utf-8")
        else:
            (whole,) = self.texts
            assert not file.exists(), f"{self.path} ships: the example must be something new"
            file.parent.mkdir(exist_ok=True)
            file.write_text(whole, encoding="utf-8")


def patched(text: str, change: str) -> str:
    """The text with the lines of a change added after those that stand before them there."""
    lines = change.splitlines()
    before = "\n".join(line[1:] for line in lines if not line.startswith("+"))
    after = "\n".join(line[1:] for line in lines if not line.startswith("-"))
    assert text.count(before) == 1
    return text.replace(before, after)


def commands(text: str) -> Iterator[tuple[str, ...]]:
    for line in text.splitlines():
        name, *words = shlex.split(line, comments=True)
        assert name == "xe-sizer"
        yield tuple(words)


def sections() -> Iterator[Section]:
    page = (ROOT / "docs" / "adding.md").read_text(encoding="utf-8")
    headings = list(HEADING.finditer(page))
    for heading, following in zip(headings, [*headings[1:], None], strict=True):
        body = page[heading.end() : following.start() if following else len(page)]
        fences = list(FENCE.finditer(body))
        if all(fence["language"] == "sh" for fence in fences):
            continue  # about several files, or none
        *contents, last = fences
        job = contents.pop(0)["text"] if heading["path"].startswith("xe_sizer/interop/") else ""
        (language,) = {fence["language"] for fence in contents}
        assert last["language"] == "sh"
        texts = tuple(fence["text"] for fence in contents)
        yield Section(heading["title"], heading["path"], language, texts, tuple(commands(last["text"])), job)


SECTIONS = tuple(sections())
CODE = tuple(section for section in SECTIONS if section.is_code)
(FOREIGN,) = (section for section in CODE if section.job)
Run = Callable[[Sequence[Sequence[str]]], list[tuple[int, str]]]


def scenario_of(words: Sequence[str]) -> tuple[dict[str, object], list[str]]:
    """The options of a command as a scenario, and those that are none of its keys."""
    scenario: dict[str, object] = {}
    others: list[str] = []
    for option, value in zip(words[1::2], words[2::2], strict=True):
        name = option.removeprefix("--")
        key = KNOWN.get(name) or (f"limits.{name.replace('-', '_')}" if LIMIT_OPTION.fullmatch(name) else None)
        if key is None:
            others += [option, value]
            continue
        section, _, last = key.rpartition(".")
        holder = scenario.setdefault(section, {}) if section else scenario
        assert isinstance(holder, dict)
        holder[last] = yaml.safe_load(value)
    return scenario, others


def check_answers(section: Section, words: Sequence[str], run: Run) -> None:
    """The command of the page, then the same question to the other commands."""
    scenario, others = scenario_of(words)
    serving = words[0] == "serve"
    Path("job.yaml").write_text(yaml.safe_dump({**scenario, "job": "inference"} if serving else scenario))
    asked = [words, ["check", "job.yaml", *others]]
    if not serving:
        asked.append(["plan", "job.yaml", "--max-gpus", "16", *others])
    answers = run(asked)
    for code, out in answers:
        assert code in (0, 1), out
        assert out
    name = Path(section.path).stem
    assert section.language == "diff" or name in answers[0][1] or name in words


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the page's files of a user's own lie in `my/`."""
    monkeypatch.chdir(tmp_path)
    for section in SECTIONS:
        if not section.is_code:
            section.write(tmp_path)
    return tmp_path


@pytest.fixture
def in_process(folder: Path, capfd: pytest.CaptureFixture[str]) -> Run:
    def run(asked: Sequence[Sequence[str]]) -> list[tuple[int, str]]:
        answers = []
        for words in asked:
            code = main(list(words))
            captured = capfd.readouterr()
            answers.append((code, captured.out + captured.err))
        return answers

    return run


SCRIPT = """
import contextlib, io, json, sys
from xe_sizer.cli.main import main

answers = []
for words in json.load(sys.stdin):
    said = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = main(words)
    answers.append((code, said.buffer.getvalue().decode()))
json.dump(answers, sys.stdout)
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with the files of code of the page."""
    copy = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / "xe_sizer", copy / "xe_sizer", ignore=shutil.ignore_patterns("__pycache__"))
    for catalogue in ("gpu_profiles", "model_profiles"):
        (copy / catalogue).symlink_to(ROOT / catalogue)
    for section in CODE:
        section.write(copy)
    return copy


@pytest.fixture
def in_the_copy(copy: Path, folder: Path) -> Run:
    def run(asked: Sequence[Sequence[str]]) -> list[tuple[int, str]]:
        ran = subprocess.run(
            [sys.executable, "-c", SCRIPT], cwd=folder, env=os.environ | {"PYTHONPATH": str(copy)},
            input=json.dumps(asked), capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
        return [(code, said) for code, said in json.loads(ran.stdout)]

    return run


@pytest.mark.parametrize("section", [each for each in SECTIONS if not each.is_code], ids=lambda each: each.title)
def test_a_file_of_data_is_all_that_it_takes(section: Section, in_process: Run) -> None:
    read = in_process([["profiles", "validate", section.path, "--profiles", "my"]])
    assert read == [(0, "1 profile read, 0 with problems\n")]
    for words in section.commands:
        check_answers(section, words, in_process)


@pytest.mark.parametrize("section", [each for each in CODE if not each.job], ids=lambda each: each.title)
def test_a_file_of_code_is_all_that_it_takes(section: Section, in_process: Run, in_the_copy: Run) -> None:
    (words,) = section.commands
    assert in_process([words])[0][0] == 2  # the package without it does not know it
    check_answers(section, words, in_the_copy)


def test_a_row_of_a_tools_table_is_all_that_it_takes(in_process: Run, in_the_copy: Run) -> None:
    (words,) = FOREIGN.commands
    Path(words[1]).write_text(FOREIGN.job, encoding="utf-8")
    asked = [[*words, "-o", "job.json"]]
    assert in_process(asked)[0][0] == 0
    before = json.loads(Path("job.json").read_text(encoding="utf-8"))
    assert {each["key"]: each["effect"] for each in before["ignored"]} == {
        "tokens_of_a_sample": "unknown", "update_twice": "unknown",
    }  # fmt: skip
    assert before["scenario"]["train.seq_len"]["value"] != 4096
    assert in_the_copy(asked)[0][0] == 0
    after = json.loads(Path("job.json").read_text(encoding="utf-8"))
    assert after["scenario"]["train.seq_len"]["value"] == 4096
    assert [(each["key"], each["why"]) for each in after["ignored"]] == [
        ("update_twice", "updates the weights twice in a step")
    ]


def test_the_commands_that_help_with_every_kind_run(in_process: Run) -> None:
    page = (ROOT / "docs" / "adding.md").read_text(encoding="utf-8")
    helping = page.partition("## Files of your own")[2].partition("\n## ")[0]
    found = [words for fence in FENCE.finditer(helping) for words in commands(fence["text"])]
    assert len(found) == 4
    for code, out in in_process(found):
        assert code == 0, out


def test_every_kind_has_its_section() -> None:
    titles = {section.title for section in SECTIONS}
    data = {f"{'An' if kind.title[0] in 'aeio' else 'A'} {kind.title}".replace("gpu", "GPU") for kind in KINDS.values()}
    code = {
        "A training method",
        "A limit",
        "A loss kernel",
        "A number format",
        "A report format",
        "A key of another tool",
    }
    assert titles == data | code
