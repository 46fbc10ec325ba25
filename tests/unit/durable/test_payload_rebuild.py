"""Classes come back where the calling code names them, hold what was stored, and survive a change of the class."""

from __future__ import annotations

import functools
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, make_dataclass
from datetime import UTC, datetime
from enum import Enum, IntEnum, IntFlag, StrEnum
from typing import Annotated, Any, Final, Generic, Literal, NamedTuple, NewType, NotRequired, TypedDict, TypeVar

import pytest

from airflow_aiflow.durable.payload import Flattened, decode, encode, return_type, unrestored
from airflow_aiflow.exceptions import PayloadDecodeError, PayloadEncodeError
from tests.unit.durable.sameness import same

T = TypeVar("T")


class Colour(Enum):
    RED = "red"
    PAIR = (1, 2)


class Level(IntEnum):
    LOW = 1


class Word(StrEnum):
    YES = "yes"


class Rights(IntFlag):
    READ = 1
    WRITE = 2


class Place(NamedTuple):
    x: int
    colour: Colour


@dataclass
class Line:
    text: str
    colour: Colour = Colour.RED


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    number: int
    lines: list[Line]
    at: datetime | None = None
    best: Line | None = None


@dataclass
class Node:
    name: str
    children: list[Node] = field(default_factory=list)


@dataclass
class Box(Generic[T]):
    inside: T


class Row(TypedDict):
    line: Line
    more: NotRequired[list[Colour]]


Amount = NewType("Amount", int)
PAGE = Page(
    number=1,
    lines=[Line("a"), Line("b", Colour.PAIR)],
    at=datetime(2026, 1, 1, tzinfo=UTC),
    best=Line("b"),
)

CASES: list[tuple[Any, Any, Any]] = [
    (Colour.RED, Colour, "red"),
    (Colour.PAIR, Colour, (1, 2)),
    (Level.LOW, Level, 1),
    (Word.YES, Word, "yes"),
    (Rights.READ | Rights.WRITE, Rights, 3),
    (Place(1, Colour.RED), Place, (1, "red")),
    (Line("a"), Line, {"text": "a", "colour": "red"}),
    (Line("a"), Line | None, {"text": "a", "colour": "red"}),
    (None, Line | None, None),
    (
        PAGE,
        Page,
        {
            "number": 1,
            "lines": [{"text": "a", "colour": "red"}, {"text": "b", "colour": (1, 2)}],
            "at": datetime(2026, 1, 1, tzinfo=UTC),
            "best": {"text": "b", "colour": "red"},
        },
    ),
    ([Line("a")], list[Line], [{"text": "a", "colour": "red"}]),
    ([Line("a")], Sequence[Line], [{"text": "a", "colour": "red"}]),
    ({"k": Line("a")}, dict[str, Line], {"k": {"text": "a", "colour": "red"}}),
    ({"k": [Line("a")]}, Mapping[str, Sequence[Line]], {"k": [{"text": "a", "colour": "red"}]}),
    ({Colour.RED: 1}, dict[Colour, int], {"red": 1}),
    ({Level.LOW: 1}, dict[Level, int], {1: 1}),
    ({Word.YES: 1}, dict[Word, int], {"yes": 1}),
    ({(Colour.RED, 1): 1}, dict[tuple[Colour, int], int], {("red", 1): 1}),
    ({Colour.RED, Colour.PAIR}, set[Colour], {"red", (1, 2)}),
    (frozenset({Place(1, Colour.RED)}), frozenset[Place], frozenset({(1, "red")})),
    ((Line("a"), 1), tuple[Line, int], ({"text": "a", "colour": "red"}, 1)),
    ((Colour.RED, Colour.RED), tuple[Colour, ...], ("red", "red")),
    ([[Colour.RED]], list[list[Colour]], [["red"]]),
    ({"line": Line("a"), "more": [Colour.RED]}, Row, {"line": {"text": "a", "colour": "red"}, "more": ["red"]}),
    (Colour.RED, Annotated[Colour, "meta"], "red"),
    (Colour.RED, Literal[Colour.RED], "red"),
    ([Colour.RED], Annotated[list[Annotated[Colour, "x"]], "meta"], ["red"]),
    (Node("a", [Node("b", [Node("c")])]), Node, None),
    (Box([Line("a")]), Box[list[Line]], {"inside": [{"text": "a", "colour": "red"}]}),
    (OrderedDict(b=Line("a")), OrderedDict[str, Line], {"b": {"text": "a", "colour": "red"}}),
    (deque([Colour.RED]), deque[Colour], ["red"]),
    (5, Amount, 5),
    (
        [Line("a"), Colour.RED, 1, None],
        list[Line | Colour | int | None],
        [{"text": "a", "colour": "red"}, "red", 1, None],
    ),
]


