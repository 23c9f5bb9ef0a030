"""Cron: what is accepted, the canonical text, Kubeflow's six fields, and run times against an oracle."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feature_store.errors import InputError
from pipelines.schedules.cron import CronField, from_kfp_cron, next_runs, parse_cron

NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)  # a Thursday


def robfig_bits(word: str, low: int, high: int) -> tuple[set[int], bool]:
    """The oracle: robfig/cron v1.2.0 getField/getRange, written down again from its rules (digits only)."""
    values: set[int] = set()
    star = False
    for element in word.split(","):
        body, _, step = element.partition("/")
        first, hyphen, last = body.partition("-")
        if first == "*":
            start, end, star = low, high, True
        else:
            start = int(first)
            end = int(last) if hyphen else (high if step else start)
        assert low <= start <= end <= high, f"robfig/cron refuses {element}"
        values.update(range(start, end + 1, int(step or 1)))
    return values, star


def robfig_next(kfp_cron: str, after: datetime) -> datetime:
    """The next time by robfig/cron's rules, by trying every minute."""
    second, minute, hour, day, month, weekday = kfp_cron.split()
    assert second == "0"
    minutes, _ = robfig_bits(minute, 0, 59)
    hours, _ = robfig_bits(hour, 0, 23)
    days, day_star = robfig_bits(day, 1, 31)
    months, _ = robfig_bits(month, 1, 12)
    weekdays, weekday_star = robfig_bits(weekday, 0, 6)
    moment = after.replace(second=0, microsecond=0) + timedelta(minutes=1)
    while True:
        on_day, on_weekday = moment.day in days, moment.isoweekday() % 7 in weekdays
        day_matches = (on_day and on_weekday) if (day_star or weekday_star) else (on_day or on_weekday)
        if moment.month not in months or not day_matches:
            moment = moment.replace(hour=0, minute=0) + timedelta(days=1)
        elif moment.hour not in hours:
            moment = moment.replace(minute=0) + timedelta(hours=1)
        elif moment.minute not in minutes:
            moment += timedelta(minutes=1)
        else:
            return moment


def elements(low: int, high: int) -> st.SearchStrategy[str]:
    """Elements of a cron field that parse_cron accepts; a weekday may also be 7."""
    value = st.integers(low, 7 if high == 6 else high)
    ranged = st.tuples(value, value).map(sorted)
    return st.one_of(
        value.map(str),
        st.just("*"),
        st.integers(1, high - low).map("*/{}".format),
        ranged.map(lambda pair: f"{pair[0]}-{pair[1]}"),
        ranged.filter(lambda pair: pair[1] > pair[0]).map(
            lambda pair: f"{pair[0]}-{pair[1]}/{pair[1] - pair[0]}"
        ),
        st.integers(low, high - 1).map(lambda start: f"{start}/{max(1, (high - start) // 2)}"),
    )


def fields(low: int, high: int) -> st.SearchStrategy[str]:
    return st.lists(elements(low, high), min_size=1, max_size=3).map(",".join)


# Days stop at 28 so that every expression matches a date.
EXPRESSIONS = st.tuples(fields(0, 59), fields(0, 23), fields(1, 28), fields(1, 12), fields(0, 6)).map(
    " ".join
)


