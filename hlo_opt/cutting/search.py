"""The search for the smallest module that still shows something.

Large cuts come first. A stretch of the entry alone, half of it, then a quarter: parameters stand for the values from
outside it, and the values needed outside are outputs. So a local fault among thousands of instructions is found in a
few tries, each half as long as the one before. All dimensions of large arrays come down at once, which makes every
later try quicker. Then shorter stretches are removed, outputs, loops, single instructions, and sizes, types and
constants become plainer, until no cut is left that still shows it. Of a list of cuts, the search takes the first in
order that shows it, so the result does not depend on the number of processes.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hlo_opt.cutting import cuts, loops, plainer
from hlo_opt.cutting.cuts import Cut
from hlo_opt.cutting.parts import outputs_of, simpler, size
from hlo_opt.cutting.questions import ENDED, FUSING_ENDED, Command, Question, read
from hlo_opt.cutting.trials import Trials, left_as
from hlo_opt.diag import UsageError
from hlo_opt.ir import Module, edit

Tell = Callable[[str], None]
LONGEST_TRY = 600.0
"""Seconds of the first try, on the module as it is."""
SHORTEST_TRY = 20.0
"""The lowest limit of a try, in seconds by the clock."""
LEAST_CPU = 0.5
"""The lowest limit of a try, in seconds of a processor. Loops without end are usual among cuts of loops."""
LEAST_CPU_ENDED = 2.0
"""The same where what is kept is a run without an end: kernels are written in that time, too."""
LEAST_BESIDE = 3.0
"""The same of programs that a try starts, such as a compiler."""
ALLOWED = 4
"""The limit of a try, as a multiple of the time of the first one."""
LONG = 200
"""Instructions of an entry of which stretches are asked first."""
STRETCH, OVERLAP = 64, 16
"""The length of a stretch, and how much of it the next one repeats. The time of fusing grows faster than the number of
instructions."""
SMALLEST = "HloModule m\n\nENTRY e {\n  p = f32[2]{0} parameter(0)\n  ROOT n = f32[2]{0} negate(p)\n}\n"
SLOW = 1 << 16
"""Elements of all arrays from which on the values take longer than the compiler."""
QUICK = 32
"""The least size of dimensions that come down at first, for the time of a try. Smaller arrays may get another kind of
kernel, in which a fault of this one is not. Where they are 1, what reads another element reads none, and the operations
that do so cannot stand for each other any more."""
FEW = 32
"""Instructions of a module of which all cuts are tried once more in larger arrays."""
GROWTHS = 2
"""So many forms with larger arrays, which show it, are cut: it takes long where a question does."""
MANY = 64
"""So many entries or outputs are tried one by one; of more, halves."""


@dataclass(frozen=True)
class Shown:
    """What a text shows, the way of asking, and the time that took: by the clock, and of processors, for the process
    of the try and beside it."""

    text: str
    answer: str
    way: int
    seconds: float
    cpu_seconds: float
    beside: float


ShownFunction = Callable[[], Shown | None]


def _instructions(module: Module) -> int:
    """Instructions of all computations."""
    return sum(len(c.instructions) for c in module.computations)


def _of_text(module: Module, text: str, change: Cut) -> Module:
    """A change of the module in a text."""
    return change(read(text))


class Reducer:
    """Makes a module smaller as long as it shows the same.

    text    the smallest module so far
    answer  what it shows; empty before `begin`
    """

    def __init__(self, text: str, question: Question, jobs: int, tell: Tell = lambda line: None) -> None:
        self.text = text
        self.module = read(text)
        self.question = question
        self.tell = tell
        self.trials = Trials(jobs, LONGEST_TRY)
        self.answer = ""
        self.started = time.monotonic()
        self._way = 0
        self._endless = 0.0
        """Seconds for each instruction after which fusing has no end: larger modules take longer."""
        self._failed: set[str] = set()
        """The cuts of the present module that fail."""
        self._known = Path()
        """A folder with an empty file for each text that does not show it: several cuts give the same text, and tries
        run in processes of their own. It is there during `run`."""

    @property
    def instructions(self) -> int:
        """Instructions of the smallest module so far, those of all its computations."""
        return _instructions(self.module)

    @property
    def operations(self) -> int:
        """`instructions` without parameters."""
        return size(self.module)[0]

    def begin(self) -> None:
        """Find what the module shows, and the quickest way to ask. Short stretches of a large module are asked first,
        which finds a local fault before the answer for the whole module is there; with three processes or more the
        whole module is asked beside them. Raises UsageError where nothing shows it."""
        self._warm()
        self._unname()
        self.module.entry.index_users()
        ways = range(len(self.question.ways()))
        whole: list[ShownFunction] = [partial(self._ask, way, lambda module: module) for way in ways]
        n = cuts.count(self.module)
        stretches: list[ShownFunction] = []
        if n > LONG:
            starts = range(0, n - OVERLAP, STRETCH - OVERLAP)
            kept = [range(start, min(start + STRETCH, n)) for start in starts]
            stretches = [partial(self._ask, 0, partial(cuts.parts, kept=k)) for k in kept]
        beside, clock = self.trials.jobs > 2 and stretches, time.monotonic()
        first = self.trials.first([*stretches, *whole], ahead=len(stretches) if beside else None)
        if first is None:
            raise UsageError("the module does not show what is to be kept")
        self.answer, self._way = first[1].answer, first[1].way
        if self.answer == FUSING_ENDED:  # it took the limit
            self._endless = (time.monotonic() - clock) / max(1, self.instructions)
        self._limit(first[1])
        self.trials.beside = max(LEAST_BESIDE, ALLOWED * first[1].beside)
        self._take(first[1].text)

    def _unname(self) -> None:
        """Names that say nothing, for a command that succeeds without the old ones: `grep -q scatter {}` then looks for
        the operation. Our own questions ask for no name, and old names tell where an instruction comes from."""
        if isinstance(self.question, Command):
            unnamed = self.trials.one(partial(self._ask, 0, plainer.nameless))
            if unnamed is not None:
                self.text, self.module = unnamed.text, read(unnamed.text)

    def _ask(self, way: int, cut: Cut) -> Shown | None:
        """In a child process: what a cut of the module shows, in one way of asking."""
        return self._shown(str(cut(self._mine())), way)

    def _shown(self, text: str, way: int) -> Shown | None:
        """In a child process: what a text shows, in one way of asking; None where that is not what is looked for."""
        clock, before = time.monotonic(), os.times()

        def shown(answer: str | None) -> Shown | None:
            if answer is None or self.answer not in ("", answer):
                return None
            own, own_system, other, other_system = (b - a for a, b in zip(before[:4], os.times()[:4], strict=True))
            return Shown(text, answer, way, time.monotonic() - clock, own + own_system, other + other_system)

        with left_as(shown):
            return shown(self.question.ways()[way](read(text), text))

    def _limit(self, shown: Shown) -> None:
        """Limits of the next tries, by what this one took: cuts of a smaller module take less, and where a loop has no
        end any more, the limit is what a try costs. What programs that it starts may take stays: some results of
        compilers are known already."""
        self.trials.seconds = min(self.trials.seconds, max(SHORTEST_TRY, ALLOWED * shown.seconds))
        most = math.inf if self.trials.cpu_seconds is None else self.trials.cpu_seconds
        least = LEAST_CPU_ENDED if shown.answer in (ENDED, FUSING_ENDED) else LEAST_CPU
        if shown.answer == FUSING_ENDED:
            least = max(least, self._endless * _instructions(read(shown.text)))
        self.trials.cpu_seconds = min(most, max(least, ALLOWED * shown.cpu_seconds))

    def _mine(self) -> Module:
        """The module, for a cut to change."""
        return self.module if self.trials.are_apart else edit.clone_module(self.module)

    def _warm(self) -> None:
        """Load what every child process would load again."""
        if not isinstance(self.question, Command):
            with contextlib.suppress(Exception):
                self.question.ways()[0](read(SMALLEST), SMALLEST)

    def run(self) -> str:
        """The text of the smallest module."""
        with tempfile.TemporaryDirectory(prefix="hlo-opt-reduce-") as known:
            self._known = Path(known)
            self.begin()
            self._search()
        return self.text

    def _search(self) -> None:
        """Take cuts until none is left that shows it."""
        self._one(plainer.bare)
        wide, fewest = self.text, size(self.module)[:2]
        while True:
            while True:
                count = size(self.module)[:2]
                self._entries()
                self._stretches()
                self._whole()
                self._fewer()
                if size(self.module)[:2] >= count:
                    break
            before = size(self.module)
            if before[:2] < fewest:
                wide, fewest = self.text, before[:2]
            self._sizes()
            self._plainer()
            if not simpler(size(self.module), before) and not self._grown(wide):
                break

    def _fewer(self) -> None:
        """Fewer instructions, of dimensions as they are."""
        while True:
            count = size(self.module)[:2]
            self._chunks()
            self._outputs()
            self._loops()
            self._called()
            self._singles()
            if size(self.module)[:2] >= count:
                break

    def _grown(self, wide: str) -> bool:
        """Whether there are fewer instructions in larger arrays, which come down again later: cuts that failed because
        a small array gets another kernel, in which the fault is not. All dimensions have one size then, so that more
        values can stand for each other. `wide`: a text of as many instructions, before dimensions came down, for where
        none is left."""
        if self.instructions > FEW:
            return False
        text, count = self.text, size(self.module)[:2]
        changes, asked = plainer.larger(self.module), 0
        if not changes:
            changes = [partial(_of_text, text=wide, change=change) for change in plainer.larger(read(wide))]
        for change in changes:
            shown = self.trials.one(partial(self._ask, self._way, change)) if asked < GROWTHS else None
            if shown is None:
                continue
            asked += 1
            try:
                self._take(shown.text)
                self._fewer()
            finally:
                is_fewer = size(self.module)[:2] < count
                if not is_fewer:
                    self._take(text)
            if is_fewer:
                return True
        return False

    # ---- tries

    def _try(self, cut: Cut) -> Shown | None:
        """In a child process: what a cut shows, where it is smaller and shows the same."""
        before = size(self.module)
        smaller = cut(self._mine())
        if size(smaller) >= before:
            return None
        text = str(smaller)
        mark = Path(self._known, hashlib.sha256(text.encode()).hexdigest())
        if mark.exists():
            return None
        try:
            shown = self._shown(text, self._way)
            if shown is not None:
                return shown
        except Exception:
            mark.touch()
            raise
        mark.touch()
        return None

    def _first(self, cuts: Sequence[Cut]) -> int | None:
        """Take the first of these cuts that still shows it, and return its number. Cuts that fail are not tried again
        on the same module."""
        left = [(number, cut) for number, cut in enumerate(cuts) if repr(cut) not in self._failed]
        first = self.trials.first([partial(self._try, cut) for _, cut in left])
        if first is None:
            self._failed.update(repr(cut) for _, cut in left)
            return None
        self._limit(first[1])
        self._take(first[1].text)
        return left[first[0]][0]

    def _take(self, text: str) -> None:
        self.text = text
        self.module = read(text)
        self._failed.clear()
        for computation in self.module.computations:
            computation.index_users()
        self.tell(f"{self.instructions:,} instructions, tries: {self.trials.tried}")

    def _one(self, cut: Cut) -> bool:
        return self._first([cut]) is not None

    def _all(self, cuts_of: Callable[[Module], Sequence[Cut]]) -> None:
        """Take every cut of a list that still shows it. The list is made again after each, and the search goes on at
        the place of the last one."""
        place = 0
        while (number := self._first(cuts_of(self.module)[place:])) is not None:
            place += number

    # ---- kinds of cuts, the largest first

    def _entries(self) -> None:
        """A called computation as the entry."""
        while self._first(cuts.entries(self.module)[:MANY]) is not None:
            continue

    def _stretches(self) -> None:
        """One half of the entry: its end, its beginning or its middle; then less at the end and at the beginning."""
        while True:
            n = cuts.count(self.module)
            half = n // 2
            starts = dict.fromkeys((n - half, 0, (n - half) // 2))
            stretches = [partial(cuts.parts, kept=range(start, start + half)) for start in starts]
            if half < 2 or self._first(stretches) is None:
                break
        for is_end in (True, False):
            self._trim(is_end)

    def _trim(self, is_end: bool) -> None:
        """Remove as much as possible at one end of the entry: a half, or else a quarter, and so on."""
        gone = cuts.count(self.module) // 2
        while gone:
            n = cuts.count(self.module)
            tried = [gone >> k for k in range(gone.bit_length())]
            number = self._first([partial(cuts.parts, kept=range(n - g) if is_end else range(g, n)) for g in tried])
            gone = 0 if number is None else tried[number] // 2

    def _whole(self) -> None:
        """Cuts of the whole module at once: no calls and fusions, one round of each loop; smaller dimensions of large
        arrays. Those of small arrays come later, as a fault may not show in every element."""
        self._one(cuts.inline_all)
        self._one(loops.all_once)
        if size(self.module)[2] > SLOW:
            self._all(partial(plainer.all_smaller, least=QUICK))

    def _chunks(self) -> None:
        """The entry without a stretch, from the end; shorter and shorter stretches."""
        self._shorter(lambda: cuts.count(self.module), cuts.without, 4, 1)

    def _called(self) -> None:
        """The same of called computations: first without anything between parameters and root."""
        for name in cuts.called_names(self.module):
            self._shorter(partial(self._count, name), partial(cuts.without_in, name=name), 1, 2)

    def _count(self, name: str) -> int:
        """The instructions of a computation; 0 where it is gone."""
        return next((len(c.instructions) for c in self.module.computations if c.name == name), 0)

    def _shorter(self, count: Callable[[], int], cut: Callable[..., Module], part: int, least: int) -> None:
        """Remove stretches of a computation, from the end: a part of it, then shorter and shorter ones."""
        length = count() // part
        while length >= least:
            end = count()
            while end > 0:
                starts = list(range(max(0, end - length), -1, -length))
                if starts and starts[-1] > 0:
                    starts.append(0)
                ranges = [range(start, min(start + length, end)) for start in starts]
                number = self._first([partial(cut, gone=r) for r in ranges])
                if number is None:
                    break
                end = min(starts[number], count())
            length //= 2

    def _outputs(self) -> None:
        """One output alone; a half of the outputs; all but one. Then fewer results of operations with several."""
        while True:
            n = len(outputs_of(self.module.entry))
            if n < 2:
                break
            half = n // 2
            kept: list[Sequence[int]] = [range(half), range(half, n)]
            if n <= MANY:
                kept = [[k] for k in range(n)] + (kept if n > 3 else [])
            kept += [[k for k in range(n) if k != gone] for gone in range(n)] if n > 2 else []
            if self._first([partial(cuts.fewer_outputs, kept=k) for k in kept]) is None:
                break
        self._one(cuts.drop_tuple)
        self._all(cuts.result_cuts)

    def _loops(self) -> None:
        self._all(cuts.loop_cuts)

    def _singles(self) -> None:
        self._all(cuts.single_cuts)

    def _sizes(self) -> None:
        self._all(plainer.all_smaller)
        self._all(lambda module: list(plainer.smaller(module)))

    def _plainer(self) -> None:
        self._all(plainer.plainer)
        self._all(plainer.barer)
