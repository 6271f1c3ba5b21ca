"""Search for the passes, options and edges with which a module takes least time; and what is written down of it."""

import sys
from types import ModuleType

from hlo_opt.tune.evaluation import Evaluated, Task
from hlo_opt.tune.search import Tuned, tune
from hlo_opt.tune.setting import Setting

__all__ = ["Evaluated", "Setting", "Task", "Tuned", "tune"]


class _Room(ModuleType):
    """`hlo_opt.tune` names both this package and the public function. Calling the module calls the function."""

    __call__ = staticmethod(tune)


sys.modules[__name__].__class__ = _Room
