"""Launch scripts of accelerate that start TRL, with the accelerate configuration beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.exporters.as_text import command_text, yaml_text
from xe_sizer.exporters.exporter import Exporter, Written
from xe_sizer.exporters.parts.accelerate import accelerate_configuration
from xe_sizer.exporters.parts.trl import ADDED, SAYS, trainer_of, trl_settings
from xe_sizer.exporters.parts.words import as_words

if TYPE_CHECKING:
    from xe_sizer.exporters.plan import Plan

_CONFIGURATION = "accelerate.yaml"


def _write(plan: Plan) -> Written:
    words = ["accelerate", "launch", "--config_file", _CONFIGURATION, "-m", f"trl.scripts.{trainer_of(plan)}"]
    text = "#!/bin/sh\n" + command_text(words, as_words(trl_settings(plan)))
    return Written(text, beside={_CONFIGURATION: yaml_text(accelerate_configuration(plan))}, run="sh FILE")


EXPORTERS = (
    Exporter(
        name="accelerate",
        title="accelerate",
        ending=".sh",
        write=_write,
        says=(*SAYS, "layout.zero", "layout.tp", "layout.cp", "layout.zero_group", "gpus"),
        added=ADDED,
    ),
)
