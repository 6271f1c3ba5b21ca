"""Damaged modules in every binary form: each must end in a module or in one coded error, within 20 seconds and 2 GB.

    python -m scripts.fuzz_forms [--count 2000] [--seed 0] [--each N] [--keep FOLDER]

A few modules as HloModuleProto, HloProto, both snapshots with their inputs, StableHLO text and bytecode and an artifact
of `jax.export`, plain and in gzip, are cut off, their bytes flipped, stretches of them taken out, doubled and swapped
with those of others, sizes and numbers made large, and fields nested thousands deep. With `--each`, N files of each
kind have bytes flipped, N are cut off, and as many gzip files of each kind. The same seed gives the same files.
Each is read as `hlo-opt` reads a file, with its recorded inputs, and verified in a process of its own. What jaxlib
converts, it converts in a child of this process (`forked_converter`). Exit code 1 when any file ends in
another way; `--keep` saves those.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import random
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from jaxlib import _hlo, _jax

from hlo_opt.forms.kinds import MODULE_FIELD
from hlo_opt.forms.wire import of_bytes, of_number, written
from scripts.forked_converter import forked_converter
from scripts.fuzz_text import DUMPS, options_of, tell

ROOT = Path(__file__).resolve().parent.parent
ARTIFACT = ROOT / "testdata" / "forms" / "program.jaxexport"
LARGEST_SEED = 12_000
"""Bytes of a dump's text."""
SECONDS = 20
BATCH = 100
FINE = ("module", "UsageError", "ParseError", "VerifyError")
NESTED = 20_000


def _literal(numbers: Sequence[int]) -> bytes:
    """A LiteralProto of f32[n]."""
    shape = of_number(2, 11) + of_number(3, len(numbers)) + of_bytes(5, of_number(1, 0))
    return of_bytes(1, shape) + of_bytes(8, b"".join(n.to_bytes(4, "little") for n in numbers))


