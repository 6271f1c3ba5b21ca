"""Questions about a module: does fusing fail, does the fused module compute other values, is there a NaN, a refusal or
a figure, or does a user's command succeed.

The answer is a short text that says what the module shows, or None. The answer for a failure names its kind, so that
one failure is not mistaken for another.
"""

from __future__ import annotations

import math
import operator
import os
import re
import shlex
import subprocess
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from hlo_opt.cutting.trials import leave, leaving
from hlo_opt.diag import CheckError, HloOptError, UsageError, did_you_mean, no_reason, reason_specs
from hlo_opt.diag.reason import CODE
from hlo_opt.evaluate import evaluate
from hlo_opt.evaluate.devices import device_inputs
from hlo_opt.evaluate.inputs import module_inputs
from hlo_opt.fusion.summary import module_summary
from hlo_opt.ir import Module
from hlo_opt.passes.run import Outcome
from hlo_opt.runtime.check.compare import check, on_named_devices
from hlo_opt.runtime.check.forms import FORMS, CheckedForms
from hlo_opt.runtime.executable import choose_backend, compile
from hlo_opt.runtime.host.compiler import has_compiler
from hlo_opt.runtime.host.crashes import crashes_told
from hlo_opt.text import parse, verify

Fuse = Callable[[Module], Outcome]
"""Fuses a module, with the options of the user."""
FIGURES = ("kernels", "launches", "bytes", "est_us", "instructions")
NAN = "nan"
FUSE_FAILS, RUN_FAILS = "fuse fails", "run fails"
CHECK_FAILS = ("fuse --check fails", "check fails")
ENDED = "run: no end"
"""The answer of a module of which a kernel does not come to an end, or takes the process with it."""
FUSING_ENDED = "fuse: no end"
"""The answer of a module that fusing crashes on or does not come to an end with."""
DIFFERS, IN_LANES = "differs", "differs in the lanes form only"
LEAST_RUN, ALLOWED_RUN = 10.0, 5
"""What kernels may take that are built already: in seconds by the clock, and as a multiple of the time in which the
interpreter runs the module and they are built."""
SENTENCES = (*CHECK_FAILS, FUSE_FAILS, RUN_FAILS, NAN)
COMPARED = re.compile(r"(\w+)\s*(<=|>=|==|!=|<|>)\s*(\S+)")
_TESTS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
PLACE = "{}"
"""The place of the file's name in a command."""


class Question(Protocol):
    """A question about a module. Two modules with equal answers show the same."""

    def ways(self) -> Sequence[Callable[[Module, str], str | None]]:
        """Ways of asking it, the quicker ones first: what one of them shows, the last does too."""


def failure_kind(failure: BaseException) -> str:
    """The kind of a failure: the code of an error, or the class of another exception and the function of the package
    that raised it."""
    if isinstance(failure, HloOptError):
        return failure.code
    frames = [f for f in traceback.extract_tb(failure.__traceback__) if f"{os.sep}hlo_opt{os.sep}" in f.filename]
    place = f" in {Path(frames[-1].filename).stem}.{frames[-1].name}" if frames else ""
    return f"{type(failure).__name__}{place}"


def _failure_of_fusing(fuse: Fuse, module: Module, limit: float | None) -> tuple[str | None, Module]:
    """How fusing a module fails, and what it gives: the module itself where it fails. In a try also a crash, and what
    takes longer than the limit, in seconds, or than the try. Raises TimeoutError at a try's limit."""
    with leaving(FUSING_ENDED, limit or math.inf):
        try:
            return None, fuse(module).module
        except TimeoutError:
            raise
        except Exception as failure:
            return f"fuse: {failure_kind(failure)}", module


@dataclass(frozen=True)
class FuseFails:
    """Fusing it ends in an error, in a try also with a crash, or not within `limit` seconds."""

    fuse: Fuse
    limit: float | None = None

    def ways(self) -> Sequence[Callable[[Module, str], str | None]]:
        return [self.ask]

    def ask(self, module: Module, text: str) -> str | None:
        return _failure_of_fusing(self.fuse, module, self.limit)[0]


