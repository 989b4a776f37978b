"""Laws of collectives from rates, fabrics and measurements, on nodes made by hand; power; what a host can hold."""

from __future__ import annotations

import numpy as np
import pytest
from cases import REGISTRY
from msgspec.structs import replace

from xe_sizer.immutable import Immutable
from xe_sizer.laws.collectives import ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, POINT_TO_POINT, REDUCE_SCATTER, CollectiveLaw
from xe_sizer.laws.device import Efficiency, device
from xe_sizer.laws.hardware import (
    Accelerator,
    BusShares,
    Laws,
    Link,
    LinkShares,
    NodeFabric,
    Server,
    capital_per_hour,
    electricity_cost,
    energy_kwh,
    energy_words,
    node_power_w,
    power_error,
    servers_power_w,
)
from xe_sizer.laws.matmul import MatmulLaw
from xe_sizer.laws.network import network
from xe_sizer.laws.operator_time import Device
from xe_sizer.units import BARE_SERVER

LAWS = Efficiency()  # no fixed fraction
LATENCY_S = (1e-6, 2e-6, 3e-6)
SHARES = LinkShares(ring=0.5, switch_all_reduce=0.9, send=0.75, latency_s=LATENCY_S)
BUS = BusShares((0.8, 0.4, 0.2), (0.6, 0.3, 0.1), LATENCY_S, (7e-6, 8e-6, 9e-6))
MEASURED = CollectiveLaw((2, 4, 8), LATENCY_S, (11.0, 12.0, 13.0), (0.0, 0.0, 0.0), source="measured")
EVERY = (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, POINT_TO_POINT)


def gpu(**changed: object) -> Accelerator:
    known = REGISTRY.server("dell-xe9680-h100").accelerator
    plain = replace(known, link=Link("own", 100.0), link_shares=SHARES, laws=Laws(), peer_to_peer=True)
    return replace(plain, **changed)  # type: ignore[arg-type]


def node(topology: str, accelerator: Accelerator | None = None, **changed: object) -> Server:
    """8 accelerators whose links carry 100 bytes/s, a bus of 40, and 160 for all NICs together."""
    known = REGISTRY.server("dell-xe9680-h100")
    fabric = NodeFabric("by hand", topology, nic_per_accelerator=True)  # type: ignore[arg-type]
    named = {name: changed.pop(name) for name in tuple(changed) if hasattr(fabric, name)}
    rates = {"scale_up_one_way_bytes_per_s": 100.0, "pcie_bytes_per_s": 40.0, "scale_out_bytes_per_s": 160.0}
    plain = {"accelerator": accelerator or gpu(), "accelerators": 8, "fabric": replace(fabric, **named), **rates}
    return replace(known, **{**plain, "scale_out_efficiency": 0.9, "scale_out_alpha_s": 5e-6, **changed})


def rates(server: Server, operation: str) -> tuple[float, ...]:
    return network(server).scale_up[operation].bus_bytes_per_s


def test_what_leaves_a_node_is_shared_by_its_accelerators() -> None:
    made = network(node("switch"))
    assert made.scale_out_bytes_per_s == pytest.approx(160 * 0.9 / 8)
    assert (made.scale_out_alpha_s, made.node_ranks) == (5e-6, 8)


def test_rates_of_a_link_that_nobody_measured() -> None:
    made = network(node("switch")).scale_up
    assert all(made[operation].bus_bytes_per_s == (50, 50, 50) for operation in EVERY[:4])
    assert made[POINT_TO_POINT].bus_bytes_per_s == (75, 75, 75)
    assert all(made[operation].alpha_s == LATENCY_S for operation in EVERY)
    assert all(made[operation].root_s_per_sqrt_byte == (0, 0, 0) for operation in EVERY)


def test_a_switch_reduces_for_eight_ranks_alone() -> None:
    made = node("switch", reduces=True)
    assert rates(made, ALL_REDUCE) == (50, 50, 90)
    assert rates(made, ALL_GATHER) == (50, 50, 50)


