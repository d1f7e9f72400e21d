"""The arithmetic of offsets and gaps."""

import pytest

from corral.core.event import Extent, Marks
from corral.errors import InvalidOptions
from corral.spark import offsets
from corral.spark.offsets import BEGINNING, GapCause, GapDetector, OffsetRange, Position


def extent(first: str | None, last: str | None, length: int, added: int | None) -> Extent:
    return Extent(first=first, last=last, length=length, added=added)


def test_ids_compare_as_numbers_not_as_text():
    assert offsets.id_key("9-10") > offsets.id_key("9-9")
    assert offsets.id_key("10-0") > offsets.id_key("9-99")


def test_offsets_survive_spark_and_keep_their_order():
    positions = {"b": Position("2-0", 7), "a": Position("1-0", None)}
    kept = offsets.to_json(positions)
    assert list(kept) == ["a", "b"]
    assert offsets.from_json(kept) == positions


@pytest.mark.parametrize("wrong", ["abc", "1-2-3", "", "-5", "1-"])
def test_what_is_no_event_id_is_refused_by_name(wrong: str):
    with pytest.raises(InvalidOptions, match="queue 'mail'"):
        offsets.check_id("mail", wrong)


def test_a_new_queue_is_read_from_its_very_beginning():
    assert offsets.offset_range("q", None, Position("5-0", 9)) == OffsetRange("q", BEGINNING, "5-0", 0, 9)


def test_nothing_lies_between_equal_positions():
    assert offsets.offset_range("q", Position("5-0", 9), Position("5-0", 9)) is None


@pytest.mark.parametrize("end", [Position("9-0", 3), Position("2-0", 90)])
def test_a_log_that_begins_anew_is_read_whole(end: Position):
    found = offsets.offset_range("q", Position("5-0", 9), end)
    assert found == OffsetRange("q", BEGINNING, end.id, 0, end.added, True)


def test_the_earliest_position_misses_nothing_that_was_trimmed_before():
    assert offsets.earliest(extent("7-0", "9-0", 3, 10)) == Position(BEGINNING, 7)


def test_shares_never_exceed_the_limit_and_leave_no_queue_out_for_ever():
    waiting = {f"q{n}": n for n in range(50)}
    for most in (1, 10, 49, 50, 500, 10_000):
        allowed = offsets.shares(waiting, most)
        assert sum(allowed.values()) <= most
        assert allowed
        assert all(0 < allowed[queue] <= waiting[queue] for queue in allowed)


def test_marks_behind_a_trimmed_beginning_are_numbered_from_what_was_trimmed():
    marks = Marks(20, [(10, "30-0"), (20, "40-0")], "40-0", True, extent("21-0", "40-0", 20, 40))
    assert offsets.mark_positions(marks, Position("5-0", 5)) == [Position("30-0", 30), Position("40-0", 40)]
    assert offsets.mark_positions(marks, Position("20-0", 20)) == [Position("30-0", 30), Position("40-0", 40)]


def test_pieces_of_a_stretch_meet_at_their_points():
    whole = OffsetRange("q", "1-0", "9-0", 1, 9, True)
    pieces = offsets.split(whole, [Position("3-0", 3), Position("6-0", 6), Position("9-0", 9)])
    ends = [(piece.after, piece.until) for piece in pieces]
    assert ends == [("1-0", "3-0"), ("3-0", "6-0"), ("6-0", "9-0")]
    assert sum(piece.expected or 0 for piece in pieces) == whole.expected
    assert [piece.is_recreated for piece in pieces] == [True, False, False]


# -- what a watch sees --------------------------------------------------------------------------------------


def test_a_stretch_that_is_read_whole_has_no_gap():
    detector = GapDetector(OffsetRange("q", "10-0", "20-0", 10, 20))
    assert detector.check_page("10-0", extent("1-0", "30-0", 30, 30)) is None
    detector.count(10)
    assert detector.total() is None


def test_the_last_event_read_may_be_trimmed_and_nothing_is_missing():
    detector = GapDetector(OffsetRange("q", "10-0", "20-0", 10, 20))
    assert detector.check_page("10-0", extent("11-0", "30-0", 20, 30)) is None
    detector.count(10)
    assert detector.total() is None


def test_what_was_trimmed_before_the_first_page_is_counted():
    detector = GapDetector(OffsetRange("q", "10-0", "20-0", 10, 20))
    gap = detector.check_page("10-0", extent("15-0", "30-0", 16, 30))
    assert gap is not None
    assert (gap.why, gap.missing, gap.before) == (GapCause.TRIMMED, 4, "15-0")
    detector.count(6)
    verdict = detector.total()
    assert verdict is not None
    assert (verdict.missing, verdict.after, verdict.before) == (4, "10-0", "15-0")


def test_what_is_trimmed_between_pages_is_counted_too():
    detector = GapDetector(OffsetRange("q", "10-0", "20-0", 10, 20))
    assert detector.check_page("10-0", extent("1-0", "30-0", 30, 30)) is None
    detector.count(3)
    gap = detector.check_page("13-0", extent("18-0", "30-0", 13, 30))
    assert gap is not None
    assert gap.missing == 4
    detector.count(3)
    verdict = detector.total()
    assert verdict is not None
    assert verdict.missing == 4
    assert "4 events were trimmed" in verdict.sentence()


def test_a_stretch_that_is_gone_altogether_is_counted_to_its_own_end_only():
    detector = GapDetector(OffsetRange("q", "10-0", "20-0", 10, 20))
    gap = detector.check_page("10-0", extent("29-0", "30-0", 2, 30))
    assert gap is not None
    assert gap.missing == 10
    verdict = detector.total()
    assert verdict is not None
    assert verdict.missing == 10


def test_a_log_that_vanished_while_it_was_read_says_how_much_went_with_it():
    detector = GapDetector(OffsetRange("q", "10-0", "20-0", 10, 20))
    detector.check_page("10-0", extent("1-0", "30-0", 30, 30))
    detector.count(5)
    gap = detector.check_page("15-0", extent(None, None, 0, 0))
    assert gap is not None
    assert gap.why is GapCause.RECREATED
    verdict = detector.total()
    assert verdict is not None
    assert (verdict.why, verdict.missing) == (GapCause.RECREATED, 5)


def test_a_log_that_was_begun_anew_is_named_so():
    verdict = GapDetector(OffsetRange("q", BEGINNING, "3-0", 0, 3, True)).total()
    assert verdict is not None
    assert (verdict.why, verdict.missing) == (GapCause.RECREATED, None)


def test_more_events_than_numbers_mean_a_log_begun_anew():
    detector = GapDetector(OffsetRange("q", "10-0", "99-0", 10, 20))
    detector.check_page("10-0", extent("50-0", "99-0", 20, 20))
    detector.count(20)
    verdict = detector.total()
    assert verdict is not None
    assert (verdict.why, verdict.missing) == (GapCause.RECREATED, None)


def test_a_server_that_does_not_count_leaves_the_size_unknown():
    detector = GapDetector(OffsetRange("q", "10-0", "20-0", None, None))
    gap = detector.check_page("10-0", extent("15-0", "30-0", 16, None))
    assert gap is not None
    assert gap.why is GapCause.UNKNOWN
    detector.count(6)
    verdict = detector.total()
    assert verdict is not None
    assert (verdict.why, verdict.missing) == (GapCause.UNKNOWN, None)
