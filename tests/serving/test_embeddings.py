"""Requests without output tokens: embeddings, scores of a reranker, classes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from serving_cases import asked, engine_file, job, problems, served

from xe_sizer.api import serve
from xe_sizer.errors import Location
from xe_sizer.evidence.names import RecordRegistry
from xe_sizer.evidence.predict import figures, serve_record
from xe_sizer.evidence.records import records_of
from xe_sizer.report.answers.serve import document
from xe_sizer.report.document import Options
from xe_sizer.report.formats.table import render
from xe_sizer.serving.job import ReplicaLayouts, Traffic
from xe_sizer.serving.queueing import in_flight, latencies
from xe_sizer.serving.search_space import legal_placements
from xe_sizer.serving.step_time import Work, encoding_time, step_time, texts_of_a_step
from xe_sizer.serving.uncertainty import span
from xe_sizer.units import GIB

ONE = ReplicaLayouts.of()
TEI = "text-embeddings-inference"
ENCODER = "bge-m3"


def test_a_step_takes_as_many_texts_as_its_tokens_allow() -> None:
    """16,384 tokens hold 32 texts of 512 (TEI's default); 70 texts take three steps of 23.3."""
    question = job(ENCODER, serve__engine=TEI)
    traffic = Traffic(512.0, 0.0)
    assert texts_of_a_step(question, ONE, traffic)[0] == 32
    read = encoding_time(question, ONE, 70.0, traffic)
    once = step_time(question, ONE, Work(prefills=70 / 3, prefill_tokens=512.0)).total_s
    assert read.steps[0] == 3
    assert read.total_s[0] == pytest.approx(3 * once[0])


def test_padded_texts_take_the_time_of_the_longest(tmp_path: Path) -> None:
    """32 texts whose logarithms have a spread of 0.4: the longest lies 2.06 deviations out, exp(0.4 2.06 - 0.08)."""
    spread = float(np.sqrt(np.expm1(0.4**2)))
    batching = "{pads: true, max_sequences: 32, max_step_tokens: 100000}"
    text = f"name: mine\nparent: {TEI}\ndescribes: it\nsource: it\nbatching: {batching}\n"
    padded, packed = (job(ENCODER, serve__engine=name) for name in (engine_file(tmp_path, text), TEI))
    traffic = Traffic(100.0, 0.0, input_spread=spread)
    longest = float(encoding_time(padded, ONE, 32.0, traffic).step.step.rank.tokens[0]) / 32
    assert longest == pytest.approx(100 * np.exp(0.4 * 2.06 - 0.08), rel=0.02)
    assert encoding_time(packed, ONE, 32.0, traffic).step.step.rank.tokens[0] == 3200


def test_nothing_of_a_text_is_kept() -> None:
    """1.06 GiB of weights (568 million in 16 bit), a step, and no cache, for which vLLM would take 90 % of the card."""
    found = served(ENCODER, serve__request_rate=100)
    assert set(found.memory_parts) == {"weights", "activations", "CUDA context", "communicators", "workspaces"}
    assert found.memory_parts["weights"] == pytest.approx(2 * 567.75e6, rel=0.01)
    assert found.peak_bytes < 4 * GIB


def simulated(times_s: np.ndarray, rate: float, most: int, requests: int = 40_000) -> np.ndarray:
    """Times of requests that come by chance to a server that reads all who wait together, up to the most."""
    arrivals = np.cumsum(np.random.default_rng(3).exponential(1 / rate, requests))
    done, free, place = np.zeros(requests), 0.0, 0
    while place < requests:
        begin = max(free, arrivals[place])
        last = min(np.searchsorted(arrivals, begin, side="right"), place + most)
        free = begin + times_s[last - place]
        done[place:last], place = free, last
    return done - arrivals


@pytest.mark.parametrize(("share", "tolerance"), [(0.05, 0.1), (0.5, 0.2), (0.9, 0.25)])
def test_latencies_are_those_of_a_server_that_reads_in_batches(share: float, tolerance: float) -> None:
    question = asked(ENCODER, gpu="l4", serve__engine=TEI, serve__input_tokens=512, serve__request_rate=1)
    found = served(ENCODER, gpu="l4", serve__engine=TEI, serve__input_tokens=512, serve__request_rate=1).choice.curve
    assert found is not None
    most = int(texts_of_a_step(question.job, ONE, question.traffic)[0])
    times_s = np.array([0.0, *encoding_time(question.job, ONE, np.arange(1.0, most + 1), question.traffic).total_s])
    rate = share * most / times_s[most]
    told = simulated(times_s, rate, most)[1000:] + question.job.request_s
    mean, p95 = latencies(found, question.traffic, rate), latencies(found, question.traffic, rate, 95.0)
    assert mean.request_s[0] == pytest.approx(told.mean(), rel=tolerance)
    assert p95.request_s[0] == pytest.approx(np.percentile(told, 95), rel=0.3)
    assert mean.tpot_s[0] == 0.0


def test_clients_who_wait_for_each_other_are_read_by_halves() -> None:
    """8 in flight: 4 are read while 4 wait, so that each takes the time of two such steps."""
    found = served(ENCODER, serve__concurrency=8, serve__input_tokens=512)
    read_s = encoding_time(found.resolved.job, ONE, 4.0, found.resolved.traffic).total_s[0]
    curve = found.choice.curve
    assert curve is not None
    rate, at = in_flight(curve, found.resolved.traffic, 8.0)
    assert at.request_s[0] == pytest.approx(2 * read_s + found.resolved.job.request_s, rel=0.1)
    assert rate[0] * at.request_s[0] == pytest.approx(8.0)


def test_a_request_of_documents_takes_the_time_of_all_of_them() -> None:
    one, many = (served(ENCODER, serve__documents=count, serve__input_tokens=512) for count in (1, 50))
    assert many.most_per_s * 50 == pytest.approx(one.most_per_s, rel=0.15)
    assert many.cost_per_million_of_both is None
    made = serve(model=ENCODER, gpu="h100-sxm-80gb", serve={"documents": 50}).throughput
    assert made.total_tokens_per_s == pytest.approx(50 * 1024 * made.requests_per_s)


def test_a_decoder_whose_name_says_so_embeds_and_others_write() -> None:
    assert not asked("qwen3-embedding-8b").job.answers
    assert not asked("qwen3-8b", serve__output_tokens=0).job.answers
    assert asked("qwen3-8b").job.answers
    assert asked("qwen3-embedding-8b", serve__output_tokens=10).job.answers


def test_the_report_speaks_of_requests_alone() -> None:
    result = serve(
        model=ENCODER, gpu="l4", cost={"price_per_gpu_hour": 0.7}, serve={"request_rate": 20, "documents": 2}
    )
    text = render(document(result, Options()), Options())
    for word in ("TTFT", "TPOT", "KV", "decode", "output token", "prompt", "token of"):
        assert word not in text
    assert "of 2 documents" in text
    assert result.cost.per_million_output_tokens is None
    assert result.cost.per_million_input_tokens == result.cost.per_million_tokens


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"model": ENCODER, "limits__max_tpot_s": 0.1}, "'max_tpot_s' needs output tokens"),
        ({"model": ENCODER, "serve__turns": 3}, "'turns' needs output tokens"),
        ({"model": ENCODER, "serve__speculative": "ngram"}, "'speculative' needs output tokens"),
        ({"model": ENCODER, "serve__requests": 3}, "a test ('requests') is simulated for answers"),
        ({"serve__documents": 3}, "'documents' is for embeddings and scores"),
        ({"limits__max_request_s": 3}, "'max_request_s' is for embeddings and scores"),
        ({"serve__output_tokens": 0.5}, "an answer has at least one token"),
    ],
)
def test_what_goes_with_answers_alone_is_refused(flags: dict[str, object], words: str) -> None:
    assert any(words in told for told in problems(**flags))


