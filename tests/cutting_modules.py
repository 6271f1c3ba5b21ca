"""Modules that the tests of cutting share, a change of their loop, and a question about the text alone."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import hlo_opt
from hlo_opt.cutting.parts import size, tidied
from hlo_opt.ir import Instruction, Module
from hlo_opt.ops.sets import looped

TEXT = """HloModule m

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

body {
  state = (s32[], f32[8,16]{1,0}, f32[8,16]{1,0}) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = f32[8,16]{1,0} get-tuple-element(state), index=1
  y = f32[8,16]{1,0} get-tuple-element(state), index=2
  sine = f32[8,16]{1,0} sine(x)
  ROOT out = (s32[], f32[8,16]{1,0}, f32[8,16]{1,0}) tuple(next, sine, y)
}

condition {
  state = (s32[], f32[8,16]{1,0}, f32[8,16]{1,0}) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  bound = s32[] constant(3)
  ROOT less = pred[] compare(i, bound), direction=LT
}

inner {
  p = f32[8,16]{1,0} parameter(0)
  e = f32[8,16]{1,0} exponential(p)
  ROOT n = f32[8,16]{1,0} negate(e)
}

ENTRY e {
  p = f32[8,16]{1,0} parameter(0)
  q = f32[8,16]{1,0} parameter(1)
  a = f32[8,16]{1,0} add(p, q), metadata={op_name="a" source_file="model.py" source_line=7}
  called = f32[8,16]{1,0} call(a), to_apply=inner
  zero = s32[] constant(0)
  start = (s32[], f32[8,16]{1,0}, f32[8,16]{1,0}) tuple(zero, called, q)
  loop = (s32[], f32[8,16]{1,0}, f32[8,16]{1,0}) while(start), condition=condition, body=body
  rounds = s32[] get-tuple-element(loop), index=0
  after = f32[8,16]{1,0} get-tuple-element(loop), index=1
  none = f32[] constant(0)
  r = f32[8]{0} reduce(after, none), dimensions={1}, to_apply=sum
  c = f32[4]{0} slice(r), slice={[2:6]}
  k = f32[12]{0} concatenate(r, c), dimensions={0}
  ROOT o = (f32[12]{0}, s32[], f32[8,16]{1,0}) tuple(k, rounds, a)
}
"""


@dataclass
class Says:
    """The text holds a pattern. Each text that is asked about is shown to `look` first; what it says against one is
    written into the folder."""

    pattern: str
    look: Callable[[str], str | None] = lambda text: None
    folder: Path | None = None
    asked: list[str] = field(default_factory=list)

    def ways(self) -> Sequence[Callable[[Module, str], str | None]]:
        return [self.ask]

    def ask(self, module: Module, text: str) -> str | None:
        self.asked.append(text)
        why = self.look(text)
        if why is not None and self.folder is not None:
            (self.folder / f"{abs(hash(text))}.hlo").write_text(f"{why}\n{text}")
        return "it" if re.search(self.pattern, text) else None


def loop_of(module: Module) -> Instruction:
    return next(i for i in module.entry.instructions if looped(i) is not None)


def changed(change: Callable[..., None], text: str = TEXT, **arguments: object) -> Module:
    """A valid smaller module with one change of its loop."""
    module = hlo_opt.parse(text)
    for computation in module.computations:
        computation.index_users()
    before = size(module)
    change(loop_of(module), **arguments)
    result = hlo_opt.parse(str(tidied(module)))
    hlo_opt.verify(result)
    assert size(result) < before
    return result