@dataclass(frozen=True)
class CheckFails:
    """Fusing it ends in an error, or the fused module computes other values on the backend; in a try also a crash, and
    what takes more than `limit` seconds. The ways are those of `quick_ways`, and all of a check."""

    fuse: Fuse
    backend: str = "auto"
    seed: int = 0
    limit: float | None = None

    def ways(self) -> Sequence[Callable[[Module, str], str | None]]:
        def by(backend: str, form: CheckedForms) -> Callable[[Module, str], str | None]:
            return lambda module, text: self.ask(module, backend, form, is_quick=True)

        def all_of_it(module: Module, text: str) -> str | None:
            return self.ask(module, self.backend, "both", is_quick=False)

        return [*(by(*way) for way in quick_ways(self.backend)), all_of_it]

    def ask(self, module: Module, backend: str, form: CheckedForms = "both", *, is_quick: bool) -> str | None:
        failure, fused = _failure_of_fusing(self.fuse, module, self.limit)
        return failure or differs(module, fused, backend, self.seed, form, is_quick=is_quick, limit=self.limit)


def quick_ways(backend: str) -> list[tuple[str, CheckedForms]]:
    """The backends and forms of kernels that show most differences, each with one compilation at most; without a wish
    for a backend, the first of them runs no kernels."""
    name = choose_backend(backend)[0]
    ways: list[tuple[str, CheckedForms]] = [("numpy", "plain")] if backend == "auto" else []
    if name == "host":
        return [*ways, *(("host", form) for form in FORMS)]
    if backend == "auto":
        return [*ways, ("host", "plain")] if name == "cupy" and has_compiler() else ways
    return [(name, "plain")]


def differs(
    module: Module,
    other: Module,
    backend: str,
    seed: int,
    form: CheckedForms = "both",
    *,
    is_quick: bool,
    limit: float | None = None,
) -> str | None:
    """How another module differs: it computes other values (in the lanes form alone, or not), ends in an error, or, in
    a try, with a crash or not within `limit` seconds; None where it does not differ. Quick: on one set of inputs.
    Raises EvaluationError where the first module cannot run, and TimeoutError at a try's limit."""
    inputs, executable, began = None, None, time.monotonic()
    if is_quick:
        inputs = device_inputs(module, seed)
        evaluate(module, inputs[0])
    try:
        if form != "both" and inputs is not None and len(inputs) == 1 and on_named_devices(module, other)[0] is module:
            executable = compile(other, backend, form=form)  # what follows takes no compiler's time
            limit = limit or max(LEAST_RUN, ALLOWED_RUN * (time.monotonic() - began))
        leave(ENDED, limit)
        report = check(
            module,
            other,
            inputs=inputs[0] if inputs is not None and len(inputs) == 1 else inputs,
            seed=seed,
            backend=backend,
            executable=executable,
            form=form,
        )
    except TimeoutError:
        raise
    except Exception as failure:
        return f"run: {failure_kind(failure)}"
    if report.ok:
        return None
    if form == "lanes":
        return differs(module, other, backend, seed, "plain", is_quick=is_quick, limit=limit) or IN_LANES
    return IN_LANES if report.wrong == ("lanes",) else DIFFERS


@dataclass(frozen=True)
class RunFails:
    """Running it as it is ends in an error, in a try also with a crash, or not within `limit` seconds."""

    backend: str = "auto"
    seed: int = 0
    limit: float | None = None

    def ways(self) -> Sequence[Callable[[Module, str], str | None]]:
        return [self.ask]

    def ask(self, module: Module, text: str) -> str | None:
        try:
            executable, inputs = compile(module, self.backend), device_inputs(module, self.seed)
            leave(ENDED, self.limit)
            with crashes_told(executable.backend == "host"):
                executable.run_devices(inputs)
        except TimeoutError:
            raise
        except Exception as failure:
            return f"run: {failure_kind(failure)}"
        return None


@dataclass(frozen=True)
class HasNan:
    """An operation without a NaN in its operands returns one."""

    seed: int = 0

    def ways(self) -> Sequence[Callable[[Module, str], str | None]]:
        return [self.ask]

    def ask(self, module: Module, text: str) -> str | None:
        try:
            evaluate(module, module_inputs(module, self.seed), check_nans=True)
        except CheckError:
            return "a NaN"
        return None


@dataclass(frozen=True)
class IsRefused:
    """Fusing it refuses an edge with a code."""

    fuse: Fuse
    code: str

    def ways(self) -> Sequence[Callable[[Module, str], str | None]]:
        return [self.ask]

    def ask(self, module: Module, text: str) -> str | None:
        decisions = self.fuse(module).decide(siblings=True)
        is_there = any(reason.code == self.code for d in decisions if not d.fused for reason in d.reasons)
        return self.code if is_there else None


