"""Write docs/reference/options.md from the keys of scenarios: python scripts/options.py

The page lists every option of `estimate` and `plan`, and those of `serve`, with its key and what it means.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from xe_sizer.cli.options import COMMON, described
from xe_sizer.scenario.options import OPTIONS, SERVE_OPTIONS

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "options.md"
HEADER = """# Options

Written from the keys of scenarios by `python scripts/options.py`.

Every option is a key of a scenario file too, and a variable: `--seq-len` is `train.seq_len` and `XE_SIZER_SEQ_LEN`. The
flag wins over the variable, the variable over the file, the file over the stack's default. `--help` lists those that
most jobs need, `--help-all` also those marked `*`. [Names](../names.md) says how values may be written.
"""
SECTIONS = {
    "": "Job and hardware", "data": "Data", "train": "Training", "embedding": "Embedding fine-tuning",
    "layout": "Layout", "lora": "Adapters", "p_tuning": "P-tuning", "rollout": "Reinforcement learning",
    "environment": "Tools and environments of reinforcement learning",
    "critic": "Critic on GPUs of its own", "reward": "Reward model on GPUs of its own",
    "teacher": "Teacher on GPUs of its own",
    "reference": "Reference on GPUs of its own",
    "storage": "Storage", "efficiency": "Efficiency", "limits": "Limits", "cost": "Prices", "serve": "Serving",
}  # fmt: skip


def page() -> str:
    """The whole page."""
    known = dict(OPTIONS) | dict(SERVE_OPTIONS)
    sections: dict[str, list[str]] = {}
    for name, key in known.items():
        sections.setdefault(key.rpartition(".")[0], []).append(name)
    order = sorted(sections, key=lambda section: list(SECTIONS).index(section))
    parts = ("\n".join(_table(section, sections[section], known)) for section in order)
    return HEADER + "\n" + "\n\n".join(parts) + "\n"


def _table(section: str, names: list[str], known: Mapping[str, str]) -> Iterator[str]:
    yield f"## {SECTIONS[section]}\n"
    yield "| option | key | |"
    yield "|---|---|---|"
    for name in names:
        key = known[name]
        told = described(key)
        hidden = "" if name in COMMON else " *"
        choices = f" One of {', '.join(told.choices)}." if told.choices else ""
        text = told.help.partition(" One of ")[0].replace("|", "\\|")
        yield f"| `--{name}`{hidden} | `{key}` | {text}{choices} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
