"""Files that people name by mistake: what else lies in a dump's folder, other forms of a module, several modules in one
file. Told apart by their names, once they turned out to be no module."""

from __future__ import annotations

import re
from pathlib import Path

from hlo_opt.diag import ParseError, UsageError

NO_MODULE = "HLO302"
SEVERAL = "HLO303"

MODULE = re.compile(r"\.hlo$|\.(?:before|\w*after)_optimizations\.txt$")
"""Names of files that hold modules: those that XLA gives them in a dump, and our own."""

SHOWN = 5

_BEGINNING = re.compile(r"^HloModule\b", re.MULTILINE)
_OF_HLO = re.compile(r"^HloModule\b|^ENTRY\b|^\s*(?:ROOT )?%?[\w.-]+ = ", re.MULTILINE)
_STEM = re.compile(r"(module_\d+\.[^.]+)\.")
_AS_TEXT = "`hlo-opt help dump` says how to make a dump"
_WHAT = (
    (re.compile(r"\.pb$"), "a protobuf that holds no module"),
    (re.compile(r"\.pbtxt$|\.textproto$|snapshot\.txt$"), "a protobuf as text"),
    (re.compile(r"\.ll$|\.bc$"), "LLVM IR, made of a module's kernels"),
    (re.compile(r"\.ptx$"), "PTX, made of a module's kernels"),
    (re.compile(r"\.(?:o|cubin|fatbin|hsaco|so)$"), "machine code, made of a module's kernels"),
    (re.compile(r"buffer-assignment(?:-values)?\.txt$"), "a list of buffers"),
    (re.compile(r"live-range\.txt$"), "a list of how long values live"),
    (re.compile(r"memory-usage-report\.txt$"), "a report of memory"),
    (re.compile(r"thunk_sequence(?:\.txt)?$"), "a list of launches"),
    (re.compile(r"\.debug_options$|\.flagfile$"), "a list of XLA's options"),
    (re.compile(r"\.html$|\.dot$|\.svg$"), "a picture of a module"),
    (re.compile(r"\.py$"), "a Python program: dump it first"),
    (re.compile(r"\.npz$|\.npy$"), "a file of arrays; --inputs takes it"),
    (re.compile(r"\.json(?:\.gz)?$|\.csv$"), "no module; a profile goes with `hlo-opt explain --measured`"),
)


def explained(error: ParseError, name: str, text: str, *, split: bool) -> Exception:
    """What is better said of a file that is no module: that it holds several, or what it is and which file beside it is
    a module. Else the error itself."""
    modules = len(_BEGINNING.findall(text))
    if modules > 1 and not split:
        hint = (
            "put each into a file of its own; `hlo-opt fuse` and `print` take several with --split-input-file, divided "
            "by lines of `// -----`"
        )
        return UsageError(f"holds {modules} modules, and this takes one", code=SEVERAL, filename=name, hint=hint)
    what = next((what for pattern, what in _WHAT if pattern.search(name)), None)
    if what is None and text.strip() and error.hint is None and not _OF_HLO.search(text):
        error.hint = "no line of this is HLO; `hlo-opt help forms` says what a FILE may be"
    if what is None or modules:
        return error
    beside = "" if name.endswith(".py") else modules_in(Path(name).parent, name)
    hint = f"name the module beside it: {beside}" if beside else _AS_TEXT
    return UsageError(f"is {what}", code=NO_MODULE, filename=name, hint=hint)


def modules_in(folder: Path, name: str = "") -> str:
    """The modules in a folder, as text; those that belong to a file in it, where any do. Empty where there are none."""
    try:
        names = sorted(p.name for p in folder.iterdir() if MODULE.search(p.name))
    except OSError:
        return ""
    stem = _STEM.match(Path(name).name)
    own = [n for n in names if stem is not None and n.startswith(f"{stem[1]}.")]
    names = own or names
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def beside_folder(folder: Path) -> str:
    """What to name instead of a folder in which no module is."""
    if (beside := modules_in(folder.parent, f"{folder.name}.")) and _STEM.match(f"{folder.name}."):
        return f"name the module beside it: {beside}"
    return "`hlo-opt help dump` says how to make a dump"


def second_file(name: str) -> UsageError:
    """What to type where an instruction was expected, and a file is named."""
    from hlo_opt.cli.group import VERBS

    hint = "`hlo-opt check A B` compares what two modules compute"
    if "diff" in VERBS:
        hint += ", `hlo-opt diff A B` what they cost and why"
    return UsageError(
        "is a second FILE; explain takes one, and then instructions", code="HLO304", filename=name, hint=hint
    )
