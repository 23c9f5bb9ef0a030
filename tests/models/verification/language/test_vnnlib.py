"""Oracles: regular expressions that count cases, fractions for rounding, and a direct evaluation of random formulas."""

import gzip
import math
import os
import re
import time
from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from feature_store.errors import InputError
from models.verification.language.unsafe_set import UnsafeSet
from models.verification.language.vnnlib import MOST_BYTES, parse_vnnlib, read_vnnlib

DATA = Path(os.environ.get("ASSAY_DATA", Path(__file__).parents[4].parent / "shared" / "data"), "vnnlib")
SIZES = {"acasxu": (5, 5), "lindex": (1, 1)}
FILES = [f"acasxu/prop_{k}.vnnlib" for k in range(1, 11)] + [f"lindex/lindex_0_{k}.vnnlib" for k in range(10)] \
    + [f"lindex/lindex_1_{k}.vnnlib.gz" for k in (0, 3, 9)]
COMPARISONS = {"<=": lambda a, b: a <= b, ">=": lambda a, b: a >= b, "=": lambda a, b: a == b,
               "<": lambda a, b: a <= b, ">": lambda a, b: a >= b}  # strict ones count as not strict
DECLARED = "(declare-const X_0 Real)\n(declare-const X_1 Real)\n(declare-const Y_0 Real)\n(declare-const Y_1 Real)\n"
BOX = "(assert (and (<= X_0 1) (>= X_0 0) (<= X_1 1) (>= X_1 -1)))\n"
X, Y = ("X_0", "X_1"), ("Y_0", "Y_1")
EIGHTHS = st.integers(-16, 16).map(lambda k: Fraction(k, 8))
TENTHS = st.integers(-20, 20).map(lambda k: Fraction(k, 10))

Tree = tuple[Any, ...]  # (operator, child, ...); a leaf is a name or a Fraction
Point = dict[str, Fraction]


def parse(asserts: str) -> UnsafeSet:
    return parse_vnnlib(DECLARED + asserts, 2, 2, "here")


def one(text: str) -> UnsafeSet:
    """The unsafe set of a network with one input, in [0, 1], and one output."""
    return parse_vnnlib("(declare-const X_0 Real)(declare-const Y_0 Real)(assert (<= X_0 1))(assert (>= X_0 0))" + text,
                        1, 1)


def decimal(value: Fraction) -> str:
    assert 10**6 % value.denominator == 0
    digits = f"{abs(value.numerator) * (10**6 // value.denominator):07d}"
    return f"{'-' if value < 0 else ''}{digits[:-6]}.{digits[-6:]}"


def render(tree: Any) -> str:
    if isinstance(tree, Fraction):
        return decimal(tree)
    return tree if isinstance(tree, str) else f"({' '.join([tree[0], *map(render, tree[1:])])})"


def evaluate(tree: Any, point: Point) -> Any:
    if isinstance(tree, Fraction):
        return tree
    if isinstance(tree, str):
        return point[tree]
    operator, *values = tree[0], *(evaluate(child, point) for child in tree[1:])
    if operator in COMPARISONS:
        return COMPARISONS[operator](*values)
    match operator:
        case "and" | "or":
            return all(values) if operator == "and" else any(values)
        case "+":
            return sum(values)
        case "-":
            return values[0] - sum(values[1:]) if len(values) > 1 else -values[0]
    return math.prod(values)


def contains(unsafe: UnsafeSet, point: Point) -> bool:
    """Whether some box contains x and its violation at y says unsafe."""
    x, y = np.array([float(point[i]) for i in X]), np.array([float(point[j]) for j in Y])
    inside = np.flatnonzero(((unsafe.lower <= x) & (x <= unsafe.upper)).all(axis=1))
    return bool((unsafe.violation(inside, np.tile(y, (len(inside), 1))) >= 0).any())


