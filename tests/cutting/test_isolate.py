"""One part of a module, with the inputs that it had."""

from pathlib import Path

import numpy as np
import pytest
from cutting_modules import TEXT

import hlo_opt
from hlo_opt.cutting.isolate import inputs_of, isolated, named
from hlo_opt.diag import UsageError
from hlo_opt.evaluate import flatten
from hlo_opt.evaluate.devices import device_inputs
from hlo_opt.ir import Computation
from hlo_opt.ops.sets import is_free

DUMPS = Path(__file__).parents[2] / "testdata" / "dumps"


def values_of(module, name, inputs):
    """What an instruction gave, each time."""
    target = named(module, name)
    target = target.root if isinstance(target, Computation) else target
    found = []
    hlo_opt.evaluate(
        module, inputs, watch=lambda e: found.append(flatten(e.value)) if e.instruction is target else None
    )
    return found


def same(first, second):
    assert len(first) == len(second)
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


@pytest.mark.parametrize("name", ["layer_norm", "heat", "cartpole_scan", "branch", "nested", "shuffle"])
@pytest.mark.parametrize("is_fused", [False, True])
def test_parts_compute_what_they_computed_there(name, is_fused):
    module = hlo_opt.parse((DUMPS / f"{name}.hlo").read_text())
    if is_fused:
        module, _ = hlo_opt.fuse(module)
    (inputs,) = device_inputs(module, 1)
    every = [i for c in module.computations for i in c.instructions if not is_free(i.opcode)]
    done = 0
    for i in every:
        try:
            part = isolated(module, i.name)
            (given,) = inputs_of(module, i.name, part, [inputs])
        except UsageError:
            continue
        alone = hlo_opt.parse(str(part.module))
        hlo_opt.verify(alone)
        same(hlo_opt.evaluate(alone, given), values_of(module, i.name, inputs)[0])
        done += 1
        if done == 12:
            break
    assert done


def test_a_computation_runs_with_what_its_parameters_held_the_nth_time():
    module = hlo_opt.parse(TEXT)
    (inputs,) = device_inputs(module, 0)
    rounds = values_of(module, "body", inputs)
    part = isolated(module, "body")
    for call in (1, 3):
        (given,) = inputs_of(module, "body", part, [inputs], call)
        same(hlo_opt.evaluate(hlo_opt.parse(str(part.module)), given), rounds[call - 1])
    with pytest.raises(UsageError, match="runs 3 times, not 4"):
        inputs_of(module, "body", part, [inputs], 4)


def test_what_never_runs_by_itself_is_told():
    module = hlo_opt.parse(TEXT)
    (inputs,) = device_inputs(module, 0)
    part = isolated(module, "sum")
    hlo_opt.verify(hlo_opt.parse(str(part.module)))
    with pytest.raises(UsageError, match="never runs by itself"):
        inputs_of(module, "sum", part, [inputs])


def test_every_device_has_its_own():
    module = hlo_opt.parse((DUMPS / "sharded_block.hlo").read_text())
    inputs = device_inputs(module, 0)
    target = next(i for i in module.entry.instructions if i.opcode == "all-reduce")
    part = isolated(module, target.name)
    found = inputs_of(module, target.name, part, inputs)
    assert len(found) == len(inputs) > 1
    got = hlo_opt.evaluate_devices(hlo_opt.parse(str(part.module)), found)
    assert len(got) == len(inputs)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("calld", "did you mean called"),
        ("p", "ask for inner/p or e/p"),
        ("e/p", "is a parameter"),
        ("body/q", "there is no instruction"),
    ],
)
def test_what_cannot_be_taken_out_is_told(name, says):
    with pytest.raises(UsageError) as error:
        isolated(hlo_opt.parse(TEXT), name)
    assert says in str(error.value)


def test_a_name_may_say_its_computation():
    assert named(hlo_opt.parse(TEXT), "%inner/%e").opcode == "exponential"
    assert isinstance(named(hlo_opt.parse(TEXT), "inner"), Computation)
