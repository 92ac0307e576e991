"""Pages that neither skip nor repeat, and cursors that fit only the query they came from."""

import base64
import json
import string
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foundry_mcp.core.errors import ValidationError
from foundry_mcp.core.pagination import (
    DEFAULT_PAGE_SIZE,
    MAX_PAGE_SIZE,
    decode_cursor,
    encode_cursor,
    paginate,
    query_hash,
)
from foundry_mcp.core.responses import success_response

shows = pytest.mark.requirement
calm = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

QUERY = query_hash("task.query", spec_id="my-feature", order="id")
KEYS = st.one_of(
    st.integers(-(2**53), 2**53),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.tuples(st.integers(0, 9), st.text("ab", max_size=3)),
)


def the_key(row: Any) -> Any:
    return row


def refusal(cursor: Any, query: str = QUERY) -> ValidationError:
    with pytest.raises(ValidationError) as caught:
        decode_cursor(cursor, query)
    assert caught.value.code == "INVALID_CURSOR"
    assert caught.value.details["field"] == "cursor"
    return caught.value


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def forged(text: str | bytes) -> str:
    return base64.b64encode(text.encode() if isinstance(text, str) else text).decode()


# Walking


@shows("003.loop.pagination", "003.best-practice.pagination", "001.python.next-page")
def test_the_loop_of_the_documents_reads_every_row_once():
    def query_tasks(cursor):
        tasks, pagination = paginate(range(150), key=the_key, query=QUERY, cursor=cursor, limit=20)
        return {
            "data": {"tasks": list(tasks)},
            "meta": success_response(pagination=pagination).meta,
        }

    all_tasks = []
    cursor = None
    while True:
        response = query_tasks(cursor)
        all_tasks.extend(response["data"]["tasks"])
        if not response["meta"]["pagination"]["has_more"]:
            break
        cursor = response["meta"]["pagination"]["cursor"]

    assert all_tasks == list(range(150))


@pytest.mark.parametrize(
    ("field", "first", "last"),
    [
        pytest.param(
            "cursor", str, None, marks=shows("001.pagination-field.cursor", "003.pagination-field.cursor")
        ),
        pytest.param(
            "has_more",
            True,
            False,
            marks=shows("001.pagination-field.has_more", "003.pagination-field.has_more"),
        ),
        pytest.param(
            "total_count",
            3,
            3,
            marks=shows("001.pagination-field.total_count", "003.pagination-field.total_count"),
        ),
        pytest.param(
            "page_size", 2, 2, marks=shows("001.pagination-field.page_size", "003.pagination-field.page_size")
        ),
    ],
)
def test_each_page_says_where_it_stands(field, first, last):
    page = paginate("abc", key=the_key, query=QUERY, limit=2).pagination
    end = paginate("abc", key=the_key, query=QUERY, limit=2, cursor=page["cursor"]).pagination

    assert isinstance(page[field], str) if first is str else page[field] == first
    assert end.get(field) == last


@pytest.mark.parametrize(("count", "limit", "pages"), [(0, 5, 1), (5, 5, 1), (6, 5, 2), (1, 1, 1), (3, 1, 3)])
def test_no_page_is_empty_except_the_only_one(count, limit, pages):
    seen, cursor = [], None
    while True:
        rows, pagination = paginate(range(count), key=the_key, query=QUERY, cursor=cursor, limit=limit)
        seen.append(list(rows))
        if not pagination["has_more"]:
            break
        cursor = pagination["cursor"]
    assert len(seen) == pages
    assert [row for rows in seen for row in rows] == list(range(count))


def test_a_page_holds_fifty_rows_unless_asked_and_five_hundred_at_most():
    assert (DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE) == (50, 500)
    assert len(paginate(range(1000), key=the_key, query=QUERY).rows) == 50


@calm
@given(st.data())
def test_rows_that_stay_are_read_once_while_others_come_and_go(data):
    kind = data.draw(
        st.sampled_from(
            [
                st.integers(-50, 50),
                st.text("abc", max_size=3),
                st.tuples(st.integers(0, 3), st.text("ab", max_size=2)),
            ]
        )
    )
    stay = data.draw(st.sets(kind, max_size=12))
    read: list[Any] = []
    cursor = None
    while True:
        passing = data.draw(st.sets(kind, max_size=6)) - stay
        rows = sorted(stay | passing)
        page, pagination = paginate(
            rows, key=the_key, query=QUERY, cursor=cursor, limit=data.draw(st.integers(1, 4))
        )
        assert list(page) == sorted(page)
        read.extend(page)
        if not pagination["has_more"]:
            break
        cursor = pagination["cursor"]

    assert len(read) == len(set(read))
    assert [row for row in read if row in stay] == sorted(stay)


def test_the_page_size_may_change_from_page_to_page():
    first = paginate(range(10), key=the_key, query=QUERY, limit=3)
    second = paginate(range(10), key=the_key, query=QUERY, limit=5, cursor=first.pagination["cursor"])
    assert list(second.rows) == [3, 4, 5, 6, 7]


# The cursor


@calm
@given(KEYS)
def test_a_cursor_comes_back_as_the_place_it_was_made_of(place):
    back = decode_cursor(encode_cursor(QUERY, after=place), QUERY)
    assert back == {"after": list(place) if isinstance(place, tuple) else place}


@shows("004.cursor.structure")
def test_the_knowledge_cursor_decodes_to_query_hash_offset_and_response_mode():
    cursor = encode_cursor(QUERY, offset=10, response_mode="metadata")
    decoded = json.loads(base64.b64decode(cursor))

    assert decoded["query_hash"] == QUERY
    assert decoded["offset"] == 10
    assert decoded["response_mode"] == "metadata"
    assert decode_cursor(cursor, QUERY) == {"offset": 10, "response_mode": "metadata"}


