"""numpy, pydantic and pendulum values are stored and come back as they were."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Generic, Literal, Self, TypeVar

import numpy as np
import pendulum
import pytest
from pydantic import (
    AnyUrl,
    BaseModel,
    ConfigDict,
    Field,
    HttpUrl,
    PrivateAttr,
    RootModel,
    SecretStr,
    computed_field,
    create_model,
    field_validator,
    model_validator,
)
from pydantic.dataclasses import dataclass as pydantic_dataclass

from airflow_aiflow.durable.payload import Adapters, decode, encode, unrestored
from airflow_aiflow.exceptions import PayloadDecodeError, PayloadEncodeError
from airflow_aiflow.runtime.payload_types import register

ADAPTERS = Adapters()
register(ADAPTERS)
T = TypeVar("T")


def there_and_back(value: Any, as_type: Any = None) -> Any:
    """Store and read a value."""
    encoded = encode(value, adapters=ADAPTERS)
    back = decode(encoded.data, as_type=as_type, adapters=ADAPTERS)
    if as_type is not None:
        assert unrestored(encoded, back, adapters=ADAPTERS) == ()
    return back


def test_registering_costs_no_import_and_may_be_repeated() -> None:
    code = (
        "import sys; from airflow_aiflow.runtime.payload_types import register; from airflow_aiflow.durable.payload "
        "import encode, PayloadEncodeError\n"
        "register(); register()\n"
        "try: encode(object())\n"
        "except PayloadEncodeError: pass\n"
        "assert not {'numpy', 'pydantic', 'pendulum'} & set(sys.modules), 'imported'"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# --- numpy ------------------------------------------------------------------------------------------------------------

ARRAYS: list[Any] = [
    np.array([1.5, -0.0, np.nan, np.inf]),
    np.array([[1, 2], [3, 4]], dtype=np.int8),
    np.arange(6, dtype=">f4").reshape(2, 3),
    np.asfortranarray(np.arange(6).reshape(2, 3)),
    np.arange(10)[::-2],
    np.array(5.0),
    np.zeros((0, 3)),
    np.zeros((3, 0, 2), dtype=np.uint16),
    np.array([True, False]),
    np.array([1 + 2j], dtype=np.complex64),
    np.array(["a", "éé"]),
    np.array(["", ""]),
    np.array([b"a", b"bb"]),
    np.array(["2026-01-01"], dtype="datetime64[ns]"),
    np.array([5], dtype="timedelta64[h]"),
    np.array([1], dtype=np.float16),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}{array.shape}")
def test_arrays(array: Any) -> None:
    back = there_and_back({"a": [array]})["a"][0]
    assert type(back) is np.ndarray
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    assert back.tobytes() == array.tobytes()
    assert back.flags.writeable


SCALARS: list[Any] = [
    np.float64(0.5),
    np.float64("nan"),
    np.float32(-0.0),
    np.float16(1.5),
    np.int64(-(2**63)),
    np.uint64(2**64 - 1),
    np.bool_(True),
    np.complex128(1 - 2j),
    np.datetime64("2026-01-01T00:00:00.000000001"),
    np.datetime64("NaT", "s"),
    np.timedelta64(3, "D"),
    np.str_("a\x00"),
    np.str_(""),
    np.bytes_(b"a\x00"),
]


@pytest.mark.parametrize("scalar", SCALARS, ids=repr)
def test_scalars(scalar: Any) -> None:
    back = there_and_back({"a": [{"score": scalar}]})["a"][0]["score"]
    assert type(back) is type(scalar)
    assert back.dtype == scalar.dtype
    assert str.__str__(back) == str.__str__(scalar) if isinstance(back, str) else back.tobytes() == scalar.tobytes()
    if scalar == scalar:
        assert there_and_back({scalar: 1, (scalar,): {scalar}}) == {scalar: 1, (scalar,): {scalar}}


@pytest.mark.parametrize(
    "value",
    [
        np.array([object()]),
        np.array([1, "a"], dtype=object),
        np.array([(1, 2)], dtype=[("a", int), ("b", float)]),
        np.array([(1, 2)], dtype=[("a", int), ("b", float)])[0],
    ],
    ids=["object", "mixed", "record", "void"],
)
def test_references_are_refused(value: Any) -> None:
    with pytest.raises(PayloadEncodeError, match=r"dtype .* can't be stored") as caught:
        there_and_back({"a": [value]})
    assert caught.value.path == "a[0]"


def test_subclasses_of_arrays_are_refused() -> None:
    with pytest.raises(PayloadEncodeError, match="a MaskedArray can't be stored"):
        there_and_back(np.ma.masked_array([1, 2], mask=[True, False]))


@pytest.mark.parametrize(
    "plain",
    [
        '"O",[1],{"$bytes":"AAAAAAAAAAA="}',
        '"V8",[1],{"$bytes":"AAAAAAAAAAA="}',
        '"os.system",[1],{"$bytes":""}',
        '[["a","O"]],[1],{"$bytes":"AAAAAAAAAAA="}',
        '"<i8",[2],{"$bytes":"AAAAAAAAAAA="}',
        '"<i8",[-5],{"$bytes":"AAAAAAAAAAA="}',
        '"<i8",[1],{"$bytes":"AAA="}',
        '"<i8",[3],{"$bytes":""}',
        '"<i8",["x"],{"$bytes":""}',
        '"<i8",[1]',
        '"<i8",[1],"text"',
    ],
)
def test_damaged_arrays_are_refused(plain: str) -> None:
    with pytest.raises(PayloadDecodeError, match="'ndarray' is damaged"):
        decode(('{"$ndarray":[' + plain + "]}").encode(), adapters=ADAPTERS)


def test_damaged_scalars_are_refused() -> None:
    for plain in ('"O",{"$bytes":"AAAAAAAAAAA="}', '"<i8",{"$bytes":"AAA="}', '"<i8",{"$bytes":""}', '"U"'):
        with pytest.raises(PayloadDecodeError, match="'npscalar' is damaged"):
            decode(('{"$npscalar":[' + plain + "]}").encode(), adapters=ADAPTERS)


# --- pendulum ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "moment",
    [
        pendulum.datetime(2026, 7, 1, 12, 30, 15, 123456, tz="Europe/Berlin"),
        pendulum.datetime(2026, 7, 1, tz="UTC"),
        pendulum.naive(2026, 7, 1, 3),
        pendulum.parse("2026-01-01T00:00:00+05:30"),
        pendulum.DateTime(2026, 10, 25, 2, 30, tzinfo=pendulum.timezone("Europe/Berlin"), fold=1),
        pendulum.DateTime(2026, 10, 25, 2, 30, tzinfo=pendulum.timezone("Europe/Berlin"), fold=0),
        pendulum.DateTime(2026, 10, 25, 2, 30, tzinfo=UTC),
    ],
    ids=str,
)
def test_pendulum_moments(moment: Any) -> None:
    back = there_and_back([moment])[0]
    assert type(back) is pendulum.DateTime
    assert back == moment
    assert (back.isoformat(), back.fold) == (moment.isoformat(), moment.fold)
    if moment.timezone_name is not None:
        assert back.timezone_name == moment.timezone_name
        assert back.add(months=3) == moment.add(months=3)


def test_other_pendulum_classes_become_those_of_the_standard_library() -> None:
    assert there_and_back(pendulum.duration(days=2)) == pendulum.duration(days=2).as_timedelta()
    assert type(there_and_back(pendulum.date(2026, 1, 1))).__name__ == "date"


# --- pydantic ---------------------------------------------------------------------------------------------------------


class Risk(Enum):
    LOW = "low"


class Reason(BaseModel):
    text: str
    risk: Risk = Risk.LOW


class Assessment(BaseModel):
    """What a model answers."""

    model_config = ConfigDict(validate_assignment=True)

    risk: int = Field(alias="riskScore", ge=0)
    reasons: list[Reason] = []
    by_name: dict[str, Reason] = {}
    best: Reason | None = None
    pair: tuple[Reason, int] | None = None
    price: Decimal = Decimal("1.10")
    at: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    url: HttpUrl | None = None
    hidden: str = Field("secret sauce", exclude=True)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def doubled(self) -> int:
        return self.risk * 2


def assessment(**more: Any) -> Assessment:
    """Make one of each."""
    reason = Reason(text="a\x00b")
    return Assessment(
        riskScore=3,
        reasons=[reason, Reason(text="b")],
        by_name={"x": reason},
        best=reason,
        pair=(reason, 1),
        url=HttpUrl("https://example.com/a?b=c"),
        **more,
    )


def test_a_model_comes_back_where_it_is_named() -> None:
    value = assessment(hidden="kept")
    back = there_and_back(value, Assessment)
    assert type(back) is Assessment
    assert back == value
    assert back.hidden == "kept"
    assert back.doubled == 6
    assert type(back.reasons[0].risk) is Risk
    assert type(back.url) is HttpUrl
    assert there_and_back([value], list[Assessment]) == [value]
    assert there_and_back({"k": value}, dict[str, Assessment | None]) == {"k": value}
    assert there_and_back((value, 1), tuple[Assessment, int]) == (value, 1)


def test_a_model_is_data_where_nothing_names_it() -> None:
    encoded = encode({"a": [assessment()]}, adapters=ADAPTERS)
    plain = decode(encoded.data, adapters=ADAPTERS)["a"][0]
    assert plain["risk"] == 3
    assert plain["reasons"][0] == {"text": "a\x00b", "risk": "low"}
    assert plain["url"] == "https://example.com/a?b=c"
    assert "doubled" not in plain
    assert {entry.type_name.rpartition(".")[2]: entry.path for entry in encoded.flattened} == {
        "Assessment": "a[0]",
        "Reason": "a[0].reasons[0]",
        "Risk": "a[0].reasons[0].risk",
        "HttpUrl": "a[0].url",
    }


class Cents(BaseModel):
    amount: int
    label: str = ""
    _memo: dict[str, int] = PrivateAttr(default_factory=dict)

    @field_validator("amount")
    @classmethod
    def to_cents(cls, value: int) -> int:
        return value * 100

    @model_validator(mode="after")
    def name_it(self) -> Self:
        self.label += "!"
        return self

    def model_post_init(self, context: Any) -> None:
        self.label += "?"


class Small(BaseModel):
    inside: Any
    amount: int

    @field_validator("amount")
    @classmethod
    def grow(cls, value: int) -> int:
        if value > 10:
            raise ValueError("too much")
        return value * 10


class Parsed(BaseModel):
    names: list[str]

    @field_validator("names", mode="before")
    @classmethod
    def split(cls, value: str) -> list[str]:
        return value.split(",")


def test_validators_never_run_on_their_own_output() -> None:
    value = Cents(amount=12)
    for _ in range(3):
        value = there_and_back(value, Cents)
    assert (value.amount, value.label) == (1200, "?!")
    assert value._memo == {}
    small = Small(inside=Reason(text="x"), amount=5)
    back = decode(encode(small, adapters=ADAPTERS).data, as_type=Small, adapters=ADAPTERS)
    assert (back.amount, back.inside) == (50, {"text": "x", "risk": "low"})
    assert there_and_back([Parsed(names="a,b")], list[Parsed])[0].names == ["a", "b"]


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    name: str


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    name: str
    age: int = 1


class Puppy(Dog):
    toy: str = "ball"


class Ring(BaseModel):
    deep: Mapping[Risk, Sequence[Annotated[Reason, "x"]]] = {}
    counted: defaultdict[str, list[Reason]] = defaultdict(list)


class Home(BaseModel):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]
    others: list[Dog | Puppy] = []
    anything: Any = None


def test_unions_give_the_class_that_was_stored() -> None:
    home = Home(pet=Dog(name="a"), others=[Puppy(name="b"), Dog(name="c")])
    back = there_and_back(home, Home)
    assert back == home
    assert [type(pet) for pet in back.others] == [Puppy, Dog]
    for pet in (Dog(name="a"), Puppy(name="b")):
        for union in (Dog | Puppy, Puppy | Dog):
            assert type(there_and_back(pet, union)) is type(pet)


def test_containers_by_their_abstract_names() -> None:
    reason = Reason(text="a")
    ring = Ring(deep={Risk.LOW: [reason]}, counted=defaultdict(list, a=[reason]))
    back = there_and_back(ring, Ring)
    assert back.deep == {Risk.LOW: [reason]}
    assert back.counted == {"a": [reason]}
    assert type(back.counted) is defaultdict


def test_a_model_under_any_becomes_data_and_is_reported() -> None:
    encoded = encode(Home(pet=Cat(name="a"), anything=Dog(name="x")), adapters=ADAPTERS)
    back = decode(encoded.data, as_type=Home, adapters=ADAPTERS)
    assert type(back.pet) is Cat
    assert back.anything == {"kind": "dog", "name": "x", "age": 1}
    assert [entry.path for entry in unrestored(encoded, back, adapters=ADAPTERS)] == ["anything"]


class Page(BaseModel, Generic[T]):
    items: list[T]


class Names(RootModel[list[Reason]]):
    pass


class Open(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)

    a: int


@pydantic_dataclass
class Point:
    x: int
    reason: Reason


class Base(BaseModel):
    pass


def test_other_kinds_of_models() -> None:
    page = Page[Reason](items=[Reason(text="a")])
    assert there_and_back(page, Page[Reason]) == page
    names = Names([Reason(text="a")])
    assert there_and_back(names, Names) == names
    extra = Open(a=1, b=Reason(text="x"))
    back = decode(encode(extra, adapters=ADAPTERS).data, as_type=Open, adapters=ADAPTERS)
    assert (back.a, back.b) == (1, {"text": "x", "risk": "low"})
    point = Point(1, Reason(text="a"))
    assert there_and_back(point, Point) == point
    made = create_model("Made", x=(int, ...), reason=(Reason, ...))
    assert there_and_back(made(x=1, reason=Reason(text="a")), made) == made(x=1, reason=Reason(text="a"))
    assert there_and_back(Base(), Base) == Base()
    assert there_and_back(AnyUrl("ftp://a/b"), AnyUrl) == AnyUrl("ftp://a/b")


def test_secrets_are_refused() -> None:
    class Login(BaseModel):
        password: SecretStr

    with pytest.raises(PayloadEncodeError, match="a SecretStr can't be stored") as caught:
        there_and_back({"login": Login(password=SecretStr("hush"))})
    assert caught.value.path == "login.password"
    assert "hush" not in str(caught.value)


# --- a library or class that changed between two tries ----------------------------------------------------------------

OLD = encode([assessment()], adapters=ADAPTERS).data


def today(**fields: Any) -> Any:
    """Make today's form of ``Assessment``."""
    cls = create_model("Assessment", __module__=__name__, **fields)
    return list[cls]