def terms(names: Sequence[str]) -> st.SearchStrategy[Any]:
    def compose(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.one_of(
            st.lists(inner, min_size=1, max_size=3).map(lambda parts: ("+", *parts)),
            st.lists(inner, min_size=1, max_size=3).map(lambda parts: ("-", *parts)),
            TENTHS.flatmap(lambda c: inner.map(lambda part: ("*", c, part))),
            EIGHTHS.flatmap(lambda c: inner.map(lambda part: ("*", part, c))))
    return st.recursive(st.one_of(st.sampled_from(names), TENTHS, EIGHTHS), compose, max_leaves=4)


def comparisons() -> st.SearchStrategy[Tree]:
    operators = st.sampled_from(sorted(COMPARISONS))
    plain = st.tuples(operators, st.sampled_from(X + Y), st.one_of(EIGHTHS, TENTHS))
    related = st.tuples(operators, EIGHTHS.flatmap(lambda c: terms(Y).map(lambda term: ("+", "Y_0", ("*", c, term)))),
                        terms(Y))
    return st.one_of([related, plain, *(st.tuples(operators, terms(names), terms(names)) for names in (X[:1], X[1:]))])


def formulas() -> st.SearchStrategy[Tree]:
    return st.recursive(comparisons(), lambda inner: st.tuples(
        st.sampled_from(["or", "and"]), st.lists(inner, min_size=1, max_size=4)).map(lambda pair: (pair[0], *pair[1])),
        max_leaves=6)


POINTS = st.fixed_dictionaries(dict.fromkeys(X, st.integers(-9, 9).map(lambda k: Fraction(k, 8)))
                               | dict.fromkeys(Y, EIGHTHS))
WALLS = ("and", *((op, name, Fraction(bound)) for name in X for op, bound in (("<=", 1), (">=", -1))))


properties_and_points = given(st.lists(formulas(), min_size=1, max_size=3), st.lists(POINTS, min_size=8, max_size=12))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@properties_and_points
def test_a_point_is_unsafe_exactly_where_the_asserts_hold(asserts: list[Tree], points: list[Point]) -> None:
    assert_unsafe_where_the_asserts_hold(asserts, points)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@properties_and_points
def test_a_point_is_unsafe_exactly_where_the_asserts_hold_in_a_long_attack(
        asserts: list[Tree], points: list[Point]) -> None:
    assert_unsafe_where_the_asserts_hold(asserts, points)


def assert_unsafe_where_the_asserts_hold(asserts: list[Tree], points: list[Point]) -> None:
    tree = ("and", WALLS, *asserts)
    text = "".join(f"(assert {render(part)})\n" for part in tree[1:])
    expected = [evaluate(tree, point) for point in points]
    try:
        unsafe = parse(text)
    except InputError as error:
        assert "box must have lower <= upper" in str(error)
        assert not any(expected)
        return
    assert [contains(unsafe, point) for point in points] == expected


@pytest.mark.parametrize("name", FILES)
def test_every_shared_property_has_the_cases_that_regular_expressions_count(name: str) -> None:
    path = DATA / name
    if not path.is_file():
        pytest.skip(f"the public property is not at {path} (set ASSAY_DATA)")
    content = path.read_bytes()
    text = re.sub(";.*", "", (gzip.decompress(content) if name.endswith("gz") else content).decode())
    choices: list[list[frozenset[str]]] = []
    for body in text.split("(assert")[1:]:
        parts = body.split("(and")[1:] or [body]
        choices.append([frozenset(re.findall(r"X_\d+ \S+?(?=\))|Y_\d+ \S+?(?=\))", part)) for part in parts])
    several = [choice for choice in choices if len(choice) > 1]  # the walls of the others are those of every case
    walls = {frozenset(item for part in combination for item in part if item[0] == "X")
             for combination in product(*several)}
    unsafe = read_vnnlib(path, *SIZES[name.split("/")[0]])
    alternatives = unsafe.coefficients.any(axis=(2, 3)).sum()
    assert (len(unsafe.lower), alternatives) == (len(walls), math.prod(map(len, several)))
    assert len(unsafe.lower) == {"prop_6": 2, "lindex_1_0": 1000, "lindex_1_3": 4000, "lindex_1_9": 10000}.get(
        path.name.split(".")[0], 1)


def test_prop_1_of_acas_xu_reads_as_written() -> None:
    path = DATA / "acasxu" / "prop_1.vnnlib"
    if not path.is_file():
        pytest.skip(f"the public property is not at {path} (set ASSAY_DATA)")
    unsafe = read_vnnlib(path, 5, 5)
    assert unsafe.lower[0] == pytest.approx([0.6, -0.5, -0.5, 0.45, -0.5], abs=1e-15)
    assert unsafe.upper[0] == pytest.approx([0.679857769, 0.5, 0.5, 0.5, -0.45], abs=1e-15)
    assert unsafe.coefficients.tolist() == [[[[1.0, 0.0, 0.0, 0.0, 0.0]]]]
    assert unsafe.constants[0, 0, 0] == pytest.approx(-3.991125645861615, abs=1e-15)


def test_a_compressed_file_reads_as_a_plain_one(tmp_path: Path) -> None:
    text = DECLARED + BOX + "(assert (<= Y_0 Y_1))"
    (tmp_path / "a.vnnlib").write_text(text)
    (tmp_path / "a.vnnlib.gz").write_bytes(gzip.compress(text.encode()))
    plain, packed = read_vnnlib(tmp_path / "a.vnnlib", 2, 2), read_vnnlib(tmp_path / "a.vnnlib.gz", 2, 2)
    assert plain.lower.tolist() == packed.lower.tolist() == [[0.0, -1.0]]
    assert plain.coefficients.tolist() == packed.coefficients.tolist() == [[[[-1.0, 1.0]]]]


def test_a_comment_ends_at_a_carriage_return_too() -> None:
    unsafe = parse_vnnlib("(declare-const X_0 Real)(declare-const Y_0 Real)(assert (<= X_0 1))(assert (>= X_0 0))"
                          "; unsafe:\r(assert (>= Y_0 5))\n", 1, 1)
    alone = parse_vnnlib("(declare-const X_0 Real)(declare-const Y_0 Real)(assert (<= X_0 1))(assert (>= X_0 0))"
                         "(assert (>= Y_0 5))", 1, 1)
    assert unsafe == alone


def test_comments_line_ends_and_declare_fun_are_understood() -> None:
    unsafe = parse_vnnlib("; (assert (<= X_0 (\r\n(declare-fun X_0 () Real);)\r\n\t(declare-const\nY_0 Real)"
                          "(assert(and(<= X_0 1)(>= X_0 0);x\n))(assert(or(<= Y_0 1)))", 1, 1)
    assert (unsafe.lower.tolist(), unsafe.upper.tolist()) == ([[0.0]], [[1.0]])
    assert (unsafe.coefficients.tolist(), unsafe.constants.tolist()) == ([[[[-1.0]]]], [[[1.0]]])


def test_without_a_constraint_on_the_outputs_every_output_is_unsafe() -> None:
    unsafe = parse(BOX)
    assert unsafe.violation(np.array([0]), np.array([[-1e9, 1e9]])).tolist() == [0.0]


def test_cases_with_one_box_share_it_and_empty_ones_are_dropped() -> None:
    unsafe = parse(BOX + "(assert (or (<= X_0 0.25) (>= X_0 2) (>= X_0 0.75)))(assert (or (<= Y_0 0) (>= Y_1 0)))")
    assert unsafe.lower.tolist() == [[0.0, -1.0], [0.75, -1.0]]
    assert unsafe.upper.tolist() == [[0.25, 1.0], [1.0, 1.0]]
    assert unsafe.coefficients.shape == (2, 2, 1, 2)


def test_an_equality_fixes_an_input() -> None:
    unsafe = parse(BOX + "(assert (= 0.5 X_0))")
    assert (unsafe.lower[0, 0], unsafe.upper[0, 0]) == (0.5, 0.5)


def test_zeros_of_either_sign_make_the_same_box() -> None:
    unsafe = one("(assert (or (and (>= X_0 -0.0) (<= X_0 -0.0)) (and (>= X_0 0) (<= X_0 0)) (= (- X_0) -0.0)))")
    assert unsafe.coefficients.shape[:2] == (1, 3)
    assert not np.signbit(unsafe.lower).any() and not np.signbit(unsafe.upper).any()


@pytest.mark.parametrize("written", [
    "0.1", "-0.1", "0.3", "0.5", "+.5", "5.", "1e-3", "0.36836116628764121234567890", "123456789012345678901234567890",
    "-9007199254740993", "4.9e-324", "1e-400", "-1e-400", "0", "-0.0", "0e999", "1.7976931348623157e308"])
def test_walls_and_constants_round_outward_and_no_further_than_needed(written: str) -> None:
    exact = Fraction(written)
    for text in ("(assert (<= Y_0 {}))(assert (>= Y_0 {}))", "(assert (>= {} Y_0))(assert (<= {} Y_0))"):
        below, above = -one(text.replace("{}", written)).constants[0, 0][::-1] * [1, -1]
        check_outward(exact, below, above)
    text = "(declare-const X_0 Real)(declare-const Y_0 Real)(assert (<= X_0 {}))(assert (>= X_0 {}))"
    unsafe = parse_vnnlib(text.replace("{}", written), 1, 1)
    check_outward(exact, unsafe.lower[0, 0], unsafe.upper[0, 0])


def check_outward(exact: Fraction, below: float, above: float) -> None:
    assert Fraction(below) <= exact <= Fraction(above)
    assert below == above or math.nextafter(below, math.inf) == above
    assert (below == above) == (Fraction(float(exact)) == exact)


@given(st.decimals(-1000, 1000, places=17))
def test_any_decimal_rounds_outward(value: Any) -> None:
    unsafe = parse_vnnlib("(declare-const X_0 Real)(declare-const Y_0 Real)"
                          f"(assert (<= X_0 {value:f}))(assert (>= X_0 {value:f}))", 1, 1)
    check_outward(Fraction(value), unsafe.lower[0, 0], unsafe.upper[0, 0])


def test_a_wall_with_a_factor_rounds_outward() -> None:
    unsafe = parse("(assert (<= (* 3 X_0) 1)) (assert (>= (* -0.7 X_1) -2)) (assert (and (>= X_0 0) (>= X_1 0)))")
    assert Fraction(math.nextafter(unsafe.upper[0, 0], 0)) < Fraction(1, 3) < Fraction(unsafe.upper[0, 0])
    assert Fraction(math.nextafter(unsafe.upper[0, 1], 0)) < Fraction(20, 7) < Fraction(unsafe.upper[0, 1])


def test_coefficients_that_float64_lacks_are_scaled_to_integers() -> None:
    unsafe = parse(BOX + "(assert (>= (+ (* 0.1 Y_0) (* -0.3 Y_1)) 0.2))")
    assert unsafe.coefficients[0, 0].tolist() == [[1.0, -3.0]] and unsafe.constants[0, 0].tolist() == [-2.0]


TALL = "(or (<= Y_0 0) (<= Y_1 0))"
REFUSED = {
    "mixed": ("(assert (<=\n X_0 Y_1))", r"one input or on outputs alone, got X_0, Y_1 \(here, line 6: \(<= X_0 Y_1"),
    "inputs": ("\n(assert (or (<= Y_0 1)\n(<= (+ X_0 X_1) 1)))", r"got X_0, X_1 \(here, line 8: \(<= \(\+ X_0 X_1"),
    "undeclared": ("(assert (<= Y_2 1))", r"atom must be a declared variable or a decimal.* got 'Y_2' \(here, line 6"),
    "nan": ("(assert (<= Y_0 nan))", r"got 'nan' \(here, line 6: \(<= Y_0 nan"),
    "infinity": ("(assert (<= Y_0 -inf))", "got '-inf'.*line 6"),
    "huge": ("(assert (<= Y_0 1e400))", "number must fit float64.*line 6"),
    "huge below": ("(assert (>= Y_0 1e400))", "number must fit float64.*line 6"),
    "huge sum": ("(assert (<= (+ Y_0 1e308) -1.7e308))", "number must fit float64.*line 6"),
    "no upward neighbour": ("(assert (<= Y_0 1.79769313486231575e308))", "number must fit float64.*line 6"),
    "huge exponent": ("(assert (<= (+ Y_0 Y_1) 1e-999999999))", "exponent of at most three digits.*line 6"),
    "many digits": (f"(assert (<= (+ Y_0 Y_1) {'7' * 2_000}.5))", "number must have at most 1,100 digits.*line 6"),
    "many digits of a wall": (f"(assert (<= X_0 0.{'7' * 2_000}))", "number must have at most 1,100 digits.*line 6"),
    "product of many": (f"(assert (<= (* Y_0 {'1e-999 ' * 7}) 1))", "numbers of at most 20,000 bits, got more.*line 6"),
    "sum of many": (f"(assert (<= (+ Y_0 (* 1e-999 {'1e-999 ' * 6})) 1))", "at most 20,000 bits, got more.*line 6"),
    "hexadecimal": ("(assert (<= Y_0 0x10))", "got '0x10'.*line 6"),
    "digits": ("(assert (<= (+ (* 0.12345678901234567 Y_0) Y_1) 0))", "coefficients must be .*line 6"),
    "quadratic": ("(assert (<= (* Y_0 Y_1) 0))", r"product must have at most one factor .*line 6: \(\* Y_0 Y_1\)"),
    "operator": ("(assert (=> (<= Y_0 0) (<= Y_1 0)))", "operator must be one of <=, .*got '=>' .*line 6"),
    "not": ("(assert (not (<= Y_0 0)))", "operator must be one of .*got 'not'.*line 6"),
    "no operator": ("(assert ((<= Y_0 0)))", "operator must be one of .*line 6"),
    "three sides": ("(assert (<= 0 Y_0 1))", "<= must have two sides, got 3 .*line 6"),
    "one side": ("(assert (<= Y_0))", "<= must have two sides, got 1 .*line 6"),
    "empty and": ("(assert (and))", "and must have arguments, got 0 .*line 6"),
    "empty sum": ("(assert (<= (+) 0))", r"\+ must have arguments, got 0 .*line 6: \(\+\)"),
    "term as formula": ("(assert (and Y_0 (<= Y_0 1)))", "and must join formulas, got .*line 6"),
    "formula as term": ("(assert (<= (<= Y_0 1) 1))", "term must be .*line 6"),
    "empty term": ("(assert (<= () 1))", "term must be .*got None .*line 6"),
    "asserted term": ("(assert (+ Y_0 1))", "command must be .*line 6"),
    "asserted name": ("(assert Y_0)", "command must be .*line 6"),
    "two formulas": ("(assert (<= Y_0 1) (<= Y_1 1))", "command must be .*line 6"),
    "command": ("(check-sat)", "command must be .*got .*check-sat.*line 6"),
    "version 2": ("(vnnlib-version <2.0>)", "command must be .*got .*vnnlib-version.*line 6"),
    "bare empty": ("()", "command must be .*line 6"),
    "inner command": ("(assert (declare-const X_0 Real))", "operator must be one of .*got 'declare-const'.*line 6"),
    "other kind": ("(declare-const X_0 Int)", "command must be .*line 6"),
    "declared again": ("(declare-const X_0 Real)", "variable must be declared once .*got 'X_0'.*line 6"),
    "one too many": ("(declare-const X_2 Real)", "an input X_i or output Y_j of the network.*got 'X_2'.*line 6"),
    "other name": ("(declare-const x Real)", "an input X_i or output Y_j of the network.*got 'x'.*line 6"),
    "leading zero": ("(declare-const X_00 Real)", "an input X_i or output Y_j of the network.*got 'X_00'.*line 6"),
    "left open": ("(assert (and\n(<= Y_0 1)", r"parenthesis must be closed.*line 6: \(and"),
    "closed twice": ("(assert (<= Y_0 1)))\n", r"command must be in parentheses, got '\)' \(here, line 6: \)\)"),
    "outside": ("Y_0", "command must be in parentheses, got 'Y_0' .*line 6: Y_0"),
    "quoted": ("(assert (<= |Y_0| 1))", r"got '\|Y_0\|'.*line 6"),
    "blow-up in an assert": (f"(assert (and {TALL * 24}))", "at most 1,000,000 cases, got 16,777,216 .*line 6: .and"),
    "blow-up over asserts": (f"(assert {TALL})" * 24, r"at most 1,000,000 cases, got 16,777,216 \(here\)"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_property_is_refused_with_the_line_and_the_reason(name: str) -> None:
    text, message = REFUSED[name]
    with pytest.raises(InputError, match=re.compile(message, re.DOTALL)):
        parse(BOX + text)


@pytest.mark.parametrize(("asserts", "message"), [
    ("", r"X_0 must have both walls in every case, got no lower one \(here\)"),
    ("(assert (and (>= X_0 0) (<= X_0 1) (>= X_1 0)))", r"X_1 must .* got no upper one \(here\)"),
    (BOX.replace("(<= X_0 1)", "(or (<= X_0 1) (<= Y_0 1))"), r"X_0 must .* got no upper one \(here\)"),
    (BOX + "(assert (>= X_0 2))", r"box must have lower <= upper .* \(here\)"),
    (BOX + "(assert (or (>= X_0 2) (<= X_1 -2)))", r"box must have lower <= upper .* \(here\)"),
    (BOX + "(assert (<= 1 0))", r"box must have lower <= upper .* \(here\)"),
], ids=["no wall", "no upper wall", "no upper wall in a case", "contradiction", "contradiction in all cases", "never"])
def test_a_box_that_is_open_or_empty_is_refused(asserts: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse(asserts)


@pytest.mark.parametrize(("inputs", "outputs", "missing"), [(3, 2, "X_2"), (2, 3, "Y_2"), (3, 3, "X_2")])
def test_a_network_with_other_variables_is_refused(inputs: int, outputs: int, missing: str) -> None:
    with pytest.raises(InputError, match=f"the network's {inputs} inputs and {outputs} outputs, got no {missing}"):
        parse_vnnlib(DECLARED + BOX, inputs, outputs)


def test_a_case_at_the_edge_of_its_box_is_kept() -> None:
    unsafe = parse(BOX + "(assert (or (>= X_0 1) (>= X_0 1.125)))")
    assert (unsafe.lower.tolist(), unsafe.upper.tolist()) == ([[1.0, -1.0]], [[1.0, 1.0]])


@pytest.mark.parametrize(("opening", "closing", "message"), [
    ("(", ")", "operator must be one of"), ("(", "", "parenthesis must be closed"), ("", ")", "must be in parentheses"),
    ("(" * 10, "", r"nested at most 100,000 deep, got more .*line 6"),
    ("(assert ", ")", "operator must be one of .*got 'assert'"), ("(+ ", ")", r"\+ must have arguments")],
    ids=["parentheses", "opened", "closed", "too deep", "asserts", "sums"])
def test_deep_nesting_of_nonsense_is_refused(opening: str, closing: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse(BOX + opening * 20_000 + closing * 20_000)


def test_deep_nesting_of_formulas_and_terms_is_read() -> None:
    deep = "(or (and " * 10_000 + f"(<= {'(- (+ ' * 10_000}Y_0{'))' * 10_000} 1)" + "))" * 10_000
    unsafe = parse(BOX + f"(assert {deep})")
    assert (unsafe.coefficients.tolist(), unsafe.constants.tolist()) == ([[[[-1.0, 0.0]]]], [[[1.0]]])


@pytest.mark.parametrize(("name", "content"), [
    ("a.vnnlib.gz", b"(assert"), ("a.vnnlib.gz", gzip.compress(b"x" * 9999)[:-9]), ("a.vnnlib", b"\xff\xfe"),
    ("a.vnnlib", None)], ids=["not gzip", "cut off", "not text", "missing"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=f"property must be a readable VNN-LIB file, got .*{name}"):
        read_vnnlib(tmp_path / name, 1, 1)


def test_an_error_in_a_file_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.vnnlib").write_text("\n(assert)")
    with pytest.raises(InputError, match=r"a\.vnnlib, line 2: \(assert\)\)$"):
        read_vnnlib(tmp_path / "a.vnnlib", 1, 1)


UNIT_INTERVAL = "(declare-const X_0 Real)(declare-const Y_0 Real)(assert (<= X_0 1))(assert (>= X_0 0))"


def test_cases_are_counted_before_they_are_made() -> None:
    began = time.process_time()
    with pytest.raises(InputError, match="at most 1,000,000 cases, got 4,782,969"):
        parse_vnnlib(UNIT_INTERVAL + "(assert (or (<= Y_0 1) (>= Y_0 2) (<= X_0 0.5)))" * 14, 1, 1)
    assert time.process_time() - began < 5.0


def test_many_numbers_of_many_digits_are_no_work() -> None:
    number = "1." + "7" * 90_000
    begun = time.process_time()
    with pytest.raises(InputError, match="number must have at most 1,100 digits, got 90,002"):
        parse(BOX + f"(assert (<= (* Y_0 {f'{number} ' * 100}) 1))")
    assert time.process_time() - begun < 5


@pytest.mark.parametrize("asserts", [
    "(assert (or (<= Y_0 1) (>= Y_0 2) (<= X_0 0.5)))" * 12, "(assert (<= Y_0 1))" * 200_000,
    f"(assert (<= (+ Y_0 {'1e-999 2 ' * 30_000}) 1))"], ids=["cases", "text", "sum"])
def test_reading_ends_with_the_time_limit(asserts: str) -> None:
    began = time.process_time()
    with pytest.raises(InputError, match=r"property must be read within the time limit, got no further in 0.2 s"):
        parse_vnnlib(UNIT_INTERVAL + asserts, 1, 1, seconds=0.2)
    assert time.process_time() - began < 10  # without an end it is minutes


def test_a_file_that_unfolds_too_far_is_refused_before_it_does(tmp_path: Path) -> None:
    path = tmp_path / "p.vnnlib.gz"
    path.write_bytes(gzip.compress(b";" + b"x" * MOST_BYTES, 1))
    with pytest.raises(InputError, match=r"at most 100,000,000 bytes, unpacked, got more \(.*p.vnnlib.gz\)"):
        read_vnnlib(path, 1, 1)