@pytest.mark.parametrize(
    ("given_text", "canonical"),
    [
        ("0 2 * * *", "0 2 * * *"),
        ("  0   2 * * *  ", "0 2 * * *"),
        ("00 02 * * *", "0 2 * * *"),
        ("@daily", "0 0 * * *"),
        ("@Weekly", "0 0 * * 0"),
        ("0 2 * * 7", "0 2 * * 0"),
        ("0 2 * * SUN", "0 2 * * 0"),
        ("0 2 ? * mon-FRI", "0 2 * * 1-5"),
        ("0 2 1 JAN,jul ?", "0 2 1 1,7 *"),
        ("0 2 * * fri-sun", "0 2 * * 0,5,6"),
        ("0 2 * * sun-sun", "0 2 * * 0"),
        ("0 2 * * sun-mon", "0 2 * * 0-1"),
        ("0 2 * * 5-7", "0 2 * * 0,5,6"),
        ("0 2 * * 1-7/2", "0 2 * * 0,1,3,5"),
        ("7-7 0-0 * * 7-7", "7 0 * * 0"),
        ("5/10 * * * *", "5-59/10 * * * *"),
        ("1,* * * * *", "* * * * *"),
        ("0 0 5,*/2 * 1", "0 0 */2,5 * 1"),
    ],
)
def test_canonical_text_is_what_every_reader_reads_alike(given_text: str, canonical: str) -> None:
    cron = parse_cron(given_text)
    assert cron.expression == canonical
    assert cron.kfp == f"0 {canonical}"
    assert cron.source == given_text.strip()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0 0 2 * * *", ["five fields", "got 6", "leave the seconds out"]),
        ("0 2 * *", ["five fields", "got 4"]),
        ("", ["five fields", "got 0"]),
        ("60 * * * *", ["minute of 0 to 59", "got '60'"]),
        ("0 24 * * *", ["hour of 0 to 23", "got '24'"]),
        ("0 0 0 * *", ["day of month of 1 to 31", "got '0'"]),
        ("0 0 * 13 *", ["month of 1 to 12", "got '13'"]),
        ("0 0 * * 8", ["day of week of 0 to 7", "got '8'"]),
        ("0 0 * foo *", ["JAN..DEC", "'foo'"]),
        ("0 0 L * *", ["day of month", "'L'"]),
        ("0 0 15W * *", ["day of month", "'15W'"]),
        ("0 0 * * 1#2", ["'1#2'", "neither to Kubeflow nor to crontab"]),
        ("H * * * *", ["minute", "'H'"]),
        ("? * * * *", ["a whole day field"]),
        ("1,,2 * * * *", ["got ''"]),
        ("-5 * * * *", ["got '-5'"]),
        ("*/90 * * * *", ["step of 1 to 59", "'90'"]),
        ("*/0 * * * *", ["step of 1 to 59", "'0'"]),
        ("0 0 * * fri-mon", ["backwards", "5-6,0-1"]),
        ("0 0 31 2 *", ["a date that comes", "31 2"]),
        ("@reboot", ["alias", "@daily"]),
        ("@every 1h", ["alias"]),
        ("\u0665 * * * *", ["minute of 0 to 59"]),
    ],
)
def test_a_bad_expression_is_refused_with_field_rule_and_value(text: str, words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        parse_cron(text)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


@settings(max_examples=150, deadline=None)
@given(EXPRESSIONS)
def test_next_runs_are_those_of_kubeflows_cron(text: str) -> None:
    cron = parse_cron(text)
    expected, moment = [], NOON
    for _ in range(3):
        moment = robfig_next(cron.kfp, moment)
        expected.append(moment)
    assert list(next_runs(cron, NOON)) == expected


@settings(max_examples=150, deadline=None)
@given(EXPRESSIONS)
def test_field_values_are_those_of_kubeflows_cron(text: str) -> None:
    cron = parse_cron(text)
    bounds = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 6)]
    parsed = (cron.minute, cron.hour, cron.day_of_month, cron.month, cron.day_of_week)
    for field, word, (low, high) in zip(parsed, cron.expression.split(), bounds, strict=True):
        values, star = robfig_bits(word, low, high)
        assert field == CronField(word, tuple(sorted(values)), star)


def test_day_of_month_and_day_of_week_are_alternatives_and_the_note_says_so() -> None:
    cron = parse_cron("0 0 13 * 5")
    assert "either" in cron.notes[0]
    assert [run.strftime("%a %d") for run in next_runs(cron, NOON)] == ["Fri 02", "Fri 09", "Tue 13"]


def test_a_starred_step_in_a_day_field_keeps_both_day_fields_required() -> None:
    cron = parse_cron("0 0 */2 * 1")
    assert cron.notes == ()
    assert [run.strftime("%a %d") for run in next_runs(cron, NOON)] == ["Mon 05", "Mon 19", "Mon 09"]


def test_next_runs_carry_the_time_zone_asked_for() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    run = next_runs(parse_cron("0 2 * * *"), NOON.astimezone(berlin))[0]
    assert run.isoformat() == "2026-01-02T02:00:00+01:00"


def test_a_time_without_zone_is_refused() -> None:
    with pytest.raises(InputError, match="time zone"):
        next_runs(parse_cron("0 2 * * *"), datetime(2026, 1, 1))


@pytest.mark.parametrize(
    ("kfp_cron", "means"),
    [
        ("0 0 2 * * *", "0 2 * * *"),
        ("0 2 * * *", "2 * * * *"),  # the trap: five fields are read seconds first, so this runs hourly
        ("@daily", "0 0 * * *"),
    ],
)
def test_a_cron_on_the_cluster_is_shown_as_what_it_really_does(kfp_cron: str, means: str) -> None:
    cron = from_kfp_cron(kfp_cron)
    assert cron is not None
    assert cron.expression == means


@pytest.mark.parametrize("kfp_cron", ["30 0 2 * * *", "@every 1h", "nonsense", "* * * * * *"])
def test_a_cron_without_five_field_meaning_has_none(kfp_cron: str) -> None:
    assert from_kfp_cron(kfp_cron) is None
