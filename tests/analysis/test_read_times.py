"""Sums over the reads of a kernel that changes are those of what it reads in the end."""

from hypothesis import given, settings
from hypothesis import strategies as st

import hlo_opt
from hlo_opt.analysis.targets import target
from hlo_opt.analysis.xla.timing import ReadTimes, read_ns

H100 = target("h100_sxm")
MODULE = hlo_opt.parse(
    "HloModule m\n\nENTRY e {\n a = f32[1000,37]{1,0} parameter(0)\n b = bf16[3]{0} parameter(1)\n c = (f32[8]{0}, "
    "s8[5]{0}) parameter(2)\n"
    " d = f64[100000]{0} parameter(3)\n ROOT t = ((f32[8]{0}, s8[5]{0})) tuple(c)\n}\n"
)
OPERANDS = MODULE.entry.parameters


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.one_of(st.none(), st.integers(0, 10**7))), max_size=20),
    st.integers(1, 4000),
    st.booleans(),
)
def test_changed_reads_are_what_they_would_be_at_once(
    changes: list[tuple[int, int | None]], blocks: int, coalesced: bool
) -> None:
    grown = ReadTimes({OPERANDS[0]: 77, OPERANDS[3]: 123456}, blocks, coalesced, H100)
    reads = {OPERANDS[0]: 77, OPERANDS[3]: 123456}
    for number, size in changes:
        operand = OPERANDS[number]
        if size is None:
            grown.drop(operand)
            reads.pop(operand, None)
        else:
            grown.put(operand, size)
            reads[operand] = size
    made = ReadTimes(reads, blocks, coalesced, H100)
    assert (grown.all_of(), grown.bytes, grown.quarters) == (made.all_of(), made.bytes, made.quarters)
    assert grown.all_of().bytes == sum(reads.values())
    twice = [o for o in reads for _ in range(2)]
    assert grown.all_of(twice).quarters == 2 * grown.all_of().quarters


def test_an_operand_takes_what_the_clock_says() -> None:
    a, _, c, _ = OPERANDS
    in_order, jumping = ReadTimes({}, 100, True, H100), ReadTimes({}, 100, False, H100)
    size = a.shape.byte_size
    assert in_order.one(a, 2 * size) == 4 * read_ns(size, 2 * size, 1.0, 100, H100)
    assert jumping.one(a, 2 * size) == 4 * read_ns(size, 2 * size, 4 / H100.dram_transaction_bytes, 100, H100)
    assert jumping.one(c, 20) == 4 * read_ns(20, 20, 4 / H100.dram_transaction_bytes, 100, H100)
