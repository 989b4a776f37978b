"""Records of jobs say what was run: an estimate of one multiplies as many rows as the job did."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

pytest.importorskip("torch")

from xe_sizer.errors import Location
from xe_sizer.evidence.names import RecordRegistry
from xe_sizer.evidence.predict import predict_record
from xe_sizer.evidence.records import records_of
from xe_sizer.measure import job, session
from xe_sizer.profiles.catalogue import Registry
from xe_sizer.scenario.read import read_scenario
from xe_sizer.training.resolve import resolve
from xe_sizer.training.search import size
from xe_sizer.training.step_time import operator_costs

LENGTH = 512
GPU = "h100-sxm-80gb"


@pytest.mark.parametrize("micro_batch", [1, 2])
@pytest.mark.parametrize("data", [{}, {"mean_tokens": 200.0}])
def test_every_sequence_of_a_record_has_full_length(micro_batch: int, data: dict[str, float], tmp_path: Path) -> None:
    """Whatever the samples of the scenario are: the tokens that run are random, of full length."""
    file = tmp_path / "job.yaml"
    train = {"steps": 1, "micro_batch": micro_batch, "global_batch": micro_batch, "seq_len": LENGTH}
    scenario = {"model": "qwen2.5-0.5b", "stack": "pytorch-fsdp", "job": "sft", "gpu": GPU, "gpus": 1, "train": train}
    file.write_text(yaml.safe_dump(scenario | ({"data": data} if data else {})))
    plan = job.plan_of(size(resolve(read_scenario(file, {}, {}), Registry())), file)
    made = job.record(plan, None, session.machine("cpu"), GPU, None)
    (record,) = records_of([made], Location("measured job")).records
    sized = predict_record(record, RecordRegistry(())).sized
    rows = {cost.operator.name: cost.sizes["m"] for cost in operator_costs(sized.timeline) if "m" in cost.sizes}
    assert rows["up"] == rows["head"] == micro_batch * LENGTH
