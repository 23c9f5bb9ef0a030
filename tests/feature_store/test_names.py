"""One rule for names: what a folder and a model can be called, what a terminal can show."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feature_store.errors import InputError
from feature_store.names import (
    LONGEST,
    check_label,
    check_task_name,
    check_workload_name,
    inside,
    is_sha256,
    is_task_name,
    is_workload_name,
    printable,
)

BAD = ["", ".", "..", "../x", "a/b", "a\\b", "a b", "a\n", "\na", "a\x00", "ä", "a:b", "~", "a*", "_pool", "٣",
       "-", "-x", "--help", "a.", "a..b", "a...", ".a", "-a.b",
       "a" * (LONGEST + 1), 5, None, True, ["a"]]


@pytest.mark.parametrize("name", ["redis", "spark-3.1", "A_1", "a-", "a.b.c", "a._", "0", "a" * LONGEST])
def test_a_workload_may_be_called_so(name: str) -> None:
    assert check_workload_name(name, "here") == name


@pytest.mark.parametrize("name", BAD)
def test_a_workload_may_not_be_called_so(name: object) -> None:
    assert not is_workload_name(name)
    with pytest.raises(InputError, match=r"workload must hold only letters.*\(here\)"):
        check_workload_name(name, "here")


@pytest.mark.parametrize("name", [*(one for one in BAD if one != "_pool"), "a.b"])
def test_a_task_may_not_be_called_so(name: object) -> None:
    assert not is_task_name(name)
    with pytest.raises(InputError, match=r"task must hold only letters.*\(here\)"):
        check_task_name(name, "here")


@given(st.text())
def test_whatever_is_a_name_lies_below_its_folder(name: str) -> None:
    if is_workload_name(name):
        assert inside(Path("/folder"), name) == Path("/folder") / name
        assert inside(Path("/folder"), name).parent == Path("/folder")


@given(st.text(min_size=1))
def test_whatever_is_a_label_is_one_line_that_prints_as_it_is(label: str) -> None:
    try:
        check_label(label, "unit", "here")
    except InputError as error:
        assert printable(str(error)) == str(error), "the message itself shows an escape"
        assert printable(label) != label or not label.strip()
    else:
        assert len(label.splitlines()) == 1
        assert "\x1b" not in label
        assert not set(label) & set("\u202a\u202b\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c")


@pytest.mark.parametrize("label", ["psi_cpu_some", "type=m4", "ln(s)", "°C", "µs", "µs", "[/red]", "遅延", "<b>"])
def test_a_column_may_be_called_so(label: str) -> None:
    assert check_label(label, "name", "here") == label


@pytest.mark.parametrize("label", ["psi\x1b[2J", "a\nb", "a\tb", "psi\u202ex", "a\u2066b", "a\u200bb", "a\x85b",
                                   "a\u2028b", "a\ud800b", "a\x7f", "\u3164", "a\u115fb", "a\u1160", "\uffa0b",
                                   "\u2800", "a\u034fb", "a\ue000", "\U0010fffd", "a\u0378", "\ufdd0"])
def test_what_is_not_seen_is_no_part_of_a_label(label: str) -> None:
    with pytest.raises(InputError, match="no control characters"):
        check_label(label, "name", "here")
    assert printable(label).isprintable()


def test_a_unit_may_be_empty_and_a_name_may_not() -> None:
    assert check_label("", "unit", "here", empty=True) == ""
    for label in (" ", "\u3000\xa0", None, 5):
        with pytest.raises(InputError, match="unit must be a text"):
            check_label(label, "unit", "here", empty=True)
    for label in ("", " ", None, 5):
        with pytest.raises(InputError, match="name must be a text"):
            check_label(label, "name", "here")


def test_what_a_terminal_gets_keeps_the_line_ends_that_it_is_asked_to_keep() -> None:
    assert printable("a\nb\x1b[1m", "\n") == "a\nb\\x1b[1m"
    assert printable("\U000e0041") == "\\U000e0041"


@pytest.mark.parametrize("names", [("..",), ("../x",), ("a", "..", "..", "b"), ("/etc",), (".",), ("",), ("a", "..")])
def test_a_path_that_leads_out_is_refused(names: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="path: expected one below"):
        inside(tmp_path, *names)


def test_a_link_that_leads_out_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "redis").symlink_to(tmp_path / "out")
    with pytest.raises(InputError, match="path: expected one below"):
        inside(tmp_path / "folder", "redis")
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    assert inside(tmp_path / "link", "nginx") == tmp_path / "link" / "nginx"


@pytest.mark.parametrize("value", ["", "a" * 63, "a" * 65, "A" * 64, "a" * 63 + "g", "a" * 64 + "\n", 64 * "٣", None,
                                   b"a" * 64])
def test_a_digest_is_64_hexadecimal_digits(value: object) -> None:
    assert is_sha256("0123456789abcdef" * 4) and not is_sha256(value)
