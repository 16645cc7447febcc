"""Small errors put into a module's code on purpose, one by one: does any test notice?

A mutant changes one place of a syntax tree, of Python or of the SQL conditions that checkers give to Spark:

* a comparison: ``<`` and ``<=``, ``>`` and ``>=``, ``==`` and ``!=``, is and is not null, are taken for each other;
* a condition: an operand of an and or an or, a not, a bound of a BETWEEN, a whole ``where`` is dropped; that of a
  ``when`` is negated. What is dropped is not negated as well, nor dropped with all other operands;
* a join: ``left_anti`` and ``left_semi`` are taken for each other; ``left`` and ``full`` keep only what matches;
* the smallest and the largest are taken for each other, and ``+ 1`` and ``- 1`` are dropped.

`cosmic_ray` has such operators for Python, but knows nothing of columns and SQL, and starts a process a mutant.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final

import sqlglot
from sqlglot import exp

BOUNDS: Final = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
FLIPPED: Final = {
    **BOUNDS, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}  # fmt: skip
BOUNDS_SQL: Final[dict[type[exp.Expr], type[exp.Binary]]] = {
    exp.LT: exp.LTE, exp.LTE: exp.LT, exp.GT: exp.GTE, exp.GTE: exp.GT, exp.NullSafeEQ: exp.EQ,
}  # fmt: skip
FLIPPED_SQL: Final = {**BOUNDS_SQL, exp.EQ: exp.NEQ, exp.NEQ: exp.EQ}
RENAMED: Final = {
    "min": "max", "max": "min", "min_by": "max_by", "max_by": "min_by", "least": "greatest", "greatest": "least",
    "minimum": "maximum", "maximum": "minimum",
}  # fmt: skip
JOINS: Final = {"left_anti": "left_semi", "left_semi": "left_anti", "left": "inner", "full": "inner"}
SQL_OF: Final = ("where", "expr")
"""Functions whose argument is a condition in SQL."""

_RESERVED = re.compile(r"\bfrom\b")
_NOT_CODE: Final = ("annotation", "returns", "decorator_list")


@dataclass(frozen=True)
class Mutant:
    """One change of a module: ``was`` in a function, and its replacement; ``nth`` of its kind there, from 0."""

    module: str
    function: str
    was: str
    now: str
    nth: int
    code: CodeType

    @property
    def name(self) -> str:
        """The text that tells it from any other, as long as the function stays the same."""
        place = f"{self.module.rpartition('.')[2]}.{self.function}"
        return f"{place}: {self.was} -> {self.now or 'nothing'}" + (f" #{self.nth + 1}" if self.nth else "")


@dataclass(frozen=True)
class _Place:
    """A node by where it hangs."""

    function: str
    parent: ast.AST
    field: str
    index: int | None
    node: ast.AST

    def put(self, node: ast.AST) -> None:
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node


def mutants(module: ModuleType) -> Iterator[Mutant]:
    """Yield every mutant of a module, in the order of its code."""
    path = Path(str(module.__file__))
    tree = ast.parse(path.read_text())
    seen: Counter[tuple[str, str, str]] = Counter()
    for place in list(_places(tree, "")):
        for was, now, node in _changes(place):
            with _changed(place, node):
                code = compile(ast.fix_missing_locations(tree), str(path), "exec")
            nth = seen[place.function, was, now]
            seen[place.function, was, now] += 1
            yield Mutant(module.__name__, place.function, was, now, nth, code)


def unchanged(module: ModuleType) -> Mutant:
    """Return the mutant without a change: all its SQL was read and written, as for the others."""
    path = Path(str(module.__file__))
    tree = ast.parse(path.read_text())
    for place in list(_places(tree, "")):
        for argument in _sql_of(place.node):
            argument.value = _parsed(argument.value).sql("spark")
    return Mutant(module.__name__, "", "all", "all", 0, compile(tree, str(path), "exec"))


@contextmanager
def _changed(place: _Place, node: ast.AST) -> Iterator[None]:
    place.put(node)
    try:
        yield
    finally:
        place.put(place.node)


def _places(node: ast.AST, function: str) -> Iterator[_Place]:
    """Walk the tree; annotations are never run."""
    for field, value in ast.iter_fields(node):
        if field in _NOT_CODE:
            continue
        children = enumerate(value) if isinstance(value, list) else [(None, value)]
        for index, child in children:
            if not isinstance(child, ast.AST):
                continue
            is_named = isinstance(child, ast.FunctionDef | ast.ClassDef)
            inside = ".".join(filter(None, (function, getattr(child, "name", "")))) if is_named else function
            yield _Place(function, node, field, index, child)
            yield from _places(child, inside)


def _changes(place: _Place) -> Iterator[tuple[str, str, ast.AST]]:
    """Yield the text of a node, its replacement, and the node itself."""
    node = place.node
    stands_alone = not _is_junction(place.parent) and not _is_call_of("where", place.parent)
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in (FLIPPED if stands_alone else BOUNDS):
            yield _told(node, ast.Compare(node.left, [FLIPPED[type(operator)]()], node.comparators))
        case ast.BinOp(op=ast.BitAnd() | ast.BitOr()):
            yield _told(node, node.right)
            yield _told(node, node.left)
        case ast.BinOp(op=ast.Add() | ast.Sub(), right=ast.Constant(value=1)):
            yield _told(node, node.left)
        case ast.BoolOp():
            for left_out in node.values:
                rest = [value for value in node.values if value is not left_out]
                yield _told(node, rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest))
        case ast.UnaryOp(op=ast.Not() | ast.Invert()) if stands_alone:
            yield _told(node, node.operand)
        case ast.Name(id="min" | "max"):
            yield node.id, RENAMED[node.id], ast.Name(RENAMED[node.id], node.ctx)
        case ast.Attribute() if node.attr in RENAMED:
            yield node.attr, RENAMED[node.attr], ast.Attribute(node.value, RENAMED[node.attr], node.ctx)
        case ast.Call(func=ast.Attribute() as called):
            yield from _changed_calls(node, called, stands_alone=stands_alone)


def _is_call_of(name: str, node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == name


def _is_junction(node: ast.AST) -> bool:
    return isinstance(node, ast.BoolOp) or (isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.BitOr))


def _is_negated_itself(node: ast.AST) -> bool:
    is_null_test = _is_call_of("isNull", node) or _is_call_of("isNotNull", node)
    return is_null_test or isinstance(node, ast.Compare | ast.UnaryOp)


def _told(was: ast.AST, now: ast.AST) -> tuple[str, str, ast.AST]:
    return ast.unparse(was), ast.unparse(now), now


def _changed_calls(node: ast.Call, called: ast.Attribute, *, stands_alone: bool) -> Iterator[tuple[str, str, ast.AST]]:
    def with_first(argument: ast.expr) -> ast.Call:
        return ast.Call(called, [argument, *node.args[1:]], node.keywords)

    match called.attr, node.args:
        case "isNull" | "isNotNull", [] if stands_alone:
            other = "isNull" if called.attr == "isNotNull" else "isNotNull"
            yield _told(node, ast.Call(ast.Attribute(called.value, other, called.ctx), [], []))
        case "join", [*_, ast.Constant(value=kind)] if kind in JOINS:
            joined = ast.Call(called, [*node.args[:-1], ast.Constant(JOINS[kind])], node.keywords)
            yield f"{ast.unparse(node.args[0])}, {kind}", JOINS[kind], joined
        case "where", [condition] if not _is_junction(condition) and not _is_sql_junction(condition):
            yield f".where({ast.unparse(condition)})", "", called.value
        case "when", [condition, *_] if not _is_negated_itself(condition):
            negated = ast.UnaryOp(ast.Invert(), condition)
            yield f"when({ast.unparse(condition)})", f"when({ast.unparse(negated)})", with_first(negated)
    for argument in _sql_of(node):
        for was, now, changed in _changed_sql(argument.value, is_dropped=called.attr == "where"):
            yield was, now, with_first(ast.Constant(changed))


def _sql_of(node: ast.AST) -> Iterator[Any]:
    match node:
        case ast.Call(func=ast.Attribute(attr=name), args=[ast.Constant(value=str()) as argument]) if name in SQL_OF:
            yield argument


def _is_sql_junction(node: ast.AST) -> bool:
    is_sql = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return is_sql and isinstance(_parsed(ast.literal_eval(node)), exp.Connector)


def _parsed(sql: str) -> exp.Expr:
    # A column may have the name of a keyword, which Spark does not mind.
    return sqlglot.parse_one(_RESERVED.sub("`from`", sql), dialect="spark")


def _changed_sql(sql: str, *, is_dropped: bool) -> Iterator[tuple[str, str, str]]:
    """Yield the text of a part, its replacement, and the changed whole; ``is_dropped``: another mutant drops it."""
    whole = exp.Paren(this=_parsed(sql))
    for node in list(whole.this.walk()):
        negated = not (isinstance(node.parent, exp.Connector) or (is_dropped and _is_whole(node)))
        for changed in _changes_of_sql(node, negated=negated):
            actual = node.sql("spark"), changed.sql("spark")
            node.replace(changed)
            yield *actual, whole.this.sql("spark")
            changed.replace(node)


def _is_whole(node: exp.Expr) -> bool:
    parent = node.parent.parent if isinstance(node.parent, exp.Not) else node.parent
    return parent is not None and parent.parent is None


def _changes_of_sql(node: exp.Expr, *, negated: bool) -> list[exp.Expr]:
    match node:
        case exp.Connector() if not isinstance(node.parent, type(node)):
            # All operands of a chain of the same are dropped from there, one at a time.
            operands = list(node.flatten(unnest=False))
            return [
                reduce(
                    lambda left, right: type(node)(this=left, expression=right),
                    [one.copy() for one in operands if one is not left_out],
                )
                for left_out in operands
            ]
        case exp.Not() if negated:
            return [node.this.copy()]
        case exp.Is() if negated and not isinstance(node.parent, exp.Not):
            return [exp.Not(this=node.copy())]
        case exp.Between():
            low, high = node.args["low"], node.args["high"]
            return [
                exp.LTE(this=node.this.copy(), expression=high.copy()),
                exp.GTE(this=node.this.copy(), expression=low.copy()),
            ]
    flipped = (FLIPPED_SQL if negated else BOUNDS_SQL).get(type(node))
    return [flipped(this=node.this.copy(), expression=node.expression.copy())] if flipped else []
