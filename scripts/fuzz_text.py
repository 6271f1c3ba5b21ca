"""Mutated texts: each must end in a module, a ParseError or a VerifyError, within 10 seconds and 2 GB.

    python -m scripts.fuzz_text [--count 20000] [--seed 0] [--keep FOLDER]

Texts are the smaller dumps in testdata and the forms below, with bytes flipped, lines cut, doubled and swapped,
brackets nested 10,000 deep, names and numbers of a megabyte, dimensions of 10^18, bytes that are not UTF-8, and the
like. The same seed gives the same texts. Each is decoded, read (also for several errors), verified and printed in a
child process that the limits hold for. Exit code 1 when any text ends in another way; `--keep` saves those.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

DUMPS = Path(__file__).resolve().parent.parent / "testdata" / "dumps"
LARGEST_SEED = 60_000  # bytes of a dump
SECONDS = 10
MEMORY = 2 << 30  # bytes
BATCH = 200  # texts that one child reads

FORMS = b"""HloModule forms, is_scheduled=true, input_output_alias={ {0}: (0, {}, may-alias) }, \
buffer_donor={ (1, {}) }, \
entry_computation_layout={(f32[2]{0},s32[2,3]{1,0:T(8,128)})->(f32[2]{0}, s32[])}

FileNames
1 "a.py"
FunctionNames
1 "f"
FileLocations
1 {file_name_id=1 function_name_id=1 line=1 end_line=1 column=1 end_column=2}
StackFrames
1 {file_location_id=1 parent_frame_id=1}

add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }, execution_thread="main"

%twice (p: f32[2]) -> f32[2] {
  %p = f32[2]{0} parameter(0)
  ROOT %q = f32[2]{0} add(%p, f32[2]{0} %p), metadata={op_name="jit(f)/add" stack_frame_id=1}
}

