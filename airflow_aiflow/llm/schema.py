"""
Describe an output type by what the model is told of it, so that a changed type is another call.

Names count without their module: Airflow gives a DAG file's module a name that depends on where the file lies, and a
new version of a bundle must not make recorded answers void.
"""

from __future__ import annotations

from functools import lru_cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from airflow_aiflow.exceptions import FlowOptionError


def output_schema(output_type: Any) -> tuple[str, Any]:
    """
    Give an output type's name and its JSON schema.

    :param output_type: ``str``, a model, dataclass or Enum, ``list[Model]``, a union ...
    :raises FlowOptionError: if no schema can be made of it.
    """
    if output_type is str:
        return ("str", None)
    try:
        return _cached(output_type)
    except TypeError:  # not hashable, such as Annotated[int, some_list]
        return _described(output_type)


@lru_cache(maxsize=64)
def _cached(output_type: Any) -> tuple[str, Any]:
    return _described(output_type)


def _described(output_type: Any) -> tuple[str, Any]:
    from pydantic import PydanticUserError, TypeAdapter
    from pydantic.errors import PydanticSchemaGenerationError

    if not (isinstance(output_type, type | UnionType) or get_origin(output_type) is not None):
        raise FlowOptionError(
            f"output_type must be a type, such as str, a pydantic model, a dataclass, an Enum or list[...], "
            f"got {output_type!r}"
        )
    try:
        return (type_name(output_type), TypeAdapter(output_type).json_schema())
    except (PydanticUserError, PydanticSchemaGenerationError) as error:
        raise FlowOptionError(
            f"output_type {type_name(output_type)} has no JSON schema that a model could be told: {error}"
        ) from error


def type_name(output_type: Any) -> str:
    """
    Name a type without modules.

    :param output_type: a class, a generic or a union.
    """
    origin, args = get_origin(output_type), get_args(output_type)
    if origin is None:
        return str(getattr(output_type, "__qualname__", None) or repr(output_type))
    if origin is Annotated:  # what is annotated stands in the schema; its repr may hold an address
        return type_name(args[0])
    if origin in (Union, UnionType):
        return " | ".join(type_name(arg) for arg in args)
    return f"{type_name(origin)}[{', '.join(type_name(arg) for arg in args)}]"
