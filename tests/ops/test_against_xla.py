"""Every opcode at every element type against XLA:CPU, special values included.

What the op table evaluates is either compared here, bit by bit or within the ULP that the table declares, or
`xla_cases.doubts` says why XLA:CPU cannot run it. All opcodes of a family are one module per type; where it fails, its
cases run one by one, so that the failure has a name.
"""

from __future__ import annotations

import pytest

pytest.importorskip("jaxlib")

from opcode_samples import specs_in_xla
from xla_cases import BOUNDS, DOUBTS, FAMILIES, LACKS, MAKERS, Case, Verdict, cases_of, compare, lack_of

from hlo_opt.ir import ELEMENT_TYPES
from hlo_opt.ops import table
from hlo_opt.ops.coverage import evaluates

TYPES = [t.name for t in ELEMENT_TYPES.values() if t.numpy_name]
GROUPS = [
    pytest.param(family, name, id=f"{family}-{name}")
    for family, opcodes in FAMILIES.items()
    for name in TYPES
    if any(evaluates(o, name) and lack_of(o, name) is None for o in opcodes)
]


def judged(cases: list[Case]) -> Verdict:
    try:
        return compare(cases)
    except Exception as whole:
        if len(cases) == 1:
            raise AssertionError(f"{cases[0]}: {whole}") from whole
    verdict = Verdict()
    for case in cases:
        one = judged([case])
        verdict.differences += one.differences
        verdict.needed |= one.needed
    return verdict


@pytest.mark.sweep
@pytest.mark.parametrize(("family", "name"), GROUPS)
def test_agrees(family: str, name: str) -> None:
    cases = [case for opcode in FAMILIES[family] for case in cases_of(opcode, name)]
    verdict = judged(cases)
    assert not verdict.differences, "\n".join(map(str, verdict.differences))
    opcodes = {case.opcode for case in cases}
    allowed = {(o, name, d.reason) for d in DOUBTS for o in d.opcodes if o in opcodes and name in d.types}
    allowed |= {(o, t, bound.reason) for (o, t), bound in BOUNDS.items() if o in opcodes and t == name}
    assert not allowed - verdict.needed, f"no longer needed: {sorted(allowed - verdict.needed)}"


def test_what_the_table_evaluates_is_judged_or_has_a_reason() -> None:
    for spec in specs_in_xla():
        for element_type in spec.element_types:
            if evaluates(spec.opcode, element_type) and lack_of(spec.opcode, element_type.name) is None:
                assert spec.opcode in MAKERS, f"nothing judges {spec.opcode} of {element_type}"
                assert cases_of(spec.opcode, element_type.name), f"nothing judges {spec.opcode} of {element_type}"


REFUSED = [
    (o, t)
    for lack in LACKS
    if lack.refuses
    for o in lack.opcodes
    for t in lack.types
    if o in MAKERS and evaluates(o, t)
]


@pytest.mark.parametrize("opcode", sorted({o for o, _ in REFUSED}))
def test_what_xla_refuses_it_still_refuses(opcode: str) -> None:
    for _, name in (pair for pair in REFUSED if pair[0] == opcode and lack_of(*pair).refuses):
        for case in MAKERS[opcode](opcode, name):
            with pytest.raises(Exception, match=r"UNIMPLEMENTED|INTERNAL|INVALID_ARGUMENT|UNKNOWN|verifier"):
                compare([case])
            break


def test_every_lack_and_doubt_is_about_something_that_the_table_evaluates() -> None:
    for lack in LACKS:
        if lack.opcodes != ("*",) and lack.reason != "no value to compare":
            for opcode in lack.opcodes:
                assert any(evaluates(opcode, name) for name in lack.types), f"{opcode}: {lack.reason}"
    for opcode, name in [(o, t) for doubt in DOUBTS for o in doubt.opcodes for t in doubt.types] + list(BOUNDS):
        assert cases_of(opcode, name), f"{opcode} of {name} is not judged at all"


def test_every_opcode_that_computes_floats_declares_its_tolerance() -> None:
    for spec in table():
        if spec.evaluate is not None and not spec.hides_state:
            assert spec.tolerance is not None, spec.opcode
