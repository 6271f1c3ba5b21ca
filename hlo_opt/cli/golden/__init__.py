"""Golden files: modules with `// RUN:` and `// CHECK` lines, as LLVM's lit and FileCheck read them, and modules with
the text that they must give.

`hlo-opt test` and the pytest plugin (`hlo_opt.pytest_plugin`) run them, in the process that they run in. A RUN line
never reaches a shell.
"""
