"""Programs whose dumps are in `testdata/dumps`, and those that are measured against XLA:GPU: each module declares its
cases in `CASES`."""

from __future__ import annotations

from scripts.programs import (
    adam,
    algorithms,
    cartpole,
    clustering,
    control,
    decoding,
    elementwise,
    filters,
    indexing,
    layers,
    mlp,
    model_parts,
    monte_carlo,
    norm_gradients,
    normalization,
    particles,
    sharded,
    small_products,
    softmax,
    states,
    stencils,
    training,
    transformer,
    updates,
    vectors,
)
from scripts.programs.case import Case

MODULES = (
    cartpole,
    adam,
    control,
    elementwise,
    indexing,
    mlp,
    monte_carlo,
    normalization,
    sharded,
    softmax,
    transformer,
)

MEASURED = (
    particles,
    stencils,
    norm_gradients,
    decoding,
    states,
    small_products,
    clustering,
    filters,
    training,
    model_parts,
    algorithms,
    updates,
    layers,
    vectors,
)
"""Five programs of each kind that was once worse than XLA:GPU, parts of models, algorithms, updates, layers and short
vectors; no dumps of them are kept."""


def measured_cases() -> dict[str, Case]:
    """The cases that are measured against XLA:GPU, by name."""
    return {case.name: case for module in MEASURED for case in module.CASES}


def all_cases() -> dict[str, Case]:
    """Every case by name, in the order of declaration."""
    cases: dict[str, Case] = {}
    for module in MODULES:
        for case in module.CASES:
            if case.name in cases:
                raise ValueError(f"two cases are named {case.name}")
            cases[case.name] = case
    for case in cases.values():
        if case.twin is not None and case.twin not in cases:
            raise ValueError(f"{case.name}: there is no case {case.twin} to take outputs from")
    return cases


def page_cases() -> dict[str, Case]:
    """Programs of the size that they have in practice, which pages of the documentation show. They are not run."""
    return {case.name: case for case in transformer.PAGES}
