"""Copies of a kernel's result become further outputs of the kernel: it writes twice, and nothing reads the first result
again.

Source: xla/backends/gpu/transforms/copy_fusion.cc. XLA runs it after it has inserted the copies that buffers need.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from hlo_opt.analysis.memory.forms import fast_form
from hlo_opt.analysis.properties import inside, is_generic_triton
from hlo_opt.fusion.engine import Engine
from hlo_opt.fusion.legality import MAX_OPERANDS_AND_OUTPUTS
from hlo_opt.ir import Instruction, Module, edit
from hlo_opt.ops.emission import HEROES, XlaEmitter
from hlo_opt.ops.sets import is_view, results_of, tuple_elements, tuple_index
from hlo_opt.passes.base import FusionPass, PassContext

Path = list[Instruction]
"""From a user of the fusion down to a copy: a get-tuple-element perhaps, a bitcast perhaps, and the copy."""


@dataclass(frozen=True)
class CopyFusion(FusionPass):
    """Fuse plain copies into the fusions whose results they copy. It decides no edge alone: copies that it leaves
    are judged by the passes that fuse copies as consumers."""

    name: ClassVar[str] = "copy-fusion"
    preserves: ClassVar[Literal["graph", "meaning"]] = "graph"

    def run(self, module: Module, context: PassContext) -> bool:
        engine = Engine(module, context, self.name)
        changed = False
        for computation in engine.computations():
            waited_for = engine.state.waited_for(computation)
            for fusion in list(computation.instructions):
                if fusion.parent is None or not _may_write_more(fusion) or fusion in waited_for:
                    continue
                paths = [p for p in _paths(fusion) if p[-1] not in waited_for]
                paths = [p for p in paths if next(engine.forbidding(engine.edge(fusion, p[-1])), None) is None]
                room = MAX_OPERANDS_AND_OUTPUTS - len(fusion.operands) - sum(1 for _ in fusion.shape.leaves())
                paths = paths[: max(0, room)]
                if paths and context.step():
                    _write_copies(fusion, paths, engine)
                    changed = True
        engine.finish()
        return changed


def _may_write_more(fusion: Instruction) -> bool:
    """False where the result is not complete before the kernel ends, or is written in place."""
    body = inside(fusion)
    if body is None or is_generic_triton(fusion):
        return False
    if fusion.control_predecessors or "output_to_operand_aliasing" in fusion.attributes:
        return False
    roots = results_of(body)
    if (
        any(HEROES.get(r.opcode) is XlaEmitter.SCATTER or r.shape.is_tuple for r in roots)
        or fast_form(roots[0]) is not None
    ):
        return False
    if all(HEROES.get(r.opcode) is XlaEmitter.IN_PLACE for r in roots):
        return False
    return not (len(roots) > 1 and all(r.opcode == "slice" for r in roots))


def _paths(fusion: Instruction) -> list[Path]:
    """The paths from a fusion to plain copies of its outputs, through operations that launch nothing and have no other
    users."""
    paths: list[Path] = []
    roots = results_of(fusion.called_by("calls"))
    for user in fusion.users:
        path = [user]
        number = tuple_index(user)
        if number is not None:
            if fast_form(roots[number]) is not None or len(user.users) != 1 or user.is_root:
                continue
            path.append(next(iter(user.users)))
        elif fusion.shape.is_tuple:
            continue
        if is_view(path[-1].opcode) and len(path[-1].users) == 1 and not path[-1].is_root:
            path.append(next(iter(path[-1].users)))
        copy = path[-1]
        if copy.opcode != "copy" or copy.shape != copy.operands[0].shape or any(i.control_predecessors for i in path):
            continue
        paths.append(path)
    return paths


def _write_copies(fusion: Instruction, paths: list[Path], engine: Engine) -> None:
    body = fusion.called_by("calls")
    old = body.root
    outputs = results_of(body)
    count = len(outputs)
    for path in paths:
        first = path[0]
        number = tuple_index(first)
        value = outputs[number or 0]
        for step in path[number is not None :]:
            value = edit.clone_into(body, step, [value])
            engine.origins[value] = engine.origins.get(step, step.name)
        outputs.append(value)
    edit.create_tuple(body, outputs, root=True)
    if tuple_elements(old) is not None and not old.users:
        edit.remove(old)
    for instruction in (fusion, *fusion.users, *(u for path in paths for i in path for u in i.users)):
        engine.state.forget(instruction)
    was_array = not fusion.shape.is_tuple
    others = list(fusion.users) if was_array else []
    edit.set_shape(fusion, body.root.shape)
    if was_array:
        element = edit.create_element(fusion, 0)
        for user in others:
            edit.set_operands(user, [element if o is fusion else o for o in user.operands])
        if fusion.is_root:
            edit.set_root(fusion.computation, element)
    for number, path in enumerate(paths, start=count):
        edit.redirect_users(path[-1], edit.create_element(fusion, number))
        for step in reversed(path):
            if not step.users and not step.is_root:
                edit.remove(step)
    engine.changed[fusion] = None
