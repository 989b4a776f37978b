"""Choose the records that ship: python scripts/curate_records.py FILE...

A few runs of every publication, spread over its models, accelerators and sizes; facts only. Of what a record says in
words only those are kept that decide how it is predicted. Publications with a file of their own are left out.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path

from xe_sizer.evidence.names import conditions
from xe_sizer.evidence.records import Record, read_records

DATA = Path(__file__).parents[1] / "xe_sizer" / "evidence" / "data"
TRAINED, SERVED = DATA / "published.jsonl", DATA / "served.jsonl"
PER_PUBLICATION = 6
NEVER_KEPT = {"notes", "inferred", "gpu_memory_gb"}
LEFT_OUT = ("dell_", "llama_paper")
SERVING_WORDS = ("device_map",)


def deciding_words(record: Record) -> str | None:
    """Words of the notes that a rule looks for."""
    outside = (record.framework or "").lower()
    found = sorted(word for word in SERVING_WORDS if word in conditions(record) and word not in outside)
    return "; ".join(found) or None


def kept(row: dict[str, object], record: Record) -> dict[str, object]:
    facts = {key: value for key, value in row.items() if key not in NEVER_KEPT}
    words = deciding_words(record)
    return facts | ({"notes": words} if words else {})


def spread(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """Evenly spaced ones in the order of model, accelerator and size."""
    ordered = sorted(rows, key=lambda row: (str(row["model"]), str(row["gpu"]), row.get("gpus") or 0, str(row["id"])))
    count = min(PER_PUBLICATION, len(ordered))
    return [ordered[round(place * (len(ordered) - 1) / max(count - 1, 1))] for place in range(count)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    by_title: dict[str, list[dict[str, object]]] = defaultdict(list)
    serving: dict[str, bool] = {}
    for file in parser.parse_args().files:
        if any(part in file.name for part in LEFT_OUT):
            continue
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
        for row, record in zip(rows, read_records(file).records, strict=True):
            by_title[record.title].append(kept(row, record))
            serving[record.title] = record.serves
    for serves, target in ((False, TRAINED), (True, SERVED)):
        titles = sorted(title for title, rows in by_title.items() if rows and serving[title] == serves)
        chosen = [row for title in titles for row in spread(by_title[title])]
        if chosen:
            target.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in chosen), encoding="utf-8")
        print(f"{len(chosen)} records of {len(titles)} publications in {target.name}")


if __name__ == "__main__":
    main()
