"""The grammar of the names we are given."""

import re
import unicodedata
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from corral.core.naming import RESERVED_IDS, check_id, check_job_name, check_queue, check_step
from corral.errors import InvalidName
from corral.protocols.bullmq.keys import BullmqKeys

CHECKS = [check_queue, check_id, check_job_name, check_step]


def refusal(check: Any, name: Any) -> str:
    with pytest.raises(InvalidName) as caught:
        check(name)
    return str(caught.value)


# -- queues


@pytest.mark.parametrize("name", ["mail", "video-generation", "A.b_c-9", "{mail}", "eu.{mail}", "{a}-b", "7"])
def test_a_queue_name_has_letters_digits_and_three_marks(name: str) -> None:
    assert check_queue(name) == name


def test_a_colon_in_a_queue_name_is_refused_with_the_way_out() -> None:
    assert refusal(check_queue, "a:b") == (
        "queue name 'a:b' contains ':'; use letters, digits, '-', '_', '.' (braces only around a hash tag)"
    )


@pytest.mark.parametrize("bad", [*" \n\t\0/*?'\"\x7f", "ä", "\ud800", "\u202e"])
def test_a_stranger_in_a_queue_name_is_named(bad: str) -> None:
    assert f"contains {bad!a}; use letters" in refusal(check_queue, f"a{bad}b")


@pytest.mark.parametrize("name", ["{}", "a{}b", "{a", "a}", "}a{", "{{a}}", "{a}{b}", "{a}b{c}"])
def test_braces_that_are_no_hash_tag_are_refused(name: str) -> None:
    assert "has braces that are no hash tag" in refusal(check_queue, name)


@pytest.mark.parametrize("name", [".", "..", "-", "_", "{.}"])
def test_a_queue_name_of_marks_alone_is_refused(name: str) -> None:
    assert "has no letter or digit" in refusal(check_queue, name)


@given(some.text(max_size=30))
def test_a_queue_name_that_is_let_through_splits_no_key_and_no_address(name: str) -> None:
    try:
        check_queue(name)
    except InvalidName:
        return
    assert name.isascii()
    assert name.isprintable()
    assert not set(name) & set(":/?#[]@!$&'()*+,;=% ")
    assert name.count("{") == name.count("}") <= 1


