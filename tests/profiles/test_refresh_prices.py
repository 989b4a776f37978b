"""Prices of servers are brought up to date from what clouds publish.

The lists are abridged: AWS's of EC2 as its bulk API has it, with other machines' rows beside those that count; Azure's
as its retail prices API answered for ND96isr H100 v5 in East US in September 2026 (98.32 USD an hour for Linux).
"""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "scripts"))
refreshing = importlib.import_module("refresh_prices")

LISTS = Path(__file__).parent / "prices"
AWS, AZURE = str(LISTS / "aws-ec2-us-east-1.json"), str(LISTS / "azure-retail-eastus.json")
SERVERS = ROOT / "gpu_profiles" / "servers"
DAY = "2026-11-02"
OLD = """name: {name}
vendor: AWS
gpu: a100-sxm-40gb
gpus: 8
price:
  per_hour: 24.7
  currency: USD
  kind: {kind}
  date: "2026-01-01"
  region: us-east-1
  source: >-
    a list that is long enough
    for two lines
source: {{title: a page}}
"""
UNPRICED = "name: azure-nd96isr_h100_v5\nvendor: Azure\ngpu: h100-sxm-80gb\ngpus: 8\nsource: {title: a page}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Profiles with an old price on demand, one of another kind, and none."""
    (tmp_path / "aws-p4d.24xlarge.yaml").write_text(OLD.format(name="aws-p4d.24xlarge", kind="on-demand"))
    (tmp_path / "aws-p5e.48xlarge.yaml").write_text(OLD.format(name="aws-p5e.48xlarge", kind="capacity-block"))
    shutil.copy(SERVERS / "dell-xe9680-h100.yaml", tmp_path)
    (tmp_path / "azure-nd96isr_h100_v5.yaml").write_text(UNPRICED)
    return tmp_path


def test_what_changes_is_told_and_nothing_written(folder: Path) -> None:
    before = {path: path.read_text() for path in folder.iterdir()}
    told = list(refreshing.refresh([AWS, AZURE], folder, DAY, write=False))
    assert told == [
        "aws-p4d.24xlarge: 24.7 USD (us-east-1, 2026-01-01) -> 19.76 USD (us-east-1, 2026-10-20) (-20.0 %)",
        "aws-p5e.48xlarge: left alone, as its price is capacity-block; on demand 63.296 USD (us-east-1, 2026-10-20)",
        f"azure-nd96isr_h100_v5: new, 98.32 USD (eastus, {DAY})",
        "0 unchanged",
    ]
    assert {path: path.read_text() for path in folder.iterdir()} == before


def test_prices_are_written_where_they_stood(folder: Path) -> None:
    list(refreshing.refresh([AWS, AZURE], folder, DAY, write=True))
    known = {
        "aws-p4d.24xlarge": (19.76, "on-demand", "2026-10-20", "us-east-1"),
        "aws-p5e.48xlarge": (24.7, "capacity-block", "2026-01-01", "us-east-1"),
        "azure-nd96isr_h100_v5": (98.32, "on-demand", DAY, "eastus"),
    }
    for name, wanted in known.items():
        price = refreshing.stated_price(folder / f"{name}.yaml")
        assert (price["per_hour"], price["kind"], price["date"], price["region"]) == wanted
    assert "version 20261020180000" in (folder / "aws-p4d.24xlarge.yaml").read_text()
    assert (folder / "aws-p4d.24xlarge.yaml").read_text().endswith("source: {title: a page}\n")
    again = list(refreshing.refresh([AWS, AZURE], folder, DAY, write=False))
    assert again[-1] == "2 unchanged"


def test_only_plain_linux_machines_on_demand_count() -> None:
    """Not Windows, dedicated hosts, reserved capacity that costs nothing, reservations of a year, or spot."""
    for place, name, per_hour in ((AWS, "aws-p5.48xlarge", 55.04), (AZURE, "azure-nd96isr_h100_v5", 98.32)):
        listed = json.loads(Path(place).read_text())
        assert [price["per_hour"] for of, price in refreshing.prices(listed, DAY) if of == name] == [per_hour]


def test_profiles_that_ship_agree_with_the_lists_that_they_quote() -> None:
    """p5.48xlarge has had one price since June 2025."""
    told = list(refreshing.refresh([AWS], SERVERS, DAY, write=False))
    assert not any(line.startswith("aws-p5.48xlarge") for line in told)


def test_another_list_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "skus.json"
    other.write_text('{"skus": []}')
    monkeypatch.setattr(sys, "argv", ["refresh_prices.py", str(other)])
    with pytest.raises(SystemExit, match="neither AWS's price list nor"):
        refreshing.main()