MEASURED = Path(__file__).parents[2] / "benchmarks" / "measured" / "nvidia-h100" / "encoders.jsonl"
BERTS = {"bert-base": "bert-base-uncased", "bert-large": "bert-large-uncased", "bge-m3": ENCODER}


def test_kernels_take_as_long_as_measured_on_an_h100() -> None:
    """Forwards of BERT and XLM-R that the GPU and no host bounds, in PyTorch: 0.87 to 1.2 of what was measured."""
    rows = [json.loads(line) for line in MEASURED.read_text(encoding="utf-8").splitlines()][1:]
    free = [row for row in rows if row.get("model") in BERTS and row["batch"] * row["length"] >= 8192]
    free += [row for row in rows if row.get("model") in BERTS and row["mode"] == "graph"]
    jobs = {name: job(ours, serve__engine="sentence-transformers") for name, ours in BERTS.items()}
    ratios = []
    for row in free:
        work = Work(prefills=row["batch"], prefill_tokens=row["length"])
        parts = step_time(jobs[row["model"]], ONE, work).parts
        ratios.append(1e3 * float(sum(parts[name][0] for name in parts if name != "host")) / row["event_ms"])
    assert len(ratios) == 27
    assert min(ratios) > 0.87
    assert max(ratios) < 1.2
    assert float(np.median(ratios)) == pytest.approx(1.0, abs=0.06)


