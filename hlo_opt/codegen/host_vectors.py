"""What a GPU's thread does with neighbouring elements, for the host's compiler, which makes its vectors of neighbouring threads.

Elements that are read ahead and written together are read, computed and written one by one again: arrays would be in the way. And where threads do not meet, each
takes elements that lie as far apart as there are threads, so that neighbouring threads have neighbouring elements.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

_ARRAY = re.compile(r"(?P<margin> *)(?P<type>[\w ]+) (?P<name>(?:read|made)\d+)\[(?P<size>\d+)\];")
_LOOP = re.compile(r" *for \(int (?P<name>s\d+) = 0; (?P=name) < (?P<size>\d+); \+\+(?P=name)\) \{")

_OF_VECTOR = re.compile(r" *const (?:int|long long) (?P<name>\w+) = (?P<first>\w+ \* \d+) \+ (?P<number>s\d+);")
_NEIGHBOUR = re.compile(r"\bhlo_get_(?P<bits>\d+)\((?P<array>\w+), (?P<at>[^,]+), (?P<number>s\d+)\)")
_OF_UNIT = re.compile(r"\bhlo_get_(?P<bits>\d+)\((?P<array>\w+), (?P<at>[^,]+), (?P<number>\d+)\)")
_POSITION = re.compile(r" *const (?:int|long long) (?P<name>\w+) = .*;")


@dataclass
class _Group:
    """Arrays, and the loops that fill and read them: the statements of each, and the condition around it."""

    types: dict[str, str] = field(default_factory=dict)
    loops: list[tuple[str, str, list[str]]] = field(default_factory=list)

    def lines(self, margin: str, size: str) -> list[str]:
        if not self.loops:
            return []
        counter = self.loops[0][0]
        made = [f"{margin}for (int {counter} = 0; {counter} < {size}; ++{counter}) {{"]
        position = _POSITION.fullmatch(self.loops[0][2][0])
        for number, (name, condition, body) in enumerate(self.loops):
            again = _POSITION.fullmatch(body[0])
            texts = [re.sub(rf"\b{name}\b", counter, line) for line in body]
            if number and position is not None and again is not None:  # all loops walk the same positions
                texts = [re.sub(rf"\b{again['name']}\b", position["name"], line) for line in texts[1:]]
            made += [f"{margin}  {condition}"] if condition else []
            made += [self._line(line, counter) for line in texts]
            made += [f"{margin}  }}"] if condition else []
        return [*made, f"{margin}}}"]

    def _line(self, line: str, counter: str) -> str:
        """With a variable of its own for each element."""
        text = re.sub(rf"\b((?:read|made)\d+)\[{counter}\]", lambda m: m[1] if m[1] in self.types else m[0], line)
        stored = re.match(r"( *)((?:read|made)\d+) = ", text)
        if stored is None or stored[2] not in self.types:
            return text
        return f"{stored[1]}const {self.types[stored[2]]} {text[len(stored[1]) :]}"


def one_loop(body: str) -> str:
    """The body of a kernel in which each element is read, computed and written in one go."""
    lines = body.splitlines()
    made: list[str] = []
    place = 0
    while place < len(lines):
        array = _ARRAY.fullmatch(lines[place])
        if array is None:
            made.append(lines[place])
            place += 1
            continue
        group, margin = _Group(), array["margin"]
        place = _gather(lines, place, margin, group)
        made += group.lines(margin, array["size"])
    return "\n".join(made).replace("hlo_near_vector(", "hlo::near_element(") + "\n"


def by_position(body: str) -> str:
    """The body of a kernel with elements that share bytes read by their position, where it reads them by the first of a thread's and a number."""
    made = []
    position: re.Match[str] | None = None
    for line in body.splitlines():
        found = _NEIGHBOUR.search(line)
        if found is not None and position is not None and position["number"] == found["number"]:
            at = re.sub(rf"(?<!\w){re.escape(position['first'])}(?!\w)", position["name"], found["at"])
            line = f"{line[: found.start()]}hlo_get_{found['bits']}({found['array']}, {at}){line[found.end() :]}"
        position = _OF_VECTOR.fullmatch(line) or position
        made.append(line)
    return "\n".join(made) + "\n"


