"""The forms in which people have modules: HLO text, XLA's protobufs, StableHLO, artifacts of `jax.export`; told apart
by their content, never by their names."""