def test_part_of_a_mesh_uses_the_links_of_its_members() -> None:
    """1, 3 and 7 of 7 links; in a mesh of 4, all of 3 for four ranks and more."""
    assert rates(node("mesh"), ALL_GATHER) == pytest.approx((50 / 7, 50 * 3 / 7, 50))
    assert rates(node("mesh", accelerators=4), ALL_GATHER) == pytest.approx((50 / 3, 50, 50))


def test_links_that_lead_to_groups() -> None:
    assert rates(node("groups", group_shares=(0.25, 0.5, 1.0)), ALL_GATHER) == pytest.approx((12.5, 25, 50))


@pytest.mark.parametrize(("direct", "shares"), [(True, (0.8, 0.4, 0.2)), (False, (0.6, 0.3, 0.1))])
def test_ranks_on_a_bus(direct: bool, shares: tuple[float, ...]) -> None:
    """Without copies between peers everything passes through host memory; a send is one of two ranks."""
    made = node("host", gpu(link=None, peer_to_peer=direct), bus=BUS)
    for operation in EVERY[:4]:
        assert rates(made, operation) == pytest.approx(tuple(40 * share for share in shares))
        assert network(made).scale_up[operation].alpha_s == LATENCY_S
        assert network(made).scale_up[operation].source.endswith("peer to peer" if direct else "through host memory")
    send = network(made).scale_up[POINT_TO_POINT]
    assert send.bus_bytes_per_s == pytest.approx((40 * shares[0],) * 3)
    assert send.alpha_s == (7e-6, 8e-6, 9e-6)


def test_a_bridged_pair_has_its_link_and_more_ranks_the_bus() -> None:
    law = network(node("pairs", bus=replace(BUS, latency_s=(4e-6, 5e-6, 6e-6)))).scale_up[ALL_REDUCE]
    assert law.bus_bytes_per_s == pytest.approx((50, 40 * 0.4, 40 * 0.2))
    assert law.alpha_s == (1e-6, 5e-6, 6e-6)


def test_measurements_hold_on_the_fabric_they_were_made_on() -> None:
    """A node with 0.99 of the link's rate counts as the link; a slower one does not, nor a bus for a linked part."""
    laws = Laws(collectives={ALL_REDUCE: MEASURED})
    linked, bare = gpu(laws=laws), gpu(laws=laws, link=None)
    assert rates(node("switch", linked), ALL_REDUCE) == MEASURED.bus_bytes_per_s
    assert rates(node("switch", linked, scale_up_one_way_bytes_per_s=99.0), ALL_REDUCE) == MEASURED.bus_bytes_per_s
    assert rates(node("switch", linked, scale_up_one_way_bytes_per_s=98.9), ALL_REDUCE)[0] == pytest.approx(49.45)
    assert rates(node("switch", bare), ALL_REDUCE) == (50, 50, 50)
    assert rates(node("host", linked, bus=BUS), ALL_REDUCE) == pytest.approx((32, 16, 8))
    assert rates(node("host", bare, bus=BUS), ALL_REDUCE) == MEASURED.bus_bytes_per_s


def test_what_was_measured_behind_a_switch_is_cut_to_the_links_of_a_mesh() -> None:
    two = CollectiveLaw((2,), (1e-6,), (14.0,), (0.0,))
    laws = Laws(collectives={ALL_REDUCE: MEASURED, ALL_GATHER: two})
    made = node("mesh", gpu(laws=laws), measured_behind_switch=True)
    assert rates(made, ALL_REDUCE) == pytest.approx((11 / 7, 12 * 3 / 7, 13))
    assert rates(made, ALL_GATHER) == pytest.approx((2,))
    assert rates(node("mesh", gpu(laws=laws)), ALL_REDUCE) == MEASURED.bus_bytes_per_s