def _gather(lines: list[str], place: int, margin: str, group: _Group) -> int:
    """Take the arrays and loops from a line on, as far as they follow each other; gives the line after them."""
    while place < len(lines):
        line = lines[place]
        array = _ARRAY.fullmatch(line)
        if array is not None:
            group.types[array["name"]] = array["type"].strip()
            place += 1
            continue
        if line == f"{margin}#pragma unroll":
            place += 1
            continue
        condition, start = "", place
        if re.fullmatch(rf"{margin}if \(.*\) \{{", line) and lines[place + 1] == f"{margin}  #pragma unroll":
            condition, start = line.strip(), place + 2
        inner = margin + ("  " if condition else "")
        loop = _LOOP.fullmatch(lines[start])
        if loop is None or not lines[start].startswith(f"{inner}for"):
            return place
        end = lines.index(f"{inner}}}", start)
        group.loops.append((loop["name"], condition, lines[start + 1 : end]))
        place = end + (2 if condition else 1)
    return place


_THREAD = re.compile(r" *const (?:int|long long) (?P<name>thread\w*) = .*threadIdx\.x;")


@dataclass(frozen=True)
class Spread:
    """The body of a thread that takes the element (or the elements that share a byte) `hlo_part` of `vector`, of `hlo_live` threads of its block that have some; `threads` of a launch
    have."""

    body: str
    vector: int = 1
    threads: int = 0


def rejoined(line: str, first: str, size: int, number: str, position: str) -> str:
    """A statement with quotients and remainders of `first` as those of the position `first * size + number`, which they stand for."""
    found = re.fullmatch(
        rf"(?P<head> *const (?:int|long long) \w+ = ){first}(?P<digits>(?: [/%] \d+)+)(?: \* {size} \+ {number})?;",
        line,
    )
    if found is None:
        return line
    digits = re.sub(r"\d+", lambda m: str(int(m[0]) * size), found["digits"])
    return f"{found['head']}{position}{digits};"


