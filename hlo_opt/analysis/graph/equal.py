"""Whether two values of a computation are computed alike: kernels that were joined may compute one several times."""

from __future__ import annotations

from hlo_opt.analysis.graph.numbering import attribute_key, literal_key
from hlo_opt.analysis.properties import has_side_effect
from hlo_opt.ir import Called, Instruction
from hlo_opt.ops.reduction.reducers import monoid
from hlo_opt.ops.spec import OpKind, find

_KINDS = frozenset({OpKind.ELEMENTWISE, OpKind.MOVEMENT, OpKind.INDEXING, OpKind.REDUCTION, OpKind.CONTRACTION})
_MOST_STEPS = 1000


class Equal:
    """Compares values, each pair once. A constant that the text leaves out equals itself only, and so does what is not
    of a kind whose attributes say all of it; folds are compared by their monoids."""

    def __init__(self) -> None:
        self._known: dict[tuple[Instruction, Instruction], bool] = {}

    def __call__(self, one: Instruction, other: Instruction) -> bool:
        """Whether two values are certainly the same; False after `_MOST_STEPS` pairs."""
        if one is other:
            return True
        known = self._known.get((one, other))
        if known is None:
            if len(self._known) >= _MOST_STEPS:
                return False
            self._known[one, other] = False  # what needs itself is nothing that is known
            known = self._known[one, other] = self._are(one, other)
        return known

    def _are(self, one: Instruction, other: Instruction) -> bool:
        if one.opcode != other.opcode or one.shape != other.shape or len(one.operands) != len(other.operands):
            return False
        if one.literal is not None and other.literal is not None:
            return one.literal.is_known and literal_key(one.literal) == literal_key(other.literal)
        spec = find(one.opcode)
        if spec is None or spec.kind not in _KINDS or has_side_effect(one):
            return False
        if attribute_key(one) != attribute_key(other) or _called_by(one) != _called_by(other):
            return False
        return all(self(a, b) for a, b in zip(one.operands, other.operands, strict=True))


def _called_by(instruction: Instruction) -> dict[str, list[object]]:
    """What each attribute calls: a monoid, or else a computation itself."""
    called = {name: value for name, value in instruction.attributes.items() if isinstance(value, Called)}
    return {name: [monoid(c) or c for c in value.computations] for name, value in called.items()}
