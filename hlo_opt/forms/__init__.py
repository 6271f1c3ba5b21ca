"""The forms of modules in files: HLO text, XLA's protobufs, StableHLO, artifacts of `jax.export`. They are recognized
by content, never by file name."""
