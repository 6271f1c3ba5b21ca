"""What people ask, and the command that answers it: for `hlo-opt help questions`, and for words typed where a verb, an
option or a topic should be."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class UserQuestion:
    """A question, the command line that answers it, and words by which people look for it."""

    asked: str
    command: str
    words: frozenset[str]

    def __str__(self) -> str:
        return f"{self.asked} `{self.command}`"


def _question(asked: str, command: str, words: str) -> UserQuestion:
    return UserQuestion(asked, command, frozenset(words.split()))


QUESTIONS = (
    _question(
        "which Python line costs most?",
        "hlo-opt explain FILE --by line",
        "cost costs costliest time times line lines hot hotspot hotspots profile slow where top",
    ),
    _question(
        "why was this not fused?",
        "hlo-opt explain FILE NAME... (-v: every reason)",
        "why reason reasons refused refusal refusals unfused edge edges",
    ),
    _question(
        "why is my softmax two kernels?",
        "hlo-opt explain FILE softmax.py (or softmax.py:16, an instruction, A:B)",
        "softmax split kernels two joined unjoined",
    ),
    _question("are these in one kernel?", "hlo-opt check FILE --expect-fused A,B", "expect assert together"),
    _question(
        "is it worse than yesterday?",
        "hlo-opt diff OLD NEW --fail-on-regression 5%",
        "worse regression regressions compare comparison delta changed",
    ),
    _question(
        "which pass broke my numbers?",
        "hlo-opt bisect FILE (or a folder of dumps)",
        "broke broken wrong pass culprit blame numbers",
    ),
    _question("where does the NaN come from?", "hlo-opt run FILE --check-nans", "nan nans inf"),
    _question(
        "what does it look like?",
        "hlo-opt view FILE -o out.html",
        "draw show graph picture plot viz visualize visualise html dot svg",
    ),
    _question(
        "what should I write instead?",
        "hlo-opt lint FILE",
        "advise advice suggest suggestion suggestions improve fix rewrite doctor",
    ),
    _question(
        "why does this loop launch so many kernels?",
        "hlo-opt lint FILE --select LNT105",
        "loop loops launch launches scan while iteration iterations",
    ),
    _question(
        "which line makes this transpose or copy?",
        "hlo-opt lint FILE --select LNT102",
        "transpose transposes copy copies layout layouts",
    ),
    _question(
        "what is the smallest module that shows it?",
        "hlo-opt reduce FILE --keep CHECK",
        "smallest minimize minimise minimal shrink reproducer repro",
    ),
    _question(
        "what holds the memory, is my donation honoured?",
        "hlo-opt memory FILE",
        "mem peak hbm oom donate donated donation donations alias aliases buffers",
    ),
    _question(
        "what is the best way to fuse it?",
        "hlo-opt tune FILE --save tuned.toml",
        "best search autotune optimal",
    ),
    _question(
        "what would it take on an A100?",
        "hlo-opt explain FILE --target a100",
        "gpu gpus device devices hardware arch a100 h100",
    ),
    _question(
        "which large constants are in it?",
        "hlo-opt lint FILE --select LNT107",
        "constant constants literal literals embedded baked",
    ),
    _question(
        "what do f32 arrays of my bf16 model cost?",
        "hlo-opt explain FILE --as f32=bf16",
        "f32 bf16 float32 bfloat16 upcast upcasts precision dtype dtypes",
    ),
    _question(
        "what limits each kernel, and how far is it from the roofline?",
        "hlo-opt view FILE -o out.html",
        "roofline bound bandwidth limit limits limited flops",
    ),
    _question(
        "where is the CUDA code?", "hlo-opt fuse FILE --emit DIR", "cuda code codegen source emitted ptx optimize opt"
    ),
)


def question_of(word: str) -> UserQuestion | None:
    """The question that a word stands for; dashes before it do not count. None where no question has the word."""
    plain = word.lstrip("-").lower()
    return next((q for q in QUESTIONS if plain in q.words), None)