def test_the_hash_of_a_query_depends_on_all_of_it_but_not_on_the_order_of_naming():
    assert query_hash("task.query", a=1, b=[2]) == query_hash("task.query", b=[2], a=1)
    others = [
        query_hash("task.query"),
        query_hash("task.query", a=1),
        query_hash("task.query", a="1"),
        query_hash("task.query", a=2),
        query_hash("task.query", b=1),
        query_hash("spec.list", a=1),
        query_hash("task.query", a=1, status=None),
    ]
    assert len(set(others)) == len(others)


@pytest.mark.parametrize(
    "query",
    [
        query_hash("task.query", spec_id="my-feature", order="title"),
        query_hash("task.query", spec_id="other", order="id"),
        query_hash("spec.list", spec_id="my-feature", order="id"),
        query_hash("task.query", spec_id="my-feature", order="id", generation=2),
    ],
    ids=["another order", "another filter", "another operation", "an older state"],
)
def test_a_cursor_of_another_query_is_refused_and_never_page_one(query):
    cursor = encode_cursor(QUERY, after=3)
    assert "another query" in refusal(cursor, query).message
    with pytest.raises(ValidationError):
        paginate(range(9), key=the_key, query=query, cursor=cursor)


ALPHABET = string.ascii_letters + string.digits + "+/-_=!# é\x00"
SAMPLES = [
    encode_cursor(QUERY, after="task-1-1"),
    encode_cursor(QUERY, after="task-1-10"),
    encode_cursor(QUERY, after="task-1-100"),
    encode_cursor(QUERY, after=[3, "title"]),
    encode_cursor(QUERY, offset=10, response_mode="metadata"),
]


def altered(cursor: str) -> Iterator[str]:
    """The cursor with each of its characters replaced, and with something put in before each of them."""
    body = cursor.rstrip("=")
    for place, letter in enumerate(body):
        for other in ALPHABET:
            if other != letter and {letter, other} not in ({"+", "-"}, {"/", "_"}):
                yield body[:place] + other + body[place + 1 :]
        for extra in ("A", "AAAA", "!", "!!!!", "====", "\n", " "):
            yield body[:place] + extra + body[place:]


def accepted(cursors: Iterable[str]) -> dict[str, Any]:
    found = {}
    for cursor in cursors:
        try:
            found[cursor] = decode_cursor(cursor, QUERY)
        except ValidationError as error:
            assert error.code == "INVALID_CURSOR"  # noqa: PT017 - any other failure of thousands is a bug
    return found


@pytest.mark.parametrize("cursor", SAMPLES)
def test_an_altered_cursor_never_leads_elsewhere(cursor):
    assert all(place == decode_cursor(cursor, QUERY) for place in accepted(altered(cursor)).values())


@pytest.mark.parametrize("cursor", SAMPLES)
def test_an_altered_cursor_is_refused(cursor):
    assert accepted(altered(cursor)) == {}


@pytest.mark.parametrize("cursor", SAMPLES)
def test_a_cursor_cut_off_anywhere_is_refused(cursor):
    for length in range(len(cursor.rstrip("="))):
        refusal(cursor[:length])


@calm
@given(st.text() | st.binary().map(lambda raw: base64.b64encode(raw).decode()))
def test_text_that_is_no_cursor_is_refused(text):
    refusal(text)


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "page2",
        "eyJvZmZzZXQiOjUwfQ==",
        forged("[]"),
        forged("null"),
        forged('"text"'),
        forged("{}"),
        forged('{"query_hash": 5, "check": "00000000"}'),
        forged('{"query_hash": ["a"], "check": null}'),
        forged(json.dumps({"query_hash": QUERY, "after": 3})),
        forged(json.dumps({"query_hash": QUERY, "after": 3, "check": 0})),
        forged(json.dumps({"query_hash": QUERY, "after": 3, "check": "00000000"})),
        forged(b"\xff\xfe{}"),
        "é" * 20,
        "\ud800",
        "A" * 4097,
        "A" * 5_000_000,
        forged("[" * 1500),
        forged('{"a":' * 600),
        forged('{"after":' + "[" * 1000 + "]" * 1000 + "}"),
        None,
        5,
        b"eyJ9",
        ["a"],
    ],
    ids=lambda value: f"{str(value)[:24]!r}" if isinstance(value, str) else type(value).__name__,
)
def test_a_foreign_cursor_is_refused_and_shown_shortened(cursor):
    failure = refusal(cursor)
    assert len(str(failure.details["received"])) < 120
    assert failure.remediation.startswith("Start again without a cursor")


def test_a_cursor_of_a_place_too_long_to_come_back_is_refused():
    refusal(encode_cursor(QUERY, after="x" * 5000))


@pytest.mark.parametrize("place", ["task-3", None, True, {"id": 3}, [3], [[3]], nested(100)])
def test_a_key_of_another_kind_is_refused(place):
    rows = [("a", 1), ("b", 2)] if place is True else ["b", "c"] if place != "task-3" else [1, 2]
    with pytest.raises(ValidationError) as caught:
        paginate(rows, key=the_key, query=QUERY, cursor=encode_cursor(QUERY, after=place))
    assert caught.value.code == "INVALID_CURSOR"
    assert "does not fit this order" in caught.value.message


def test_a_cursor_that_holds_no_place_is_refused():
    with pytest.raises(ValidationError, match="holds no place"):
        paginate([1], key=the_key, query=QUERY, cursor=encode_cursor(QUERY, offset=10))


def test_a_deeply_nested_place_is_refused():
    with pytest.raises(ValidationError) as caught:
        paginate([[1]], key=the_key, query=QUERY, cursor=encode_cursor(QUERY, after=nested(600)))
    assert caught.value.code == "INVALID_CURSOR"
