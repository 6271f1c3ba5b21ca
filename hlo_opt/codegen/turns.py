"""The turns of a thread that goes over an array: what several load comes before what the first of them stores."""

from __future__ import annotations

from hlo_opt.codegen.tree import Assign, Block, DeclaredArray, For, Let, Statement, StrideLoop, names_in, walk
from hlo_opt.ops.code import Cell, Code, Name, cell, code, of

MOST_HELD = 4
"""The most values of a turn that are held until they are stored."""


def stored_late(loop: StrideLoop, start: Code) -> list[Statement] | None:
    """A walk in chunks of turns, each of which loads for all its turns and then stores. NVRTC moves no load above a
    store that might change it, nor into a branch: turn after turn, a thread waits for memory in each. Where there is no
    such turn, the last element is computed and not stored. None where this is not known to be the same."""
    counter = loop.counter
    stores: list[Statement] = []
    body = list(loop.body)
    while body and _is_store(body[-1]):
        stores.insert(0, body.pop())
    lets = {let.name: let for let in body if isinstance(let, Let)}
    declared = {s.name for s in walk(body) if isinstance(s, Let | DeclaredArray)}
    held = sorted(names_in(stores) & declared, key=lambda name: name.text)
    if counter is None or not loop.late or not loop.unrolled or not stores or not set(held) <= set(lets):
        return None
    if len(held) > MOST_HELD or not all(_is_of_thread(s, declared) for s in walk(body)):
        return None
    chunks = -(-loop.rounds // loop.unrolled)
    size = -(-loop.rounds // chunks)
    number = Name(f"number_in_{counter.text}")
    turn = of(number) if chunks == 1 else code("({} + {})", counter, number)
    place = code("{} + {} * {}", start, turn, loop.stride)
    last, inside = loop.end - 1, code("{} < {}", loop.name, loop.end)
    is_whole = loop.end % loop.stride == 0 and size * chunks == loop.rounds
    arrays = {name: Name(f"held_{name.text}") for name in held}
    computing: list[Statement] = [Let(loop.kind, loop.name, place, is_index=True)]
    if not is_whole:
        every = Name(f"every_{loop.name.text}")
        nearest = code("{0} < {1} ? {0} : {1}", every, last)
        computing = [
            Let(loop.kind, every, place, is_index=True),
            Let(loop.kind, loop.name, nearest, is_index=True),
        ]
    computing += [*body, *(Assign(cell(array, number), code("{}", name)) for name, array in arrays.items())]
    storing: list[Statement] = [Let(loop.kind, loop.name, place, is_index=True)]
    kept = [Let(lets[name].kind, name, cell(array, number)) for name, array in arrays.items()]
    storing += [*kept, *stores] if is_whole else [Block(inside, [*kept, *stores])]

    def turns(of_turn: list[Statement]) -> Statement:
        return For("int", number, code("0"), code("{} < {}", number, size), code("++{}", number), "unroll", of_turn)

    chunk: list[Statement] = [DeclaredArray(lets[name].kind, array, size) for name, array in arrays.items()]
    chunk += [turns(computing), turns(storing)]
    if chunks == 1:
        return [Block(body=chunk)]
    test, step = code("{} < {}", counter, size * chunks), code("{} += {}", counter, size)
    return [For("int", counter, code("0"), test, step, "unroll 1", chunk)]


def _is_store(statement: Statement) -> bool:
    return isinstance(statement, Assign) and any(isinstance(piece, Cell) for piece in statement.target.pieces)


def _is_of_thread(statement: Statement, declared: set[Name]) -> bool:
    """Whether a statement changes nothing but what the walk declares."""
    match statement:
        case Assign(target):
            (changed,) = target.pieces if len(target.pieces) == 1 else (None,)
            return (changed.array if isinstance(changed, Cell) else changed) in declared
        case Let() | Block() | For() | DeclaredArray():
            return True
    return False
