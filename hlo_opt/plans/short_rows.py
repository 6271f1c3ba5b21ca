"""Rows so short that one thread, or one lane of a host, folds each alone."""

from __future__ import annotations

from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.ir import Instruction
from hlo_opt.ir.index_map import variable
from hlo_opt.ops.reduction.reducers import EXTREMES, monoid
from hlo_opt.plans.columns import WARP
from hlo_opt.plans.element_reads import conditions_met
from hlo_opt.plans.folding import Folded, ends_in_one_pass, operand_index
from hlo_opt.plans.plan import Region

ALONE = 8
"""Elements of a row that one thread folds alone."""
LONGEST_ALONE, COPIED_BYTES, WIDEST_COPIED = 64, 256, 8
"""The longest row that a lane of a host folds alone, the bytes of all arrays that it may read along it, and those of
the widest element: a chunk's rows are copied so that lanes read neighbours, and the copies stay in the first cache."""


def is_for_one_thread(region: Region, folded: Folded, target: DeviceTarget) -> bool:
    """Whether a thread folds a row alone, as a loop does: the row is short and no power of two, and nothing else is
    done with its elements. On a host also another short row is for one lane of a vector, unless it is read again: lanes
    that share a row meet at its end, which takes as long as going through a vector of elements alone."""
    columns = folded.space.reduced
    is_odd = columns & (columns - 1) != 0
    if not (is_odd or target.in_lanes) or not ends_in_one_pass(region, folded):
        return False
    if is_odd and target.in_lanes and columns < WARP:
        return True
    if columns > ALONE and not (target.in_lanes and columns <= LONGEST_ALONE and _is_copied(region, folded)):
        return False
    return all(next(region.roots[n].shape.leaves()).element_count == folded.space.kept for n in folded.roots)


def _is_copied(region: Region, folded: Folded) -> bool:
    """Whether a host copies rows of more than `ALONE` elements so that each lane has one, and that pays: long rows are
    worth more lanes where a step is a single operation on what is read."""
    reduces, space = folded.levels[0], folded.space
    arrays = [leaf for shape in region.inputs for leaf in shape.leaves() if leaf.is_array]
    if any(leaf.element_count not in (space.elements, space.kept, space.reduced, 1) for leaf in arrays):
        return False  # such as one array's rows beside each of another's
    sizes = [leaf.type.bytes for leaf in arrays if leaf.element_count == space.elements]
    if max(sizes, default=0) > WIDEST_COPIED or sum(sizes) * space.reduced > COPIED_BYTES:
        return False
    row, column = variable("row", space.kept), variable("column", space.reduced)
    starts = [(o, operand_index(r, row, column)) for r in reduces for o in r.operands[: len(r.operands) // 2]]
    if any(conditions_met(starts, reduces)):
        return False
    leaves = [leaf for r in reduces for leaf in r.shape.leaves()]
    is_simple = len(leaves) == 1 and min(sizes, default=0) == leaves[0].type.bytes
    return space.reduced <= WARP or not is_simple or (is_extremum(reduces[0]) and leaves[0].type.is_float)


def is_extremum(reduce: Instruction) -> bool:
    """Whether a reduce takes the least or the greatest of each row."""
    return monoid(reduce.called_by("to_apply")) in EXTREMES
