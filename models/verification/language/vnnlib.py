"""Reads VNN-LIB 1.0, the SMT-LIB subset in which the competition VNN-COMP states its properties, into an `UnsafeSet`.

    (declare-const X_0 Real) (declare-const Y_0 Real)                      ; inputs X_i, outputs Y_j
    (assert (<= X_0 0.5)) (assert (>= X_0 -0.5))                           ; walls of the box
    (assert (or (and (<= Y_0 1.5)) (and (>= (+ Y_0 (* 2.0 Y_1)) 3.0))))    ; rows over the outputs

The asserts together describe the unsafe set. They are brought into disjunctive normal form: cases, each one box and
one alternative of rows. A case whose box is empty can never happen and is dropped.

The result holds every point of the set in the file, so what is PROVED of it holds of the file: `<` and `>` count as
`<=` and `>=`, and walls and constants that float64 does not have are rounded outward (a counterexample may therefore
lie on a strict bound, or an ulp beyond). Rows are scaled to coprime integer coefficients, which float64 has.

Source: Demarchi et al., "Supporting Standardization of Neural Networks Verification with VNN-LIB and CoCoNet" (2023).
"""

import gzip
import math
import re
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import chain, islice, product
from pathlib import Path
from typing import NamedTuple

import numpy as np

from feature_store.errors import InputError
from models.verification.language.unsafe_set import Alternative, UnsafeSet, unsafe_set
from models.verification.network.graph import FloatArray

MOST_CASES = 1_000_000
MOST_BYTES = 100_000_000  # unpacked
MOST_DEPTH = 100_000  # of parentheses in parentheses, each of which takes some 160 bytes while it is open
MOST_DIGITS = 1_100  # of a number: the longest that float64 has exactly takes 767 significant ones, 1,077 in all
MOST_BITS = 20_000  # of a sum's or product's numerator or denominator: five factors of 1,100 digits
CHECKED = 1024  # cases and tokens between two looks at the clock
COMMENT, TOKEN = re.compile(r";[^\r\n]*"), re.compile(r"[()]|[^\s()]+")
# an exponent of three digits covers float64; as a fraction, 1e-999999999 would fill the memory
NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
COMPARISONS = {"<=": (-1,), "<": (-1,), ">=": (1,), ">": (1,), "=": (-1, 1)}  # a ~ b: sign * (a - b) >= 0
OPERATORS = (*COMPARISONS, "and", "or", "+", "-", "*")


class Case(NamedTuple):
    """A conjunction. walls: i -> upper wall of X_i, ~i -> minus its lower wall, so that the smaller is the tighter.

    rows: pairs of (j -> coefficient of Y_j) and a constant; together they are >= 0.
    """

    walls: dict[int, float]
    rows: tuple[tuple[dict[int, float], float], ...] = ()


Variables = Mapping[str, tuple[str, int]]  # X_i -> ("X", i)
Term = dict[str, Fraction]  # variable -> coefficient; "" -> the constant
Value = str | Term | list[Case] | None  # atom, linear term, formula, ()


