"""Which single faults can be planted in the CUDA text of a kernel, and where."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hlo_opt.ops import find

_SWAPS = {
    "<": ("<=", ">"), "<=": ("<", ">="), ">": (">=", "<"), ">=": (">", "<="), "==": ("!=",), "!=": ("==",),
    "+": ("-",), "-": ("+",), "*": ("+",), "/": ("%", "*"), "%": ("/",), "&": ("|",), "|": ("&",), "^": ("&",),
    "<<": (">>",), ">>": ("<<",), "&&": ("||",), "||": ("&&",), "+=": ("-=",), "-=": ("+=",), "*=": ("/=",),
    "/=": ("*=",),
}  # fmt: skip
# a smaller type that still holds every value is no fault: one that holds 0 and 1 only is
_TYPES = {
    **dict.fromkeys(
        (
            *("unsigned int", "int", "long long", "unsigned long long"),
            *("unsigned char", "signed char", "unsigned short", "short"),
        ),
        ("bool",),
    ),
    "float": ("int",),
    "double": ("float",),
}
# threads that change places are no fault: each does what another did
_WORDS = {
    "threadIdx.x": ("blockIdx.x", "(threadIdx.x + 1)"), "blockIdx.x": ("threadIdx.x", "(blockIdx.x + 1)"),
    "__shfl_down_sync": ("__shfl_up_sync", "__shfl_xor_sync"), "__shfl_sync": ("__shfl_down_sync",),
    "atomicAdd": ("atomicMax", "atomicExch"), "atomicMax": ("atomicMin",), "atomicMin": ("atomicMax",),
    "atomicAnd": ("atomicOr",), "atomicOr": ("atomicXor",), "atomicXor": ("atomicOr",), "true": ("false",),
    "false": ("true",),
    "0xffffffffu": ("0x7fffffffu", "0x1u"),
}  # fmt: skip
_OPERATOR = re.compile(r"(?<= )(?:<<|>>|&&|\|\||[<>=!]=|[-+*/]=|[-+*/%&|^<>])(?= )")
_TYPE = re.compile(
    r"\b(?:unsigned long long|unsigned int|unsigned char|signed char|unsigned short|long long|(?<!unsigned "
    r")int|float|double|(?<!unsigned )short)\b"
)
_WORD = re.compile("|".join(rf"(?<![\w.]){re.escape(word)}(?!\w)" for word in _WORDS))
_NUMBER = re.compile(r"(?<![\w.])(\d+)(u|ull|LL|ll)?(?![\w.])")
_REAL = re.compile(r"(?<![\w.])(\d+\.\d*(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+)f?(?![\w.])")
# an array that is longer than it need be is no fault
_ARRAY = re.compile(r"^\s*(?:__shared__ )?[\w ]+ \w+\[\d+\];$")
_BARRIER = re.compile(r"\b(?:__syncthreads|__syncwarp|hlo_fence)\(\);")
_GUARD = re.compile(r"\bif \((?:[^()]|\([^()]*\))*\)(?= return;| \{$)")
_STORE = re.compile(r"^\s*[\w\[\]. +*/%()-]+ = [^;]*;$")
_CHOICE = re.compile(r"\? ([^?:;]+) : ([^?:;]+)(?=[;)])")
_RETURN = re.compile(r"\breturn [^;]+;")
_PLAIN = re.compile(r"\batomic(?P<name>\w+)\((?P<to>[^,;]*), (?P<value>[^;]*)\)(?=;)")


@dataclass(frozen=True)
class Site:
    """A text at a place of a line, and the texts that may stand there instead; an empty one where what its place means
    is nothing else here."""

    line: int
    start: int
    end: int
    kind: str
    others: tuple[str, ...]

    def planted(self, line: str, which: int) -> str:
        """The line with one of the other texts."""
        return f"{line[: self.start]}{self.others[which]}{line[self.end :]}"


def sites(lines: Sequence[str], numbers: Sequence[int]) -> Iterator[Site]:
    """Where faults can be planted in these lines of a text."""
    for n in numbers:
        line = lines[n]
        code = line.split("//")[0].rstrip()
        if code.lstrip().startswith("#") or "__builtin_assume_aligned" in code or not code.strip():
            continue
        for found in _OPERATOR.finditer(code):
            yield Site(n, *found.span(), "operator", _SWAPS[found[0]])
        for found in _TYPE.finditer(code):
            yield Site(n, *found.span(), "type", _TYPES[found[0]])
        for found in _WORD.finditer(code):
            yield Site(n, *found.span(), "atomic" if "atomic" in found[0] else "lane", _WORDS[found[0]])
        for found in _NUMBER.finditer(code):
            value, end = int(found[1]), found[2] or ""
            others = [max(0, value - 1), value // 2]
            if not _ARRAY.match(code):
                others += [value + 1, 2 * value]
            texts = tuple("" if other == value else f"{other}{end}" for other in others)
            if any(texts):
                yield Site(n, *found.span(), "number", texts)
        for found in _REAL.finditer(code):
            yield Site(n, *found.span(), "constant", ("(1.0f)",) if not float(found[1]) else (f"({found[0]} * 1.5f)",))
        for found in _BARRIER.finditer(code):
            yield Site(n, *found.span(), "barrier", (";",))
        for found in _GUARD.finditer(code):
            yield Site(n, *found.span(), "guard", ("if (true)" if code.endswith("{") else "if (false)",))
        if _STORE.match(code):
            yield Site(n, len(code) - len(code.lstrip()), len(code), "statement", (";",))
        for found in _CHOICE.finditer(code):
            yield Site(n, *found.span(), "choice", (f"? {found[2]} : {found[1]}",))
        for found in _RETURN.finditer(code):
            yield Site(n, *found.span(), "return", ("return {};",))
        for found in _PLAIN.finditer(code):
            yield Site(
                n, *found.span(), "atomic", (f"*({found['to']}) {'+' * (found['name'] == 'Add')}= {found['value']}",)
            )


def form(line: str) -> str:
    """A line without its numbers, also those in names."""
    return re.sub(r"_?\d+", "0", line)


def of_any_value(line: str) -> str:
    """The form of a line, whatever operation a value in it is of: an emitter names a value by its opcode, and a mistake
    of the emitter is in the line of every opcode."""

    def named(found: re.Match[str]) -> str:
        return found[0] if find(found[1].replace("_", "-")) is None else "value0"

    return form(_VALUE.sub(named, line))


_VALUE = re.compile(r"\b([a-z]+(?:_[a-z]+)*)(?:_\d+)+\b")


@dataclass(frozen=True)
class InKernels:
    """A mistake in every line of a form of every kernel's text: at which place of the line, and which of the place's
    other texts."""

    line: str
    kind: str
    place: int
    which: int

    def planted(self, source: str) -> str:
        """A kernel's text with it."""
        lines = source.split("\n")
        for number, line in enumerate(lines):
            if of_any_value(line) != self.line:
                continue
            places = list(sites(lines, [number]))
            if self.place < len(places) and places[self.place].kind == self.kind:
                place = places[self.place]
                if self.which < len(place.others) and place.others[self.which]:
                    lines[number] = place.planted(line, self.which)
        return "\n".join(lines)
