"""What `--dynamic` asks for: which dimensions change, whether the fused module holds at other sizes, and what is said
of its kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hlo_opt.diag import UsageError
from hlo_opt.report.page import Page, Word, counted

if TYPE_CHECKING:
    from hlo_opt.analysis.sizes.resize import SizeRequest, Ties
    from hlo_opt.cli.fusing import Fusing
    from hlo_opt.cli.running import Running
    from hlo_opt.ir import Module
    from hlo_opt.passes import ExplainReport
    from hlo_opt.runtime.check.compare import CheckReport
    from hlo_opt.runtime.family.kernels import Family


LIKE = "like="
MOST_PARTS = 6
"""Parts that are named at most, each with what it is taken for."""


@dataclass(frozen=True, eq=False)
class Sized:
    """A module with a dimension that changes.

    original  what follows it, in the module as it was read
    module    that module with plain dimensions, at the size that prices are for
    priced    that size
    agrees    whether a dump of another size says the same
    bounded   whether the text says so itself (`f32[<=8]`), with no request
    """

    requests: tuple[SizeRequest, ...]
    original: Ties
    module: Module
    priced: int
    agrees: bool = False
    bounded: bool = False

    @classmethod
    def of(cls, module: Module, texts: Sequence[str]) -> Sized:
        """Sizes from requests, and from the file of a dump at another size (`like=FILE`) that must agree. Raises
        UsageError for texts that are neither, where something needs the size, and (SIZ112) where the other dump does
        not agree."""
        from hlo_opt.analysis.sizes.readings import check_other
        from hlo_opt.analysis.sizes.resize import SizeRequest, tie
        from hlo_opt.cli.files import read_module

        others = [text.removeprefix(LIKE) for text in texts if text.startswith(LIKE)]
        requests = tuple(SizeRequest.of(text) for text in texts if not text.startswith(LIKE))
        if not requests:
            raise UsageError(f"--dynamic {LIKE}{others[0]} needs a dimension beside it: --dynamic p0:0")
        original = tie(module, requests)
        dumps = [read_module(name) for name in others]
        for dump in dumps:
            original = original.following(check_other(original, dump))
        for dump in dumps[:-1]:  # what a later one says must hold for the earlier ones
            check_other(original, dump)
        asked = {request.priced for request in requests if request.priced is not None} or {original.size}
        if len(asked) > 1:
            raise UsageError("--dynamic: the dimensions are one size, so that they have one price", code="SIZ106")
        (priced,) = asked
        original.check(priced)
        return cls(requests, original, original.at(priced), priced, agrees=bool(others))

    @classmethod
    def wanted(cls, module: Module, texts: Sequence[str]) -> Sized | None:
        """As `of`; without texts for the bounded dimensions of parameters, if there are any and they are one size."""
        if texts:
            return cls.of(module, texts)
        from hlo_opt.analysis.sizes.resize import bounded, tie

        for requests in bounded(module):
            try:
                original = tie(module, requests)
            except UsageError:
                continue
            return cls(requests, original, original.at(original.size), original.size, bounded=True)
        return None

    def fuse(
        self, fusing: Fusing, memory_limit: int | None = None, print_after: Sequence[str] = ()
    ) -> tuple[ExplainReport, Family]:
        """The fused module's report and kernels. Where a pass decided by the size (SIZ110), it is fused again without
        simplifying, unless the user says how. `print_after` as in `Fusing.run`. Raises UsageError."""
        report = fusing.run(self.module, print_after=print_after)
        try:
            return report, self.family(report.outcome.module, fusing.target, memory_limit)
        except UsageError:
            if fusing.simplify != "auto" or fusing.passes is not None:
                raise
        from dataclasses import replace

        plain = replace(fusing, simplify="never")
        report = plain.run(self.module, print_after=print_after)
        return report, self.family(report.outcome.module, plain.target, memory_limit)

    def text(self, fused: Module) -> str:
        """The fused module as text; where the text that was read has bounded dimensions, those that follow have."""
        return str(self._tied(fused).bounded()) if self.bounded else str(fused)

    def _tied(self, fused: Module) -> Ties:
        """What follows in the fused module."""
        from dataclasses import replace

        from hlo_opt.analysis.sizes.resize import tie

        own = [replace(r, least=self.original.least, most=self.original.most) for r in self.requests]
        return tie(fused, own, self.original)

    def family(self, fused: Module, target: str, memory_limit: int | None = None) -> Family:
        """The kernels of the fused module. Raises UsageError where something in it needs the size, or (SIZ110) where it
        computes something else at another size, because a pass decided by it."""
        from hlo_opt.runtime.check.compare import check
        from hlo_opt.runtime.family.kernels import family

        ties = self._tied(fused)
        if (ties.parameters, ties.sizes) != (self.original.parameters, self.original.sizes):
            own = f"sizes {ties.range} of {', '.join(ties.parameters)}"
            raise UsageError(
                f"in the fused module it is {own} that change", code="SIZ110", hint="hlo-opt explain SIZ110"
            )
        for size in self.original.sizes[1:3] or self.original.sizes:
            if size != ties.size:
                report = check(self.original.at(size), ties.at(size), backend="numpy", memory_limit=memory_limit)
                if not report.ok:
                    raise UsageError(
                        f"at size {size} the fused module computes something else: {report.first}",
                        code="SIZ110",
                        hint="hlo-opt explain SIZ110",
                    )
        return family(ties, target)

    def check(self, kernels: Family, running: Running) -> dict[int, CheckReport]:
        """The reports at several sizes. Raises UsageError for inputs from a file, which have one size."""
        from hlo_opt.runtime.check.sizes import check_sizes, tried
        from hlo_opt.runtime.family.kernels import SizedExecutable

        if running.inputs is not None or running.sanitize or running.elided is not None:
            raise UsageError("--dynamic draws inputs of several sizes, without --inputs, --sanitize and --elided")
        executable = SizedExecutable(kernels, running.backend, precise=running.precise)
        sizes, limit = tried(self.original), running.memory_limit
        return dict(check_sizes(self.original, executable, sizes, seed=running.seed, memory_limit=limit))


def size_page(sized: Sized, kernels: Family | None = None) -> Page:
    """What follows the size, and the size that prices are for; how many kernels there are for how many sizes, with
    those that are for few each; constants that may be frozen."""
    page, ties = Page(), sized.original
    counts = ""
    if kernels is not None:
        counts = f"; {counted(len(kernels.kernels), 'kernel')} in {counted(len(kernels.variants), 'variant')}"
    page.add(
        Word("dynamic", "bold"),
        f": sizes {ties.range} of {', '.join(ties.parameters)}; prices are for size {sized.priced}{counts}",
    )
    for name, plan, texts in [] if kernels is None else kernels.many_texts:
        page.add(f"  SIZ108 `{name}` ({plan}): {texts} texts for {counted(len(ties.sizes), 'size')}")
    for (_, name), formula in ties.formulas.items():
        page.add(f"  `{name}` follows: {formula}")
    for instruction, text in ties.frozen:
        page.add(f"  SIZ111 `{instruction.name}` is {text}, a count of elements at size {ties.size}: the dump froze it")
    parts = {text: instruction for instruction, text in ties.read} if not sized.agrees else {}
    for text, instruction in list(parts.items())[:MOST_PARTS]:
        page.add(f"  SIZ113 `{instruction.name}`: {text}")
    if len(parts) > MOST_PARTS:
        page.add(f"  SIZ113 {len(parts) - MOST_PARTS} more")
    return page


def size_json(sized: Sized) -> dict[str, object]:
    """The same for programs: sizes as `[first, last, step]`."""
    from hlo_opt.runtime.family.emission import runs

    ties = sized.original
    return {
        "of": ties.parameters,
        "sizes": runs(ties.sizes),
        "priced": sized.priced,
        "read": {instruction.name: text for instruction, text in ties.read},
        "frozen": {instruction.name: text for instruction, text in ties.frozen},
        "formulas": {name: str(formula) for (_, name), formula in ties.formulas.items()},
    }


def checked_page(reports: dict[int, CheckReport]) -> Page:
    """Agreement size by size."""
    page = Page()
    for size, report in reports.items():
        verdict = Word("agrees", "green") if report.ok else Word("differs", "bold red")
        page.add(f"check at size {size}: ", verdict, str(report).removeprefix("agrees").removeprefix("differs"))
    return page
