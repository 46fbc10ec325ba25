"""
Name where in a value something sits, and what class it has, in words that a person finds again in the code.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Sequence

#: Airflow loads a DAG file under a module name made from a hash of the file's path. A new checkout of the same file is
#: the same code, so the hash must not reach a fingerprint.
_PATH_HASH = re.compile(r"^unusual_prefix_[0-9a-f]{40}_")


def path_of(trail: Sequence[object]) -> str:
    """
    Write a trail of keys as a path.

    :param trail: attribute names and string keys as ``str``, positions as ``int``, other keys as they are.
    :return: such as ``a[0].score`` or ``['first name'][3]``; empty for the value itself.
    """
    path = ""
    for key in trail:
        if isinstance(key, str) and key.isidentifier():
            path += f".{key}" if path else key
        else:
            # Keys may be whole texts or objects: shortened, and safe against a `repr` that raises.
            path += f"[{reprlib.repr(key)}]"
    return path


def class_name(cls: type) -> str:
    """
    Give the qualified name of a class or function, the same on every checkout of its file.

    :param cls: anything with ``__module__`` and ``__qualname__``.
    """
    return qualified_name(cls.__module__, cls.__qualname__)


def qualified_name(module: str | None, qualname: str) -> str:
    """
    Join module and qualified name, without the hash of a path that Airflow puts before a DAG file's module.

    :param module: the module's name; ``None`` for what has none.
    :param qualname: the name inside the module.
    """
    return f"{_PATH_HASH.sub('', module or '')}.{qualname}"
