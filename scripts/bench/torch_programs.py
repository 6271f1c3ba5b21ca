"""The workloads in PyTorch, timed on the CPU in three ways: python -m scripts.bench.torch_programs FOLDER [--only NAME]
[--rounds N] [--seconds S]

Needs PyTorch and NumPy and nothing else, so that an environment of its own will do; `workloads` runs it and reads the
JSON that it prints. For each workload FOLDER has `NAME.npz` with the inputs `in0, in1, ...` and what XLA made of them,
`out0, out1, ...`.

eager        as the program stands
TorchScript  what `torch.jit.trace` makes of it
Inductor     what `torch.compile` makes of it

Where a workload is a loop, it is the round that is traced and compiled, and Python goes round: a loop of hundreds of
rounds as one graph takes minutes to compile. Each way has milliseconds (median), kernels of a whole run where they can
be had, seconds of its first run, the share of outputs that differ from XLA's by more than 1 % of the largest, and why
it cannot run where it cannot. Programs that draw random numbers draw others than XLA's, so they are not compared.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

Tensor = Any
Function = Callable[..., Any]
SETTLE = 3
"""Runs before anything is timed, the first aside."""


def adam_step(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """One update of all parameters."""
    count = (len(tensors) - 1) // 4
    parameters, gradients = tensors[:count], tensors[count : 2 * count]
    updates, means, squares = tensors[2 * count], tensors[2 * count + 1 : 3 * count + 1], tensors[3 * count + 1 :]
    updates = updates + 1
    first, second = 1 - 0.9**updates, 1 - 0.999**updates
    new, new_means, new_squares = [], [], []
    for p, g, m, v in zip(parameters, gradients, means, squares, strict=True):
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * g * g
        new.append(p - 1e-3 * (m / first) / (torch.sqrt(v / second) + 1e-8))
        new_means.append(m)
        new_squares.append(v)
    return (*new, updates, *new_means, *new_squares)


def lotka_volterra_step(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """One step of Runge and Kutta."""
    size = 0.01

    def slope(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return 1.1 * a - 0.4 * a * b, 0.1 * a * b - 0.4 * b

    k1, l1 = slope(a, b)
    k2, l2 = slope(a + size / 2 * k1, b + size / 2 * l1)
    k3, l3 = slope(a + size / 2 * k2, b + size / 2 * l2)
    k4, l4 = slope(a + size * k3, b + size * l3)
    return a + size / 6 * (k1 + 2 * k2 + 2 * k3 + k4), b + size / 6 * (l1 + 2 * l2 + 2 * l3 + l4)


def heat_step(u: Tensor) -> tuple[Tensor]:
    """One step of the heat equation."""
    inner = u[1:-1, 1:-1]
    around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
    new = u.clone()
    new[1:-1, 1:-1] = inner + 0.1 * (around - 4 * inner)
    return (new,)


def black_scholes(price: Tensor, strike: Tensor, time: Tensor) -> tuple[Tensor, Tensor]:
    """Prices of calls and puts."""
    root = 0.2 * torch.sqrt(time)
    one = (torch.log(price / strike) + (0.02 + 0.02) * time) / root
    two = one - root

    def below(x: Tensor) -> Tensor:
        return 0.5 * (1 + torch.erf(x / math.sqrt(2)))

    worth = strike * torch.exp(-0.02 * time)
    return price * below(one) - worth * below(two), worth * below(-two) - price * below(-one)


def layer_norm(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """As written, not the library's."""
    mean = x.mean(-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(-1, keepdim=True)
    return (x - mean) * torch.rsqrt(variance + 1e-5) * scale + shift


def layer_norm_gradient(step: Function, *args: Tensor) -> tuple[Tensor, ...]:
    """The gradients of all arguments but the last, which is the cotangent."""
    inputs = [x.detach().requires_grad_() for x in args[:-1]]
    return torch.autograd.grad(step(*inputs), inputs, args[-1])


def attention(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor]:
    """Heads of softmax attention with a causal mask, as written."""
    scores = torch.einsum("hqd,hkd->hqk", q, k) / math.sqrt(q.shape[-1])
    mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    return (torch.einsum("hqk,hkd->hqd", torch.softmax(torch.where(mask, scores, -1e9), -1), v),)


def mandelbrot_step(a: Tensor, b: Tensor, n: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """One round."""
    near = a * a + b * b < 4
    return torch.where(near, a * a - b * b + x, a), torch.where(near, 2 * a * b + y, b), n + near


def mandelbrot(step: Function, x: Tensor, y: Tensor) -> tuple[Tensor]:
    """50 rounds."""
    a, b, n = x.clone(), y.clone(), torch.zeros_like(x)
    for _ in range(50):
        a, b, n = step(a, b, n, x, y)
    return (n,)


def n_body_step(place: Tensor, speed: Tensor, mass: Tensor) -> tuple[Tensor, Tensor]:
    """One step."""
    apart = place[None] - place[:, None]
    near = (apart**2).sum(-1) + 1e-2
    speed = speed + 1e-3 * (apart * (mass[None] * near**-1.5)[..., None]).sum(1)
    return place + 1e-3 * speed, speed


def n_body(step: Function, place: Tensor, speed: Tensor, mass: Tensor) -> tuple[Tensor, Tensor]:
    """10 steps."""
    for _ in range(10):
        place, speed = step(place, speed, mass)
    return place, speed


def gru_step(h: Tensor, x: Tensor, w: Tensor, u: Tensor) -> Tensor:
    """A cell."""
    a, b = (x @ w).chunk(3, -1), (h @ u).chunk(3, -1)
    keep, reset = torch.sigmoid(a[0] + b[0]), torch.sigmoid(a[1] + b[1])
    return keep * h + (1 - keep) * torch.tanh(a[2] + reset * b[2])


def gru(step: Function, x: Tensor, h: Tensor, w: Tensor, u: Tensor) -> tuple[Tensor]:
    """Over a sequence."""
    for one in x:
        h = step(h, one, w, u)
    return (h,)


def metropolis_step(x: Tensor) -> tuple[Tensor]:
    """One proposal."""

    def energy(x: Tensor) -> Tensor:
        return (x * x - 1) ** 2

    there = x + torch.rand_like(x) - 0.5
    return (torch.where(torch.rand_like(x) < torch.exp(energy(x) - energy(there)), there, x),)


def annealing_step(x: Tensor, y: Tensor, heat: Tensor) -> tuple[Tensor, Tensor]:
    """One proposal."""

    def height(x: Tensor, y: Tensor) -> Tensor:
        return x * x + y * y - 10 * (torch.cos(2 * math.pi * x) + torch.cos(2 * math.pi * y))

    a, b = x + torch.rand_like(x) - 0.5, y + torch.rand_like(y) - 0.5
    taken = torch.rand_like(x) < torch.exp((height(x, y) - height(a, b)) / heat)
    return torch.where(taken, a, x), torch.where(taken, b, y)


def annealing(step: Function, x: Tensor, y: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """200 rounds, cooled."""
    for heat in torch.arange(200) / -200 * 5 + 5.01:
        x, y = step(x, y, heat)
    return x, y


def second_derivative(x: Tensor) -> tuple[Tensor]:
    """The gradient of a gradient, at many points."""

    def curve(x: Tensor) -> Tensor:
        return torch.sin(x) * torch.tanh(x * x) + torch.exp(-x * x)

    def total(x: Tensor) -> Tensor:
        return torch.func.grad(lambda x: curve(x).sum())(x).sum()

    return (torch.func.grad(total)(x),)


def laplacian(points: Tensor, first: Tensor, second: Tensor, last: Tensor) -> tuple[Tensor]:
    """Of a small network, at many points."""

    def network(point: Tensor) -> Tensor:
        return torch.tanh(torch.tanh(point @ first) @ second) @ last

    return (torch.func.vmap(lambda point: torch.trace(torch.func.hessian(network)(point)))(points),)


def pendulum_step(angle: Tensor, speed: Tensor, drag: Tensor) -> tuple[Tensor, Tensor]:
    """One step."""
    speed = speed - 0.02 * (torch.sin(angle) + drag * speed)
    return angle + 0.02 * speed, speed


def simulation_gradient(step: Function, *args: Tensor) -> tuple[Tensor, ...]:
    """Of the end of 100 steps by the start and the drag."""
    inputs = [x.detach().requires_grad_() for x in args]
    angle, speed, drag = inputs
    for _ in range(100):
        angle, speed = step(angle, speed, drag)
    return torch.autograd.grad((angle**2 + speed**2).sum(), inputs)


def once(step: Function, *args: Tensor) -> tuple[Tensor, ...]:
    """No loop."""
    return step(*args)


def all_at_once(step: Function, *args: Tensor) -> tuple[Tensor, ...]:
    """No loop, and the arguments as one sequence."""
    return step(list(args))


def rounds_of(count: int, carried: int) -> Function:
    """A loop whose round takes and gives what is carried, and nothing else."""

    def whole(step: Function, *args: Tensor) -> tuple[Tensor, ...]:
        state = args[:carried]
        for _ in range(count):
            state = step(*state)
        return state

    return whole


PROGRAMS: dict[str, tuple[Function, Function, bool]] = {
    "adam": (adam_step, all_at_once, False),
    "lotka_volterra_rk4": (lotka_volterra_step, rounds_of(500, 2), False),
    "heat": (heat_step, rounds_of(20, 1), False),
    "black_scholes": (black_scholes, once, False),
    "layer_norm": (layer_norm, layer_norm_gradient, False),
    "attention": (attention, once, False),
    "mandelbrot": (mandelbrot_step, mandelbrot, False),
    "n_body": (n_body_step, n_body, False),
    "gru": (gru_step, gru, False),
    "metropolis": (metropolis_step, rounds_of(200, 1), True),
    "annealing": (annealing_step, annealing, True),
    "second_derivative": (second_derivative, once, False),
    "laplacian": (laplacian, once, False),
    "simulation_gradient": (pendulum_step, simulation_gradient, False),
}
"""The part that is traced and compiled, what goes round it, and whether random numbers are drawn."""

NO_WORK = frozenset(["detach", "empty", "empty_like", "empty_strided", "lift_fresh", "new_empty", "_unsafe_view"])
"""Operations that compute nothing, beside views."""


class Counter(TorchDispatchMode):  # type: ignore[misc]
    """Counts operations that compute something: on a device each is a kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function.overloadpacket.__name__
        self.count += not (function.is_view or name in NO_WORK)
        return function(*args, **(kwargs or {}))


class Calls:
    """A function that knows how often it was called."""

    def __init__(self, function: Function) -> None:
        self.function, self.count = function, 0

    def __call__(self, *args: Any) -> Any:
        self.count += 1
        return self.function(*args)


def operations(action: Callable[[], object]) -> int:
    """How many operations a call makes that compute something."""
    with Counter() as counter:
        action()
    return counter.count


def library_calls(action: Callable[[], object]) -> int:
    """How many products a call leaves to a library."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        action()
    return sum(e.count for e in profile.key_averages() if e.key in ("aten::mm", "aten::addmm", "aten::bmm"))


def differing(found: Sequence[Tensor], folder: Path, name: str) -> float:
    """The share of elements that are further from XLA's than 1 % of the largest."""
    with np.load(folder / f"{name}.npz") as file:
        expected = [file[f"out{k}"] for k in range(len(found))]
    wrong = total = 0
    for ours, theirs in zip(found, expected, strict=True):
        values = ours.detach().numpy().astype(np.float64)
        assert values.shape == theirs.shape, (name, values.shape, theirs.shape)
        wrong += int(np.sum(~(np.abs(values - theirs) <= 0.01 * np.max(np.abs(theirs), initial=0.0))))
        total += theirs.size
    return wrong / max(total, 1)


def made(way: str, step: Function, args: Sequence[Tensor], whole: Function) -> Function:
    """The step in one of the three ways."""
    if way == "eager":
        return step
    if way == "Inductor":
        return torch.compile(step, dynamic=False)
    seen: list[tuple[Any, ...]] = []

    def first(*given: Any) -> Any:
        if not seen:
            seen.append(tuple(x if isinstance(x, list) else x.detach() for x in given))
        return step(*given)

    whole(first, *args)
    return torch.jit.trace(step, seen[0], check_trace=False)


def timed(way: str, name: str, args: Sequence[Tensor], folder: Path, rounds: int, seconds: float) -> dict[str, Any]:
    """One way of one workload."""
    from torch._dynamo.utils import counters
    from torch._inductor import metrics

    step, whole, draws = PROGRAMS[name]
    metrics.reset()
    counters.clear()
    start = time.perf_counter()
    call = Calls(made(way, step, args, whole))
    found = whole(call, *args)
    first = time.perf_counter() - start
    call.count = 0
    kernels: int | None = operations(lambda: whole(call, *args)) if way != "Inductor" else None
    if way == "Inductor" and counters["stats"]["unique_graphs"] == 1:  # of several it is not known which run how often
        products = library_calls(lambda: whole(call, *args))
        kernels = products + metrics.generated_kernel_count * call.count
    for _ in range(SETTLE):
        whole(call, *args)
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < rounds and (len(times) < SETTLE or time.perf_counter() < end):
        start = time.perf_counter()
        whole(call, *args)
        times.append(time.perf_counter() - start)
    return {
        "ms": statistics.median(times) * 1e3,
        "kernels": kernels,
        "first_s": first,
        "differ": None if draws else differing(found, folder, name),
    }


def rows(folder: Path, only: str, rounds: int, seconds: float) -> dict[str, dict[str, Any]]:
    """Every workload that the folder has inputs of, in every way."""
    found: dict[str, dict[str, Any]] = {}
    for name in PROGRAMS:
        if not (folder / f"{name}.npz").is_file() or only not in name:
            continue
        with np.load(folder / f"{name}.npz") as file:
            args = [torch.from_numpy(np.array(file[f"in{k}"])) for k in range(sum(n.startswith("in") for n in file))]
        found[name] = {}
        for way in ("eager", "TorchScript", "Inductor"):
            try:
                found[name][way] = timed(way, name, args, folder, rounds, seconds)
            except Exception as fault:  # whatever PyTorch raises: the table says that it cannot
                told = [line.strip() for line in str(fault).splitlines() if line.strip()]
                found[name][way] = {"cannot": f"{type(fault).__name__}: {told[0][:100] if told else ''}"}
            print(f"{name}, {way}: {found[name][way]}", file=sys.stderr, flush=True)
    return found


def main() -> int:
    """The command."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--only", default="", metavar="NAME")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=5.0)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    found = rows(given.folder, given.only, given.rounds, given.seconds)
    made_of = {"torch": torch.__version__, "threads": torch.get_num_threads()}
    print(json.dumps({**made_of, "rows": found}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
