"""
Rebuild an author's classes from stored data, where the calling code names them.

What names a class is an annotation or an ``output_type``, never the stored bytes: the name found there only helps to
choose between classes that the caller offers. A class may have changed since: fields that it lost are left out, fields
that it gained take their defaults.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections import OrderedDict, deque
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Mapping,
    MutableMapping,
    MutableSequence,
    MutableSet,
    Sequence,
)
from collections.abc import Set as AbstractSet
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

from airflow_aiflow.durable.payload_adapters import Adapters, Named
from airflow_aiflow.durable.trail import class_name, path_of
from airflow_aiflow.exceptions import PayloadDecodeError

_SEQUENCES = {list, Sequence, MutableSequence, Iterable, Collection, deque}
_SETS = {set, frozenset, AbstractSet, MutableSet}
_MAPPINGS = {dict, Mapping, MutableMapping, OrderedDict}

#: Annotations that say something about a field, not about its type.
_MARKERS = {Annotated, typing.Required, typing.NotRequired, typing.Final, typing.ClassVar}


def return_type(fn: Callable[..., Any]) -> Any:
    """
    Read what a function says it returns.

    :param fn: any callable.
    :return: the annotation, resolved; ``None`` where there is none or it can't be resolved at run time.
    """
    while isinstance(fn, functools.partial):
        fn = fn.func
    if isinstance(fn, type):
        return fn
    target = fn if inspect.isroutine(fn) or hasattr(fn, "__wrapped__") else type(fn).__call__
    try:
        return get_type_hints(target, include_extras=True).get("return")
    except Exception:
        # Annotations are any code: names that exist for type checkers only, or a syntax of a later Python.
        return None


class Rebuilder:
    """
    Rebuild one value.

    :param adapters: what this process can build beyond the standard library.
    """

    def __init__(self, adapters: Adapters) -> None:
        self._adapters = adapters
        self._trail: list[object] = []
        #: Whether an instance must have been stored under the very name of the class that is to be built.
        self._strict = False
        #: How many instances stay plain data because nothing names their class.
        self._unnamed = 0

    def rebuild(self, value: Any, as_type: Any) -> Any:
        """
        Rebuild.

        :param value: decoded, with ``Named`` where an instance was stored.
        :param as_type: what the calling code expects: an annotation, or a dict or list of them in the value's shape.
        :return: the value without any ``Named`` in it.
        :raises PayloadDecodeError: if the data does not fit the class that is named.
        """
        if isinstance(as_type, dict | list):
            return self._shaped(value, as_type)
        expected = _plain_type(as_type)
        if get_origin(expected) in (Union, UnionType):
            return self._union(value, [_plain_type(member) for member in get_args(expected)])
        if isinstance(value, Named):
            if self._builds(expected):
                return self._instance(value, expected)
            self._unnamed += 1
            return self.rebuild(value.plain, expected)
        if isinstance(value, dict):
            return self._dict(value, expected)
        if isinstance(value, tuple):
            return self._tuple(value, expected)
        if isinstance(value, list | set | frozenset):
            return self._elements(value, expected)
        return value

    def _shaped(self, value: Any, shape: dict[Any, Any] | list[Any]) -> Any:
        if isinstance(shape, dict) and isinstance(value, dict):
            return {key: self._inside(key, one, shape.get(key)) for key, one in value.items()}
        if isinstance(shape, list) and isinstance(value, list):
            types = shape + [None] * (len(value) - len(shape))
            return [self._inside(index, one, types[index]) for index, one in enumerate(value)]
        return self.rebuild(value, None)

    def _builds(self, cls: Any) -> bool:
        if self._adapters.building(cls) is not None:
            return True
        origin = get_origin(cls) or cls
        return isinstance(origin, type) and (
            is_dataclass(origin) or issubclass(origin, Enum) or _is_named_tuple(origin)
        )

    def _union(self, value: Any, members: list[Any]) -> Any:
        if isinstance(value, Named):
            fitting = [member for member in members if self._builds(member)]
            if not fitting:
                self._unnamed += 1
                return self._union(value.plain, members)
        else:
            fitting = [member for member in members if _holds(member, value)]
        if len(fitting) < 2:
            return self.rebuild(value, fitting[0] if fitting else None)
        fitting.sort(key=lambda member: not self._same_fields(value, member))
        before, depth = self._strict, len(self._trail)
        failed: PayloadDecodeError | None = None
        for strict, member in [(True, member) for member in fitting] + [(before, member) for member in fitting]:
            self._strict = strict
            try:
                return self.rebuild(value, member)
            except PayloadDecodeError as error:
                failed = error
                del self._trail[depth:]
            finally:
                self._strict = before
        raise failed or AssertionError("a union has members")

    def _same_fields(self, value: Any, member: Any) -> bool:
        data = value.plain if isinstance(value, Named) else value
        return isinstance(data, dict) and set(self._field_types(member)) == set(data)

    def _field_types(self, cls: Any) -> dict[str, Any]:
        family = self._adapters.building(cls)
        if family is not None:
            return family.field_types(cls)
        origin = get_origin(cls) or cls
        chosen = dict(zip(getattr(origin, "__parameters__", ()), get_args(cls), strict=False))
        hints = {name: _specialised(hint, chosen) for name, hint in _hints(origin).items()}
        return {field.name: hints.get(field.name) for field in fields(origin)} if is_dataclass(origin) else hints

    def _dict(self, value: dict[Any, Any], expected: Any) -> Any:
        origin, arguments = get_origin(expected) or expected, get_args(expected)
        if typing.is_typeddict(origin):
            hints = _hints(origin)
            return {key: self._inside(key, one, hints.get(key)) for key, one in value.items()}
        key_type, value_type = arguments if origin in _MAPPINGS and len(arguments) == 2 else (None, None)
        built = {self.rebuild(key, key_type): self._inside(key, one, value_type) for key, one in value.items()}
        return OrderedDict(built) if origin is OrderedDict else built

    def _tuple(self, value: tuple[Any, ...], expected: Any) -> Any:
        arguments = get_args(expected) if get_origin(expected) is tuple else ()
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            arguments = arguments[:1] * len(value)
        types = arguments + (None,) * (len(value) - len(arguments))
        return tuple(self._inside(index, one, types[index]) for index, one in enumerate(value))

    def _elements(self, value: Any, expected: Any) -> Any:
        origin, arguments = get_origin(expected) or expected, get_args(expected)
        each = arguments[0] if origin in _SEQUENCES | _SETS and arguments else None
        if not isinstance(value, list):
            return type(value)(self.rebuild(one, each) for one in value)
        built = [self._inside(index, one, each) for index, one in enumerate(value)]
        return deque(built) if origin is deque else built

    def _inside(self, key: object, value: Any, expected: Any) -> Any:
        self._trail.append(key)
        built = self.rebuild(value, expected)
        self._trail.pop()
        return built

    def _instance(self, value: Named, cls: Any) -> Any:
        origin = get_origin(cls) or cls
        if self._strict and class_name(origin) != value.type_name:
            raise PayloadDecodeError(f"{path_of(self._trail)}: {value.type_name} is not {class_name(origin)}")
        family = self._adapters.building(cls)
        try:
            if family is not None:
                inside, incomplete = self._fields(value.plain, family.field_types(cls))
                return family.build(cls, inside, incomplete=incomplete)
            if issubclass(origin, Enum):
                return origin(self.rebuild(value.plain, None))
            if is_dataclass(origin):
                return _build_dataclass(origin, self._fields(value.plain, self._field_types(cls))[0])
            hints = list(self._field_types(cls).values())
            return origin._make(
                self._inside(index, one, hints[index] if index < len(hints) else None)
                for index, one in enumerate(value.plain)
            )
        except PayloadDecodeError:
            raise
        except Exception as error:
            if class_name(origin) == value.type_name:
                self._misfit(value, cls, error)
            # An annotation that is not true: the function returned an instance of something else.
            self._unnamed += 1
            return self.rebuild(value.plain, None)

    def _fields(self, plain: Any, types: Mapping[str, Any]) -> tuple[Any, set[str]]:
        incomplete: set[str] = set()
        if not isinstance(plain, dict):
            return self.rebuild(plain, None), incomplete
        built = {}
        for name, one in plain.items():
            before = self._unnamed
            built[name] = self._inside(name, one, types.get(name))
            if self._unnamed != before:
                incomplete.add(name)
        return built, incomplete

    def _misfit(self, value: Named, cls: Any, error: Exception) -> NoReturn:
        where = path_of(self._trail) or "the value"
        raise PayloadDecodeError(
            f"{where}: what was stored of {value.type_name} does not fit {getattr(cls, '__qualname__', cls)}: "
            f"{type(error).__name__}: {error}. The class has changed since: give new fields a default, or change the "
            "step's version= so that it runs again"
        ) from error


def _plain_type(annotation: Any) -> Any:
    while True:
        if get_origin(annotation) in _MARKERS:
            annotation = get_args(annotation)[0]
        elif hasattr(annotation, "__supertype__"):  # NewType
            annotation = annotation.__supertype__
        elif type(annotation).__name__ == "TypeAliasType":  # Python 3.12's `type X = ...`
            annotation = annotation.__value__
        else:
            break
    if get_origin(annotation) is Literal:
        classes = {type(choice) for choice in get_args(annotation)} - {NoneType}
        return classes.pop() if len(classes) == 1 else None
    return None if isinstance(annotation, str | TypeVar) or annotation is Any else annotation


def _specialised(hint: Any, chosen: dict[Any, Any]) -> Any:
    if isinstance(hint, TypeVar):
        return chosen.get(hint)
    open_ones = getattr(hint, "__parameters__", ())
    return hint[tuple(chosen.get(one, Any) for one in open_ones)] if open_ones and chosen else hint


def _is_named_tuple(cls: type) -> bool:
    return issubclass(cls, tuple) and hasattr(cls, "_fields")


def _holds(member: Any, value: Any) -> bool:
    origin = get_origin(member) or member
    if isinstance(value, dict):
        return origin in _MAPPINGS or typing.is_typeddict(origin)
    return isinstance(origin, type) and isinstance(value, list | tuple | set | frozenset) and isinstance(value, origin)


@functools.lru_cache(maxsize=512)
def _hints(cls: type) -> dict[str, Any]:
    try:
        return get_type_hints(cls)
    except Exception:
        # One name that exists for type checkers only would hide the others: keep those that need no resolving.
        found: dict[str, Any] = {}
        for base in reversed(cls.__mro__):
            found |= vars(base).get("__annotations__", {})
        return found


def _build_dataclass(cls: Any, data: dict[str, Any]) -> Any:
    known = {field.name: field for field in fields(cls)}
    stored = {name: value for name, value in data.items() if name in known}
    missing = [
        name
        for name, field in known.items()
        if name not in stored and field.init and field.default is MISSING and field.default_factory is MISSING
    ]
    if missing:
        raise ValueError(f"no value for {', '.join(missing)}")
    try:
        built = cls(**{name: value for name, value in stored.items() if known[name].init})
    except Exception:
        # A constructor may want more than fields (InitVar) or refuse its own output (a check that is not idempotent).
        built = object.__new__(cls)
        defaults = {name: field for name, field in known.items() if name not in stored}
        stored |= {name: f.default for name, f in defaults.items() if f.default is not MISSING}
        stored |= {name: f.default_factory() for name, f in defaults.items() if f.default_factory is not MISSING}
    for name, value in stored.items():
        # What is stored is what the instance held in the end, whatever the constructor makes of it the second time.
        if getattr(built, name, MISSING) is not value:
            object.__setattr__(built, name, value)
    return built
