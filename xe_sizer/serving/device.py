"""The accelerator and its links as an engine drives them, with the number formats of a scheme."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.laws.collectives import ALL_REDUCE
from xe_sizer.laws.device import device
from xe_sizer.laws.network import network
from xe_sizer.serving.job import ServingJob, reserves, wide_modules
from xe_sizer.software.engine import NarrowKernel
from xe_sizer.units import MICRO, SIXTEEN_BIT

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.laws.collectives import Network
    from xe_sizer.laws.device import Efficiency
    from xe_sizer.laws.hardware import Accelerator, Server
    from xe_sizer.laws.matmul import MatmulLaw
    from xe_sizer.laws.operator_time import Device
    from xe_sizer.software.engine import Engine
    from xe_sizer.software.number_formats import Scheme

# A kernel that reads 16-bit activations and writes 8-bit ones; its time is assumed.
OWN_CAST_S, OWN_CAST_BYTES = 3e-6, 3.0
# 21,296 products in fp8 with scales of blocks, timed by aiconfigurator (TensorRT-LLM 1.3, H100), fit at 1.01.
BLOCKED_SHARPNESS = 1.01
# Published runs of mixtures: 342 figures, median ratio 0.96 with 1.5 where the 1.1 of unpadded rows leaves 0.93.
TILED_SHARPNESS = 1.5
# DeepGEMM's persistent grouped products over rows in order of experts: 1,093 to 1,297 TFLOP/s on H800 (its README of
# February 2025), 0.60 of the peak where the law of grouped products has 0.49. They load ahead of what they compute: the
# knee is fitted to 51 runs of Qwen3-235B with vLLM 0.12 on H200.
PERSISTENT_GAIN, PERSISTENT_SHARPNESS = 1.24, 2.0


def serving_job(
    model: ModelShape, engine: Engine, scheme: Scheme, server: Server, efficiency: Efficiency
) -> ServingJob:
    """Joins model, engine and hardware."""
    return ServingJob(
        model=model,
        engine=engine,
        scheme=scheme,
        server=server,
        device=_device(server.accelerator, engine, scheme, efficiency),
        network=_network(server, engine),
        efficiency=efficiency,
    )


def _device(gpu: Accelerator, engine: Engine, scheme: Scheme, chosen: Efficiency) -> Device:
    """The accelerator with the scheme's formats; narrow weights stream at the share that the engine's kernels reach."""
    made = device(gpu, scheme.compute, engine.kernels.attention_family, engine.efficiency, chosen, False)
    if not chosen.fixed:
        wide = _streaming(made.scan_matmul, engine.efficiency.streaming)
        narrow = _narrow_share(scheme, engine)
        grouped = _product_law(_tiled(made.expert_matmul, engine), wide, scheme, engine, narrow)
        made = replace(
            made,
            matmul=_product_law(made.matmul, wide, scheme, engine, narrow),
            expert_matmul=grouped,
            reserved_matmul=_reserved_law(grouped) if reserves(engine, scheme, gpu) else None,
            scan_matmul=wide,
            decode=replace(made.decode, memory_efficiency=made.decode.memory_efficiency * engine.efficiency.decode),
        )
    return replace(made, weight_element_bytes=scheme.weights.element_bytes, wide_modules=wide_modules(scheme))


def _reserved_law(law: MatmulLaw) -> MatmulLaw:
    """The law of grouped products whose rows are reserved: tokens are cast before they are spread over them."""
    return replace(law.scaled(PERSISTENT_GAIN), sharpness=PERSISTENT_SHARPNESS, cast_bytes_per_element=0.0)


def _tiled(law: MatmulLaw, engine: Engine) -> MatmulLaw:
    """The law of grouped products whose padded rows are counted: its knee already contained their waste."""
    return replace(law, sharpness=max(law.sharpness, TILED_SHARPNESS)) if engine.kernels.expert_tile else law


def _streaming(law: MatmulLaw, share: float) -> MatmulLaw:
    return replace(law, memory_efficiency=law.memory_efficiency * share)


def _narrow_share(scheme: Scheme, engine: Engine) -> NarrowKernel:
    """What the kernels of narrow weights reach; products of narrow operands both follow the fitted law."""
    return engine.narrow_kernel(scheme.weights) if scheme.weight_only else NarrowKernel()


def _product_law(law: MatmulLaw, wide: MatmulLaw, scheme: Scheme, engine: Engine, narrow: NarrowKernel) -> MatmulLaw:
    """The law of products in the scheme's formats: the floor of plain kernels, and casts where they are not fused.

    The laws of 8 and 4 bit were fitted with the cast as separate kernels in front.
    """
    blocked = scheme.activations.blocked
    own_cast = scheme.activations.element_bytes < SIXTEEN_BIT and (blocked or not engine.kernels.fused_casts)
    floor_s = wide.floor_s if narrow.floor_us is None else narrow.floor_us * MICRO
    fused_rows = narrow.fused_rows
    return replace(
        law if fused_rows else law.scaled(narrow.compute_share),
        few_rows=fused_rows,
        few_rows_share=narrow.compute_share,
        floor_s=floor_s + (OWN_CAST_S if own_cast else 0.0),
        memory_efficiency=law.memory_efficiency * engine.efficiency.streaming * narrow.bandwidth_share,
        cast_bytes_per_element=OWN_CAST_BYTES if own_cast else 0.0,
        sharpness=BLOCKED_SHARPNESS if blocked else law.sharpness,
    )


def _network(server: Server, engine: Engine) -> Network:
    """The node's network; an all-reduce of the engine's own starts sooner than that of the library."""
    joined = network(server)
    law = joined.scale_up[ALL_REDUCE]
    if engine.exchanges.all_reduce == "nccl" or not server.fabric.custom_all_reduce:
        return joined
    floor_s = engine.exchanges.floor_us * MICRO
    law = replace(law, alpha_s=tuple(float(np.minimum(alpha, floor_s)) for alpha in law.alpha_s))
    return replace(joined, scale_up={**joined.scale_up, ALL_REDUCE: law})
