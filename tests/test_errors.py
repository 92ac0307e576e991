"""The exception tree, its constructors, and how what was received is sent back."""

import json
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foundry_mcp.core import errors
from foundry_mcp.core.errors import (
    ERROR_CODES,
    ERROR_TYPES,
    FoundryError,
    conflict,
    feature_disabled,
    forbidden,
    internal,
    invalid_cursor,
    missing,
    nearest,
    not_found,
    rate_limited,
    shorten,
    timed_out,
    unauthorized,
    unavailable,
    unknown_name,
    validation,
)

shows = pytest.mark.requirement
calm = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

CLASSES = [
    (errors.ValidationError, "validation", "VALIDATION_ERROR"),
    (errors.AuthenticationError, "authentication", "UNAUTHORIZED"),
    (errors.AuthorizationError, "authorization", "FORBIDDEN"),
    (errors.NotFoundError, "not_found", "NOT_FOUND"),
    (errors.ConflictError, "conflict", "CONFLICT"),
    (errors.RateLimitError, "rate_limit", "RATE_LIMIT_EXCEEDED"),
    (errors.FeatureFlagError, "feature_flag", "FEATURE_DISABLED"),
    (errors.InternalError, "internal", "INTERNAL_ERROR"),
    (errors.UnavailableError, "unavailable", "UNAVAILABLE"),
]


@pytest.mark.parametrize(("kind", "error_type", "code"), CLASSES)
def test_each_error_type_is_one_class_with_its_own_default_code(kind, error_type, code):
    failure = kind("It failed")

    assert isinstance(failure, FoundryError)
    assert str(failure) == failure.message == "It failed"
    assert (failure.error_type, failure.code) == (error_type, code)
    assert failure.remediation == ERROR_CODES[code].remediation
    assert (failure.details, failure.data, failure.effect, failure.retry_after_seconds) == (
        {},
        {},
        None,
        None,
    )


def test_the_tree_has_one_branch_for_each_error_type_and_is_one_level_deep():
    assert {kind.error_type for kind in FoundryError.__subclasses__()} == set(ERROR_TYPES)
    assert [kind.__subclasses__() for kind in FoundryError.__subclasses__()] == [[]] * len(ERROR_TYPES)
    drawn = errors.__doc__ or ""
    assert all(f"{kind.__name__} " in drawn for kind, _, _ in CLASSES)
    assert all(str(ERROR_TYPES[error_type].http_status) in drawn for _, error_type, _ in CLASSES)


@pytest.mark.parametrize("code", ERROR_CODES)
@pytest.mark.parametrize(("kind", "error_type", "default"), CLASSES)
def test_a_code_is_raised_only_by_the_class_of_its_type(kind, error_type, default, code):
    rule = ERROR_CODES[code]
    if rule.error_type == error_type:
        failure = kind("No", code=code)
        assert (failure.code, failure.remediation) == (code, rule.remediation)
    else:
        with pytest.raises(ValueError, match=f"{code} is of error_type {rule.error_type}; raise that class"):
            kind("No", code=code)


def test_a_code_of_another_server_is_raised_by_the_class_that_says_its_type():
    failure = errors.ConflictError("No", code="QUOTA_GONE")
    assert (failure.code, failure.error_type) == ("QUOTA_GONE", "conflict")
    assert failure.remediation == ERROR_CODES["CONFLICT"].remediation


def test_an_error_keeps_copies_of_what_it_was_given():
    details = {"field": "a"}
    failure = errors.ConflictError("No", details=MappingProxyType(details), data=details, effect="applied")
    details["field"] = "b"

    assert failure.details == failure.data == {"field": "a"}
    assert failure.effect == "applied"


# The constructors: one for each common failure


