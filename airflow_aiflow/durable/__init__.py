"""
The domain: what an execution, a step and an effect are, and which moves are legal. Standard library only.

The package bears the name of the public decorator ``durable``. Python makes a loaded sub-package an attribute of its
parent, so ``airflow_aiflow.durable`` is this module whenever any part of the domain is loaded; so that it is the
decorator all the same, this module can be called, and type checkers see the decorator alone.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _DecoratorToo(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return import_module("airflow_aiflow.decorators.typed").durable(*args, **kwargs)


sys.modules[__name__].__class__ = _DecoratorToo
