"""Running modules: schedules, the backends numpy, host and cupy, the emitted driver, and comparing results.

`compile` and `emit` are public (`hlo_opt.compile`, `hlo_opt.emit`); `hlo_opt.runtime.check.compare.check` is what
`--check` runs.
"""
