"""What engines choose by themselves: by the card, by the longest sequence, and by the accelerator's vendor."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace
from serving_cases import asked, engine_file, job, problems, served

from xe_sizer.errors import InputError
from xe_sizer.profiles.catalogue import load_engine
from xe_sizer.serving.job import ReplicaLayouts, ServingJob, Traffic
from xe_sizer.serving.memory import serving_memory
from xe_sizer.serving.queueing import steady
from xe_sizer.serving.search_space import legal_placements
from xe_sizer.serving.simulation import Offered, Outcome, simulate
from xe_sizer.serving.step_time import Work, launching_s, step_time, waiting_s
from xe_sizer.units import GIB

OWN = """\
name: mine
parent: vllm@0.6
describes: The first engine, with smaller pieces of longer prompts.
by_context: {pieces_above: 20000, piece_tokens: 256}
"""


@pytest.mark.parametrize(
    ("gpu", "tokens", "sequences"),
    [("h100-sxm-80gb", 8192, 1024), ("l40s", 2048, 256), ("a100-sxm-80gb", 2048, 256), ("mi300x", 8192, 1024)],
)
def test_steps_of_vllm_by_the_card(gpu: str, tokens: int, sequences: int) -> None:
    batching = asked(gpu=gpu, gpus=1).job.engine.batching
    assert (batching.max_step_tokens, batching.max_sequences) == (tokens, sequences)
    assert asked(gpu=gpu, gpus=1, serve__max_sequences=9).job.engine.batching.max_sequences == 9


@pytest.mark.parametrize(
    ("model", "engine", "asks", "tokens", "chunked"),
    [
        ("llama-2-7b", "vllm@0.6.3", {}, 4096, False),
        ("llama-3.1-8b", "vllm@0.6.3", {}, 512, True),
        ("llama-3.1-8b", "vllm@0.6.3", {"serve__max_model_len": 8000}, 8000, False),
        ("llama-3.1-8b", "vllm@0.5.3", {}, 131_072, False),
        ("llama-3.1-8b", "vllm-v0", {}, 512, True),
        ("llama-2-7b", "vllm@0.6.3", {"serve__input_tokens": 33_000, "serve__max_model_len": 40_000}, 512, True),
        ("llama-3.1-8b", "vllm", {}, 8192, True),
    ],
)
def test_steps_of_the_first_engine_by_the_longest_sequence(
    model: str, engine: str, asks: dict[str, object], tokens: int, chunked: bool
) -> None:
    batching = asked(model, serve__engine=engine, **asks).job.engine.batching
    assert (batching.max_step_tokens, batching.chunked_prefill) == (tokens, chunked)
    assert batching.mixed_steps is chunked


def test_a_users_engine_chooses_so_too(tmp_path: Path) -> None:
    path = engine_file(tmp_path, OWN)
    assert asked("llama-3.1-8b", serve__engine=path).job.engine.batching.max_step_tokens == 256
    assert asked("llama-2-7b", serve__engine=path).job.engine.batching.max_step_tokens == 4096


@pytest.mark.parametrize(
    ("written", "name", "release"),
    [("vllm", "vllm-rocm", None), ("vllm@0.6.3", "vllm-rocm", "0.6.3"), ("vllm-v0", "vllm-rocm", "0.7")],
)
def test_an_engine_has_ports_in_the_same_release(written: str, name: str, release: str | None) -> None:
    engine = asked(gpu="mi300x", serve__engine=written).job.engine
    assert (engine.name, engine.release) == (name, release)
    assert asked(serve__engine=written).job.engine.name == load_engine(written).name


def test_products_of_the_ports_of_2024_are_slower() -> None:
    for name, release in (("tgi-rocm", ""), ("vllm-rocm", "@0.6.3")):
        assert load_engine(name + release).efficiency.matmul == 0.45
    assert load_engine("vllm-rocm").efficiency.matmul == load_engine("tgi").efficiency.matmul == 1.0
    assert asked(gpu="mi300x", serve__engine="tgi").job.engine.name == "tgi-rocm"


def test_products_of_few_rows_on_mi300x_have_no_kernels_of_their_own_in_2024() -> None:
    """A fifth of the rate below 512 rows, on MI300X alone; prompts keep theirs."""
    made = {
        name: job("llama-3.1-70b", gpu=gpu, serve__engine=engine)
        for name, gpu, engine in (
            ("old", "mi300x", "vllm@0.6.3"),
            ("new", "mi300x", "vllm"),
            ("other", "mi250", "vllm@0.6.3"),
        )
    }
    laws = {name: (one.device.matmul.few_rows, one.device.matmul.few_rows_share) for name, one in made.items()}
    assert laws == {"old": (512.0, 0.2), "new": (0.0, 1.0), "other": (0.0, 1.0)}
    old = made["old"]
    tuned = replace(old, device=replace(old.device, matmul=replace(old.device.matmul, few_rows=0.0)))
    steps = [{"decodes": 256.0, "decode_past": 1000.0}, {"prefills": 1.0, "prefill_tokens": 1024.0}]
    slower = [seconds(old, **work) / seconds(tuned, **work) for work in steps]
    assert slower[0] > 1.5
    assert slower[1] == pytest.approx(1.0)


def test_the_port_of_2024_reads_the_cache_for_each_query_head() -> None:
    kernels = [load_engine(f"vllm-rocm@{release}").kernels.decode for release in ("0.6.3", "0.9")]
    assert kernels == ["per-head", "split"]


def test_a_cache_in_fp8_is_read_for_each_query_head_where_flash_attention_cannot() -> None:
    """vLLM: FlashAttention 3 reads it on Hopper, and the first engine had none; XFormers and PagedAttention did it."""
    gpus = ("v100-sxm-32gb", "a100-sxm-80gb", "l40s", "h100-sxm-80gb")

    def ratios(release: str) -> list[float]:
        """Time of attention with a cache in fp8 over that of one in 16 bit; four query heads share keys and values."""
        found = []
        for gpu in gpus:
            narrow, wide = (
                step_time(
                    job(gpu=gpu, precision="fp16", serve__engine=f"vllm@{release}", serve__kv_cache=cache),
                    ReplicaLayouts.of(),
                    Work(decodes=32.0, decode_past=8000.0),
                ).parts["attention"][0]
                for cache in ("fp8", "fp16")
            )
            found.append(float(narrow / wide))
        return found

    first, second, newest = (ratios(release) for release in ("0.7", "0.10", "0.11"))
    assert min(first) > 1.8
    assert first[:3] == pytest.approx(second[:3])
    assert second[1] > 2 * second[2]  # Ada has an instruction for it
    assert second[3] == pytest.approx(0.5, abs=0.1)
    assert newest == pytest.approx([1.0, 1.0, 0.5, 0.5], abs=0.1)


def test_generations_of_the_first_engine() -> None:
    found = {release: load_engine(f"vllm@{release}") for release in ("0.2", "0.3", "0.4.2", "0.5.4", "0.8")}
    assert [engine.host.graphs for engine in found.values()] == [(), (256,), (256,), (256,), (512,)]
    assert [engine.exchanges.all_reduce for engine in found.values()] == ["nccl", *["custom"] * 4]
    assert [engine.kernels.decode for engine in found.values()] == [*["per-head"] * 3, "split", "split"]
    assert [engine.narrow["awq"].launches for engine in found.values()] == [1, 1, 1, 0, 0]
    assert [engine.narrow["int4"].launches for engine in found.values()] == [1, 1, 0, 0, 0]
    assert [engine.host.sequence_us for engine in found.values()] == [60, 60, 60, 60, 5]


def test_tgi_replays_decode_steps_of_up_to_32_sequences_since_it_does_so_by_default() -> None:
    """launcher/src/main.rs: 1, 2, 4, 8, 16, 32 since 2.0; on request since 1.4.1."""
    assert [load_engine(name).host.graphs for name in ("tgi", "tgi@2.0", "tgi@1.4", "tgi-2023")] == [
        (32,),
        (32,),
        (),
        (),
    ]
    made = job(serve__engine="tgi", gpu="h100-sxm-80gb", model="llama-3.2-1b")
    replayed, eager = (seconds(made, decodes=float(n), decode_past=100.0) for n in (32, 33))
    assert eager > 1.7 * replayed


def test_llama_cpp_replays_steps_of_one_token_since_may_2024() -> None:
    assert [load_engine(name).host.graphs for name in ("llama.cpp", "llama.cpp@24.05", "llama.cpp@24.04")] == [
        (1,),
        (1,),
        (),
    ]


# What an engine chooses by the card, and what its share of the memory is of.


def seconds(made: ServingJob, **work: float) -> float:
    return float(step_time(made, ReplicaLayouts.of(), Work(**work)).total_s[0])


def run(made: ServingJob, load: Offered) -> Outcome:
    one = ReplicaLayouts.of()
    return simulate(made, one, serving_memory(made, one, 800.0), Traffic(1.0, 1.0), load)


def with_batching(made: ServingJob, **changes: object) -> ServingJob:
    batching = msgspec.structs.replace(made.engine.batching, **changes)
    return replace(made, engine=msgspec.structs.replace(made.engine, batching=batching))


def with_host(made: ServingJob, **changes: object) -> ServingJob:
    host = msgspec.structs.replace(made.engine.host, **changes)
    return replace(made, engine=msgspec.structs.replace(made.engine, host=host))


@pytest.mark.parametrize(
    ("memory_gib", "tokens", "share"),
    [(16, 2048, 0.77), (24, 2048, 0.85), (48, 4096, 0.83), (80, 8192, 0.83), (141, 8192, 0.9), (180, 16384, 0.855)],
)
def test_sglang_chooses_prefill_steps_and_share_by_the_memory(memory_gib: float, tokens: int, share: float) -> None:
    """Of 80 GiB: 0.5 + 8,192 x 1.5 / 1,024 + 2 x 256 / 1,024 + 1 / 8 GiB are left, which is 13.1 GiB or 16 %."""
    engine = load_engine("sglang").on_card(memory_gib * GIB, "hopper")
    assert (engine.batching.max_step_tokens, engine.memory.utilization) == (tokens, share)


def test_settings_of_the_user_come_before_the_choice_of_the_engine() -> None:
    found = asked(serve__engine="sglang", serve__max_step_tokens=777).job.engine
    assert (found.batching.max_step_tokens, found.memory.utilization) == (777, 0.83)


def test_a_static_share_holds_weights_and_cache_and_leaves_the_step_its_rest() -> None:
    """pool = share x (card - context) - weights, whatever a step needs beside."""
    found = served(serve__engine="sglang", serve__batch=4)
    card, memory = found.memory.usable_bytes, found.memory
    expected = 0.83 * (card - memory.fixed["CUDA context"][0]) - memory.fixed["weights"][0]
    assert memory.pool_bytes[0] == pytest.approx(expected)
    more = served(serve__engine="sglang", serve__batch=4, serve__max_step_tokens=2048)
    assert more.memory.pool_bytes[0] == pytest.approx(expected)


def test_options_that_delay_admission_reach_the_scheduler() -> None:
    found = asked(serve__engine="sglang", serve__scheduler_recv_interval=10, serve__batch_wait_iters=20)
    batching = found.job.engine.batching
    assert (batching.scheduler_recv_interval, batching.batch_wait_iters) == (10, 20)
    assert asked(serve__engine="sglang").job.engine.batching.scheduler_recv_interval == 1


def test_a_step_that_is_made_up_while_another_runs_does_not_hold_who_comes_then() -> None:
    """One answers; the second comes within its third step, misses the fourth, and its prompt runs in the fifth."""
    made = with_host(job(serve__engine="sglang"), step_ms=0.0, sequence_us=0.0)
    decodes = [seconds(made, decodes=1, decode_past=past) for past in (100, 101, 102, 103)]
    prompts = [seconds(made, prefills=1, prefill_tokens=size) for size in (100, 700)]
    until = prompts[0] + made.request_s
    come = until + decodes[0] + decodes[1] + decodes[2] / 2.0 - made.request_s
    load = Offered(np.array([100.0, 700.0]), np.array([50.0, 1.0]), np.array([0.0, come]))
    begun = until + sum(decodes)
    assert run(made, load).first_s[1] == pytest.approx(begun + prompts[1], rel=1e-3)
    alone = with_batching(made, overlaps=False)
    assert run(alone, load).first_s[1] == pytest.approx(begun - decodes[3] + prompts[1], rel=1e-3)


def test_vllm_plans_a_step_while_another_runs_since_its_release_0_14() -> None:
    """A millisecond of the host and 5 us of each of 8 sequences, all of which the accelerator waited for before."""
    before, since = (
        seconds(job(serve__engine=f"vllm@{release}"), decodes=8, decode_past=100) for release in ("0.13", "0.14")
    )
    assert before - since == pytest.approx(1.04e-3, rel=1e-6)


def test_a_steady_replica_takes_in_a_step_later_where_steps_overlap() -> None:
    """With 8 inside 7 of 8 requests find others; looking up every 11 steps costs 5 more of them."""
    made, traffic = with_host(job(serve__engine="sglang"), step_ms=0.0, sequence_us=0.0), Traffic(1024, 256)
    made = with_batching(made, overlaps=False)
    usual = steady(made, ReplicaLayouts.of(), traffic, 8.0)
    for changes, steps in (({"overlaps": True}, 1.0), ({"scheduler_recv_interval": 11}, 5.0)):
        later = steady(with_batching(made, **changes), ReplicaLayouts.of(), traffic, 8.0)
        assert later.prefill_s - usual.prefill_s == pytest.approx(steps * usual.step_s * 7 / 8)
        assert later.tpot_s == pytest.approx(usual.tpot_s)


# What the host starts itself.


@pytest.mark.parametrize(
    ("name", "memory_gib", "narrow", "wide"),
    [
        ("sglang", 24, 24, 80),
        ("sglang", 48, 32, 160),
        ("sglang", 80, 256, 512),
        ("sglang", 141, 256, 512),
        ("sglang", 180, 512, 512),
        ("tensorrt-llm", 80, 128, 128),
        ("vllm", 80, 512, 512),
        ("vllm@0.6", 80, 256, 256),
    ],
)
def test_decode_steps_are_replayed_up_to_the_largest_graph(
    name: str, memory_gib: float, narrow: int, wide: int
) -> None:
    """SGLang server_args.py (0.5.9), with fewer than 4 ranks and with 4; llmapi DecodeCudaGraphConfig; vLLM config."""
    engine = load_engine(name).on_card(memory_gib * GIB, "hopper")
    made = replace(job("llama-3.1-70b", server="dell-xe9680-h100", serve__engine=name), engine=engine)
    for ranks, most in ((2, narrow), (4, wide)):
        works = Work(decodes=np.array([most, most + 1.0]), decode_past=100)
        starting = launching_s(step_time(made, ReplicaLayouts.of(tp=[ranks]), works).step)
        assert starting[0] == 0 < starting[1]


@pytest.mark.parametrize(
    ("model", "ranks", "tokens", "measured_s"), [("qwen3-4b", 1, 513, 16.4e-3), ("deepseek-v3", 8, 1, 82.6e-3)]
)
def test_prompts_that_python_starts_take_41_us_a_kernel(model: str, ranks: int, tokens: int, measured_s: float) -> None:
    """Eager prompts whose time does not depend on their length: sfllm pull request 46, SGLang pull request 12160."""
    made = job(model, server="dell-xe9680-h200", serve__engine="sglang@0.5.5", layout__tp=ranks)
    made = with_host(made, launch_us=41.0)
    step = step_time(made, ReplicaLayouts.of(tp=[ranks]), Work(prefills=1, prefill_tokens=tokens)).step
    assert float(launching_s(step)[0]) == pytest.approx(measured_s, rel=0.05)


def test_in_pieces_attention_and_scans_alone_are_started() -> None:
    """Up to 512 tokens vLLM replays what is around its 32 kernels of attention, of 41 us each."""
    made = job(serve__engine="vllm")
    works = Work(prefills=1.0, prefill_tokens=np.array([512.0, 513.0]))
    pieces, whole = launching_s(step_time(made, ReplicaLayouts.of(), works).step)
    assert pieces == pytest.approx(32 * 41e-6)
    assert whole > 2 * pieces


@pytest.mark.parametrize(
    ("device_s", "starting_s", "between_s", "apart", "together"),
    [(10.0, 4.0, 3.0, 3.0, 0.0), (10.0, 12.0, 3.0, 5.0, 5.0), (2.0, 0.0, 3.0, 3.0, 1.0)],
)
def test_a_step_that_is_made_up_beside_another_takes_as_long_as_the_slower_of_both(
    device_s: float, starting_s: float, between_s: float, apart: float, together: float
) -> None:
    for overlaps, expected in ((False, apart), (True, together)):
        assert float(waiting_s(*map(np.array, (device_s, starting_s, between_s)), overlaps)) == expected


# Lengths that no prompt and no answer is above.


def test_the_longest_lengths_reach_the_traffic_with_the_tokens_of_images() -> None:
    found = asked(serve__output_tokens=100, serve__output_spread=0.8, serve__longest_output_tokens=128).traffic
    assert (found.longest_input, found.longest_output) == (np.inf, 128.0)
    seen = asked("qwen3-vl-8b", serve__images=1, serve__input_tokens=100, serve__longest_input_tokens=150).traffic
    assert seen.longest_input - seen.inputs == pytest.approx(50.0)


def test_a_mean_above_the_longest_is_refused() -> None:
    with pytest.raises(InputError, match="the mean of 200 tokens is above the longest, 128"):
        asked(serve__output_tokens=200, serve__longest_output_tokens=128)


@pytest.mark.parametrize("engine", ["llama.cpp", "llama.cpp-metal", "exllamav2", "hf-transformers"])
def test_engines_that_split_by_layers_have_neither_ep_nor_dp(engine: str) -> None:
    """A mixture on several GPUs has each layer whole on one of them, as a dense model has."""
    question = replace(job("qwen3-235b-a22b", server="dell-xe9680-h200"), engine=load_engine(engine))
    found = legal_placements(question, {}, 8)
    assert (set(found.tp.tolist()), set(found.ep.tolist()), set(found.dp.tolist())) == ({1}, {1}, {1})
    assert found.pp.tolist() == [1, 2, 3, 4, 5, 6, 8]


@pytest.mark.parametrize("name", ["ep", "dp"])
def test_ep_and_dp_are_refused_where_layers_are_whole(name: str) -> None:
    asks: dict[str, object] = {"server": "dell-xe9680-h200", "serve__engine": "llama.cpp", "serve__weights": "int4"}
    (said,) = problems(model="deepseek-v3", **asks, **{f"layout__{name}": 4})
    assert f"llama.cpp splits a model over GPUs by its layers alone and has no {name} ({name} 4)" in said
    assert asked("deepseek-v3", **asks, **{f"layout__{name}": 1}).fixed == {name: 1}