ENTRY %main (x: f32[2], y: s32[2,3]) -> (f32[2], s32[]) {
  %x = f32[2]{0} parameter(0), sharding={devices=[2]<=[2]}, frontend_attributes={k="v",j={"a":[1,2]}}
  %y = s32[2,3]{1,0:T(8,128)} parameter(1), sharding={mesh['a'=2], [{'a'}, {}]}
  %c = f32[2]{0} constant({1.5, -nan}), origin={{"c.1" {0}}}
  %z = f32[] constant(0)
  %t = (f32[2]{0}, s32[]) constant(({1, 2}, 3))
  %g = s32[] get-tuple-element(%t), index=1
  %f = f32[2]{0} fusion(%x), kind=kLoop, calls=%twice, backend_config={"a":{"b":"}"}}
  %r = f32[] reduce(%f, %z), dimensions={0}, to_apply=add, control-predecessors={%c}
  %k = f32[2]{0} custom-call(%f, %c), custom_call_target="\\x41", operand_layout_constraints={f32[2]{0}, f32[2]{0}}, \
api_version=API_VERSION_TYPED_FFI, output_to_operand_aliasing={{}: (0, {})}
  %w = f32[4]{0} pad(%k, %r), padding=1_1
  %m = f32[4]{0} reduce-window(%w, %z), window={size=3 pad=1_1}, to_apply=add
  %l = f32[2]{0} slice(%m), slice={[0:4:2]}
  %o = f32[2]{0} call(%l), to_apply={ p = f32[2] parameter(0) ROOT n = f32[2] negate(abs(p)) }
  %start = ((f32[2]{0}), f32[2]{0}, s32[]) negate-start(%o), async_execution_thread="t"
  %done = f32[2]{0} negate-done(%start)
  %ar = f32[2]{0} all-reduce(%done), replica_groups=[1,2]<=[2], to_apply=add
  %e = f32[2]{0} exponential(%ar), result_accuracy={mode=highest}
  ROOT %out = (f32[2]{0}, s32[]) tuple(%e, %g), statistics={visualizing_index=0,a=1.5}
}
"""
"""A text with most forms in it."""

Mutator = Callable[[random.Random, bytes], bytes]


def _place(generator: random.Random, text: bytes) -> int:
    return generator.randrange(len(text) + 1)


def _insert(generator: random.Random, text: bytes, what: bytes) -> bytes:
    at = _place(generator, text)
    return text[:at] + what + text[at:]


def flip_bytes(generator: random.Random, text: bytes) -> bytes:
    """One to eight bytes become other ones."""
    changed = bytearray(text)
    for _ in range(generator.randint(1, 8)):
        if changed:
            changed[generator.randrange(len(changed))] = generator.randrange(256)
    return bytes(changed)


def flip_printable(generator: random.Random, text: bytes) -> bytes:
    """A byte becomes one that means something."""
    at = generator.randrange(max(1, len(text)))
    return text[:at] + bytes([generator.choice(b"(){}[]\"'=,:%/*<>-.0123456789 \n\taefx_")]) + text[at + 1 :]


def cut(generator: random.Random, text: bytes) -> bytes:
    """A stretch of bytes is missing, at times the rest."""
    start = _place(generator, text)
    length = generator.choice([1, 3, 10, 100, len(text)])
    return text[:start] + text[start + length :]


def cut_lines(generator: random.Random, text: bytes) -> bytes:
    """A few lines are missing."""
    lines = text.splitlines(keepends=True)
    for _ in range(generator.randint(1, 4)):
        if lines:
            del lines[generator.randrange(len(lines))]
    return b"".join(lines)


def double_lines(generator: random.Random, text: bytes) -> bytes:
    """A line comes twice, or a thousand times."""
    lines = text.splitlines(keepends=True) or [b""]
    at = generator.randrange(len(lines))
    lines[at] = lines[at] * generator.choice([2, 2, 3, 1000])
    return b"".join(lines)


def swap_lines(generator: random.Random, text: bytes) -> bytes:
    """Lines change places."""
    lines = text.splitlines(keepends=True) or [b""]
    for _ in range(generator.randint(1, 4)):
        a, b = generator.randrange(len(lines)), generator.randrange(len(lines))
        lines[a], lines[b] = lines[b], lines[a]
    return b"".join(lines)


def nest(generator: random.Random, text: bytes) -> bytes:
    """Brackets 10,000 deep, closed or not, with or without something in them."""
    opening, closing = generator.choice([(b"(", b")"), (b"{", b"}"), (b"[", b"]"), (b"{(", b")}"), (b"negate(", b")")])
    depth = generator.choice([20, 70, 10_000])
    inner = generator.choice([b"", b"1", b"f32[]", b'"x"', b"p"])
    return _insert(generator, text, opening * depth + inner + closing * generator.choice([0, depth - 1, depth, depth]))


def long_word(generator: random.Random, text: bytes) -> bytes:
    """A name, a number, a string or white space of a megabyte."""
    word = generator.choice(
        [b"a", b"7", b" ", b"%", b"a.", b'"', b"\\", b"/*", b"//", b"-", b"=", b",", b"f32[2],", b"x=1,"]
    )
    return _insert(generator, text, word * (1_000_000 // len(word)))


def large_number(generator: random.Random, text: bytes) -> bytes:
    """A number becomes a very large one, or another strange one."""
    digits = [i for i in range(len(text)) if text[i : i + 1].isdigit()]
    if not digits:
        return text
    at = generator.choice(digits)
    numbers = [
        b"1000000000000000000",
        b"18446744073709551616",
        b"-1",
        b"9" * 400,
        b"1e999",
        b"-nan",
        b"nan(0x1)",
        b"0x1",
        b"1.",
        b"<=5",
        b"?",
        b"4294967296",
    ]
    return text[:at] + generator.choice(numbers) + text[at + 1 :]


def strange_bytes(generator: random.Random, text: bytes) -> bytes:
    """Bytes that are not UTF-8, NULs, marks and surrogates."""
    return _insert(
        generator,
        text,
        generator.choice(
            [b"\xff", b"\x00", b"\xc3", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"\x0c", b"\r", b"\x1b[31m"]
        ),
    )


def swap_words(generator: random.Random, text: bytes) -> bytes:
    """A word stands in the place of another."""
    words = text.split(b" ")
    for _ in range(generator.randint(1, 3)):
        words[generator.randrange(len(words))] = words[generator.randrange(len(words))]
    return b" ".join(words)


MUTATORS: tuple[Mutator, ...] = (
    flip_bytes,
    flip_printable,
    flip_printable,
    cut,
    cut_lines,
    double_lines,
    swap_lines,
    nest,
    long_word,
    large_number,
    large_number,
    strange_bytes,
    swap_words,
    swap_words,
)


def texts(seed: int, count: int) -> Iterator[bytes]:
    """The texts of a seed."""
    seeds = [FORMS] * 4 + [p.read_bytes() for p in sorted(DUMPS.glob("*.hlo")) if p.stat().st_size < LARGEST_SEED]
    generator = random.Random(seed)
    for _ in range(count):
        text = generator.choice(seeds)
        for _ in range(generator.choice([1, 1, 1, 2, 3])):
            text = generator.choice(MUTATORS)(generator, text)
        yield text


def outcome(data: bytes) -> str:
    """What becomes of a text."""
    import hlo_opt
    from hlo_opt.text import decode, parse

    try:
        text = decode(data, "fuzz.hlo")
        try:
            module = parse(text, "fuzz.hlo")
        except hlo_opt.ParseError:
            parse(text, "fuzz.hlo", max_errors=5)
            raise
        str(module)
        hlo_opt.verify(module)
    except (hlo_opt.ParseError, hlo_opt.VerifyError) as error:
        if not str(error):
            return "an error without a text"
        if type(error) is hlo_opt.ParseError and error.line is None:
            return "a ParseError without a line"
        return type(error).__name__
    except MemoryError:
        return "out of memory"
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:300]
    return "module"


def _child(batch: list[bytes], out: int, judge: Callable[[bytes], str], seconds: int) -> None:
    """Read a batch; one line per text: seconds and outcome."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    with os.fdopen(out, "w") as stream:
        for data in batch:
            signal.alarm(seconds)
            start = time.perf_counter()
            result = judge(data).replace("\n", " ")
            signal.alarm(0)
            stream.write(f"{time.perf_counter() - start:.3f} {result}\n")
            stream.flush()


