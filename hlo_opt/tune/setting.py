"""A way to fuse a module: passes with their options, and edges that are forbidden or forced. And the steps from one to
its neighbours, of which a search tries many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import Field, dataclass, fields, replace
from typing import Protocol

from hlo_opt.passes.base import FusionPass, Pass
from hlo_opt.passes.pipeline import Fixpoint, PassOrGroup, Pipeline
from hlo_opt.passes.table import option_kind

Ends = tuple[str, str]
"""The names of the producer and of the consumer of an edge."""
PassPath = tuple[int, ...]
"""Where a pass stands: the number of the step, and those of the steps of groups inside."""

WITH_CONSENT = frozenset({"fast_math"})
"""Options that let results differ by more than rounding: nobody but the user sets them."""


@dataclass(frozen=True)
class Setting:
    """Passes without choices (`Pipeline.alternatives`), edges that they must leave, and refused edges whose ends are
    joined in their result."""

    pipeline: Pipeline
    forbid: tuple[Ends, ...] = ()
    force: tuple[Ends, ...] = ()


class SettingChange(Protocol):
    """One step from a setting to another."""

    def apply(self, setting: Setting) -> Setting | None:
        """The other setting; None where the change makes no sense, or no difference."""

    def __str__(self) -> str: ...


@dataclass(frozen=True)
class SetOption:
    """Set an option of the pass at a place."""

    place: PassPath
    name: str
    option: str
    value: bool | int | float

    def apply(self, setting: Setting) -> Setting | None:
        step = _at(setting.pipeline, self.place)
        if not isinstance(step, Pass) or step.name != self.name or getattr(step, self.option) == self.value:
            return None
        return _with(setting, self.place, [replace(step, **{self.option: self.value})])

    def __str__(self) -> str:
        return f"{_option(self.name, self.option, self.value)} ({_ordinal(self.place)})"


@dataclass(frozen=True)
class SetEverywhere:
    """Set an option of all passes of one name."""

    name: str
    option: str
    value: bool | int | float

    def apply(self, setting: Setting) -> Setting | None:
        changed: Setting | None = None
        for place, step in places(setting.pipeline.steps):
            if step.name == self.name and getattr(step, self.option) != self.value:
                changed = _with(changed or setting, place, [replace(step, **{self.option: self.value})])
        return changed

    def __str__(self) -> str:
        return f"{_option(self.name, self.option, self.value)} everywhere"


@dataclass(frozen=True)
class LeaveOut:
    """Leave out the pass at a place."""

    place: PassPath
    name: str

    def apply(self, setting: Setting) -> Setting | None:
        step = _at(setting.pipeline, self.place)
        return _with(setting, self.place, []) if isinstance(step, Pass) and step.name == self.name else None

    def __str__(self) -> str:
        return f"without {self.name} ({_ordinal(self.place)})"


@dataclass(frozen=True)
class Swap:
    """Move the pass at a place behind the step that follows it."""

    place: PassPath
    name: str

    def apply(self, setting: Setting) -> Setting | None:
        following = (*self.place[:-1], self.place[-1] + 1)
        step, after = _at(setting.pipeline, self.place), _at(setting.pipeline, following)
        if not isinstance(step, Pass) or step.name != self.name or after is None or after == step:
            return None
        swapped = _with(setting, self.place, [after])
        return _with(swapped, following, [step])

    def __str__(self) -> str:
        return f"{self.name} one step later ({_ordinal(self.place)})"


@dataclass(frozen=True)
class Forbid:
    """Keep the ends of an edge in separate kernels."""

    ends: Ends

    def apply(self, setting: Setting) -> Setting | None:
        if self.ends in setting.forbid or self.ends in setting.force:
            return None
        return replace(setting, forbid=(*setting.forbid, self.ends))

    def __str__(self) -> str:
        return f"forbid {':'.join(self.ends)}"


@dataclass(frozen=True)
class Force:
    """Join the ends of a refused edge in the result."""

    ends: Ends

    def apply(self, setting: Setting) -> Setting | None:
        if self.ends in setting.forbid or self.ends in setting.force:
            return None
        return replace(setting, force=(*setting.force, self.ends))

    def __str__(self) -> str:
        return f"force {':'.join(self.ends)}"


def applied(setting: Setting, changes: Sequence[SettingChange]) -> Setting | None:
    """A setting after changes in order; None where one of them makes no sense."""
    changed: Setting | None = setting
    for change in changes:
        if changed is None:
            return None
        changed = change.apply(changed)
    return changed


def option_changes(setting: Setting) -> Iterator[SettingChange]:
    """Other values for each option of each pass: for a boolean the other one, for a number half and twice as much, and
    a little less and more."""
    for place, step in places(setting.pipeline.steps):
        for field in _free(step):
            for value in _others(getattr(step, field.name), option_kind(field)):
                yield SetOption(place, step.name, field.name, value)


def switches(setting: Setting) -> Iterator[SettingChange]:
    """Both values of each boolean option of fusion passes: there are few, and much depends on them."""
    for step in {step.name: step for _, step in places(setting.pipeline.steps)}.values():
        if isinstance(step, FusionPass):
            for field in _free(step):
                if option_kind(field) == "bool":
                    yield SetEverywhere(step.name, field.name, True)
                    yield SetEverywhere(step.name, field.name, False)


def _free(step: Pass) -> list[Field[object]]:
    return [field for field in fields(step) if field.name not in WITH_CONSENT]


def _others(value: bool | int | float | str, kind: str) -> list[bool | int | float]:
    if isinstance(value, bool):
        return [not value]
    if kind == "int" and isinstance(value, int):
        return [v for v in (value // 2, 2 * value) if v != value and v > 0]
    if kind == "float" and isinstance(value, float):
        return [round(value * factor, 6) for factor in (0.5, 0.95, 1.05, 2.0)]
    return []


def order_changes(setting: Setting) -> Iterator[SettingChange]:
    """Each pass one step later, and each left out."""
    for place, step in places(setting.pipeline.steps):
        yield Swap(place, step.name)
        yield LeaveOut(place, step.name)


def places(steps: Sequence[object], above: PassPath = ()) -> Iterator[tuple[PassPath, Pass]]:
    """The passes of steps, and of the groups among them, with their places."""
    for number, step in enumerate(steps):
        if isinstance(step, Fixpoint):
            yield from places(step.steps, (*above, number))
        elif isinstance(step, Pass):
            yield (*above, number), step


def _at(pipeline: Pipeline, place: PassPath) -> PassOrGroup | None:
    steps: Sequence[object] = pipeline.steps
    for number in place[:-1]:
        if number >= len(steps) or not isinstance(group := steps[number], Fixpoint):
            return None
        steps = group.steps
    step = steps[place[-1]] if place[-1] < len(steps) else None
    return step if isinstance(step, Pass | Fixpoint) else None


def _with(setting: Setting, place: PassPath, steps: Sequence[PassOrGroup]) -> Setting:
    """The setting with steps instead of the one at a place. A group that becomes empty is left out."""

    def changed(old: Sequence[PassOrGroup], place: PassPath) -> tuple[PassOrGroup, ...]:
        number, *rest = place
        if not rest:
            return (*old[:number], *steps, *old[number + 1 :])
        group = old[number]
        assert isinstance(group, Fixpoint)
        inner = changed(group.steps, tuple(rest))
        return (*old[:number], *([Fixpoint(inner)] if inner else []), *old[number + 1 :])

    own = [s for s in setting.pipeline.steps if isinstance(s, Pass | Fixpoint)]
    return replace(setting, pipeline=Pipeline(changed(own, place)))


def _option(name: str, option: str, value: bool | int | float) -> str:
    shown = str(value).lower() if isinstance(value, bool) else f"{value:g}"
    return f"{name}{{{option.replace('_', '-')}={shown}}}"


def _ordinal(place: PassPath) -> str:
    return "step " + ".".join(str(number + 1) for number in place)