@functools.cache
def kinds() -> dict[str, list[bytes]]:
    """Whole files, by kind."""
    texts = [p.read_text(encoding="utf-8") for p in sorted(DUMPS.glob("*.hlo")) if p.stat().st_size < LARGEST_SEED]
    found: dict[str, list[bytes]] = {"artifact": [ARTIFACT.read_bytes()]}
    for text in texts[:: max(1, len(texts) // 8)]:
        message = _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
        inputs = _literal([1, 2, 3, 1 << 30])
        snapshot = of_bytes(MODULE_FIELD, of_bytes(MODULE_FIELD, message)) + of_bytes(2, inputs) + of_bytes(4, b"Host")
        partitions = of_bytes(MODULE_FIELD, message) + of_bytes(2, of_bytes(1, inputs) * 2)
        described = of_bytes(MODULE_FIELD, message) + of_bytes(2, of_bytes(2, of_number(2, 24)))
        shape = of_number(2, 11) + of_number(3, 3)
        behind = written(len(described)) + described + len(shape).to_bytes(8, "little") + shape + bytes(12)
        files = {
            "module": message,
            "proto": of_bytes(MODULE_FIELD, message),
            "snapshot": snapshot,
            "partitions": partitions,
            "partitions with inputs behind": behind,
        }
        with contextlib.suppress(Exception):  # jaxlib has no StableHLO for every module
            files["bytecode"] = _jax.mlir.hlo_to_stablehlo(message)
            files["StableHLO"] = _jax.mlir.xla_computation_to_mlir_module(_hlo.XlaComputation(message)).encode()
        for kind, data in files.items():
            found.setdefault(kind, []).append(data)
    return found


@functools.cache
def seeds() -> list[bytes]:
    """Whole files of all kinds, and some in gzip."""
    files = kinds()
    return [*(data for each in files.values() for data in each), *map(gzip.compress, files["module"])]


Mutator = Callable[[random.Random, bytes], bytes]


def _stretch(generator: random.Random, data: bytes) -> tuple[int, int]:
    at = generator.randrange(len(data) + 1)
    return at, at + generator.choice([1, 2, 5, 20, 200, len(data)])


def cut_off(generator: random.Random, data: bytes) -> bytes:
    """The end is missing."""
    return data[: generator.randrange(len(data) + 1)]


def flip(generator: random.Random, data: bytes) -> bytes:
    """One to eight bytes become other ones."""
    changed = bytearray(data)
    for _ in range(generator.randint(1, 8)):
        if changed:
            changed[generator.randrange(len(changed))] = generator.randrange(256)
    return bytes(changed)


def flip_bit(generator: random.Random, data: bytes) -> bytes:
    """A bit is another: sizes, kinds of fields, opcodes, types."""
    changed = bytearray(data)
    if changed:
        changed[generator.randrange(len(changed))] ^= 1 << generator.randrange(8)
    return bytes(changed)


def take_out(generator: random.Random, data: bytes) -> bytes:
    """A stretch is missing."""
    start, end = _stretch(generator, data)
    return data[:start] + data[end:]


def double(generator: random.Random, data: bytes) -> bytes:
    """A stretch comes again, at times a thousand times."""
    start, end = _stretch(generator, data)
    return data[:end] + data[start:end] * generator.choice([1, 1, 1000 if end - start < 1000 else 1]) + data[end:]


def splice(generator: random.Random, data: bytes) -> bytes:
    """The beginning of one and the rest of another."""
    other = generator.choice(seeds())
    return data[: generator.randrange(len(data) + 1)] + other[generator.randrange(len(other)) :]


def large_number(generator: random.Random, data: bytes) -> bytes:
    """A very large number stands somewhere, or many bits that never end."""
    at = generator.randrange(len(data) + 1)
    number = generator.choice(
        [written(1 << 31), written((1 << 63) - 1), written((1 << 64) - 1), b"\xff" * 12, b"\xff\x7f"]
    )
    return data[:at] + number + data[at + generator.choice([0, 1, len(number)]) :]


def nest(generator: random.Random, data: bytes) -> bytes:
    """Messages in messages: what follows them level by level must not go as deep as its stack. `number` are fields that
    hold messages of their own kind: shapes of tuples, literals of tuples."""
    number = generator.choice([1, 2, 3, 4, 10, 30])
    inner = data[:20] if generator.random() < 0.5 else b""
    for _ in range(generator.choice([100, 2000, NESTED])):
        inner = of_bytes(number, inner)
        if len(inner) > 200_000:
            break
    module = next((d for d in seeds() if d.startswith(b"\x0a")), data)
    shell = generator.choice([data, of_bytes(MODULE_FIELD, of_bytes(MODULE_FIELD, module))])
    return shell + generator.choice([inner, of_bytes(2, inner), of_bytes(2, of_bytes(1, inner)), of_bytes(3, inner)])


def bomb(generator: random.Random, data: bytes) -> bytes:
    """Gzip of much that is nothing."""
    packer = zlib.compressobj(9, wbits=31)
    zeros = bytes(1 << 20)
    return (
        packer.compress(data)
        + b"".join(packer.compress(zeros) for _ in range(generator.choice([1, 64])))
        + packer.flush()
    )


MUTATORS: tuple[Mutator, ...] = (
    *(cut_off, flip, flip_bit, flip_bit, flip_bit, take_out, double, splice, large_number, large_number),
)
RARE: tuple[Mutator, ...] = (nest, bomb)


def files(seed: int, count: int) -> Iterator[bytes]:
    """The files of a seed."""
    generator = random.Random(seed)
    for _ in range(count):
        data = generator.choice(seeds())
        for _ in range(generator.choice([1, 1, 1, 2, 3])):
            data = generator.choice(RARE if generator.random() < 0.05 else MUTATORS)(generator, data)
        yield gzip.compress(data, 1) if generator.random() < 0.05 else data


def of_each(seed: int, each: int) -> Iterator[bytes]:
    """So many files of each kind, and of gzip of each, with bytes flipped, and as many cut off."""
    generator = random.Random(seed)
    for whole in kinds().values():
        for pack in (bytes, gzip.compress):
            for mutator in (flip, cut_off):
                for _ in range(each):
                    yield mutator(generator, pack(generator.choice(whole)))


def outcome(data: bytes) -> str:
    """What becomes of a file."""
    import hlo_opt
    from hlo_opt.cli.files import recorded
    from hlo_opt.jax import conversion

    try:
        with forked_converter():
            found, form = conversion.unpacked(data, "fuzz.pb")
            text = conversion.hlo_text(found, form, "fuzz.pb")
        recorded(found, form, "fuzz.pb")
        module = hlo_opt.parse(text, "fuzz.pb")
        str(module)
        hlo_opt.verify(module)
    except hlo_opt.HloOptError as error:
        if not error.code or "\n" in error.message.strip() or not error.message:
            return f"no single coded line: {error}"[:300]
        return type(error).__name__
    except MemoryError:
        return "out of memory"
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:300]
    return "module"


def main() -> int:
    """Returns the exit status."""
    options = options_of(__doc__, 2000, each=True)
    outcome(seeds()[1])  # what is loaded on first use is loaded here, once for all children

    def kept_as(number: int) -> Path | None:
        return None if options.keep is None else options.keep / f"{options.seed}-{number}.pb"

    stream = of_each(options.seed, options.each) if options.each else files(options.seed, options.count)
    return tell(stream, outcome, FINE, kept_as, SECONDS)


if __name__ == "__main__":
    sys.exit(main())
