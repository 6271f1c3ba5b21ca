"""Pipelines: passes in order, with groups that repeat until nothing changes, and choices between groups. The syntax is
grammars/passes.lark."""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from hlo_opt.diag import HloOptError, Source, Span, UsageError, did_you_mean
from hlo_opt.diag.plugins import error_text
from hlo_opt.diag.time_limit import check_time
from hlo_opt.ir import Module
from hlo_opt.passes.base import Pass, PassContext
from hlo_opt.passes.reading import read
from hlo_opt.passes.table import option_kind, pass_class, plugin_of
from hlo_opt.text.grammar import grammar_text

if TYPE_CHECKING:
    from lark import Lark, Token, Tree

MOST_ROUNDS = 25
"""The limit of rounds of a fixpoint group whose passes still change something (the same as in
xla/hlo/pass/hlo_pass_fix.h)."""

LONGEST_TEXT = 10_000
"""The most characters of a pipeline."""

DEEPEST_GROUP = 20
"""The deepest nesting of brackets, and so of fixpoint groups."""

MOST_ALTERNATIVES = 8
"""The most pipelines that the choices of one text may stand for: each is run."""


@dataclass(frozen=True)
class Fixpoint:
    """Passes that are repeated until none changes anything."""

    steps: tuple[PassOrGroup, ...]


@dataclass(frozen=True)
class Best:
    """Groups of passes of which the one whose result is estimated to be quickest is kept. Stands at the top level of a
    pipeline only."""

    branches: tuple[tuple[PassOrGroup, ...], ...]


PassOrGroup = Pass | Fixpoint
Observer = Callable[[Pass, Module, bool], None]
"""Called after each run of a pass: the pass, the module, and whether the pass changed it."""


@dataclass(frozen=True)
class Pipeline:
    """Passes, groups and choices, in order."""

    steps: tuple[PassOrGroup | Best, ...]

    def passes(self) -> Iterator[Pass]:
        """Every pass, those of groups and choices included, each where it first stands."""
        stack: list[PassOrGroup | Best] = list(reversed(self.steps))
        while stack:
            step = stack.pop()
            if isinstance(step, Fixpoint):
                stack.extend(reversed(step.steps))
            elif isinstance(step, Best):
                stack.extend(s for branch in reversed(step.branches) for s in reversed(branch))
            else:
                yield step

    @property
    def head(self) -> Pipeline:
        """What comes before the first choice, and so is the same for all alternatives."""
        return Pipeline(tuple(itertools.takewhile(lambda step: not isinstance(step, Best), self.steps)))

    def last_choices(self) -> Pipeline:
        """The pipeline with the last branch in place of each choice."""
        ways = (step.branches[-1] if isinstance(step, Best) else (step,) for step in self.steps)
        return Pipeline(tuple(itertools.chain.from_iterable(ways)))

    def alternatives(self) -> list[Pipeline]:
        """The pipelines without choices that this one stands for: itself, if it has no choices."""
        ways = [step.branches if isinstance(step, Best) else ((step,),) for step in self.steps]
        return [Pipeline(tuple(itertools.chain(*chosen))) for chosen in itertools.product(*ways)]

    def spelt(self) -> list[str]:
        """The steps as `--passes` spells them, a text each: a pass with the options that differ from their defaults."""
        return list(map(_spelt, self.steps))

    @property
    def preserves_graph(self) -> bool:
        """Whether all passes promise to keep the graph, so that the whole run can be proved at once."""
        return all(p.preserves == "graph" for p in self.passes())

    def run(
        self,
        module: Module,
        context: PassContext,
        *,
        observer: Observer | None = None,
        seconds: dict[str, float] | None = None,
        runs: dict[str, int] | None = None,
        verify: Callable[[Module], None] | None = None,
        settled: set[Pass] | None = None,
    ) -> bool:
        """Run everything on the module in place.

        `seconds` collects the time of each pass by name, `runs` how often it ran; `verify` is called after each pass
        that changed something. The pipeline has no choices left (`alternatives`). A pass without effect, or with none
        right after itself, is not run again before the module has changed. `settled` are passes that are known to be
        without effect; those of which it is known afterwards are added. True when anything changed.
        """
        settled = set() if settled is None else settled

        def run_steps(steps: tuple[PassOrGroup | Best, ...]) -> bool:
            changed = False
            for step in steps:
                assert not isinstance(step, Best)
                changed |= run_group(step) if isinstance(step, Fixpoint) else run_pass(step)
            return changed

        def run_group(group: Fixpoint) -> bool:
            changed = False
            idle = 0
            for _ in range(MOST_ROUNDS):
                for step in group.steps:
                    if run_steps((step,)):
                        changed, idle = True, 0
                    else:
                        idle += 1
                    if idle >= len(group.steps):  # none of them has anything to do
                        return changed
                if context.exhausted:
                    break
            return changed

        def run_pass(step: Pass) -> bool:
            if step in settled:
                if observer is not None:
                    observer(step, module, False)
                return False
            check_time()
            started = time.perf_counter()
            changed = _run(step, module, context)
            if changed:
                settled.clear()
            if plugin_of(type(step)) is None and (step.idempotent or not changed):
                settled.add(step)
            if changed and not step.keeps_memory:
                context.memory.clear(values=not step.only_removes)
            if seconds is not None:
                seconds[step.name] = seconds.get(step.name, 0.0) + time.perf_counter() - started
            if runs is not None:
                runs[step.name] = runs.get(step.name, 0) + 1
            if changed and verify is not None:
                verify(module)
            if observer is not None:
                observer(step, module, changed)
            return changed

        return run_steps(self.steps)


