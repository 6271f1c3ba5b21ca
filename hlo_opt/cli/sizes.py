"""What `--dynamic` asks for: which dimensions change, whether the fused module holds at other sizes, and what is said
of its kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hlo_opt.diag import UsageError
from hlo_opt.report.page import Page, Word, counted

if TYPE_CHECKING:
    from hlo_opt.analysis.sizes.resize import Dynamic, Ties
    from hlo_opt.cli.running import Running
    from hlo_opt.ir import Module
    from hlo_opt.runtime.check.compare import CheckReport
    from hlo_opt.runtime.family.kernels import Family


@dataclass(frozen=True, eq=False)
class Sized:
    """A module with a dimension that changes.

    original  what follows it, in the module as it was read
    module    that module with plain dimensions, at the size that prices are for
    """

    requests: tuple[Dynamic, ...]
    original: Ties
    module: Module

    @classmethod
    def of(cls, module: Module, texts: Sequence[str]) -> Sized:
        """Raises UsageError for texts that are no requests, and where something needs the size."""
        from hlo_opt.analysis.sizes.resize import Dynamic, tie

        requests = tuple(map(Dynamic.of, texts))
        original = tie(module, requests)
        priced = {request.priced for request in requests if request.priced is not None} or {original.size}
        if len(priced) > 1:
            raise UsageError("--dynamic: the dimensions are one size, so that they have one price", code="SIZ106")
        return cls(requests, original, original.at(next(iter(priced))))

    def family(self, fused: Module, target: str, memory_limit: int | None = None) -> Family:
        """The kernels of the fused module. Raises UsageError where something in it needs the size, or (SIZ110) where it
        computes something else at another size, because a pass decided by it."""
        from dataclasses import replace

        from hlo_opt.analysis.sizes.resize import tie
        from hlo_opt.runtime.check.compare import check
        from hlo_opt.runtime.family.kernels import family

        own = [replace(r, least=self.original.least, most=self.original.most) for r in self.requests]
        ties = tie(fused, own)
        for size in sorted({min(self.original.least + k, self.original.most) for k in (1, 2)}):
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


def family_page(sized: Sized, kernels: Family) -> Page:
    """What follows the size, and how many kernels there are for how many sizes; constants that may be frozen."""
    page, ties = Page(), sized.original
    page.add(
        Word("dynamic", "bold"),
        f": sizes {ties.least} to {ties.most} of {', '.join(ties.parameters)}; "
        f"{counted(len(kernels.kernels), 'kernel')} in {counted(len(kernels.variants), 'variant')}",
    )
    for instruction, text in ties.frozen:
        page.add(f"  SIZ111 `{instruction.name}` is {text}, a count of elements at size {ties.size}: the dump froze it")
    return page


def checked_page(reports: dict[int, CheckReport]) -> Page:
    """Agreement size by size."""
    page = Page()
    for size, report in reports.items():
        verdict = Word("agrees", "green") if report.ok else Word("differs", "bold red")
        page.add(f"check at size {size}: ", verdict, str(report).removeprefix("agrees").removeprefix("differs"))
    return page
