"""Words of exports are those that the tools know, as of the release that is named beside them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.exporters.test_answers_exported import PLAN, PLANS, PREFERENCES
from xe_sizer.errors import InputError
from xe_sizer.interop.write import Exported, Plan, export, exporter_named

_WORDS = Path(__file__).parent / "words"
TOOLS = sorted(file.stem for file in _WORDS.glob("*.json"))
JOBS = ("sft", "lora", "qlora", "pretrain", "dpo", "kto", "orpo", "simpo", "reward")
ADAPTERS: dict[str, Any] = {"lora.rank": 16, "lora.alpha": 32, "lora.targets": ["q", "v"], "lora.dropout": 0.1}


def known(tool: str) -> dict[str, set[str]]:
    """Words of a tool by its command or configuration, as `scripts/tool_words.py` found them."""
    found = json.loads((_WORDS / f"{tool}.json").read_text(encoding="utf-8"))
    shared = set(" ".join(found["shared"]).split())
    return {name: shared | set(" ".join(lines).split()) for name, lines in found["words"].items()}


def commands(text: str) -> Iterator[list[str]]:
    """Commands of a script, without its comments and the variables before them."""
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line.strip() and not line.startswith("#")]
    for line in lines:
        words = shlex.split(line)
        yield words[next(place for place, word in enumerate(words) if not word.split("=")[0].isupper()) :]


def flags(words: list[str]) -> set[str]:
    return {word[2:] for word in words if word.startswith("--")}


def dotted(values: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for name, each in values.items():
        yield f"{prefix}{name}"
        if isinstance(each, dict):
            yield from dotted(each, f"{prefix}{name}.")


def unknown(tool: str, exported: Exported) -> set[str]:
    """Words of a file that its tool does not know."""
    words, written = known(tool), exported.written
    texts = [written.text, *written.beside.values()]
    if tool == "trl":
        own = set(yaml.safe_load(written.text)) - words[shlex.split(written.run.partition("trl ")[2])[0]]
        servers = [one for text in written.beside.values() for one in commands(text)]
        return own.union(*({each.replace("-", "_") for each in flags(one)} - words["vllm-serve"] for one in servers))
    if tool == "ms-swift":
        return set().union(*(flags(one) - words[one[1]] for text in texts for one in commands(text)))
    if tool == "openrlhf":
        found = [(one, next(w for w in one if w.startswith("openrlhf.cli."))) for one in commands(written.text)]
        launched = {"num_nodes", "num_gpus", "module"}
        return set().union(*(flags(one) - words[name.rpartition(".")[2]] - launched for one, name in found))
    if tool == "verl":
        (command,) = commands(written.text)
        megatron = " megatron" if any("megatron_trainer" in word for word in command) else ""
        names = {word.partition("=")[0] for word in command[3:] if word[0] not in "-+"}
        return names - words[f"{command[2]}{megatron}"]
    names = set(dotted(yaml.safe_load(written.text))) - {"defaults"}
    return {name for name in names - words["recipes"] if name.rpartition(".")[2] not in words["types"] | {"_override_"}}


CASES = [
    (tool, each) for tool in TOOLS for each in (*PLANS[tool], {"train.checkpoint_every": 5, "train.evaluate_every": 5})
]
CASES += [(tool, {"lora.rank": 16, "lora.alpha": 32, "adapter": "lora", "train.reference": "none"}) for tool in TOOLS]


@pytest.mark.parametrize(("tool", "changed"), CASES)
def test_words_of_answers_are_known(tool: str, changed: dict[str, Any]) -> None:
    assert unknown(tool, export(Plan(PLAN | changed), exporter_named(tool))) == set()


@pytest.mark.parametrize("tool", [tool for tool in TOOLS if tool != "verl"])
def test_words_of_other_jobs_are_known(tool: str) -> None:
    written = []
    for job in JOBS:
        plan = PREFERENCES | {"job": job, "train.evaluate_every": 10, "train.checkpoint_every": 10}
        plan |= ADAPTERS if job in ("lora", "qlora") else {}
        plan |= {"train.reference": "copy"} if job in ("dpo", "kto") else {"train.reference": "none"}
        values = {key: value for key, value in plan.items() if key != "rollout.engine"}
        try:
            found = export(Plan(values), exporter_named(tool))
        except InputError:
            continue
        assert unknown(tool, found) == set(), job
        written.append(job)
    assert {"sft", "lora", "dpo", "reward"} <= set(written)


def test_a_word_that_no_release_has_is_found() -> None:
    found = export(Plan(PLAN), exporter_named("verl"))
    text = found.written.text.replace("trainer.nnodes", "trainer.nodes")
    wrong = Exported(type(found.written)(text), found.unsaid, found.yours)
    assert unknown("verl", wrong) == {"trainer.nodes"}