@given(some.from_regex(r"[A-Za-z0-9._-]{0,20}[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True))
def test_every_queue_name_of_the_promised_characters_is_let_through(name: str) -> None:
    assert check_queue(name) == name


# -- ids


@pytest.mark.parametrize(
    "job_id",
    [
        str(uuid.UUID(int=5)),
        "payment-789",
        "user+1@example.com",
        "aGVsbG8=",
        "a,b",
        "~x",
        "größe",
        "заказ-7",
        "हिन्दी",
        "注文7",
        "1.5",
        "7a",
        "0x10",
        "Meta",
        "metadata",
    ],
)
def test_an_id_has_letters_and_digits_of_any_script_and_some_marks(job_id: str) -> None:
    assert check_id(job_id) == job_id


@pytest.mark.parametrize("job_id", sorted(RESERVED_IDS))
def test_an_id_that_is_a_key_of_the_queue_is_refused(job_id: str) -> None:
    assert refusal(check_id, job_id) == (
        f"job id {job_id!r} is the name of one of the queue's own keys; "
        f"put a word in front, such as 'job-{job_id}'"
    )


CONTRACT_KEYS = (
    "wait active paused prioritized delayed completed failed stalled stalled-check meta id events limiter "
    "marker pc de repeat metrics waiting-children cancelling"
)


@pytest.mark.parametrize("key", CONTRACT_KEYS.split())
def test_every_key_of_the_contract_is_reserved(key: str) -> None:
    assert key in RESERVED_IDS


def test_every_key_a_queue_is_given_by_our_own_protocol_is_reserved() -> None:
    keys = BullmqKeys("bull", "mail")
    assert {key.removeprefix(keys.prefix) for key in keys.fixed} <= RESERVED_IDS


@pytest.mark.parametrize("job_id", ["0", "1", "-1", "+5", "007", "9" * 30])
def test_an_integer_is_refused_as_an_id(job_id: str) -> None:
    said = refusal(check_id, job_id)
    assert "is an integer, and those are given out by the server; put a word in front" in said


@pytest.mark.parametrize("job_id", ["1:lock", "a:b:c", ":", "0:1", "repeat:x:1"])
def test_a_colon_in_an_id_is_refused(job_id: str) -> None:
    assert refusal(check_id, job_id) == (
        f"job id {job_id!r} contains ':'; use letters, digits and any of - _ . ~ @ + = ,"
    )


@pytest.mark.parametrize(
    "bad", [*" \n\r\t\0\x1b{}/\\*?[]#%&<>'\"`|;^$!()", *"\x85\xa0\u2028\u200b\u202e😀", "\ud800"]
)
def test_a_stranger_in_an_id_is_named(bad: str) -> None:
    assert f"contains {bad!a}; use letters, digits" in refusal(check_id, f"a{bad}b")


def test_an_id_in_decomposed_form_is_refused_and_its_twin_is_not() -> None:
    decomposed = "caf\u0065\u0301"
    assert "is not in composed form; use unicodedata.normalize('NFC', …)" in refusal(check_id, decomposed)
    assert check_id("caf\u00e9") == "café"


def test_an_id_that_looks_like_a_schedules_firing_is_refused() -> None:
    assert "as only a schedule's firings do" in refusal(check_id, "nightly@1700000000000")


def test_an_id_of_marks_alone_is_refused() -> None:
    assert "has no letter or digit" in refusal(check_id, "..")


@given(some.text(max_size=20))
def test_an_id_that_is_let_through_can_be_no_other_key_and_no_other_id(job_id: str) -> None:
    try:
        check_id(job_id)
    except InvalidName:
        return
    assert not set(job_id) & set(":{} \n*?[]/")
    assert job_id not in RESERVED_IDS
    assert not re.fullmatch(r"[+-]?\d+", job_id, re.ASCII)
    assert unicodedata.normalize("NFC", job_id) == job_id
    assert 0 < len(job_id.encode()) <= 512


# -- names of jobs and steps


@pytest.mark.parametrize("check", [check_job_name, check_step])
@pytest.mark.parametrize("name", ["send-email", "a b", "a:b", "{x}", "größe 😀", "0", "meta", "\u200d"])
def test_a_job_or_a_step_has_any_name_on_one_line(check: Any, name: str) -> None:
    assert check(name) == name


@pytest.mark.parametrize("check", [check_job_name, check_step])
@pytest.mark.parametrize("bad", ["\n", "\r", "\0", "\x1b", "\x7f", "\x85", "\u2028", "\u2029", "\ud83d"])
def test_a_name_that_breaks_a_line_or_cannot_be_written_is_refused(check: Any, bad: str) -> None:
    assert f"contains {bad!a}; use text on one line" in refusal(check, f"a{bad}b")


@pytest.mark.parametrize("check", [check_job_name, check_step])
@pytest.mark.parametrize("blank", [" ", "   ", "\u3000\xa0"])
def test_a_blank_name_is_refused(check: Any, blank: str) -> None:
    assert "is blank; give it at least one letter or digit" in refusal(check, blank)


# -- all of them


@pytest.mark.parametrize("check", CHECKS)
def test_an_empty_name_is_refused(check: Any) -> None:
    assert refusal(check, "").endswith("is empty; give it at least one letter or digit")


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("thing", [None, 5, b"mail", ["mail"], True])
def test_what_is_no_text_is_refused(check: Any, thing: Any) -> None:
    assert refusal(check, thing).endswith(f"{thing!r} is of type {type(thing).__name__}; use text")


@pytest.mark.parametrize(("check", "most"), [*zip(CHECKS, (255, 512, 1024, 255), strict=True)])
def test_a_name_has_a_limit_in_bytes(check: Any, most: int) -> None:
    assert check("x" * most) == "x" * most
    assert refusal(check, "x" * (most + 1)).endswith(f"has {most + 1} bytes; use at most {most}")
    if check is not check_queue:
        assert refusal(check, "ü" * most).endswith(f"has {2 * most} bytes; use at most {most}")


@pytest.mark.parametrize("check", CHECKS)
def test_a_refusal_of_something_huge_is_short(check: Any) -> None:
    assert len(refusal(check, "\n" * 1_000_000)) < 300
    assert len(refusal(check, [0] * 1_000_000)) < 300
