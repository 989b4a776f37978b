"""The style sheet of the HTML report: a wide screen, a narrow one, and paper, A4 or Letter."""

from __future__ import annotations

from xe_sizer.report.svg.style import COLOURS, STYLE

PAPER_PX = 672.0  # width of the text on A4, the narrower of the two: 210 mm less the margins, at 96 px an inch
PAPER_FONT_PX = 11.0
PAGE = (
    COLOURS
    + """
:root { color-scheme: light dark; }
* { box-sizing: border-box; }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--page);
  max-width: 72rem; margin: 2rem auto; padding: 0 1rem; overflow-wrap: break-word; }
h1 { font-size: 1.5rem; margin: 0 0 .3rem; }
h1.yes { color: var(--yes); } h1.caution { color: var(--caution); } h1.no { color: var(--no); }
h2 { font-size: 1.05rem; margin: 1.8rem 0 .4rem; }
.lead { text-wrap: pretty; font-size: 1.1rem; margin: 0 0 1rem; max-width: 60rem; }
.pictures { column-width: 26rem; column-gap: 3rem; margin-top: 1.5rem; }
.pictures.one { columns: auto; max-width: 36rem; }
figure { break-inside: avoid; margin: 0 0 1.8rem; }
figcaption { font-size: 1.05rem; font-weight: 600; margin-bottom: .4rem; }
svg.picture { display: block; width: 100%; height: auto; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; }
th, td { padding: .2rem .9rem .2rem 0; text-align: left; vertical-align: top; }
thead th { color: var(--soft); font-weight: 500; border-bottom: 1px solid var(--line); vertical-align: bottom; }
tbody tr:hover td { background: color-mix(in srgb, var(--line) 35%, transparent); }
.n { text-align: right; font-variant-numeric: tabular-nums; } .whole { white-space: nowrap; }
.sum td { font-weight: 600; } .sum.first td { border-top: 1px solid var(--line); }
.origin, .note, footer { color: var(--soft); font-size: .87em; } .note { margin: .3rem 0 0; }
.pair { display: flex; flex-wrap: wrap; gap: 0 3rem; } .pair section { max-width: 100%; min-width: 0; }
.bar { width: 9rem; min-width: 5rem; } .bar i { display: block; height: .75rem; margin-top: .35rem;
  background: var(--fill); }
.summary th { font-weight: 600; min-width: 5.5rem; max-width: 20rem; overflow-wrap: anywhere; }
.gauge { display: inline-block; width: 12rem; margin-right: .7rem; border: 1px solid var(--line); }
.gauge i { display: block; height: .6rem; background: var(--fill); }
.bar i.over, .gauge i.over { background: var(--no); }
.chart { position: relative; min-height: 1.4rem; }
.chart b { position: absolute; top: 0; bottom: 0; border-left: 2px solid var(--ink); }
pre { background: color-mix(in srgb, var(--line) 40%, transparent); padding: .5rem .8rem; margin: .4rem 0;
  white-space: pre-wrap; overflow-wrap: anywhere; }
pre span { display: inline-block; max-width: 100%; }
footer { border-top: 1px solid var(--line); margin-top: 2.5rem; padding-bottom: 1rem; }
footer h2 { color: var(--ink); font-size: .95rem; margin: 1rem 0 .2rem; } footer p { margin: .2rem 0; }
footer dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 17rem), 1fr)); gap: .1rem 2rem;
  margin: .2rem 0; }
footer dl div { break-inside: avoid; } footer dt { display: inline; } footer dt::after { content: ": "; }
footer dd { display: inline; margin: 0; color: var(--ink); }
@media (max-width: 640px) { body { margin: 1rem auto; } th, td { padding-right: .6rem; } .bar { min-width: 4rem; }
  .prose { min-width: 9.5rem; } tr:has(.prose ~ .prose) > * { min-width: 0; padding-right: .4rem; font-size: .8rem;
    white-space: normal; overflow-wrap: anywhere; } tr:has(.prose ~ .prose) > :first-child { overflow-wrap: normal; }
  .wide { font-size: .85rem; }
  .summary th, .summary td { display: block; } .summary th { padding-bottom: 0; } }
@page { margin: 16mm; }
@media print {
  :root { color-scheme: light; font-size: 10pt; }
  body { margin: 0; padding: 0; max-width: none; font-size: .94rem; }
  .pictures { column-width: 7.5cm; column-gap: 1cm; } .pictures.one { max-width: 13cm; }
  .wide { overflow: visible; }
  table { font-size: calc(8.25pt * var(--fit, 1)); } th, td { padding: .12rem .5rem .12rem 0; }
  .broken .whole { white-space: normal; }
  .bar { width: 4rem; min-width: 2.5rem; }
  h2, figcaption, thead { break-after: avoid; } tr, figure, li, footer section { break-inside: avoid; }
  thead { display: table-header-group; }
  svg, .bar i, .gauge i { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""
    + STYLE
)
