import itertools

import pytest

from hlo_opt.ir import Attribute, Called, Computation, Instruction, Literal, Module, array, edit, walk
from hlo_opt.ir.element_type import F32

F = array(F32, 4)


@pytest.fixture
def module() -> Module:
    module = Module("m")
    entry = edit.add_computation(module, Computation("e"), entry=True)
    a = edit.create(entry, "a", "parameter", F, parameter_number=0)
    b = edit.create(entry, "b", "negate", F, [a])
    c = edit.create(entry, "c", "add", F, [b, b])
    edit.create(entry, "d", "multiply", F, [c, a], root=True)
    return module


def by_name(module: Module) -> dict[str, Instruction]:
    return {i.name: i for c in module.computations for i in c.instructions}


def test_users_follow_every_edit(module: Module):
    i = by_name(module)
    assert list(i["b"].users) == [i["c"]]
    edit.replace_operand(i["c"], 0, i["a"])
    assert list(i["b"].users) == [i["c"]]
    edit.replace_operand(i["c"], 1, i["a"])
    assert list(i["b"].users) == []
    assert list(i["a"].users) == [i["b"], i["d"], i["c"]]
    edit.remove(i["b"])
    assert list(i["a"].users) == [i["d"], i["c"]]
    with pytest.raises(ValueError, match="still used"):
        edit.remove(i["c"])


def test_replacing_a_root_moves_the_root(module: Module):
    i = by_name(module)
    edit.replace_all_uses(i["d"], i["c"])
    assert module.entry.root is i["c"]
    edit.remove(i["d"])
    assert "d" not in by_name(module)


def test_what_only_waits_for_an_instruction_waits_for_the_new_one(module: Module):
    i = by_name(module)
    alone = edit.create(module.entry, "alone", "negate", F, [i["a"]])
    module.entry.facts["seen"] = True
    edit.replace_all_uses(alone, i["b"])  # nothing reads it, and nothing waits for it
    assert module.entry.facts == {"seen": True}
    i["c"].control_predecessors, i["d"].control_predecessors = [i["a"], alone], [i["a"]]
    edit.replace_all_uses(alone, i["b"])
    assert i["c"].control_predecessors == [i["a"], i["b"]] and i["d"].control_predecessors == [i["a"]]
    assert not module.entry.facts


def test_sort_puts_operands_first_and_keeps_the_rest(module: Module):
    i = by_name(module)
    late = edit.create(module.entry, "late", "negate", F, [i["a"]])
    edit.replace_operand(i["b"], 0, late)
    edit.sort(module.entry)
    assert [x.name for x in module.entry.instructions] == ["a", "late", "b", "c", "d"]


def test_unique_names_count_up(module: Module):
    assert module.unique_name("x") == "x"
    assert module.unique_name("x") == "x.1"
    assert module.unique_name("x.1") == "x.2"
    assert module.unique_name("a") == "a.1"
    assert module.unique_name("e") == "e.1"


def test_a_clone_shares_nothing_that_changes(module: Module):
    body = edit.new_computation(module, "body")
    edit.create(body, "p", "parameter", F, parameter_number=0, root=True)
    call = edit.create(module.entry, "call", "call", F, [by_name(module)["d"]], {"to_apply": Called(body)}, root=True)
    call.attributes["metadata"] = Attribute("{}")
    edit.sort_computations(module)
    assert [c.name for c in module.computations] == ["body", "e"]
    copy = edit.clone_module(module)
    twin = by_name(copy)["call"]
    assert twin is not call and next(twin.called()) is not body and next(twin.called()).name == "body"
    edit.set_root(copy.entry, by_name(copy)["d"])
    edit.remove(twin)
    assert "call" in by_name(module) and "call" not in by_name(copy)
    assert list(by_name(module)["d"].users) == [call]


def test_snapshots_share_what_was_not_edited(module: Module):
    """A caller of what was edited is copied again: it calls the new copy."""
    body = edit.new_computation(module, "body")
    edit.create(body, "p", "parameter", F, parameter_number=0, root=True)
    other = edit.new_computation(module, "other")
    edit.create(other, "o", "parameter", F, parameter_number=0, root=True)
    edit.create(module.entry, "call", "call", F, [by_name(module)["d"]], {"to_apply": Called(body)}, root=True)
    edit.sort_computations(module)
    first = edit.snapshot(module)
    edit.create(body, "n", "negate", F, [body.root], root=True)
    second = edit.snapshot(module)
    assert "n" not in by_name(first) and "n" in by_name(second)
    old, _, kept = first.computations
    new, _, still = second.computations
    assert old is not new and kept is still
    assert next(by_name(first)["call"].called()) is old and next(by_name(second)["call"].called()) is new
    edit.forget_snapshots(module)
    assert set(edit.snapshot(module).computations).isdisjoint(second.computations)


def test_orders(module: Module):
    assert [x.name for x in walk.post_order(module.entry)] == ["a", "b", "c", "d"]
    assert [c.name for c in walk.executed_computations(module)] == ["e"]


def test_a_chain_of_100_000_needs_no_stack():
    module = Module("m")
    entry = edit.add_computation(module, Computation("e"), entry=True)
    last = edit.create(entry, "p", "parameter", F, parameter_number=0)
    for _ in range(100_000):
        last = edit.append(entry, Instruction(f"n{len(entry.instructions)}", "negate", F, [last]))
    edit.set_root(entry, last)
    edit.sort(entry)
    assert len(walk.post_order(entry)) == 100_001


