"""The strict reader of YAML: what people meant, or one line with the file and the line."""

import time
from pathlib import Path

import pytest

from feature_store.errors import InputError
from feature_store.strict_yaml import MAX_BYTES, MAX_DEPTH, MAX_VALUES, parse_yaml, read_yaml


def bomb(levels: int, list_of: str = "[{}]") -> str:
    """Ten values in `a0`, ten times as many in each that follows."""
    lines = ["a0: &a0 " + ("[1,1,1,1,1,1,1,1,1,1]" if list_of == "[{}]" else "{x: 1}")]
    lines += [f"a{k}: &a{k} " + list_of.format(",".join([f"*a{k - 1}"] * 10)) for k in range(1, levels + 1)]
    return "\n".join(lines)


def test_values_come_as_yaml_means_them() -> None:
    text = "a: {b: [1, 2.5, x, null, true], 'c': 2026-01-02}\n# words\nd: &d {e: 1}\nf: {<<: *d, g: *d}\n"
    values = parse_yaml(text, "file", "here")
    assert values["a"]["b"] == [1, 2.5, "x", None, True] and values["a"]["c"].isoformat() == "2026-01-02"
    assert values["f"] == {"e": 1, "g": {"e": 1}}
    assert parse_yaml("", "file", "here") is None


def test_numbers_are_read_as_they_look() -> None:
    text = "[0, -0, 10, 1_000, 0.5, 00.5, 1e-3, 0x10, '010', \"1:30\", a:1, 08]"
    assert parse_yaml(text, "file", "here") == [0, 0, 10, 1000, 0.5, 0.5, "1e-3", 16, "010", "1:30", "a:1", "08"]


def test_a_merged_mapping_may_be_overridden_wherever_it_is_merged_again() -> None:
    text = "a: &a {x: 1}\nb: {deep: {er: &c {<<: *a, x: 2}}}\nd: {<<: *c, y: 3}\ne: {<<: [*a, *c]}\n"
    assert parse_yaml(text, "file", "here") == {
        "a": {"x": 1}, "b": {"deep": {"er": {"x": 2}}}, "d": {"x": 2, "y": 3}, "e": {"x": 1}}


@pytest.mark.parametrize(("text", "message"), [
    ("a: 1\nb: 2\na: 3", "key must be given once, got 'a' twice (here, line 3)"),
    ("p:\n  - q: {a: 1,\n      a: 1}", "key must be given once, got 'a' twice (here, line 3)"),
    ("1: a\n'1': b", "key must be given once, got '1' twice (here, line 2)"),
    ("yes: 1\ntrue: 2", "key must be given once, got 'true' twice (here, line 2)"),
    ("a: &a {x: 1}\nb: {<<: *a, <<: *a}", "key must be given once, got '<<' twice (here, line 2)"),
    ("a: 1\nb: [", "file must be YAML, got expected the node content, but found '<stream end>' (here, line 2)"),
    ("a: 1\n\tb: 2", "file must be YAML, got found character '\\t' that cannot start any token (here, line 2)"),
    ("a: *b", "file must be YAML, got found undefined alias 'b' (here, line 1)"),
    ("a: 1\n---\nb: 2", "file must be YAML, got but found another document (here, line 2)"),
    ("[1, 2]: 3", "file must be YAML, got found unhashable key (here, line 1)"),
    ("\n!!python/object/apply:os.getcwd []", "file must be YAML, got could not determine a constructor for the tag "
     "'tag:yaml.org,2002:python/object/apply:os.getcwd' (here, line 2)"),
    ("\na: !!set {x, y}", "list must be written as [a, b], got a !!set (here, line 2)"),
    ("# a\n\nb: \x07", "file must be YAML, got special characters are not allowed (here, line 3)"),
    ("a: 1\nb: 2020-13-45", "value must be readable, got month must be in 1..12 (here, line 2)"),
    ("b: !!bool perhaps", "value must be readable, got 'perhaps' as bool (here, line 1)"),
    ("b: !!timestamp soon", "value must be readable, got 'soon' as timestamp (here, line 1)"),
    ("b: " + "1" * 5000, "number must have at most 4300 digits, got 5000 (here, line 1)"),
    ("b: 1" + 100_000 * ":1", "number must have at most 4300 digits, got 200001 (here, line 1)"),
    *((f"a: 1\nb: {text}", f"number must be written in decimal digits, got '{text}', which YAML reads as {value}: "
       "write it without leading 0 or colon, a text in quotes (here, line 2)")
      for text, value in (("010", 8), ("-0_7", -7), ("1:30", 90), ("1:30.5", 90.5), ("+1:00:00", 3600))),
    ("1:30: a", "number must be written in decimal digits, got '1:30', which YAML reads as 90: write it "
     "without leading 0 or colon, a text in quotes (here, line 1)"),
    ("a: &a [1, *a]", "list or mapping must not hold itself, got an alias to one around it (here, line 1)"),
    ("a: &a {b: {c: *a}}", "list or mapping must not hold itself, got an alias to one around it (here, line 1)"),
    (bomb(9), f"file must hold at most {MAX_VALUES:,} values with its aliases written out, got more (here, line 6)"),
    (bomb(9, "{{<<: [{}]}}"),
     f"file must hold at most {MAX_VALUES:,} values with its aliases written out, got more (here, line 7)"),
    *((100_000 * opening, f"file must nest lists and mappings at most {MAX_DEPTH} deep, got more (here, line 1)")
      for opening in ("[", "- ", "{a: ", "? ")),
], ids=lambda text: repr(text[:30]))
def test_a_mistake_is_one_line_with_its_place_at_once(text: str, message: str) -> None:
    began = time.process_time()
    with pytest.raises(InputError) as refused:
        parse_yaml(text, "file", "here")
    assert str(refused.value) == message
    assert time.process_time() - began < 10.0


def test_the_deepest_and_the_largest_document_are_read() -> None:
    text = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert str(parse_yaml(text, "file", "here")) == text
    assert len(parse_yaml(bomb(4), "file", "here")["a4"]) == 10


def test_reading_ends_with_the_time_limit() -> None:
    began = time.process_time()
    with pytest.raises(InputError, match=r"file must be read within the time limit, got no further than \(here, line"):
        parse_yaml("- 1\n" * 200_000, "file", "here", seconds=0.2)
    assert time.process_time() - began < 10.0


@pytest.mark.parametrize(("content", "message"), [
    (None, "file must be a readable file, got No such file or directory ({})"),
    (b"a: 1\nb: \xe9", "file must be YAML in UTF-8, got the byte 0xe9 ({}, line 2)"),
    (b"a: 1\na: 2", "key must be given once, got 'a' twice ({}, line 2)"),
    (b"# " + b"a" * MAX_BYTES, "file must have at most 4,000,000 bytes, got more ({})"),
], ids=["missing", "latin-1", "repeated", "large"])
def test_an_unusable_file_is_named(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "f.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError) as refused:
        read_yaml(path, "file")
    assert str(refused.value) == message.format(path)
    with pytest.raises(InputError, match="file must be a readable file"):
        read_yaml(tmp_path, "file")