def read_vnnlib(path: Path, inputs: int, outputs: int, seconds: float = math.inf) -> UnsafeSet:
    """Reads a `.vnnlib` or `.vnnlib.gz` file: see `parse_vnnlib`. Raises InputError also where it cannot be read."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise InputError(f"property must have at most {MOST_BYTES:,} bytes, unpacked, got more ({path})")
        text = content.decode()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise InputError(f"property must be a readable VNN-LIB file, got {error} ({path})") from error
    return parse_vnnlib(text, inputs, outputs, str(path), seconds)


def parse_vnnlib(text: str, inputs: int, outputs: int, where: str = "VNN-LIB text",
                 seconds: float = math.inf) -> UnsafeSet:
    """The unsafe set that the asserts describe, for a network of so many inputs (n) and outputs (o).

    Returns boxes (R, n) in the order of the text and alternatives (R, K, M, o), see `UnsafeSet`. A case that says
    nothing of the outputs has one row of zeros, which always holds.

    Raises:
        InputError: not VNN-LIB (with line and expression); a constraint on several inputs, or on inputs and outputs;
            variables other than the network's; an input without a wall; no case that can happen; more than a million
            cases; parentheses more than 100,000 deep; a number that float64 cannot hold; reading that takes longer than
            `seconds`.
    """
    text = COMMENT.sub("", text)
    deadline = time.monotonic() + seconds

    def in_time() -> None:
        if time.monotonic() > deadline:
            raise InputError(f"property must be read within the time limit, got no further in {seconds:.3g} s")

    position: int | None = None  # of the token that an error is about
    names = {f"{kind}_{i}": (kind, i) for kind, size in (("X", inputs), ("Y", outputs)) for i in range(size)}
    variables: dict[str, tuple[str, int]] = {}
    asserts: list[list[Case]] = []
    frames: list[tuple[int, list[Value]]] = []  # of each open parenthesis the position and what stands in it
    try:
        for position, match in enumerate(TOKEN.finditer(text)):
            token = match.group()
            if not position % CHECKED:
                in_time()
            if token == "(":
                if len(frames) == MOST_DEPTH:
                    raise InputError(f"parentheses must be nested at most {MOST_DEPTH:,} deep, got more")
                frames.append((position, []))
            elif not frames:
                raise InputError(f"command must be in parentheses, got {token!r:.40}")
            elif token != ")":
                frames[-1][1].append(token)
            else:
                position, items = frames.pop()
                if frames:
                    frames[-1][1].append(_expression(items, variables, in_time))
                else:
                    _command(items, names, variables, asserts)
        if frames:
            position = frames[-1][0]
            raise InputError("parenthesis must be closed, got the end of the text")
        position = None
        if missing := next((name for name in names if name not in variables), None):
            raise InputError(f"variables must be the network's {inputs} inputs and {outputs} outputs, got no {missing}")
        if not (cases := _conjunction(asserts, in_time)):
            raise InputError("box must have lower <= upper in at least one case, got none that can happen")
        return unsafe_set([_arrays(case, inputs, outputs) for case in cases])
    except InputError as error:
        if position is not None:
            start = next(islice(TOKEN.finditer(text), position, None)).start()
            shown = " ".join(text[start : start + 60].split())
            where = f"{where}, line {text.count(chr(10), 0, start) + 1}: {shown}"
        raise InputError(f"{error} ({where})") from error


def _command(items: Sequence[Value], names: Variables, variables: dict[str, tuple[str, int]],
             asserts: list[list[Case]]) -> None:
    match items:
        case ["declare-const", str(name), "Real"] | ["declare-fun", str(name), None, "Real"]:
            if name not in names or name in variables:
                raise InputError("variable must be declared once and be an input X_i or output Y_j of the network, "
                                 f"counted from 0, got {name!r:.40}")
            variables[name] = names[name]
        case ["assert", list(formula)]:
            asserts.append(formula)
        case _:
            raise InputError("command must be (declare-const NAME Real), (declare-fun NAME () Real) or (assert FORMULA)"
                             f", got {list(items)!r:.60}")


def _expression(items: Sequence[Value], variables: Variables, in_time: Callable[[], None]) -> Value:
    """The value of (operator arguments...), the arguments evaluated."""
    if not items:
        return None  # the () of declare-fun; refused wherever else it stands
    operator, *values = items
    if not isinstance(operator, str) or operator not in OPERATORS:
        raise InputError(f"operator must be one of {', '.join(OPERATORS)}, got {operator!r:.40}")
    if not values or (operator in COMPARISONS and len(values) != 2):
        raise InputError(f"{operator} must have {'two sides' if values else 'arguments'}, got {len(values)}")
    if operator in COMPARISONS:
        return _comparison(operator, values[0], values[1], variables)
    if operator in ("+", "-", "*"):
        return _arithmetic(operator, [_term(value, variables) for value in values], in_time)
    formulas = [value for value in values if isinstance(value, list)]
    if len(formulas) < len(values):
        raise InputError(f"{operator} must join formulas, got {values!r:.60}")
    return _conjunction(formulas, in_time) if operator == "and" else list(chain.from_iterable(formulas))


def _comparison(operator: str, left: Value, right: Value, variables: Variables) -> list[Case]:
    found = variables.get(left) if isinstance(left, str) else None
    if found and operator != "=" and isinstance(right, str) and right not in variables:  # the bulk of large files, fast
        (kind, i), number, most = found, _number(right), operator[0] == "<"
        bound = _above(number if most else number.copy_negate())
        return [Case({i if most else ~i: bound}) if kind == "X" else Case({}, (({i: -1.0 if most else 1.0}, bound),))]
    a, b = _term(left, variables), _term(right, variables)
    return _conjunction([_at_least_zero(_sum([(sign, a), (-sign, b)]), variables) for sign in COMPARISONS[operator]])


def _term(value: Value, variables: Variables) -> Term:
    if isinstance(value, str):
        return {"": Fraction(0), value: Fraction(1)} if value in variables else {"": Fraction(_number(value))}
    if not isinstance(value, dict):
        raise InputError(f"term must be a number, a declared variable, a sum or a product, got {value!r:.60}")
    return value


def _arithmetic(operator: str, terms: Sequence[Term], in_time: Callable[[], None]) -> Term:
    first, *others = terms if len(terms) > 1 or operator != "-" else ({}, *terms)
    rest = _watched(others, in_time)
    if operator != "*":
        return _sum(chain([(1, first)], ((1 if operator == "+" else -1, term) for term in rest)))
    for term in rest:
        factor, first = (first, term) if len(first) == 1 else (term, first)
        if len(factor) > 1:
            raise InputError("product must have at most one factor with variables, got several")
        first = _sum([(factor[""], first)])
    return first


def _watched(terms: Sequence[Term], in_time: Callable[[], None]) -> Iterator[Term]:
    for number, term in enumerate(terms):
        if not number % CHECKED:
            in_time()
        yield term


def _sum(parts: Iterable[tuple[Fraction | int, Term]]) -> Term:
    total = {"": Fraction(0)}
    for factor, term in parts:
        for name, slope in term.items():
            added = total[name] = total.get(name, Fraction(0)) + factor * slope
            if max(added.numerator.bit_length(), added.denominator.bit_length()) > MOST_BITS:
                raise InputError(f"sums and products must have numbers of at most {MOST_BITS:,} bits, got more")
    return {name: slope for name, slope in total.items() if slope or not name}


def _at_least_zero(term: Term, variables: Variables) -> list[Case]:
    """The cases of term >= 0; none where that is never so."""
    constant, slopes = term[""], {variables[name]: slope for name, slope in term.items() if name}
    if not slopes:
        return [Case({})] if constant >= 0 else []
    if len(slopes) > 1 and any(kind == "X" for kind, _ in slopes):
        raise InputError("constraint must be on one input or on outputs alone, got "
                         + ", ".join(f"{kind}_{i}" for kind, i in islice(slopes, 4)))
    scale = Fraction(math.lcm(*(slope.denominator for slope in slopes.values())),
                     math.gcd(*(slope.numerator for slope in slopes.values())))
    row, bound = {i: _above(slope * scale) for (_, i), slope in slopes.items()}, _above(constant * scale)
    if any(row[i] != slope * scale for (_, i), slope in slopes.items()):
        raise InputError("coefficients must be integers that float64 has, times one number, got more digits than that")
    if all(kind == "Y" for kind, _ in slopes):
        return [Case({}, ((row, bound),))]
    return [Case({i if slope < 0 else ~i: bound for i, slope in row.items()})]


def _conjunction(formulas: Sequence[list[Case]], in_time: Callable[[], None] = lambda: None) -> list[Case]:
    if len(formulas) == 1:
        return formulas[0]
    if (count := math.prod(map(len, formulas))) > MOST_CASES:
        raise InputError(f"property must have at most {MOST_CASES:,} cases, got {count:,}")
    single = _join(formula[0] for formula in formulas if len(formula) == 1)  # at once, for there may be thousands
    cases = [single] if single and all(formulas) else []
    for formula in formulas:
        if len(formula) > 1:
            joined = []
            for number, pair in enumerate(product(cases, formula)):
                if not number % CHECKED:
                    in_time()
                if case := _join(pair):
                    joined.append(case)
            cases = joined
    return cases


def _join(parts: Iterable[Case]) -> Case | None:
    """All parts at once; None where that leaves the box empty."""
    walls: dict[int, float] = {}
    rows: list[tuple[dict[int, float], float]] = []
    for part in parts:
        for side, wall in part.walls.items():
            if wall < walls.get(side, math.inf):
                walls[side] = wall
        rows += part.rows
    for side, wall in walls.items():
        if -wall > walls.get(~side, math.inf):
            return None
    return Case(walls, tuple(rows))


def _arrays(case: Case, inputs: int, outputs: int) -> tuple[FloatArray, FloatArray, Alternative]:
    """Lower (n,), upper (n,), coefficients (M, o) and constants (M,) of a case."""
    if len(case.walls) < 2 * inputs:
        side = next(side for i in range(inputs) for side in (~i, i) if side not in case.walls)
        raise InputError(f"X_{max(side, ~side)} must have both walls in every case, got no "
                         + ("lower one" if side < 0 else "upper one"))
    rows = case.rows or (({}, 0.0),)
    coefficients = np.zeros((len(rows), outputs))
    for m, (row, _) in enumerate(rows):
        for j, slope in row.items():
            coefficients[m, j] = slope
    lower, upper = 0.0 - np.array([case.walls[~i] for i in range(inputs)]), [case.walls[i] for i in range(inputs)]
    return lower, np.array(upper), (coefficients, np.array([constant for _, constant in rows]))


def _number(text: str) -> Decimal:
    if NUMBER.fullmatch(text) is None:
        raise InputError("atom must be a declared variable or a decimal number (exponent of at most three digits), "
                         f"got {text!r:.40}")
    if len(text) > MOST_DIGITS:
        raise InputError(f"number must have at most {MOST_DIGITS:,} digits, got {len(text):,}")
    return Decimal(text)


def _above(exact: Decimal | Fraction) -> float:
    """The smallest float64 >= exact, never -0.0, for boxes are told apart by their bytes."""
    try:
        near = float(exact)
    except OverflowError:
        near = math.inf
    if math.isfinite(near) and near < exact:
        near = math.nextafter(near, math.inf)
    if not math.isfinite(near):
        raise InputError("number must fit float64, got one beyond 1.8e308")
    return near + 0.0
