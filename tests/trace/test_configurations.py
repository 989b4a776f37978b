"""Every model type that is read, as transformers assumes it: as many parameters as its class has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from transformers import (  # noqa: E402
    CONFIG_MAPPING,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
)
from transformers.models.auto.modeling_auto import (  # noqa: E402
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
)

from xe_sizer.graph.weights import count_parameters  # noqa: E402
from xe_sizer.profiles.huggingface import KNOWN, model_from_config  # noqa: E402

AUTO = (
    (MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES, AutoModelForSeq2SeqLM),
    (MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, AutoModelForCausalLM),
    (MODEL_FOR_MASKED_LM_MAPPING_NAMES, AutoModelForMaskedLM),
)
# The class cannot be built from what it assumes, or assumes what no model has.
WITHOUT_DEFAULTS = {
    "deberta-v2", "deepseek_v2", "dots1", "glm4_moe", "hunyuan_v1_dense", "hunyuan_v1_moe", "lfm2_moe", "nemotron",
    "qwen4_exp_text",
}  # fmt: skip
COUNTED_OTHERWISE = {
    "longcat_flash",  # experts that do nothing have weights in its class, not in the published model
    "phi4_multimodal",  # its class has the encoders of images and sounds too
}
KINDS = sorted(
    kind
    for kind in KNOWN
    if any(kind in names for names, _ in AUTO) and kind not in WITHOUT_DEFAULTS | COUNTED_OTHERWISE
)


@pytest.mark.parametrize("kind", KINDS)
def test_a_configuration_has_the_parameters_of_its_class(kind: str, tmp_path: Path) -> None:
    config: Any = CONFIG_MAPPING[kind]()
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config.to_dict() | {"model_type": kind}, default=str), encoding="utf-8")
    shape, _ = model_from_config(path)
    auto = next(auto for names, auto in AUTO if kind in names)
    with torch.device("meta"):
        model = auto.from_config(config.get_text_config() if auto is AutoModelForCausalLM else config)
    total = sum(parameter.numel() for parameter in model.parameters())
    assert count_parameters(shape).total == pytest.approx(total, rel=1e-3)
    assert not shape.guesses