def _spelt(step: PassOrGroup | Best) -> str:
    if isinstance(step, Fixpoint):
        return f"fixpoint({','.join(map(_spelt, step.steps))})"
    if isinstance(step, Best):
        return f"best({' | '.join(','.join(map(_spelt, branch)) for branch in step.branches)})"
    own = {f.name: value for f in fields(step) if (value := getattr(step, f.name)) != f.default}
    options = ",".join(f"{name.replace('_', '-')}={_spelt_value(value)}" for name, value in own.items())
    return f"{step.name}{{{options}}}" if options else step.name


def _spelt_value(value: bool | int | float | str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def _run(step: Pass, module: Module, context: PassContext) -> bool:
    """Run one pass. Failures in a plugin's pass are reported under the plugin's name."""
    try:
        return step.run(module, context)
    except HloOptError:
        raise
    except Exception as error:
        plugin = plugin_of(type(step))
        if plugin is None:
            raise
        raise plugin.broken(f"failed: {error_text(error)}") from error


Options = Mapping[str, Mapping[str, object]]
"""Options by pass and name (with `_`), typed as the fields are."""


def parse_pipeline(text: str, options: Options | None = None, *, override: bool = False) -> Pipeline:
    """The pipeline that a text spells.

    options   values for options that the text leaves open
    override  whether they replace what the text spells, too

    Raises UsageError, with the place, for bad syntax, unknown passes and options, and values of a wrong type.
    """
    source = Source(text, "--passes")
    if len(text) > LONGEST_TEXT:
        raise UsageError(f"the pipeline is longer than {LONGEST_TEXT} characters")
    depth = deepest = 0
    for character in text:
        depth += (character == "(") - (character == ")")
        deepest = max(deepest, depth)
    if deepest > DEEPEST_GROUP:
        raise UsageError(f"fixpoint groups nest {deepest} deep, more than {DEEPEST_GROUP}")
    tree = read(text) or _parsed(text, source)
    values = options or {}

    def step(tree: Any) -> PassOrGroup:
        if tree.data == "fixpoint":
            return Fixpoint(tuple(map(step, tree.children)))
        cls, spelt = _pass(tree, source)
        wanted = values.get(cls.name, {})
        build: Any = cls
        result: Pass = build(**({**spelt, **wanted} if override else {**wanted, **spelt}))
        return result

    def part(tree: Any) -> PassOrGroup | Best:
        if tree.data == "best":
            return Best(tuple(tuple(map(step, branch.children)) for branch in tree.children))
        return step(tree)

    steps = tuple(map(part, tree.children))
    count = math.prod(len(s.branches) for s in steps if isinstance(s, Best))
    if count > MOST_ALTERNATIVES:
        raise UsageError(f"the choices stand for {count} pipelines, more than {MOST_ALTERNATIVES}")
    return Pipeline(steps)


def _parsed(text: str, source: Source) -> Tree[Token]:
    """The tree of the LALR parser, whose errors say what it expected. Raises UsageError."""
    from lark import UnexpectedInput

    try:
        return _parser().parse(text)
    except UnexpectedInput as fault:
        at_end = getattr(getattr(fault, "token", None), "type", "") == "$END" or fault.pos_in_stream is None
        place = len(text) if at_end else min(fault.pos_in_stream or 0, len(text))
        raise UsageError(
            "this is not a pipeline",
            span=Span(source, place, place + 1),
            hint="write passes as NAME{option=value,...}, separated by commas; fixpoint(a,b) repeats, best(a|b) "
            "chooses",
        ) from None


@functools.cache
def _parser() -> Lark:
    from lark import Lark

    return Lark(grammar_text("passes.lark"), parser="lalr", propagate_positions=True)


def _pass(tree: Tree[Token], source: Source) -> tuple[type[Pass], dict[str, object]]:
    """The class and the options in the text."""
    head: Any = tree.children[0]
    options: list[Any] = tree.children[1:]
    try:
        cls = pass_class(str(head))
    except UsageError as fault:
        raise UsageError(fault.message, code=fault.code, span=_span(head, source), hint=fault.hint) from None
    known = {f.name: option_kind(f) for f in fields(cls)}
    values: dict[str, object] = {}
    for option in options:
        token, value = option.children[0], option.children[1].children[0]
        name = str(token).replace("-", "_")
        if name not in known:
            spelt = [n.replace("_", "-") for n in known]
            hint = did_you_mean(str(token).replace("_", "-"), spelt) or f"options: {', '.join(spelt) or 'none'}"
            raise UsageError(f"{head} has no option {str(token)!r}", span=_span(token, source), hint=hint)
        if name in values:
            raise UsageError(f"option {str(token)!r} is given twice", span=_span(token, source))
        values[name] = _value(value, known[name], str(token), source)
    return cls, values


def _value(token: Any, kind: str, name: str, source: Source) -> object:
    """The value of an option: the text as the first of the option's types that it fits."""
    text = str(token)
    for one in kind.split(" | "):
        if one == "bool" and text in ("true", "false"):
            return text == "true"
        if token.type == "NUMBER" and one == "float":
            return float(text)
        if token.type == "NUMBER" and one == "int" and text.lstrip("-").isdigit() and len(text) < 19:
            return int(text)
        if one == "str" and token.type in ("STRING", "NAME"):
            return text.strip('"')
    wanted = {"bool": "true or false", "int": "a whole number", "float": "a number", "str": "a word or a quoted text"}
    spelt = " or ".join(wanted.get(one, one) for one in kind.split(" | "))
    raise UsageError(f"{name} must be {spelt}, not {text}", span=_span(token, source))


def _span(token: Any, source: Source) -> Span:
    return Span(source, token.start_pos, token.end_pos)
