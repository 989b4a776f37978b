"""GPUs by the names that manifests, recipes and file names give to them."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from xe_sizer.frozen import frozen
from xe_sizer.profiles.finder import Finder, meant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xe_sizer.importers.draft import Draft
    from xe_sizer.importers.written import Written

_MAKERS = re.compile(r"^(nvidia|amd|intel)[-_ ]+(tesla[-_ ]+)?|[-_ ](shared|mig.*)$", re.IGNORECASE)
_WORD = re.compile(r"[a-z]+[0-9]+[a-z]*(?:-?[0-9]+gb?)?")
_USUAL = ("sxm", "oam")  # form factors of the accelerators of servers


@frozen
class Gpu:
    """A GPU of the catalogue; `clear` where its name can mean no other."""

    name: str
    clear: bool = True


@cache
def gpu_called(name: str) -> Gpu | None:
    """The GPU that a name means; of several, that of eight-way servers, if it is the only one of these; else None."""
    known = Finder().known("gpu")
    for text in dict.fromkeys((name.strip(), _MAKERS.sub("", name.strip()))):
        found = meant("gpu", text, known)
        if len(found) == 1:
            return Gpu(found[0])
        usual = [each for each in found if any(form in each for form in _USUAL)]
        largest = [each for each in usual if each.endswith("80gb")] or usual
        if len(largest) == 1:
            return Gpu(largest[0], clear=False)
    return None


def state_gpu(draft: Draft, written: Written | None, key: str = "") -> None:
    """State the GPU that a file names; where the name leaves the form factor open, that of servers is assumed.

    key : the foreign key, for what is told of a name that nothing here has
    """
    if written is None:
        return
    found = gpu_called(str(written.value))
    if found is None:
        if key:
            draft.lose(key, f"{written.value} is no GPU known here; pass --gpu")
        return
    if found.clear:
        draft.state("gpu", found.name, written)
    else:
        draft.assume("gpu", found.name, f"{written.value}, in the form that servers have", written.where)


def gpus_in(text: str) -> Iterator[Gpu]:
    """GPUs whose names are words of a text, such as that of a file: `dsr1_fp4_b300.sh`."""
    for word in re.split(r"[_/.\s]+", text.lower()):
        for part in dict.fromkeys((word, *word.split("-"))):
            found = gpu_called(part) if _WORD.fullmatch(part) else None
            if found is not None:
                yield found
