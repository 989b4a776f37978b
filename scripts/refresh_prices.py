"""Bring prices of servers up to date with a cloud's price list: python scripts/refresh_prices.py LIST... [--write]

LIST is a file or an address. What is read, each as the cloud publishes it:

  AWS    the price list of EC2 in one region, a file of some 300 MB, from
         https://pricing.us-east-1.amazonaws.com/offers/v1.0/aws/AmazonEC2/current/us-east-1/index.json
  Azure  an answer of the retail prices API, with its further pages where it is an address:
         https://prices.azure.com/api/retail/prices?$filter=serviceName eq 'Virtual Machines' and armRegionName eq
         'eastus' and priceType eq 'Consumption'

Only prices on demand of Linux machines are read, as a profile on other terms says more than the hour. What changed is
printed; --write puts it into the profiles. Google's list is not read: it prices accelerators, cores and memory apart.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

from xe_sizer.profiles.write import lines
from xe_sizer.profiles.yaml_reader import load_yaml

SERVERS = Path(__file__).resolve().parents[1] / "gpu_profiles" / "servers"
ON_DEMAND = "on-demand"
Price = dict[str, Any]


def read(place: str) -> Iterator[Mapping[str, Any]]:
    """A list, and the further pages of one that has an address."""
    if not place.startswith(("http://", "https://")):
        yield json.loads(Path(place).read_text(encoding="utf-8"))
        return
    page: str | None = place
    while page:
        with urlopen(quote(page, safe=":/?&=$%,")) as answer:
            found = json.load(answer)
        yield found
        page = found.get("NextPageLink")


def prices(listed: Mapping[str, Any], read_on: str) -> Iterator[tuple[str, Price]]:
    """Names of profiles with the price of each that a list has.

    read_on : the day of a list that does not say when it was published
    Raises ValueError: the list is of no known form
    """
    if "offerCode" in listed:
        yield from _of_aws(listed)
    elif "BillingCurrency" in listed and "Items" in listed:
        yield from _of_azure(listed["Items"], read_on)
    else:
        raise ValueError("neither AWS's price list nor an answer of Azure's retail prices API")


_PLAIN = {"operatingSystem": "Linux", "tenancy": "Shared", "preInstalledSw": "NA", "capacitystatus": "Used"}


def _of_aws(listed: Mapping[str, Any]) -> Iterator[tuple[str, Price]]:
    source = "AWS Price List, {}, Linux, shared tenancy, version " + str(listed["version"])
    for sku, product in listed["products"].items():
        found = product["attributes"]
        if any(found.get(key) != value for key, value in _PLAIN.items()):
            continue
        for term in listed["terms"]["OnDemand"].get(sku, {}).values():
            for rate in term["priceDimensions"].values():
                per_hour = float(rate["pricePerUnit"].get("USD", 0.0))
                if rate["unit"] == "Hrs" and per_hour > 0.0:
                    region, date = found["regionCode"], listed["publicationDate"][:10]
                    terms = {"kind": ON_DEMAND, "date": date, "region": region, "source": source.format(region)}
                    yield f"aws-{found['instanceType']}", {"per_hour": per_hour, "currency": "USD", **terms}


def _of_azure(items: Iterable[Mapping[str, Any]], read_on: str) -> Iterator[tuple[str, Price]]:
    for item in items:
        other = item["productName"].endswith("Windows") or item["meterName"].endswith((" Spot", " Low Priority"))
        if item["type"] == "Consumption" and item["unitOfMeasure"] == "1 Hour" and not other:
            region, name = item["armRegionName"], item["armSkuName"].removeprefix("Standard_").lower()
            source = f"Azure retail prices API, {region}, Linux"
            terms = {"kind": ON_DEMAND, "date": read_on, "region": region, "source": source}
            yield f"azure-{name}", {"per_hour": item["retailPrice"], "currency": item["currencyCode"], **terms}


def stated_price(path: Path) -> Price | None:
    """The price in a profile's file; None where there is no file, or none in it."""
    return dict(load_yaml(path).value).get("price") if path.is_file() else None  # type: ignore[call-overload]


def compared(name: str, old: Price | None, new: Price) -> str | None:
    """What changes of a price, in one line; None where nothing does but its date and source."""
    now = f"{new['per_hour']:g} {new['currency']} ({new['region']}, {new['date']})"
    if old is None:
        return f"{name}: new, {now}"
    if old.get("kind") != ON_DEMAND:
        return f"{name}: left alone, as its price is {old.get('kind') or 'of no stated kind'}; on demand {now}"
    if (old["per_hour"], old["currency"]) == (new["per_hour"], new["currency"]):
        return None
    change = f" ({100 * (new['per_hour'] / old['per_hour'] - 1):+.1f} %)" if old["currency"] == new["currency"] else ""
    return f"{name}: {old['per_hour']:g} {old['currency']} ({old['region']}, {old['date']}) -> {now}{change}"


def with_price(text: str, price: Price) -> str:
    """A profile's text with another price, before its source where it has none."""
    block = "\n".join(lines({"price": price})) + "\n"
    replaced, found = re.subn(r"^price:.*\n(?:[ \t].*\n)*", lambda _: block, text, flags=re.MULTILINE)
    return (
        replaced if found else re.sub(r"^(?=(?:assumed|source):)", lambda _: block, text, count=1, flags=re.MULTILINE)
    )


def refresh(places: Iterable[str], folder: Path, read_on: str, write: bool) -> Iterator[str]:
    """Compare every profile in a folder with the lists; yield a line for each change, and write them where asked to.

    Of several prices of one machine in a list the lowest counts.
    """
    found: dict[str, Price] = {}
    for place in places:
        for listed in read(place):
            for name, price in prices(listed, read_on):
                if name not in found or price["per_hour"] < found[name]["per_hour"]:
                    found[name] = price
    unchanged = 0
    for path in sorted(folder.glob("*.yaml")):
        if path.stem not in found:
            continue
        old, price = stated_price(path), found[path.stem]
        told = compared(path.stem, old, price)
        unchanged += told is None
        if told:
            yield told
        if write and (old is None or old.get("kind") == ON_DEMAND):
            path.write_text(with_price(path.read_text(encoding="utf-8"), price), encoding="utf-8")
    yield f"{unchanged} unchanged"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lists", nargs="+", metavar="LIST")
    parser.add_argument("--servers", type=Path, default=SERVERS, help="folder of the profiles")
    today = datetime.now(UTC).date().isoformat()
    parser.add_argument("--read-on", default=today, help="the day of a list that does not say when it was published")
    parser.add_argument("--write", action="store_true", help="put the prices into the profiles")
    options = parser.parse_args()
    try:
        for line in refresh(options.lists, options.servers, options.read_on, options.write):
            print(line)
    except (ValueError, KeyError, OSError) as error:
        sys.exit(f"refresh_prices.py: {error}")


if __name__ == "__main__":
    main()
