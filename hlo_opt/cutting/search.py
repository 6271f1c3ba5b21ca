"""The search for the smallest module that still shows something.

Large cuts come first: nothing but a stretch of the entry, half of it, then a quarter; what is outside is given as
parameters, and what is needed outside is an output. So a local fault among thousands of instructions is found in a few
tries, each half as dear as the one before. Then smaller stretches go, outputs, single instructions, rounds of loops,
sizes, types and constants, until nothing more can. Of the cuts of a round the first, in order, that still shows it is
taken, so that the result does not depend on the number of processes.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from hlo_opt.cutting import cuts, plainer
from hlo_opt.cutting.cuts import Cut
from hlo_opt.cutting.parts import outputs_of, simpler, size
from hlo_opt.cutting.shows import Command, Question, read
from hlo_opt.cutting.trials import Trials
from hlo_opt.diag import UsageError
from hlo_opt.ir import Module, edit

Tell = Callable[[str], None]
LONGEST_TRY = 600.0
"""Seconds of the first try, on the module as it is."""
SHORTEST_TRY = 20.0
"""Seconds that every try may take at least."""
LONG = 200
"""Instructions of an entry of which stretches are asked first."""
STRETCH, OVERLAP = 64, 16
"""How long these are, and how much of each is in the next one, too: fusing takes longer by the instruction where there
are more."""
SMALLEST = "HloModule m\n\nENTRY e {\n  p = f32[2]{0} parameter(0)\n  ROOT n = f32[2]{0} negate(p)\n}\n"
MANY = 64
"""Entries and outputs that are tried one by one; of more, halves are."""


@dataclass(frozen=True)
class Found:
    """What a text shows, by which way of asking, and how long that took."""

    text: str
    answer: str
    way: int
    seconds: float


Ask = Callable[[], Found | None]


class Reducer:
    """Makes a module smaller as long as it shows the same. `text` is the smallest so far."""

    def __init__(self, text: str, question: Question, jobs: int, tell: Tell = lambda line: None) -> None:
        self.text = text
        self.module = read(text)
        self.question = question
        self.tell = tell
        self.trials = Trials(jobs, LONGEST_TRY)
        self.answer = ""
        self.started = time.monotonic()
        self._way = 0
        self._failed: set[str] = set()
        """Cuts of the module as it is that are known to fail."""

    @property
    def instructions(self) -> int:
        """Of the smallest module so far."""
        return sum(len(c.instructions) for c in self.module.computations)

    def begin(self) -> None:
        """Find out what the module shows, and the quickest way to ask. Of a large module, short stretches are asked
        first, where there are processors for it with the whole beside them: a local fault is found in one of them
        before the whole has been looked at. Raises UsageError when nothing shows it."""
        self._warm()
        self.module.entry.index_users()
        ways = range(len(self.question.ways()))
        whole: list[Ask] = [partial(self._ask, way, lambda module: module) for way in ways]
        n = cuts.count(self.module)
        stretches: list[Ask] = []
        if n > LONG:
            starts = range(0, n - OVERLAP, STRETCH - OVERLAP)
            kept = [range(start, min(start + STRETCH, n)) for start in starts]
            stretches = [partial(self._ask, 0, partial(cuts.parts, kept=k)) for k in kept]
        beside = self.trials.jobs > 2 and stretches
        found = self.trials.first([*stretches, *whole], ahead=len(stretches) if beside else None)
        if found is None:
            raise UsageError("the module does not show what is to be kept")
        self._take(found[1].text)
        self.answer, self._way = found[1].answer, found[1].way
        self.trials.seconds = max(SHORTEST_TRY, 4 * found[1].seconds)

    def _ask(self, way: int, cut: Cut) -> Found | None:
        """In a process of its own: what a cut of the module shows, asked in some way."""
        started = time.monotonic()
        text = str(cut(self._mine()))
        answer = self.question.ways()[way](read(text), text)
        return None if answer is None else Found(text, answer, way, time.monotonic() - started)

    def _mine(self) -> Module:
        """The module, to be changed."""
        return self.module if self.trials.are_apart else edit.clone_module(self.module)

    def _warm(self) -> None:
        """Load here what every try would load again."""
        if not isinstance(self.question, Command):
            with contextlib.suppress(Exception):
                self.question.ways()[0](read(SMALLEST), SMALLEST)

    def run(self) -> str:
        """The smallest module that is found."""
        self.begin()
        self._one(plainer.bare)
        is_simpler = True
        while is_simpler:
            before = size(self.module)
            for step in (
                self._entries,
                self._stretches,
                self._chunks,
                self._outputs,
                self._singles,
                self._sizes,
                self._plainer,
            ):
                step()
            is_simpler = simpler(size(self.module), before)
        return self.text

    # ---- tries

    def _try(self, cut: Cut) -> str | None:
        """In a process of its own: the text that a cut gives, where it is smaller and shows the same."""
        before = size(self.module)
        made = cut(self._mine())
        if size(made) >= before:
            return None
        text = str(made)
        module = read(text)
        answer = self.question.ways()[self._way](module, text)
        return text if answer == self.answer else None

    def _first(self, tried: Sequence[Cut]) -> int | None:
        """Take the first of these cuts that still shows it; its number. What failed on this module is not tried
        again."""
        left = [(number, cut) for number, cut in enumerate(tried) if repr(cut) not in self._failed]
        found = self.trials.first([partial(self._try, cut) for _, cut in left])
        if found is None:
            self._failed.update(repr(cut) for _, cut in left)
            return None
        self._take(found[1])
        return left[found[0]][0]

    def _take(self, text: str) -> None:
        self.text = text
        self.module = read(text)
        self._failed.clear()
        for computation in self.module.computations:
            computation.index_users()
        self.tell(f"{self.instructions:,} instructions, tries: {self.trials.tried}")

    def _one(self, cut: Cut) -> bool:
        return self._first([cut]) is not None

    def _all(self, listed: Callable[[Module], Sequence[Cut]]) -> None:
        """Take all cuts of a list that can be taken, going on behind the last that was."""
        place = 0
        while True:
            found = self._first(listed(self.module)[place:])
            if found is None:
                return
            place += found

    # ---- kinds of cuts, the largest first

    def _entries(self) -> None:
        """A computation that is called, as the entry."""
        while self._first(cuts.entries(self.module)[:MANY]) is not None:
            continue

    def _stretches(self) -> None:
        """The half of the entry at the end, at the beginning or in the middle; then as little as possible at the
        beginning and at the end."""
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
        """As much less as can be at an end, by halving what is tried: half of it, or a quarter, ..."""
        gone = cuts.count(self.module) // 2
        while gone:
            n = cuts.count(self.module)
            tried = [gone >> k for k in range(gone.bit_length())]
            found = self._first([partial(cuts.parts, kept=range(n - g) if is_end else range(g, n)) for g in tried])
            gone = 0 if found is None else tried[found] // 2

    def _chunks(self) -> None:
        """Stretches of the entry that go, shorter and shorter ones, from the end."""
        length = cuts.count(self.module) // 4
        while length:
            end = cuts.count(self.module)
            while end > 0:
                starts = list(range(max(0, end - length), -1, -length))
                if starts and starts[-1] > 0:
                    starts.append(0)
                ranges = [range(start, min(start + length, end)) for start in starts]
                found = self._first([partial(cuts.without, gone=r) for r in ranges])
                if found is None:
                    break
                end = min(starts[found], cuts.count(self.module))
            length //= 2

    def _outputs(self) -> None:
        """One output; halves of them; all but one."""
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

    def _singles(self) -> None:
        self._all(cuts.single_cuts)

    def _sizes(self) -> None:
        self._all(lambda module: list(plainer.smaller(module)))

    def _plainer(self) -> None:
        self._all(plainer.plainer)
        self._all(plainer.barer)