def test_ranges_are_those_of_measured_encoding() -> None:
    """Factors of the time to a request and, the other way round, of the rate; nothing that writes text has a part."""
    found = asked(ENCODER, gpu="l4", serve__engine="vllm")
    took, rate = span(found, "request"), span(found, "throughput")
    assert rate.low == pytest.approx(1 / took.high)
    assert rate.high == pytest.approx(1 / took.low)
    assert rate.sure == pytest.approx((1 / took.sure[1], 1 / took.sure[0]))
    writes = asked("llama-3.1-8b", gpu="l4", serve__engine="vllm")
    assert took.low != span(writes, "request").low
    assert took.basis is not None
    assert took.basis.runs < 300
    assert took.basis.bias is None
    assert "publications ran like this (a service" in took.evidence


def test_a_forward_alone_is_compared_without_what_a_service_adds() -> None:
    """Half of 20 ms; 4 requests/s are one every 250 ms, of 2 texts of 512 tokens 4,096 tokens/s."""
    common = {
        "job": "inference", "stack": "sentence-transformers", "model": "bge-m3", "gpu": "h100-sxm-80gb", "gpus": 1,
        "input_len": 512, "output_len": 0,
    }  # fmt: skip
    entries = [
        common | {"id": "a", "batch": 256, "measured": {"forward_ms": 20.0}},
        common | {"id": "b", "documents": 2, "concurrency": 3, "measured": {"requests_per_s": 4.0}},
        common | {"id": "c", "documents": 2, "concurrency": 3, "measured": {"total_tokens_per_s": 4096.0}},
    ]
    alone, *rates = (serve_record(one, RecordRegistry()) for one in records_of(entries, Location("test")).records)
    job = alone.served.resolved.job
    once = step_time(job, ONE, Work(prefills=256.0, prefill_tokens=512.0)).total_s[0]
    (figure,) = figures(alone)
    assert (figure.quantity, figure.measured) == ("encoding", pytest.approx(0.02))
    assert figure.predicted == pytest.approx(once)
    assert alone.tested.forwards
    for found in rates:
        (figure,) = figures(found)
        assert figure.measured == pytest.approx(0.25)
        assert figure.predicted == pytest.approx(1 / found.served.requests_per_s)
        assert not found.tested.forwards


@pytest.mark.parametrize(
    ("engine", "split"),
    [("vllm", "pp"), ("sglang", "pp"), (TEI, "tp"), (TEI, "pp"), (TEI, "dp"), ("infinity-emb", "tp")],
)
def test_encoders_that_an_engine_does_not_split(engine: str, split: str) -> None:
    (said,) = problems(model=ENCODER, serve__engine=engine, **{f"layout__{split}": 2})
    assert f"encoders are sized without {split} in {engine} ({split} 2)" in said


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_encoders_are_split_by_tensor_ranks_alone(engine: str) -> None:
    found = served(ENCODER, gpus=2, serve__engine=engine, serve__request_rate=1, layout__tp=2)
    assert (int(found.placement.tp[0]), int(found.placement.pp[0])) == (2, 1)
    assert set(legal_placements(job(ENCODER, serve__engine=engine), {}, 8).pp.tolist()) == {1}
    assert legal_placements(job(ENCODER, serve__engine=TEI), {}, 8).gpus.tolist() == [1]