@pytest.mark.parametrize(
    ("topology", "accelerators", "tdp_w", "power_share", "measured_kw", "within"),
    [
        ("switch", 8, 700.0, 0.85, 7.92, 0.02),  # median of Llama 2 13B in training, 8 x H100: Latif et al. 2025
        ("switch", 8, 700.0, 0.85, 7.75, 0.02),  # 76 % of 10.2 kW, heavy load, 8 x H100: Newkirk et al. 2025
        ("switch", 8, 700.0, 1.0, 8.48, 0.03),  # the most that was measured, 8 x H100: Latif et al. 2025
        ("host", 4, 450.0, 1.0, 2.16, 0.01),  # gpu-burn and all cores, 4 x RTX 4090: server-gear.com
    ],
)
def test_servers_draw_what_was_measured(
    topology: str, accelerators: int, tdp_w: float, power_share: float, measured_kw: float, within: float
) -> None:
    made = node(topology, gpu(tdp_w=tdp_w), accelerators=accelerators)
    assert (node_power_w(made, power_share) or 0.0) / 1000 == pytest.approx(measured_kw, rel=within)


def test_a_rack_cooled_by_liquid_stays_below_what_its_maker_says() -> None:
    """72 x 1.2 kW: 95.9 kW at load, of 120."""
    rack = node("switch", gpu(tdp_w=1200.0), accelerators=72, liquid_cooled=True)
    assert node_power_w(rack) == pytest.approx(72 * 1200 * (0.85 + 0.26))
    assert node_power_w(rack, 1.0) == pytest.approx(120e3, rel=0.1)


def test_energy_is_the_share_of_the_servers_for_the_hours() -> None:
    """10 of 8 GPU-hours a server-hour at 7.84 kW; unknown without a design power."""
    made = node("switch", gpu(tdp_w=700.0), accelerators=8)
    assert energy_kwh(made, 10.0) == pytest.approx(10 / 8 * 7.84)
    assert energy_kwh(made, 10.0, power_share=0.5) == pytest.approx(10 * 0.7 * 1.05)
    unknown = node("switch", gpu(tdp_w=None), accelerators=8)
    assert (energy_kwh(unknown, 10.0), node_power_w(unknown), energy_words(unknown)) == (None, None, "")
    assert energy_words(made) == (
        "7.84 kW a server: 8 GPUs at 85 % of design power (4.76 kW), 3.08 kW for the rest of it, "
        "as measured on 8 x H100 in training"
    )
    assert "at 50 % of" in energy_words(made, 0.5)


def test_servers_run_whole_and_a_gpu_named_alone_has_its_share() -> None:
    """9 of 16 GPUs of 700 W at 85 %, and 55 % of the design power of all 16 for the rest; in kW 5.355 + 6.16."""
    made = node("switch", gpu(tdp_w=700.0), accelerators=8)
    assert servers_power_w(made, 9) == pytest.approx(11515.0)
    assert np.asarray(servers_power_w(made, np.array([8.0, 9.0]))).tolist() == pytest.approx([7840.0, 11515.0])
    assert servers_power_w(replace(made, name=f"{BARE_SERVER}x"), 9) == pytest.approx(9 * 700 * 1.4)
    assert servers_power_w(node("switch", gpu(tdp_w=None), accelerators=8), 9) is None


def test_the_power_of_measured_nodes_lies_in_its_range() -> None:
    """8 x H100 in training: 6.99 to 8.79 kW by the formula; measured 7.75 and 7.92, at most 8.48."""
    made = node("switch", gpu(tdp_w=700.0), accelerators=8)
    error = power_error(made, 0.85, 0.08)
    assert error == pytest.approx((0.08**2 + 0.15**2) ** 0.5 / 1.4)
    assert 7.84 / (1 + error) < 7.75
    assert 7.84 * (1 + error) > 8.48


def test_capital_and_electricity() -> None:
    """87,660 for ten years of 8,766 h at a use of half; 10 kWh at a PUE of 1.5 and 0.2."""
    assert capital_per_hour(87660.0, 10.0, 0.5) == pytest.approx(2.0)
    assert electricity_cost(10.0, 0.2, 1.5) == pytest.approx(3.0)


def test_a_host_keeps_four_gib_for_itself() -> None:
    """Never less than nothing, and nobody knows what an unknown host has."""
    found = [node("switch", host_memory_bytes=size).host_usable_bytes for size in (100.0 * 2**30, 2.0**30, None)]
    assert found == [96.0 * 2**30, 0.0, None]


