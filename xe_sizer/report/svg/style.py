"""Colours and lines of pictures, for light and dark pages and for paper.

Every colour of a part is at least 4.5 to 1 against the number written on it, every line at least 3 to 1 against the
page (WCAG 2.2, 1.4.3 and 1.4.11).
"""

from __future__ import annotations

LIGHT = (
    "--ink: #1a1c20; --soft: #565d69; --line: #d8dce3; --axis: #7a828f; --page: #fff; --on: #fff; --fill: #9fc2ea; "
    "--best: #1f5fa8; --more: #e0a06a; --less: #9fc2ea; --yes: #17753a; --caution: #8a5a00; --no: #b3261e; "
    "--c1: #1f5fa8; --c2: #a8480f; --c3: #237044; --c4: #74459b; --c5: #7d6000; --c6: #0b6d77; --c7: #a0336a; "
    "--c8: #5c6470;"
)
DARK = (
    "--ink: #e6e8ec; --soft: #a4adba; --line: #363c46; --axis: #7f8896; --page: #16181c; --on: #16181c; "
    "--fill: #2f5f96; --best: #7db4ee; --more: #8d5a2a; --less: #2f5f96; --yes: #57c27d; --caution: #e3b341; "
    "--no: #f28b82; --c1: #7db4ee; --c2: #f0a36b; --c3: #74cf99; --c4: #c3a0e6; --c5: #e0c050; --c6: #67cdd6; "
    "--c7: #f09ac0; --c8: #a8b0bd;"
)
COLOURS = f":root {{ {LIGHT} }}\n@media screen and (prefers-color-scheme: dark) {{ :root {{ {DARK} }} }}\n"
ALONE = f"""
{COLOURS}.paper {{ fill: var(--page); }}
"""
STYLE = (
    """
.picture text { font-family: system-ui, sans-serif; fill: var(--ink); stroke: var(--page); stroke-width: 3px;
  stroke-linejoin: round; paint-order: stroke; }
.picture text.b { font-weight: 600; } .picture text.s { fill: var(--soft); }
.picture text.on, .picture text[class^="on-"] { fill: var(--on); stroke: none; font-weight: 600; }
.picture path { fill: none; stroke: var(--axis); stroke-width: 1; }
.picture .grid { stroke: var(--line); } .picture .axis { stroke: var(--axis); }
.picture .rule { fill: var(--line); } .picture .leader { stroke: var(--soft); stroke-width: .8; }
.picture .mark { stroke: var(--no); stroke-width: 1.6; stroke-dasharray: 5 3; }
.picture .middle { stroke: var(--ink); stroke-width: 1.2; }
.picture .whisker { stroke: var(--ink); stroke-width: 1.4; }
.picture .fill { fill: var(--fill); } .picture .less { fill: var(--less); } .picture .more { fill: var(--more); }
.picture .over { fill: none; stroke: var(--no); stroke-width: 2.5; }
.picture .p0 { fill: var(--page); stroke: var(--soft); opacity: .55; }
.picture .p1 { fill: var(--best); stroke: var(--page); }
.picture .p2 { fill: var(--no); stroke: var(--ink); stroke-width: 1.6; }
.picture .l0 { stroke: var(--c1); stroke-width: 2; }
.picture .l1 { stroke: var(--c2); stroke-width: 2; stroke-dasharray: 7 3; }
.picture .l2 { stroke: var(--c3); stroke-width: 2; stroke-dasharray: 2 3; }
.picture .l3 { stroke: var(--c4); stroke-width: 2; stroke-dasharray: 8 3 2 3; }
"""
    + "".join(f".picture .c{place} {{ fill: var(--c{place}); }}\n" for place in range(1, 9))
    + "".join(
        f".picture .cell-{tone} {{ fill: var(--{colour}); }} .picture .sign-{tone} {{ stroke: var(--on); "
        f"stroke-width: 2; }} .picture .key-{tone} {{ stroke: var(--{colour}); stroke-width: 2.2; }}\n"
        for tone, colour in (("yes", "yes"), ("caution", "caution"), ("no", "no"), ("unknown", "c4"), ("", "c8"))
    )
)