@pytest.mark.parametrize(
    ("failure", "code", "message", "details"),
    [
        (
            validation("page_size", "maximum", "page_size is at most 50", received=51, maximum=50),
            "VALIDATION_ERROR",
            "Validation failed: page_size is at most 50",
            {"field": "page_size", "constraint": "maximum", "maximum": 50, "received": 51},
        ),
        (
            missing("spec_id"),
            "MISSING_REQUIRED",
            "Validation failed: spec_id is required",
            {"field": "spec_id", "constraint": "required", "received": None},
        ),
        (
            invalid_cursor("holds no place", "abc"),
            "INVALID_CURSOR",
            "Validation failed: cursor holds no place",
            {"field": "cursor", "constraint": "cursor", "received": "abc"},
        ),
        (
            not_found("spec", "x", code="SPEC_NOT_FOUND", workspace="here"),
            "SPEC_NOT_FOUND",
            "Spec not found: x",
            {"resource_type": "spec", "resource_id": "x", "workspace": "here"},
        ),
        (conflict("Taken", code="ALREADY_EXISTS", owner="a"), "ALREADY_EXISTS", "Taken", {"owner": "a"}),
        (unauthorized(), "UNAUTHORIZED", "Credentials are missing or invalid", {}),
        (forbidden("Not yours", scope="write"), "FORBIDDEN", "Not yours", {"scope": "write"}),
        (feature_disabled("beta"), "FEATURE_DISABLED", "Feature 'beta' is not enabled", {"flag": "beta"}),
        (
            rate_limited("100 per minute", 45),
            "RATE_LIMIT_EXCEEDED",
            "Rate limit exceeded: 100 per minute",
            {"limit": "100 per minute"},
        ),
        (
            timed_out(2.5),
            "DEADLINE_EXCEEDED",
            "The call did not finish within its deadline of 2.5 seconds",
            {"deadline_seconds": 2.5},
        ),
        (
            unavailable("Index is being rebuilt", retry_after_seconds=3, engine="sqlite"),
            "UNAVAILABLE",
            "Index is being rebuilt",
            {"engine": "sqlite"},
        ),
        (internal(), "INTERNAL_ERROR", "An unexpected error occurred", {}),
    ],
    ids=lambda value: value.code if isinstance(value, FoundryError) else None,
)
def test_each_common_failure_has_a_constructor_that_says_all_there_is_to_say(failure, code, message, details):
    assert (failure.code, failure.message, failure.details) == (code, message, details)
    assert failure.remediation
    assert ERROR_CODES[code].error_type == failure.error_type


def test_constructors_say_when_to_come_back():
    assert rate_limited("5/s", 0.2).retry_after_seconds == 0.2
    assert rate_limited("5/s", 0.2).remediation.startswith("Wait 0.2 seconds")
    assert unavailable("x", retry_after_seconds=3).retry_after_seconds == 3
    assert unavailable("x").retry_after_seconds is None


def test_a_missing_parameter_says_what_to_provide():
    assert missing("spec_id").remediation == "Provide a non-empty spec_id parameter"
    assert missing("spec_id", remediation="Say which.").remediation == "Say which."


def test_an_unknown_name_says_which_are_known_and_which_was_meant():
    failure = unknown_name("action", "lst", ["list", "find", "get"], field="action")

    assert failure.message == "Validation failed: unknown action 'lst'"
    assert failure.remediation == "Did you mean 'list'? Use one of: list, find, get"
    assert failure.details["allowed"] == ["list", "find", "get"]
    assert failure.details["nearest"] == "list"
    assert failure.details["field"] == "action"


@pytest.mark.parametrize("name", ["zzzzzz", "", "x" * 100_000, 5, None, ["zz"], {"a": 1}])
def test_an_unknown_name_that_resembles_none_gets_no_guess(name):
    failure = unknown_name("action", name, iter(["list", "find"]), field="action")

    assert "nearest" not in failure.details
    assert failure.remediation == "Use one of: list, find"
    assert len(failure.message) < 200


def test_what_was_not_found_comes_with_the_names_nearest_to_it():
    failure = not_found("spec", "my-featur", code="SPEC_NOT_FOUND", near=["my-feature", "other"])

    assert failure.details["nearest"] == ["my-feature"]
    assert failure.remediation.startswith("Did you mean 'my-feature'? ")
    assert failure.remediation.endswith(ERROR_CODES["SPEC_NOT_FOUND"].remediation)
    assert not_found("spec", "zzz", near=["my-feature"]).remediation == ERROR_CODES["NOT_FOUND"].remediation


def test_nearest_gives_as_many_as_asked_best_first():
    known = ["task-1-1", "task-1-2", "task-9-9", "other"]
    assert nearest("task-1-2", known) == ["task-1-2"]
    assert nearest("task-1-2", known, most=2) == ["task-1-2", "task-1-1"]
    assert nearest("zzz", known) == []
    assert nearest("task-1-2" * 100, ["task-1-2" * 100]) == []


# What was received, sent back small


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, None),
        (True, True),
        (5, 5),
        (-(2**255), -(2**255)),
        (2**300, "a number of 301 bits"),
        (1.5, 1.5),
        ("short", "short"),
        ("x" * 80, "x" * 80),
        ("x" * 81, "x" * 80 + "… (81 characters)"),
        ("half \ud800", "half ?"),
        ({"a": 1, "b": 2}, "object with 2 keys"),
        ([1, 2, 3], "array of 3 items"),
        ((1,), "array of 1 items"),
        (b"bytes", "bytes"),
        ({1}, "set"),
    ],
)
def test_what_was_received_is_shortened(value, shown):
    assert shorten(value) == shown
    assert type(shorten(value)) is type(shown)


@calm
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.binary(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=5,
    )
)
def test_whatever_was_received_its_short_form_is_small_utf8_json(value: Any):
    assert len(json.dumps(shorten(value), ensure_ascii=False).encode("utf-8")) < 1000


@pytest.mark.parametrize("length", [1, 10])
def test_the_limit_of_shortening_can_be_set(length):
    assert shorten("y" * 20, limit=length) == "y" * length + "… (20 characters)"