class Factors(Immutable):
    matmul: float = 0.5
    experts: float = 0.8
    attention: float = 0.25
    memory_bound: float = 0.75


def on_h100(precision: str = "bf16", chosen: Efficiency = LAWS, wide: bool = False) -> tuple[Device, Laws]:
    law = MatmulLaw(1e-6, 0.8, 0.7, 2.0, sustained_flops_efficiency=0.6)
    known = REGISTRY.server("dell-xe9680-h100").accelerator
    laws = replace(known.laws, matmul={"bf16": law, "fp8": replace(law, floor_s=2e-6)}, memory_bound_efficiency=0.8)
    return device(replace(known, laws=laws), precision, "flash-3", Factors(), chosen, wide), laws


def test_factors_of_a_stack_scale_the_laws() -> None:
    """Products reach half of both rates, experts 0.8 of that, attention a quarter, streams 3/4."""
    made, laws = on_h100()
    own = laws.attention["flash-3"]
    assert (made.matmul.flops_efficiency, made.matmul.sustained_flops_efficiency) == pytest.approx((0.4, 0.3))
    assert made.expert_matmul.sustained_flops_efficiency == pytest.approx(0.6 * 0.5 * 0.8)
    assert made.expert_matmul.grouped
    assert made.attention.flops_efficiency == pytest.approx(own.flops_efficiency / 4)
    assert made.attention.backward_flops_efficiency == pytest.approx(own.backward_flops_efficiency / 4)
    assert made.memory_bound_efficiency == pytest.approx(0.6)
    assert made.scan_matmul == made.adapter_matmul == made.matmul


def test_what_runs_beside_narrow_products_runs_in_16_bit() -> None:
    """fp8: attention, scans and adapters at the 16-bit peak; wide adapters at that of float32."""
    made, _ = on_h100("fp8")
    assert (made.matmul.floor_s, made.scan_matmul.floor_s, made.adapter_matmul.floor_s) == (2e-6, 1e-6, 1e-6)
    assert made.peak_flops_per_s == pytest.approx(2 * made.attention_peak_flops_per_s, rel=1e-2)
    assert made.adapter_peak_flops_per_s == made.attention_peak_flops_per_s
    assert made.element_bytes == 2
    wide, _ = on_h100(wide=True)
    assert wide.adapter_peak_flops_per_s < made.adapter_peak_flops_per_s / 5


def test_fixed_fractions_take_the_place_of_every_law() -> None:
    """A sharp roofline without floors: FLOPs alone have no memory beside them, and the speed of light has both 1."""
    both, _ = on_h100(chosen=Efficiency(flops=0.4, memory=0.7))
    alone, _ = on_h100(chosen=Efficiency(flops=0.4))
    memory, _ = on_h100(chosen=Efficiency(memory=0.7))
    ideal, _ = on_h100(chosen=Efficiency(ideal=True))
    found = [(made.matmul.flops_efficiency, made.matmul.memory_efficiency) for made in (both, alone, memory, ideal)]
    assert found == [(0.4, 0.7), (0.4, float("inf")), (0.6, 0.7), (1.0, 1.0)]
    for made in (both, alone, ideal):
        laws = (made.matmul, made.adapter_matmul, made.expert_matmul, made.scan_matmul, made.attention, made.decode)
        assert [law.floor_s for law in laws] == [0.0] * 6
        assert made.memory_bound_floor_s == 0.0
        assert made.matmul.sharpness == made.attention.sharpness == float("inf")
        assert made.attention.half_length == 0.0
        assert made.memory_bound_efficiency == made.decode.memory_efficiency == made.matmul.memory_efficiency
    plain = LAWS
    chosen = (plain, Efficiency(flops=0.4), Efficiency(flops=0.4, memory=0.7), Efficiency(ideal=True))
    assert [each.hides_exchanges for each in chosen] == [False, True, False, True]
    assert [each.fixed for each in (*chosen, Efficiency(memory=0.7))] == [False, True, True, True, True]
