"""
Teach the payload codec and the fingerprint the classes of numpy, pydantic and pendulum.

None of the three is imported here: a value of theirs can only exist where its library is loaded already, so writing
asks ``sys.modules``. Reading imports the library that an adapter of this file is about, never one that stored bytes
name.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Collection
from datetime import date, datetime, time, timezone
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

from airflow_aiflow.durable.payload_adapters import DEFAULT, Adapters

#: Array kinds whose bytes mean the same everywhere: booleans, integers, floats, complex, dates, durations, text, bytes.
#: Objects are references, and structured arrays ("V") may hold some.
_ARRAY_KINDS = frozenset("biufcmMUS")

#: Most often one or two a task; the bound keeps classes made on the fly from piling up.
_CACHED_TYPES = 256


def register(adapters: Adapters = DEFAULT) -> None:
    """
    Make numpy, pydantic and pendulum known to the codec. Costs no import; repeating it changes nothing.

    :param adapters: the registry to fill.
    """
    for adapter in (NumpyArrays(), NumpyScalars(), PendulumMoments()):
        adapters.register(adapter)
    adapters.register_models(PydanticUrls())
    adapters.register_models(PydanticModels())


class NumpyArrays:
    """Store arrays as dtype, shape and bytes."""

    tag = "ndarray"

    def matches(self, value: object) -> bool:
        """Say whether a value is an array; subclasses (matrix, masked array) mean more than their numbers."""
        numpy = sys.modules.get("numpy")
        return numpy is not None and type(value) is numpy.ndarray

    def to_plain(self, value: Any) -> list[Any]:
        """
        Give (dtype, shape, bytes in C order).

        :raises ValueError: for arrays of objects and structured arrays.
        """
        return [_dtype_name(value.dtype), list(value.shape), value.tobytes()]

    def from_plain(self, plain: Any) -> Any:
        """Build a new, writable array."""
        import numpy as np

        name, shape, raw = plain
        dtype = _dtype(name)
        if type(raw) is not bytes or min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(raw):
            raise ValueError("dtype, shape and bytes do not fit together")
        # frombuffer refuses an empty buffer and items of no width.
        array = np.frombuffer(raw, dtype).copy() if raw else np.zeros(shape, dtype)
        return array.reshape(shape)


class NumpyScalars:
    """Store scalars as dtype and bytes, texts as they are (an array would cut their trailing U+0000)."""

    tag = "npscalar"

    def matches(self, value: object) -> bool:
        """Say whether a value is a numpy scalar, ``np.float64`` and ``np.str_`` included."""
        numpy = sys.modules.get("numpy")
        return numpy is not None and isinstance(value, numpy.generic)

    def to_plain(self, value: Any) -> list[Any]:
        """
        Give (dtype, bytes), or for text and bytes (kind, content).

        :raises ValueError: for objects and records.
        """
        if value.dtype.kind in "US":
            return [value.dtype.kind, str.__str__(value) if value.dtype.kind == "U" else bytes(value)]
        return [_dtype_name(value.dtype), value.tobytes()]

    def from_plain(self, plain: Any) -> Any:
        """Build the scalar."""
        import numpy as np

        kind, content = plain
        if kind == "U":
            return np.str_(content)
        if kind == "S":
            return np.bytes_(content)
        (scalar,) = np.frombuffer(content, _dtype(kind))
        return scalar


def _dtype_name(dtype: Any) -> str:
    if dtype.kind not in _ARRAY_KINDS:
        raise ValueError(f"numpy values of dtype {dtype} can't be stored. Use numbers, or .tolist()")
    return str(dtype.str)


def _dtype(name: Any) -> Any:
    import numpy as np

    if type(name) is not str:
        raise TypeError("expected the name of a dtype")
    dtype = np.dtype(name)
    if dtype.kind not in _ARRAY_KINDS:
        raise ValueError(f"dtype {name[:40]!r} is never written")
    return dtype


class PendulumMoments:
    """Store pendulum's ``DateTime``, the class that Airflow's context is full of, with its zone."""

    tag = "pendulum"

    def matches(self, value: object) -> bool:
        """Say whether a value is a pendulum datetime."""
        pendulum = sys.modules.get("pendulum")
        return pendulum is not None and type(value) is pendulum.DateTime

    def to_plain(self, value: Any) -> datetime:
        """Give the same moment as a datetime of the standard library."""
        zone = value.tzinfo
        if isinstance(zone, ZoneInfo):
            zone = ZoneInfo(zone.key)
        elif zone is not None:
            zone = timezone(value.utcoffset())
        clock = time(value.hour, value.minute, value.second, value.microsecond, fold=value.fold)
        return datetime.combine(date(value.year, value.month, value.day), clock, zone)

    def from_plain(self, plain: Any) -> Any:
        """Build the datetime in its zone."""
        import pendulum

        zone = plain.tzinfo
        if isinstance(zone, ZoneInfo):
            zone = pendulum.timezone(zone.key)
        elif zone is not None:
            offset = int(zone.utcoffset(None).total_seconds())
            zone = pendulum.FixedTimezone(offset) if offset else pendulum.UTC
        return pendulum.DateTime.combine(plain.date(), plain.time(), zone)


class PydanticModels:
    """
    Store models as their fields, by field name, and rebuild them as they were.

    A model that comes back must hold what was stored: running its validators on their own output can refuse it, or
    change it (a validator that turns an amount into cents would do so twice). So the fields are put back as they are,
    and pydantic only helps with fields whose annotation did not say how to rebuild what is inside.

    Not covered: private attributes, and which fields were left to their defaults.
    """

    def matches(self, value: object) -> bool:
        """Say whether a value is a model."""
        pydantic = sys.modules.get("pydantic")
        return pydantic is not None and isinstance(value, pydantic.BaseModel)

    def to_plain(self, value: Any) -> dict[str, Any]:
        """Give the fields, those that a dump would leave out included, and the extra ones."""
        held = value.__dict__
        fields = {name: held[name] for name in type(value).model_fields if name in held}
        return fields | (value.__pydantic_extra__ or {})

    def builds(self, cls: Any) -> bool:
        """Say whether a class is a model."""
        pydantic = sys.modules.get("pydantic")
        return pydantic is not None and isinstance(cls, type) and issubclass(cls, pydantic.BaseModel)

    def field_types(self, cls: Any) -> dict[str, Any]:
        """Give the annotations of a model's fields."""
        return {name: field.annotation for name, field in cls.model_fields.items()}

    def build(self, cls: Any, plain: Any, *, incomplete: Collection[str]) -> Any:
        """
        Build a model.

        :raises ValueError: if a field without a default is missing.
        """
        declared = cls.model_fields
        missing = [name for name, field in declared.items() if name not in plain and field.is_required()]
        if missing:
            raise ValueError(f"no value for {', '.join(missing)}")
        held = {name: value for name, value in plain.items() if name in declared}
        for name in incomplete:
            if name in held:
                held[name] = _read_by_type(declared[name].annotation, held[name])
        extra = plain.keys() - declared.keys() if cls.model_config.get("extra") == "allow" else ()
        model = cls.model_construct(**held, **{name: plain[name] for name in extra})
        # A model_post_init and an alias have had their say when the value was made; what it held then was stored.
        model.__dict__.update(held)
        return model