def run_batch(
    batch: list[bytes], judge: Callable[[bytes], str] = outcome, seconds: int = SECONDS
) -> list[tuple[float, str]]:
    """Seconds and outcome of each text; one that ends its process is followed by a new process for the rest."""
    done: list[tuple[float, str]] = []
    while len(done) < len(batch):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            try:
                _child(batch[len(done) :], writing, judge, seconds)
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as stream:
            for line in stream:
                took, _, result = line.rstrip("\n").partition(" ")
                done.append((float(took), result))
        _, status = os.waitpid(child, 0)
        if len(done) < len(batch):
            number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
            done.append((float(seconds), "timed out" if number == signal.SIGALRM else f"ended by signal {number}"))
    return done


FINE = ("module", "ParseError", "VerifyError")


def tell(
    stream: Iterator[bytes],
    one: Callable[[bytes], str],
    fine: Sequence[str],
    kept_as: Callable[[int], Path | None],
    seconds: int = SECONDS,
) -> int:
    """Read all of a stream, say how each ended that did not end well, keep it, and sum up. Returns the exit status."""
    counts: collections.Counter[str] = collections.Counter()
    slowest, number, begun = (0.0, -1), 0, time.monotonic()
    while batch := list(itertools.islice(stream, BATCH)):
        for data, (took, result) in zip(batch, run_batch(batch, one, seconds), strict=True):
            counts[result] += 1
            slowest = max(slowest, (took, number))
            if result not in fine:
                print(f"file {number}: {result}", flush=True)
                if (kept := kept_as(number)) is not None:
                    kept.parent.mkdir(parents=True, exist_ok=True)
                    kept.write_bytes(data)
            number += 1
    well = sum(counts[kind] for kind in fine)
    print(", ".join(f"{counts[kind]} {kind}" for kind in fine) + f"; slowest {slowest[0]:.2f} s (file {slowest[1]})")
    print(f"{well} of {number} files ended well, in {time.monotonic() - begun:.0f} s")
    return 0 if well == number else 1


def options_of(description: str | None, count: int, *, each: bool = False) -> argparse.Namespace:
    """What a fuzzer is asked for: how many, drawn by which seed, and where to keep what ends in another way. `each`:
    it has kinds, and can be asked for so many of each."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=count)
    parser.add_argument("--seed", type=int, default=0)
    if each:
        parser.add_argument("--each", type=int, default=0, help="so many flipped and cut off, of each kind")
    parser.add_argument("--keep", type=Path, help="save files that end in another way in this folder")
    return parser.parse_args()


def main() -> int:
    options = options_of("Reads mutated texts and says how they ended.", 20_000)
    outcome(FORMS)  # what is loaded on first use is loaded here, once for all children

    def kept_as(number: int) -> Path | None:
        return None if options.keep is None else options.keep / f"{options.seed}-{number}.hlo"

    return tell(texts(options.seed, options.count), outcome, FINE, kept_as)


if __name__ == "__main__":
    sys.exit(main())
