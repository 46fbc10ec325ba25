"""
Read what a call of the author's function depends on: its arguments by name, and what the function carries with it.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, MethodType, MethodWrapperType, ModuleType
from typing import Any

#: Signatures are slow to read. Held weakly, so that lambdas made in a loop are not kept alive.
_signatures: weakref.WeakKeyDictionary[Any, inspect.Signature] = weakref.WeakKeyDictionary()

#: Takes the place of an argument that we fill ourselves.
_GIVEN = object()


def bind_arguments(fn: Callable[..., Any], args: tuple[Any, ...], *, given: int = 0) -> list[tuple[str, Any]]:
    """
    Pair arguments with the names of the parameters that they meet, defaults included.

    :param fn: the author's function; a ``partial`` counts as what it wraps, with its arguments.
    :param args: the author's arguments, without those that we give.
    :param given: how many leading parameters we fill ourselves (``ctx``, a cursor); they are left out.
    :return: in the order of the parameters; a function without a signature has ``arg0``, ``arg1``, ...
    :raises TypeError: if the arguments do not fit, in the words of Python's own call.
    """
    keywords: dict[str, Any] = {}
    while isinstance(fn, functools.partial):
        args, keywords, fn = (*fn.args, *args), {**fn.keywords, **keywords}, fn.func
    if type(fn) is MethodType:
        fn, given = fn.__func__, given + 1
    if not keywords and (quick := bind_plainly(fn, args, given=given)) is not None:
        return quick
    args = (_GIVEN,) * given + args
    try:
        signature = signature_of(fn)
    except ValueError:
        return [*((f"arg{i}", value) for i, value in enumerate(args[given:])), *sorted(keywords.items())]
    bound = signature.bind(*args, **keywords)
    bound.apply_defaults()
    found = bound.arguments
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            found[name] = tuple(value for value in found[name] if value is not _GIVEN)
    return [(name, value) for name, value in found.items() if value is not _GIVEN]


def bind_plainly(fn: Callable[..., Any], args: tuple[Any, ...], *, given: int = 0) -> list[tuple[str, Any]] | None:
    """
    Pair arguments with a function of parameters that all may go by position; defaults included.

    :param fn: the author's function.
    :param args: the author's arguments, without those that we give.
    :param given: how many leading parameters we fill ourselves.
    :return: as ``bind_arguments``; ``None``: it needs the long way, or the arguments do not fit.
    """
    if type(fn) is not FunctionType or fn.__dict__:
        return None
    args = (_GIVEN,) * given + args
    code = fn.__code__
    missing = code.co_argcount - len(args)
    if code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS) or code.co_kwonlyargcount or missing < 0:
        return None
    if missing:
        defaults = fn.__defaults__ or ()
        if missing > len(defaults):
            return None
        args += defaults[len(defaults) - missing :]
    return list(zip(code.co_varnames, args, strict=False))[given:]


def signature_of(fn: Callable[..., Any]) -> inspect.Signature:
    """
    Read a signature, once for each function.

    :param fn: any callable.
    :raises ValueError: if it has none (some builtins).
    """
    if not isinstance(fn, FunctionType | type):
        return inspect.signature(fn)
    known = _signatures.get(fn)
    if known is None:
        known = _signatures[fn] = inspect.signature(fn)
    return known


def captured_variables(fn: Callable[..., Any]) -> dict[str, Any]:
    """
    Read what a function carries with it besides its arguments.

    :param fn: the author's function; a ``partial`` counts as what it wraps.
    :return: name -> value: the free variables of a lambda or of a function made inside another one, ``self`` of a
        bound method or a callable object. A function of a module has none, whatever its decorators carry; defaults
        are arguments (``bind_arguments``).
    """
    while isinstance(fn, functools.partial | functools._lru_cache_wrapper):
        fn = fn.func if isinstance(fn, functools.partial) else fn.__wrapped__
    if isinstance(fn, FunctionType):
        if not is_local(fn) or fn.__closure__ is None:
            return {}
        return dict(zip(fn.__code__.co_freevars, map(_content, fn.__closure__), strict=True))
    if isinstance(fn, MethodType | BuiltinFunctionType | MethodWrapperType):
        owner = bound_to(fn)
        return {} if owner is None or isinstance(owner, type) else {"self": owner}
    return {} if isinstance(fn, type) or inspect.isroutine(fn) else {"self": fn}


def bound_to(routine: Any) -> Any:
    """
    Give the object that a method is bound to.

    :param routine: a function or method of any kind.
    :return: ``None`` where there is none, also for functions of a built-in module.
    """
    owner = getattr(routine, "__self__", None)
    return None if isinstance(owner, ModuleType) else owner


def is_local(fn: FunctionType) -> bool:
    """
    Say whether a function was made while other code ran, so that its name alone does not say what it does.

    :param fn: a Python function.
    """
    return "<locals>" in fn.__qualname__ or fn.__name__ == "<lambda>"


def default_values(fn: FunctionType) -> dict[str, Any]:
    """
    Read the defaults of a function's parameters.

    :param fn: a Python function.
    """
    code, defaults = fn.__code__, fn.__defaults__ or ()
    names = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
    return dict(zip(names, defaults, strict=True)) | (fn.__kwdefaults__ or {})


class Unset:
    """Stand for a captured variable that has no value yet: its name alone counts."""

    def __aiflow_fingerprint__(self) -> None:
        return None


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return Unset()
