"""Steps and lengths from what a scenario says about its data."""

from __future__ import annotations

from pathlib import Path

import pytest

from xe_sizer.errors import InputError
from xe_sizer.profiles.catalogue import load_dataset
from xe_sizer.profiles.finder import BUILT_IN
from xe_sizer.scenario.read import read_scenario
from xe_sizer.training.workload import DEFAULT_STEPS, Workload, workload


def work(flags: dict[str, object], seq_len: int = 4096, batch: int = 128, padding: str = "to-seq-len") -> Workload:
    return workload(read_scenario(None, {"model": "gpt2", **flags}, {}), seq_len, batch, padding, BUILT_IN)


@pytest.mark.parametrize(
    ("flags", "steps"),
    [
        ({"train.steps": 77}, 77),
        ({"data.samples": 1280}, 10),
        ({"data.samples": 1281}, 11),
        ({"data.samples": 1281, "train.epochs": 2}, 21),
        ({"data.samples": 1280, "train.epochs": 0.5}, 5),
        ({"data.samples": 5}, 1),
        ({"data.tokens": 1e6, "data.mean_tokens": 100}, 79),
        ({"data.tokens": 1e6, "data.samples": 1280}, 10),
        ({"data.tokens": 4096 * 1280}, 10),
        ({"data.histogram": {"lengths": [10, 20], "counts": [1000, 280]}}, 10),
    ],
)
def test_steps_are_epochs_over_the_global_batch_rounded_up(flags: dict[str, object], steps: int) -> None:
    assert work(flags).steps == steps


def test_packing_turns_samples_into_full_sequences() -> None:
    """12,800 samples of 256 tokens are 800 sequences of 4096: 7 steps of 128, the last one short."""
    flags: dict[str, object] = {"data.histogram": {"lengths": [256], "counts": [12800]}}
    assert work(flags, padding="packed").steps == 7
    assert work(flags).steps == 100


def test_steps_that_nobody_gave_are_assumed_aloud() -> None:
    made = work({})
    assert made.steps == DEFAULT_STEPS
    assert made.defaults == {"train.steps": DEFAULT_STEPS}
    assert any("steps" in warning for warning in made.warnings)


def test_samples_of_two_sequences_each() -> None:
    """A million tokens of 100 in a sequence are 5,000 samples; in 1,000 samples they are 500 a sequence."""
    for flags, samples, mean in (
        ({"data.tokens": 1e6, "data.mean_tokens": 100}, 5000.0, 100.0),
        ({"data.tokens": 1e6, "data.samples": 1000}, 1000.0, 500.0),
        ({"data.tokens": 1e6}, 1e6 / 8192, 4096.0),
    ):
        scenario = read_scenario(None, {"model": "gpt2", **flags}, {})
        made = workload(scenario, 4096, 128, "to-seq-len", BUILT_IN, sequences_per_sample=2)
        assert made.samples == pytest.approx(samples)
        assert made.lengths.mean == pytest.approx(mean)


def test_samples_that_nobody_counted_are_those_of_the_steps() -> None:
    made = work({"train.steps": 7})
    assert (made.samples, made.known_samples) == (7 * 128.0, None)


def test_one_epoch_is_a_default_that_is_told() -> None:
    assert work({"data.samples": 1280}).defaults == {"train.epochs": 1.0}
    assert work({"data.samples": 1280, "train.epochs": 1}).defaults == {}


def test_without_statistics_every_sample_fills_the_sequence() -> None:
    made = work({"data.samples": 1280}, seq_len=2048)
    assert (made.lengths.mean, made.lengths.longest) == (2048.0, 2048.0)


def test_samples_that_are_cut_are_told() -> None:
    flags: dict[str, object] = {"data.samples": 12012, "data.mean_tokens": 114.5, "data.max_tokens": 8588}
    assert any("8,588" in warning for warning in work(flags).warnings)
    assert work(flags, seq_len=8588).warnings == ()
    assert work(flags, padding="packed").warnings == ()


def test_a_shipped_data_set_brings_its_statistics_and_source() -> None:
    made = work({"data.profile": "dell-design-guide"})
    assert (made.samples, made.steps) == (12012.0, 94)
    assert made.lengths.mean == pytest.approx(114.53571, rel=1e-6)
    assert made.lengths.longest == pytest.approx(8588)
    assert made.source
    for name in BUILT_IN.names("dataset"):
        profile = load_dataset(name)
        assert profile.name == name
        assert profile.source


def test_a_users_data_set_is_found_beside_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "name: mine\nsamples: 256\nmean_tokens: 50\nsource: {title: own count}\n", encoding="utf-8"
    )
    scenario = tmp_path / "job.yaml"
    scenario.write_text("model: gpt2\ndata: {profile: mine.yaml}\n", encoding="utf-8")
    made = workload(read_scenario(scenario, {}, {}), 4096, 128, "to-seq-len", BUILT_IN)
    assert (made.samples, made.steps, made.source) == (256.0, 2, "own count")


def test_a_prompt_template_counts_unless_the_mean_is_given(tmp_path: Path) -> None:
    """Statistics of a file's rows are not what a trainer reads: a template is added to each."""
    (tmp_path / "mine.yaml").write_text(
        "name: mine\nsamples: 512\nmean_tokens: 50\ntemplate_tokens: 14\nmax_tokens: 400\nsource: {title: own}\n",
        encoding="utf-8",
    )
    path = str(tmp_path / "mine.yaml")
    made = work({"data.profile": path})
    assert made.lengths.mean == pytest.approx(64.0)
    assert made.defaults["data.mean_tokens"] == 64.0
    assert made.source == "own: 64 tokens a sample, 50 of a row and 14 of the prompt template"
    asked = work({"data.profile": path, "data.mean_tokens": 80.0})
    assert asked.lengths.mean == pytest.approx(80.0)
    assert "data.mean_tokens" not in asked.defaults


def test_a_known_data_set_is_cut_where_the_scenario_says(tmp_path: Path) -> None:
    """What is shorter than the cut stays as it is: the distribution is that of the whole data set."""
    (tmp_path / "mine.yaml").write_text(
        "name: mine\nsamples: 5000\nmean_tokens: 100\nmax_tokens: 2000\nsource: {title: own}\n", encoding="utf-8"
    )
    whole, cut = (
        work({"data.profile": str(tmp_path / "mine.yaml"), **more}).lengths for more in ({}, {"data.max_tokens": 300})
    )
    assert (whole.longest, cut.longest) == (pytest.approx(2000), 300.0)
    short = whole.lengths < 300
    assert cut.lengths[:-1] == pytest.approx(whole.lengths[short])
    assert cut.probabilities[:-1] == pytest.approx(whole.probabilities[short])
    longer = work({"data.profile": str(tmp_path / "mine.yaml"), "data.max_tokens": 5000}).lengths
    assert longer.longest == pytest.approx(5000)


def test_an_unknown_data_set_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(InputError) as caught:
        work({"data.profile": "alpacca"})
    assert "alpaca" in (caught.value.problems[0].hint or "")
