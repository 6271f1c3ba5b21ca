"""The proof over the op table: one line of each opcode, and everything that may be another about it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opcode_samples import SAMPLES, Sample

import hlo_opt
from hlo_opt.diag import ProofError
from hlo_opt.fusion.proof import prove_same_graph
from hlo_opt.ops import find, table

MEANS_NOTHING = {
    ("call", "is_composite"),
    ("fusion", "kind"),
    ("fusion", "output_to_operand_aliasing"),
    ("conditional", "branch_computations"),
}
"""What is no attribute of a value: a call and a fusion mean their bodies. Aliases of fusions, and branches by number,
have rows of their own."""
TWINS = ("s32", "f32", "c64")


def holds(before: str, after: str) -> bool:
    try:
        prove_same_graph(hlo_opt.parse(before), hlo_opt.parse(after))
    except ProofError:
        return False
    return True


def test_every_opcode_has_a_line_with_every_attribute():
    assert set(SAMPLES) == {spec.opcode for spec in table()}
    missing = [
        (spec.opcode, name)
        for spec in table()
        for name in spec.attributes
        if name not in SAMPLES[spec.opcode].attributes and (spec.opcode, name) not in MEANS_NOTHING
    ]
    assert not missing


@pytest.mark.parametrize("opcode", SAMPLES)
def test_a_line_is_itself(opcode: str):
    text = SAMPLES[opcode].module()
    assert holds(text, text)


def attributes() -> Iterator[tuple[str, str]]:
    for opcode, sample in SAMPLES.items():
        for name in sample.attributes:
            if (opcode, name) not in MEANS_NOTHING:
                yield opcode, name


@pytest.mark.parametrize(("opcode", "name"), list(attributes()))
def test_each_attribute_counts(opcode: str, name: str):
    sample = SAMPLES[opcode]
    first, other = sample.attributes[name]
    assert first != other
    assert not holds(sample.module(), sample.module(**{name: other}))
    assert not holds(sample.module(**{name: other}), sample.module())


def reordered() -> Iterator[str]:
    for opcode, sample in SAMPLES.items():
        if len(sample.operands) > 1 and sample.operands[0] == sample.operands[1]:
            yield opcode


@pytest.mark.parametrize("opcode", list(reordered()))
def test_the_order_of_operands_counts_unless_the_operation_commutes(opcode: str):
    sample, spec = SAMPLES[opcode], find(opcode)
    rest = [f"p{k}" for k in range(2, len(sample.operands))]
    swapped = sample.module(operands=", ".join(["p1", "p0", *rest]))
    assert spec is not None
    assert holds(sample.module(), swapped) == (spec.commutative and opcode != "mulhi")
    assert not holds(sample.module(), sample.module(operands=", ".join(["p0", "p0", *rest])))


def operands() -> Iterator[tuple[str, int]]:
    for opcode, sample in SAMPLES.items():
        for place in range(len(sample.operands)):
            yield opcode, place


@pytest.mark.parametrize(("opcode", "place"), list(operands()))
def test_each_operand_counts(opcode: str, place: int):
    """Another parameter of the same shape in its place."""
    sample = SAMPLES[opcode]
    twin = Sample(opcode, (*sample.operands, sample.operands[place]), sample.shape, sample.attributes)
    names = [f"p{k}" for k in range(len(sample.operands))]
    before = twin.module(operands=", ".join(names))
    names[place] = f"p{len(sample.operands)}"
    assert not holds(before, twin.module(operands=", ".join(names)))


def twins() -> Iterator[tuple[str, str]]:
    """Opcodes whose lines differ in the opcode only."""
    by_form: dict[object, list[str]] = {}
    for opcode, sample in SAMPLES.items():
        form = (
            sample.operands,
            sample.shape,
            tuple((n, t[0]) for n, t in sample.attributes.items() if t[0] is not None),
        )
        by_form.setdefault(form, []).append(opcode)
    for alike in by_form.values():
        yield from zip(alike, [*alike[1:], alike[0]], strict=True) if len(alike) > 1 else ()


@pytest.mark.parametrize(("opcode", "other"), list(twins()))
def test_the_opcode_counts(opcode: str, other: str):
    sample = SAMPLES[opcode]
    assert not holds(sample.module(), sample.module(opcode=other))


@pytest.mark.parametrize(
    "opcode", [o for o, s in SAMPLES.items() if o != "add-dependency" and s.shape.startswith(TWINS)]
)
def test_the_shape_counts(opcode: str):
    sample = SAMPLES[opcode]
    other = sample.shape.replace("f32", "f16").replace("s32", "u32").replace("c64", "c128")
    assert not holds(sample.module(), sample.module(shape=other))