@pytest.mark.parametrize(("value", "as_type", "plain"), CASES, ids=lambda one: None)
def test_rebuilt_by_the_class_that_is_named_and_data_without(value: Any, as_type: Any, plain: Any) -> None:
    encoded = encode(value)
    back = decode(encoded.data, as_type=as_type)
    assert back == value
    assert type(back) is type(value)
    assert encode(back).data == encoded.data
    assert unrestored(encoded, back) == ()
    if plain is not None:
        assert same(decode(encoded.data), plain)


def test_the_caller_learns_which_class_became_data() -> None:
    encoded = encode({"a": [{"page": PAGE}, PAGE]})
    names = {entry.type_name.rpartition(".")[2]: entry.path for entry in encoded.flattened}
    assert names == {"Page": "a[0].page", "Line": "a[0].page.lines[0]", "Colour": "a[0].page.lines[0].colour"}
    assert unrestored(encoded, decode(encoded.data)) == encoded.flattened
    back = decode(encoded.data, as_type=dict[str, list[Any]])
    assert unrestored(encoded, back) == encoded.flattened
    assert str(Flattened("m.Page", "a[0]")) == "m.Page (at a[0])"
    assert str(Flattened("m.Page", "")) == "m.Page"


def test_what_was_plain_stays_plain_whatever_the_annotation_says() -> None:
    for value, as_type in [
        ({"text": "a"}, Line),
        ({"text": "a", "colour": "red"}, Line),
        ("red", Colour),
        ([{"text": "a"}], list[Line]),
        ([1], dict[str, Line]),
        ("x", list[Line]),
        ({"a": 1}, list[Line]),
    ]:
        assert decode(encode(value).data, as_type=as_type) == value
        mixed = [value, Colour.RED]
        assert decode(encode(mixed).data, as_type=list[as_type])[0] == value  # type: ignore[valid-type]


@dataclass
class Small:
    text: str


@dataclass
class Big:
    text: str
    more: int = 0


@pytest.mark.parametrize("as_type", [Small | Big, Big | Small, list[Small] | list[Big], list[Big] | list[Small]])
@pytest.mark.parametrize("value", [Small("a"), Big("a"), Big("a", 1)])
def test_a_union_gives_the_class_that_was_stored(value: Any, as_type: Any) -> None:
    wanted: Any = [value] if "list" in str(as_type) else value
    back = decode(encode(wanted).data, as_type=as_type)
    assert back == wanted
    assert type(back[0] if isinstance(back, list) else back) is type(value)


def test_a_union_finds_a_renamed_class_by_its_fields() -> None:
    data = encode(Big("a", 1)).data.replace(b".Big", b".FormerName")
    assert decode(data, as_type=Small | Big) == Big("a", 1)
    assert decode(data, as_type=Big) == Big("a", 1)
    assert decode(data, as_type=int | str) == {"text": "a", "more": 1}
    assert decode(data, as_type=dict[str, Any] | None) == {"text": "a", "more": 1}


def test_an_annotation_that_is_not_true_gives_data() -> None:
    encoded = encode([Colour.RED, Line("a"), Place(1, Colour.RED)])
    for wrong in (Line, Place, Colour, Node):
        back = decode(encoded.data, as_type=list[wrong])  # type: ignore[valid-type]
        assert len(back) == 3
    back = decode(encoded.data, as_type=list[Node])
    assert same(back, ["red", {"text": "a", "colour": "red"}, (1, "red")])
    assert unrestored(encoded, back) == encoded.flattened


def test_a_subclass_that_nobody_names_is_reported() -> None:
    @dataclass
    class Bigger(Small):
        size: int = 1

    encoded = encode([Small("a"), Bigger("b", 2)])
    back = decode(encoded.data, as_type=list[Small])
    assert back == [Small("a"), Small("b")]
    assert [entry.path for entry in unrestored(encoded, back)] == ["[1]"]


# --- a class that changed between two tries ---------------------------------------------------------------------------


def changed(**fields: Any) -> type:
    """Make today's form of ``Line``."""
    cls = make_dataclass("Line", [(name, *rest) for name, rest in fields.items()])
    cls.__module__ = __name__
    return cls


def test_a_new_field_takes_its_default() -> None:
    cls = changed(text=(str,), colour=(Colour,), size=(int, field(default=7)), tags=(list, field(default_factory=list)))
    back = decode(encode(Line("a")).data, as_type=cls)
    assert (back.text, back.colour, back.size, back.tags) == ("a", Colour.RED, 7, [])


def test_a_field_that_is_gone_is_left_out() -> None:
    assert decode(encode(Line("a")).data, as_type=changed(text=(str,))).text == "a"


def test_a_new_field_without_a_default_is_named() -> None:
    cls = changed(text=(str,), size=(int,))
    with pytest.raises(
        PayloadDecodeError, match=r"^a\[0\]: .*Line does not fit Line: ValueError: no value for size"
    ) as caught:
        decode(encode({"a": [Line("a")]}).data, as_type=dict[str, list[cls]])  # type: ignore[valid-type]
    assert "version=" in str(caught.value)