def spread_out(body: str, threads: int) -> Spread:
    """The body of a segment of so many threads, one element at a time where all that it does is a loop over neighbouring ones."""
    lines = body.splitlines()
    loops = [n for n, line in enumerate(lines) if _LOOP.fullmatch(line)]
    declared = [found for line in lines if (found := _THREAD.fullmatch(line)) is not None]
    if len(loops) != 1 or len(declared) != 1:
        return Spread(body)
    place, thread = loops[0], declared[0]["name"]
    loop = _LOOP.fullmatch(lines[place])
    assert loop is not None
    margin = lines[place][: -len(lines[place].lstrip())]
    number, size = loop["name"], int(loop["size"])
    first = re.fullmatch(
        rf"(?P<start> *const (?:int|long long) (?P<name>\w+) = ){thread} \* {size} \+ {number};", lines[place + 1]
    )
    if first is not None:
        lines[place + 2 :] = [rejoined(line, thread, size, number, first["name"]) for line in lines[place + 2 :]]
    leave = [found for line in lines if (found := re.fullmatch(rf" *if \({thread} >= (\d+)\) return;", line))]
    mentions = sum(len(re.findall(rf"\b{thread}\b", line)) for line in lines)
    shared = [8 // int(found[1]) for line in lines for found in re.finditer(r"\bhlo_(?:get|fill)_(\d+)\(", line)]
    if first is not None and shared and size % max(shared) == 0:
        count = int(leave[0][1]) if leave else threads
        return _spread_bytes(body, lines, place, thread, size, max(shared), count, mentions - 1 - len(leave))
    if first is None or lines.index(f"{margin}}}", place) != len(lines) - 1 or mentions != 2 + len(leave):
        return Spread(body)
    made = [line for line in lines[:place] if line.strip() != "#pragma unroll"]
    made += [f"{margin}{{", f"{margin}  const int {number} = (int)hlo_part;"]
    made.append(f"{first['start']}({thread} - threadIdx.x) * {size} + {number} * hlo_live + threadIdx.x;")
    return Spread("\n".join(made + lines[place + 2 :]), size, int(leave[0][1]) if leave else threads)


def _spread_bytes(
    body: str, lines: list[str], place: int, thread: str, size: int, per_byte: int, threads: int, mentions: int
) -> Spread:
    """As `spread_out`, for elements of which `per_byte` share a byte: so many stay together, their statements written out one after another. `place` is where the loop begins, and `mentions`
    how often the thread's number is used."""
    first, unit = f"{thread} * {size}", f"hlo_unit * {per_byte}"
    head = _LOOP.fullmatch(lines[place])
    assert head is not None
    margin = lines[place][: -len(lines[place].lstrip())]
    end = lines.index(f"{margin}}}", place)
    found = [re.sub(rf"(?<!\w){re.escape(first)}(?!\w)", unit, line) for line in lines]
    kind = re.match(r" *const (int|long long) ", lines[place + 1])
    if sum(line.count("hlo_unit") for line in found) != mentions or kind is None:
        return Spread(body)
    made = [line for line in found[:place] if line.strip() != "#pragma unroll"]
    made.append(
        f"{margin}const {kind[1]} hlo_unit = ({thread} - threadIdx.x) * {size // per_byte} + (int)hlo_part * hlo_live + threadIdx.x;"
    )
    for number in range(per_byte):
        inside = [re.sub(rf"(?<!\w){head['name']}(?!\w)", str(number), line) for line in found[place + 1 : end]]
        made += [f"{margin}{{", *inside, f"{margin}}}"]
    made += found[end + 1 :]
    return Spread("\n".join(_in_registers(made, per_byte)), size // per_byte, threads)


_BITS_OF = re.compile(r"( *unsigned char )(bits\d+)\[\d+\];")
_FILL = re.compile(r"( *)hlo_fill_(\d+)\((\w+), (.*), (bits\d+)\);")
_UNIT = re.compile(r" *const (?:int|long long) (\w+) = hlo_unit \* \d+;")


def _in_registers(lines: Sequence[str], count: int) -> Iterator[str]:
    """The statements with a variable for each of so many elements of the arrays that fill bytes, and with these bytes by their own numbers: of a quotient the compiler would not
    see that those of neighbouring threads are neighbours."""
    positions = {f"hlo_unit * {count}"}
    for line in lines:
        declared, fill, unit = _BITS_OF.fullmatch(line), _FILL.fullmatch(line), _UNIT.fullmatch(line)
        if unit is not None:
            positions.add(unit[1])
        if declared is not None:
            yield f"{declared[1]}{', '.join(f'{declared[2]}_{k}' for k in range(count))};"
        elif fill is not None:
            margin, bits, array, first, name = fill[1], int(fill[2]), fill[3], fill[4], fill[5]
            start = f"hlo_unit * {count * bits // 8}" if first in positions else f"({first}) / {8 // bits}"
            for byte in range(count * bits // 8):
                parts = [f"{name}_{byte * (8 // bits) + k} << {k * bits}" for k in range(8 // bits)]
                yield f"{margin}{array}[{start} + {byte}] = (unsigned char)({' | '.join(parts)});"
        else:
            line = re.sub(r"\b(bits\d+)\[(\d+)\]", r"\1_\2", line)
            read = _OF_UNIT.search(line)
            if read is not None and read["at"] in positions:
                start = f"hlo_unit * {count * int(read['bits']) // 8}"
                text = f"hlo_get_{read['bits']}({read['array']} + {start}, {read['number']})"
                line = f"{line[: read.start()]}{text}{line[read.end() :]}"
            yield line
