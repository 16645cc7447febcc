"""Which files changed since a commit, and which test files depend on them, by imports.

A file depends on every module that it imports at run time, and on every module or file that a string in it names:
``python -m harness.cli.main`` starts a module, and ``nightly.toml`` is read. Packages are those of the checkout; test
files import each other by their stems, or by packages among the tests, such as ``fakes.clock``. grimp would know the
imports of packages, but neither test files nor strings.
"""

from __future__ import annotations

import ast
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

import networkx as nx

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping

REGISTRY: Final = "iter_modules(__path__)"
"""In a package that imports every module of its own."""
PACKAGES: Final = ("harness", "workloads", "nemesis", "checkers", "compose", "models")
TESTS: Final = "tests"
EVERYTHING: Final = "pyproject.toml"
"""Settings and dependencies of everything: every test depends on this file, farther than on any module."""
FARTHEST: Final = 1000
NEVER: Final = r"(?!)"
"""A pattern that nothing matches."""


class UnknownChangesError(Exception):
    """Nothing tells what changed, with the reason."""


@dataclass(frozen=True)
class Change:
    """Files by path below the root whose content changed since a commit, without changes of comments and docstrings."""

    files: frozenset[str]

    def modules(self) -> frozenset[str]:
        """Return the dotted names of the changed modules of packages."""
        return frozenset(_dotted(path) for path in self.files if path.endswith(".py") and _is_packaged(path))


def changed_since(root: Path, commit: str, *, record: str) -> Change:
    """Compare the working tree with a commit, the record of runs aside.

    Raises `UnknownChangesError` without git or without that commit.
    """
    _git(root, "cat-file", "-e", f"{commit}^{{commit}}")
    but_record = ("--", ".", f":!{record}")
    differing = _git(root, "diff", "--name-only", "--no-renames", "-z", commit, *but_record).split("\0")
    untracked = _git(root, "ls-files", "--others", "--exclude-standard", "-z", *but_record).split("\0")
    return Change(frozenset(path for path in {*differing, *untracked} - {""} if not _is_reworded(root, commit, path)))


def head_if_clean(root: Path, *, record: str) -> str | None:
    """Return the checked-out commit if the working tree has nothing else, the record of runs aside."""
    try:
        status = _git(root, "status", "--porcelain", "-z", "--", ".", f":!{record}")
        return None if status else _git(root, "rev-parse", "HEAD").strip()
    except UnknownChangesError:
        return None


def _git(root: Path, *arguments: str) -> str:
    # CI may run as another user than the one who checked out.
    command = ("git", "-c", f"safe.directory={root}", "-C", str(root), *arguments)
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except FileNotFoundError as error:
        raise UnknownChangesError("git is not installed") from error
    except subprocess.CalledProcessError as error:
        raise UnknownChangesError(error.stderr.strip().splitlines()[0] if error.stderr else str(error)) from error


def _is_reworded(root: Path, commit: str, path: str) -> bool:
    """Tell whether only comments and docstrings of a Python file differ."""
    if not path.endswith(".py") or not (root / path).exists():
        return False
    try:
        return _code((root / path).read_text()) == _code(_git(root, "show", f"{commit}:{path}"))
    except (UnknownChangesError, SyntaxError):
        return False


def _code(text: str) -> str:
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [statement for statement in node.body if not _is_string(statement)]
    return ast.dump(tree)


def _is_string(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(value=ast.Constant(value=str())):
            return True
    return False


@dataclass(frozen=True)
class Dependencies:
    """How many imports lie between each file and the nearest changed one; files that depend on no change are absent."""

    distances: Mapping[str, int]
    names: re.Pattern[str]

    def distance(self, files: Iterable[str], words: str) -> int | None:
        """Return the smallest distance of a test's files; 0 if its words name a changed module.

        A module is named by its last part: ``run --nemesis one-way`` names ``nemesis.one_way``.
        """
        distances = [self.distances[file] for file in files if file in self.distances]
        if not distances:
            return None
        return 0 if self.names.search(words.replace("-", "_")) else min(distances)


def dependencies(root: Path, change: Change) -> Dependencies:
    """Find the files that depend on a change. Files that cannot be parsed depend on nothing."""
    files = sorted(str(path.relative_to(root)) for top in (*PACKAGES, TESTS) for path in (root / top).rglob("*.py"))
    users = _users(root, files, change)
    sources = [path for path in change.files if path in users]
    paths = nx.multi_source_dijkstra_path(users, sources) if sources else {}
    distances = {path: len(way) - 1 for path, way in paths.items()}
    if EVERYTHING in change.files:
        distances = {**dict.fromkeys(files, FARTHEST), **distances}
    last_parts = sorted(re.escape(module.rpartition(".")[2]) for module in change.modules())
    names = rf"(?<![a-z])(?:{'|'.join(last_parts)})(?![a-z])" if last_parts else NEVER
    return Dependencies(distances, re.compile(names))


def _users(root: Path, files: Iterable[str], change: Change) -> nx.DiGraph[str]:
    """Return edges from each file to those that use it."""
    gone = [path for path in change.files if path.endswith(".py")]
    packages = {str(PurePosixPath(path).parent) for path in (*gone, *files) if path.endswith("/__init__.py")}
    paths = {_dotted(path) if _is_packaged(path) else _test_module(path, packages): path for path in (*gone, *files)}
    data = [path for path in change.files if not path.endswith(".py")]
    by_name = {PurePosixPath(path).name: path for path in data}
    users: nx.DiGraph[str] = nx.DiGraph()
    users.add_nodes_from([*files, *gone, *data])
    for path in data:
        users.add_edges_from((path, package) for package in _packages_above(root, path))
    for path in files:
        text = (root / path).read_text()
        try:
            names = list(_used(ast.parse(text)))
        except SyntaxError:
            continue
        if REGISTRY in text:
            beside = PurePosixPath(path).parent
            users.add_edges_from(
                (other, path) for other in files if PurePosixPath(other).parent == beside and other != path
            )
        for name in names:
            used = paths.get(name) or by_name.get(name.rpartition("/")[2])
            if used is not None and used != path:
                users.add_edge(used, path)
    return users


def _packages_above(root: Path, path: str) -> list[str]:
    """Return the nearest package that a data file lies in, if any: whoever imports it may read the file."""
    above = [str(folder / "__init__.py") for folder in PurePosixPath(path).parents] if _is_packaged(path) else []
    return [package for package in above if (root / package).exists()][:1]


def _used(tree: ast.AST) -> Iterator[str]:
    """Yield the names of modules that are imported at run time, their packages, and all strings."""
    for child in ast.iter_child_nodes(tree):
        match child:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                continue
            case ast.Import(names=names):
                yield from (parent for alias in names for parent in _with_parents(alias.name))
            case ast.ImportFrom(module=str(module), names=names):
                yield from _with_parents(module)
                yield from (f"{module}.{alias.name}" for alias in names)
            case ast.Constant(value=str(text)):
                yield text
        yield from _used(child)


def _with_parents(module: str) -> Iterator[str]:
    parts = module.split(".")
    yield from (".".join(parts[:count]) for count in range(1, len(parts) + 1))


def _is_packaged(path: str) -> bool:
    return path.partition("/")[0] in PACKAGES


def _test_module(path: str, packages: Container[str]) -> str:
    """Return the name by which test files import this one: below the nearest folder that is no package."""
    top = PurePosixPath(path).parent
    while str(top) in packages:
        top = top.parent
    return _dotted(str(PurePosixPath(path).relative_to(top)))


def _dotted(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
