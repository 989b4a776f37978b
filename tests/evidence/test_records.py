"""Reading measurement records: what is accepted, and how problems are told."""

from pathlib import Path

import pytest

from xe_sizer.errors import InputError
from xe_sizer.evidence.records import RecordFile, read_records

LINE = '{"id": "a", "job": "lora", "model": "llama-2-7b", "gpu": "h100-sxm-80gb", "measured": {"minutes": 3}}'


def read(folder: Path, text: str, name: str = "records.jsonl") -> RecordFile:
    path = folder / name
    path.write_text(text)
    return read_records(path)


def problems(folder: Path, text: str, name: str = "records.jsonl") -> list[str]:
    with pytest.raises(InputError) as caught:
        read(folder, text, name)
    return [str(problem).replace(str(folder), "") for problem in caught.value.problems]


def test_lines_and_lists_hold_the_same_records(tmp_path: Path) -> None:
    lines = read(tmp_path, LINE + "\n\n")
    listed = read(tmp_path, f"# comment\n- {LINE}\n", "records.yaml")
    assert lines.records == listed.records == read(tmp_path, f"[{LINE}]", "records.json").records
    assert lines.records[0].measured.minutes == 3


def test_whole_numbers_may_be_written_as_floats(tmp_path: Path) -> None:
    record = read(tmp_path, LINE.replace('"job"', '"gpus": 8.0, "batch": {"global": 64.0}, "job"')).records[0]
    assert (record.gpus, record.batch.total) == (8, 64)


def test_every_malformed_line_is_told_with_its_number(tmp_path: Path) -> None:
    broken = LINE.replace('"job"', '"gpus": "eight", "layout": {"tp": 1.5}, "job"').replace('"a"', '"b"')
    found = problems(tmp_path, f"{LINE}\n{{not json\n{broken}\n[1]\n")
    assert [problem.split(": ")[0] for problem in found] == [f"/records.jsonl:{line}" for line in (2, 3, 3, 4)]
    assert "'gpus' must be a whole number" in found[1]
    assert "'tp' must be a whole number" in found[2]


def test_a_list_tells_line_and_column(tmp_path: Path) -> None:
    found = problems(tmp_path, "- id: a\n  job: lora\n  gpus: many\n- job: sft\n", "r.yaml")
    assert found[0].startswith("/r.yaml:3:9: 'gpus' must be a whole number")
    assert "missing key 'id'" in found[1]


def test_a_group_of_keys_is_no_list(tmp_path: Path) -> None:
    assert "the file must hold a list" in problems(tmp_path, "id: a\n", "r.yaml")[0]


def test_unknown_keys_are_noted_once_and_not_refused(tmp_path: Path) -> None:
    odd = LINE.replace('"job"', '"seq_length": 2048, "measured_by": "x", "job"')
    found = read(tmp_path, f"{odd}\n{odd.replace(chr(34) + 'a', chr(34) + 'b')}\n")
    assert len(found.records) == 2
    assert [note.message for note in found.notes] == [
        "note: the unknown key 'measured_by' of 2 records is not used",
        "note: the unknown key 'seq_length' of 2 records is not used",
    ]
    assert found.notes[1].hint == "did you mean 'seq_len' or 'max_seq_len'?"


def test_what_sections_say_beyond_the_schema_is_passed_over(tmp_path: Path) -> None:
    line = LINE.replace('{"minutes": 3}', '{"minutes": 3, "published": "3 min"}')
    found = read(tmp_path, line.replace('"job"', '"source": {"anything": 1}, "interconnect": {"intra": "x"}, "job"'))
    assert found.notes == ()


def test_ids_must_differ(tmp_path: Path) -> None:
    assert "the id 'a' is given 2 times" in problems(tmp_path, f"{LINE}\n{LINE}\n")[0]


def test_of_an_inference_record_only_its_name_is_read(tmp_path: Path) -> None:
    line = '{"id": "i", "job": "inference", "model": "m", "gpu": "g", "batch": 8, "measured": {"ttft_ms": 5}}'
    record = read(tmp_path, line).records[0]
    assert (record.id, record.job, record.model) == ("i", "inference", "m")


def test_what_learns_from_its_own_answers_is_no_inference_record(tmp_path: Path) -> None:
    line = (
        '{"id": "a", "job": "grpo", "model": "qwen3-32b", "gpu": "h100-sxm-80gb", "reference": "copy",'
        '"input_len": 110, "output_len": 3251, "max_output_len": 4096, "trainer_gpus": 32, "critic_model": "qwen3-8b",'
        '"batch": {"prompts": 64, "group": 32, "global": 512}, "rollout": {"engine": "vllm", "gpus": 32, "tp": 4},'
        '"measured": {"iteration_s": 376, "rollout_s": 200, "train_s": 150}}'
    )
    found = read(tmp_path, line)
    record = found.records[0]
    assert found.notes == ()
    assert record.reinforces
    assert not record.serves
    assert (record.batch.prompts, record.batch.group, record.rollout.tp) == (64, 32, 4)
    assert record.measured.iteration_s == 376


def test_a_malformed_rollout_is_told_with_its_line(tmp_path: Path) -> None:
    found = problems(tmp_path, LINE.replace('"job"', '"rollout": {"gpus": "all"}, "job"'))
    assert found == ["/records.jsonl:1: 'gpus' must be a whole number, not 'all'"]


def test_a_record_with_lengths_of_answers_alone_is_of_inference(tmp_path: Path) -> None:
    record = read(tmp_path, LINE.replace('"job": "lora"', '"job": "chat", "output_len": 100')).records[0]
    assert record.serves
    assert not record.reinforces