@dataclass(frozen=True)
class HasFigure:
    """A figure of the fused module satisfies a comparison with a number."""

    fuse: Fuse
    name: str
    test: str
    number: float

    def ways(self) -> Sequence[Callable[[Module, str], str | None]]:
        return [self.ask]

    def ask(self, module: Module, text: str) -> str | None:
        outcome = self.fuse(module)
        value = figure(self.name, outcome.module, outcome)
        return f"{self.name} {self.test} {self.number:g}" if compares(value, self.test, self.number) else None


def figure(name: str, module: Module, outcome: Outcome) -> float:
    """A figure of a module on the target of a run."""
    if name == "instructions":
        return sum(len(c.instructions) for c in module.computations)
    value: float = getattr(module_summary(module, outcome.target), name)
    return value


def _folder(parent: str | None = None) -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="hlo-opt-", dir=parent, ignore_cleanup_errors=True)


@dataclass(frozen=True)
class Command:
    """A user's command ends with status 0 for a file with the module. The command does not pass through a shell."""

    words: tuple[str, ...]
    folder: tempfile.TemporaryDirectory[str] = field(default_factory=_folder, compare=False)
    """Holds the files of all texts: a process that is killed removes nothing."""

    def ways(self) -> Sequence[Callable[[Module, str], str | None]]:
        return [self.ask]

    def ask(self, module: Module, text: str) -> str | None:
        return "status 0" if self.status(text) == 0 else None

    def status(self, text: str) -> int:
        """The exit status for a text, in a temporary file. What the command leaves running is not waited for, and may
        still write into the folder."""
        with _folder(self.folder.name) as folder:
            file = Path(folder) / "module.hlo"
            file.write_text(text, encoding="utf-8")
            words = [word.replace(PLACE, str(file)) for word in self.words]
            null = subprocess.DEVNULL
            return subprocess.run(words, check=False, stdin=null, stdout=null, stderr=null).returncode


def command_of(text: str) -> Command:
    """The command in a text. Raises UsageError for a text that is no command, and where there is no such program."""
    import shutil

    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"this is not a command: {error}") from None
    if not any(PLACE in word for word in words):
        raise UsageError(f"the command {text!r} has no {PLACE} for the file")
    if shutil.which(words[0]) is None:
        raise UsageError(f"there is no program {words[0]!r}", hint="pipes and the like need a shell: sh -c '...'")
    return Command(tuple(words))


def question_of(text: str, fuse: Fuse, backend: str = "auto", seed: int = 0, limit: float | None = None) -> Question:
    """The question for the text of `--keep`; `limit`: the seconds after which fusing or a run has no end. Raises
    UsageError, with the texts that there are, for any other."""
    words = " ".join(text.split())
    if words in CHECK_FAILS:
        return CheckFails(fuse, backend, seed, limit)
    if words == FUSE_FAILS:
        return FuseFails(fuse, limit)
    if words == RUN_FAILS:
        return RunFails(backend, seed, limit)
    if words.lower() == NAN:
        return HasNan(seed)
    codes = {spec.code for spec in reason_specs()}
    if words.upper() in codes:
        return IsRefused(fuse, words.upper())
    compared = COMPARED.fullmatch(words)
    if compared is not None:
        return HasFigure(fuse, *comparison(compared[1], compared[2], compared[3]))
    if PLACE in text:
        return command_of(text)
    if CODE.fullmatch(words.upper()):
        raise no_reason(words)
    near = did_you_mean(words, [*SENTENCES, *codes])
    sentences = ", ".join(map(repr, (CHECK_FAILS[0], FUSE_FAILS, RUN_FAILS, NAN)))
    known = f"{sentences}, a code such as FUS201, 'kernels > 3', or a command with {PLACE} for the file"
    raise UsageError(f"--keep does not take {text!r}", hint=near or f"it takes {known}")


def compares(value: float, test: str, number: float) -> bool:
    """Whether a value satisfies a comparison with a number: `<`, `<=`, `>`, `>=`, `==` or `!=`."""
    return _TESTS[test](value, number)


def comparison(name: str, test: str, number: str) -> tuple[str, str, float]:
    """The parts of a comparison: figure, operator, number. Raises UsageError."""
    if name not in FIGURES:
        raise UsageError(f"there is no figure {name!r}", hint=did_you_mean(name, FIGURES) or ", ".join(FIGURES))
    try:
        value = float(number.replace("_", "").replace(",", ""))
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UsageError(f"{number!r} is no number")
    return name, test, value


def read(text: str) -> Module:
    """The valid module in a text. Raises ParseError or VerifyError."""
    module = parse(text)
    verify(module)
    return module
