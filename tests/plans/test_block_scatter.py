"""Which scatters blocks combine in shared memory, and in how many copies."""

from __future__ import annotations

import pytest

from hlo_opt.analysis.targets import DeviceTarget, InLanes
from hlo_opt.plans import Plan, plan, region_of
from hlo_opt.plans.block_scatter import SharedUpdates
from hlo_opt.plans.columns import SHARED_BYTES
from hlo_opt.text import parse
from tests.small_modules import H100

HOW = "update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1"


def planned(
    cells: int, updates: int, kind: str = "s32", opcode: str = "add", target: DeviceTarget = H100, more: str = ""
) -> Plan:
    module = parse(
        f"HloModule m\nc {{ a = {kind}[] parameter(0)\n b = {kind}[] parameter(1)\n ROOT r = {kind}[] {opcode}(a, b) }}\n"
        f"ENTRY e {{\n p = {kind}[{cells}] parameter(0)\n i = s32[{updates},1] parameter(1)\n"
        f" u = {kind}[{updates}] parameter(2)\n ROOT s = {kind}[{cells}] scatter(p, i, u), {HOW}, to_apply=c{more}\n}}\n"
    )
    found = plan(region_of(module, module.entry.root), target)
    assert isinstance(found, Plan)
    return found


@pytest.mark.parametrize(("cells", "copies"), [(10, 32), (256, 32), (1024, 8), (12000, 1)])
def test_copies_fill_the_shared_memory_that_leaves_room_for_other_blocks(cells: int, copies: int) -> None:
    found = planned(cells, 1 << 24)
    (segment,) = found.segments
    assert isinstance(segment.part, SharedUpdates)
    assert segment.part.copies == copies
    assert found.launch.shared_bytes == 4 * cells * copies <= SHARED_BYTES
    assert found.launch.grid * found.launch.block == H100.resident_threads


@pytest.mark.parametrize(
    ("cells", "updates", "kind", "opcode", "more"),
    [
        (20000, 1 << 24, "s32", "add", ""),  # no room
        (256, 1000, "s32", "add", ""),  # few updates
        (256, 1 << 24, "bf16", "add", ""),  # each sum is rounded
        (256, 1 << 24, "s32", "multiply", ""),  # no atomic operation
        (256, 1 << 24, "s32", "add", ", unique_indices=true"),
    ],
)
def test_other_scatters_change_the_output_at_once(cells: int, updates: int, kind: str, opcode: str, more: str) -> None:
    assert planned(cells, updates, kind, opcode, more=more).segments[0].kind == "scatter"


def test_a_processor_has_no_use_for_copies() -> None:
    assert planned(256, 1 << 24, target=InLanes.of(H100)).segments[0].kind == "scatter"