def test_an_enum_member_that_is_gone_is_named() -> None:
    class Today(Enum):
        GREEN = "green"

    Today.__qualname__ = "Colour"
    with pytest.raises(PayloadDecodeError, match="'red' is not a valid Colour"):
        decode(encode(Colour.RED).data, as_type=Today)


def test_a_named_tuple_that_grew_or_shrank_is_named() -> None:
    class Longer(NamedTuple):
        x: int
        colour: Colour
        y: int

    Longer.__qualname__ = "Place"
    with pytest.raises(PayloadDecodeError, match="Place does not fit"):
        decode(encode(Place(1, Colour.RED)).data, as_type=Longer)


# --- what is stored wins over what a constructor makes of it ----------------------------------------------------------


@dataclass
class Cents:
    amount: int
    label: str = field(init=False, default="")

    def __post_init__(self) -> None:
        self.amount *= 100
        self.label = f"{self.amount} cents"


@dataclass
class Checked:
    amount: int
    scale: InitVar[int]

    def __post_init__(self, scale: int) -> None:
        self.amount *= scale


@dataclass(frozen=True)
class Strict:
    amount: Any

    def __post_init__(self) -> None:
        if not isinstance(self.amount, str):
            raise TypeError("give text")
        object.__setattr__(self, "amount", int(self.amount))


def test_a_constructor_never_changes_what_was_stored() -> None:
    cents = Cents(12)
    cents.label = "twelve"
    assert decode(encode(cents).data, as_type=Cents) == cents
    assert decode(encode(Checked(2, 3)).data, as_type=Checked).amount == 6
    assert decode(encode(Strict("5")).data, as_type=Strict) == Strict("5")


def test_a_field_that_was_never_set_is_left_out() -> None:
    @dataclass
    class Late:
        a: int
        b: int = field(init=False)

    back = decode(encode(Late(1)).data, as_type=Late)
    assert back.a == 1
    assert not hasattr(back, "b")


# --- refusals ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Frozen:
    a: int


def test_what_comes_back_as_a_dict_can_be_no_key() -> None:
    for value in ({Frozen(1)}, {Frozen(1): 2}, frozenset({(1, Frozen(1))})):
        with pytest.raises(PayloadEncodeError, match="key or set element of class"):
            encode({"a": value})


def test_keys_that_would_become_one_are_refused() -> None:
    for value in ({Colour.RED, "red"}, {Colour.RED: 1, "red": 2}, {(Colour.RED, 1), ("red", 1)}):
        with pytest.raises(PayloadEncodeError, match="become one") as caught:
            encode({"a": value})
        assert caught.value.path == "a"


def test_path_leads_through_classes() -> None:
    with pytest.raises(PayloadEncodeError) as caught:
        encode({"a": [Box(Line("\ud800"))]})
    assert caught.value.path == "a[0].inside.text"


# --- shapes and annotations -------------------------------------------------------------------------------------------


def test_a_shape_names_a_class_for_each_part() -> None:
    data = encode(
        {"function": "m.f", "args": [1, Line("a"), Line("b")], "kwargs": {"c": Colour.RED, "d": Colour.RED}}
    ).data
    back = decode(data, as_type={"args": [int, Line], "kwargs": {"c": Colour}})
    assert back == {
        "function": "m.f",
        "args": [1, Line("a"), {"text": "b", "colour": "red"}],
        "kwargs": {"c": Colour.RED, "d": "red"},
    }
    assert decode(data, as_type=[Line])["args"][0] == 1


def gives_page(path: str) -> Page:
    raise NotImplementedError


async def gives_lines() -> list[Line]:
    raise NotImplementedError


def says_nothing(path):  # type: ignore[no-untyped-def]
    raise NotImplementedError


def says_what_is_not_there() -> Nowhere:  # type: ignore[name-defined]  # noqa: F821
    raise NotImplementedError


class Service:
    LIMIT: Final = 1

    def page(self) -> Page:
        raise NotImplementedError

    def __call__(self) -> Line:
        raise NotImplementedError


def wrapped(fn: Callable[..., T]) -> Callable[..., T]:
    @functools.wraps(fn)
    def call(*args: Any) -> T:
        return fn(*args)

    return call


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (gives_page, Page),
        (gives_lines, list[Line]),
        (functools.partial(functools.partial(gives_page), "x"), Page),
        (wrapped(gives_page), Page),
        (Service().page, Page),
        (Service(), Line),
        (Line, Line),
        (says_nothing, None),
        (says_what_is_not_there, None),
        (lambda: 1, None),
        (len, None),
        (functools.lru_cache(gives_page), Page),
    ],
    ids=lambda one: None,
)
def test_return_type(fn: Any, expected: Any) -> None:
    assert return_type(fn) == expected