class PydanticUrls:
    """Store pydantic's URL classes as text."""

    def matches(self, value: object) -> bool:
        """Say whether a value is one of them."""
        return self.builds(type(value))

    def to_plain(self, value: Any) -> str:
        """Give the URL's text."""
        return str(value)

    def builds(self, cls: Any) -> bool:
        """Say whether a class is one of them, or derived from one."""
        return (
            isinstance(cls, type)
            and hasattr(cls, "unicode_string")
            and any(base.__module__.partition(".")[0] in {"pydantic", "pydantic_core"} for base in cls.__mro__)
        )

    def field_types(self, cls: Any) -> dict[str, Any]:
        """Say that there are no fields."""
        return {}

    def build(self, cls: Any, plain: Any, *, incomplete: Collection[str]) -> Any:
        """
        Build the URL.

        :raises ValueError: if the text is none.
        """
        return _reader(cls).validate_python(plain)


def _read_by_type(annotation: Any, value: Any) -> Any:
    """Rebuild what only pydantic knows how to, by a field's type alone: no validator of the author runs."""
    try:
        return _reader(annotation).validate_python(value, by_alias=True, by_name=True)
    except Exception:
        # The field is of a type that names no class, or the class has changed: it stays data.
        return value


@lru_cache(maxsize=_CACHED_TYPES)
def _reader(annotation: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(annotation)
