"""How far off the figures of an inference service may be: from the residuals of published runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from xe_sizer.software.uncertainty import ANY, SPEED_OF_LIGHT, TABLES, from_residuals, published, symmetric

if TYPE_CHECKING:
    from xe_sizer.serving.resolved import ResolvedService
    from xe_sizer.software.uncertainty import Uncertainty

TABLE = TABLES / "serving.json"
Quantity = Literal["ttft", "tpot", "request", "throughput"]
# Contexts, workspaces, captured graphs and buffers differ by about 2 GiB between releases of one engine: assumed.
MEMORY_ERROR_SHARE = 0.03


def span(resolved: ResolvedService, quantity: Quantity, assumed: bool = False) -> Uncertainty:
    """The range of a latency or rate as factors on what is expected; 80 % of unseen measurements should lie inside.

    A request takes most of its time token by token, and has the range of that. Engines without measurements have the
    range of their parent, or of all. assumed : lengths are a guess
    """
    engine, efficiency = resolved.job.engine, resolved.job.efficiency
    if efficiency.ideal:
        return SPEED_OF_LIGHT
    if efficiency.fixed:
        text = f"the efficiency that was given and the engine {engine.name}'s assumed {engine.uncertainty:.0%}"
        return symmetric(engine.uncertainty, text, False)
    table, kind = published(TABLE), "tpot" if quantity == "request" else quantity
    known = (engine.name, engine.measured_as or "", engine.parent or "")
    name = next((one for one in known if (one, ANY, assumed) in table or (one, ANY, False) in table), engine.name)
    borrowed = bool(resolved.job.server.accelerator.laws.assumed)
    return from_residuals(table, name, kind, assumed, borrowed, "engine")