def test_old_rows_load_after_the_class_has_changed() -> None:
    grown = decode(OLD, as_type=today(risk=(int, ...), added=(str, "new")), adapters=ADAPTERS)[0]
    assert (grown.risk, grown.added) == (3, "new")
    assert not hasattr(grown, "reasons")
    strict = create_model("Assessment", __config__=ConfigDict(extra="forbid"), __module__=__name__, risk=(int, ...))
    assert decode(OLD, as_type=list[strict], adapters=ADAPTERS)[0].risk == 3
    retyped = decode(OLD, as_type=today(risk=(str, ...)), adapters=ADAPTERS)[0]
    assert retyped.risk == 3
    renamed = OLD.replace(b".Assessment", b".Verdict").replace(b".Reason", b".Cause")
    assert decode(renamed, as_type=list[Assessment], adapters=ADAPTERS) == [assessment()]


def test_a_new_field_without_a_default_is_named() -> None:
    with pytest.raises(PayloadDecodeError, match=r"^\[0\]: .*Assessment does not fit Assessment: .*no value for added"):
        decode(OLD, as_type=today(risk=(int, ...), added=(str, ...)), adapters=ADAPTERS)


def test_old_rows_load_as_data_without_the_library() -> None:
    code = (
        "import sys\n"
        "from airflow_aiflow.durable.payload import decode\n"
        "from airflow_aiflow.runtime.payload_types import register\n"
        "register()\n"
        "assert decode(sys.stdin.buffer.read())[0]['risk'] == 3\n"
        "assert 'pydantic' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], input=OLD, check=True, timeout=60)