def test_a_computation_moves_into_another_module_with_what_it_calls(module: Module):
    called = edit.add_computation(module, Computation("f"))
    p = edit.create(called, "p", "parameter", F, parameter_number=0)
    edit.create(called, "n", "negate", F, [p], root=True)
    i = by_name(module)
    call = edit.create(module.entry, "call", "call", F, [i["a"]], {"to_apply": Called(called)})
    other = Module("o")
    edit.add_computation(other, Computation("e"), entry=True)
    copy = edit.clone_into_module(other, module.entry)
    assert [c.name for c in other.computations] == ["e", "f", "e.1"] and copy.name == "e.1"
    made = by_name(other)
    assert made["call"].called_by("to_apply") is not called and made["call"].called_by("to_apply").module is other
    assert copy.root.opcode == "multiply" and list(copy.parameters) == [made["a"]] and call.parent is module.entry


def other() -> Called:
    """A computation of another module, to be named by an attribute."""
    return Called(Computation("f"))


EDITS = {
    "append": lambda m, i: edit.create(m.entry, "n", "negate", F, [i["a"]]),
    "arrange": lambda m, i: edit.arrange(m.entry, list(m.entry.instructions)),
    "attribute": lambda m, i: edit.set_attribute(i["c"], "to_apply", other()),
    "literal": lambda m, i: edit.set_literal(i["b"], Literal(F, text="1")),
    "operand": lambda m, i: edit.replace_operand(i["c"], 0, i["a"]),
    "operands": lambda m, i: edit.set_operands(i["c"], [i["a"], i["a"]]),
    "redirect": lambda m, i: edit.redirect_users(i["d"], i["c"]),
    "remove": lambda m, i: (edit.set_root(m.entry, i["c"]), edit.remove(i["d"])),
    "root": lambda m, i: edit.set_root(m.entry, i["c"]),
    "shape": lambda m, i: edit.set_shape(i["c"], array(F32, 2, 2)),
    "wait": lambda m, i: edit.stop_waiting(m.entry),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_forgets_what_was_found_out_about_its_computation(name: str, module: Module):
    beside = edit.new_computation(module, "beside")
    edit.create(beside, "p", "parameter", F, parameter_number=0, root=True)
    for computation in module.computations:
        computation.facts["seen"] = True
    EDITS[name](module, by_name(module))
    assert not module.entry.facts and beside.facts == {"seen": True}


def test_what_moves_into_a_computation_is_forgotten_in_both(module: Module):
    inner = edit.new_computation(module, "inner")
    p = edit.create(inner, "p", "parameter", F, parameter_number=0)
    edit.create(inner, "n", "negate", F, [p], root=True)
    module.entry.index_users()
    inner.facts["seen"] = module.entry.facts["seen"] = True
    edit.splice(inner, module.entry, [by_name(module)["a"]])
    assert not inner.facts and not module.entry.facts


def test_called_computations_follow_edits(module: Module):
    assert module.entry.called == []
    f = other()
    edit.set_attribute(by_name(module)["c"], "to_apply", f)
    assert module.entry.called == list(f.computations)


def test_edited_are_those_without_the_fact_and_their_callers():
    module = Module("m")
    chain = [edit.add_computation(module, Computation(name)) for name in ("e", "f", "g", "h")]  # callers first
    for caller, callee in itertools.pairwise(chain):
        edit.create(caller, caller.name, "call", F, [], {"to_apply": Called(callee)}, root=True)
    for computation in chain:
        computation.facts["seen"] = True
    assert walk.edited_since(module, "seen") == []
    assert walk.edited_since(module, "other") == chain
    del chain[2].facts["seen"]
    assert walk.edited_since(module, "seen") == chain[:3]


def test_needed_first_is_post_order_and_ends_on_a_cycle():
    needs = {"a": ["b", "c"], "b": ["d"], "c": ["d", "b"], "d": [], "e": ["a", "a"]}
    assert walk.needed_first(["e", "d", "c"], needs.__getitem__) == ["d", "b", "c", "a", "e"]
    assert walk.needed_first(["d", "b", "e"], needs.__getitem__) == ["d", "b", "c", "a", "e"]
    for cycle in ({"a": ["a"]}, {"a": ["b"], "b": ["c"], "c": ["a"]}):
        with pytest.raises(AssertionError, match="needs itself"):
            walk.needed_first(["a"], cycle.__getitem__)


def test_callees_follow_every_edit():
    module = Module("m")
    one, two, three = (edit.new_computation(module, name) for name in ("one", "two", "three"))
    for callee in (one, two, three):
        edit.create(callee, "x", "parameter", F, parameter_number=0, root=True)
    entry = edit.new_computation(module, "e")
    a = edit.create(entry, "a", "parameter", F, parameter_number=0, root=True)

    def call(name: str, callee: Computation) -> Instruction:
        return edit.create(entry, name, "call", F, [a], {"to_apply": Called(callee)})

    assert entry.called == []
    first = call("first", one)
    assert entry.called == [one]
    second = call("second", two)
    edit.create(entry, "b", "negate", F, [a])
    assert entry.called == [one, two]
    edit.set_attribute(first, "to_apply", Called(three))
    assert entry.called == [three, two]
    edit.set_attribute(first, "metadata", Attribute("{}"))
    assert edit.clone_module(module).computations
    edit.arrange(entry, [i for i in reversed(list(entry.instructions)) if i is not a] + [a])
    assert entry.called == [two, three]
    edit.sort(entry)
    assert entry.called == [i.called_by("to_apply") for i in entry.instructions if i.opcode == "call"]
    edit.remove(second)
    assert entry.called == [three]
    inner = edit.new_computation(module, "inner")
    x = edit.create(inner, "x", "parameter", F, parameter_number=0)
    edit.create(inner, "y", "call", F, [x], {"to_apply": Called(one)}, root=True)
    assert inner.called == [one]
    edit.splice(inner, entry, [a])
    assert (entry.called, inner.called) == ([three, one], [])
    copy = edit.clone_computation(entry)
    assert copy.called == entry.called == [three, one]
