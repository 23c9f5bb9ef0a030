"""Which modules the light install holds: what its command, observers and checks of guarantees import, and these do.

Imports are read from the sources, not carried out. Those inside of functions are followed too, but where what they lead
to needs a package that the light install does not have: such a module stays outside (MLflow's registry, the reader of
mlflow.yaml), and the import fails there, when it is asked for. An import at the top of a module is never left out.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import packages_distributions
from pathlib import Path
from sys import stdlib_module_names

ENTRY = "pipelines.controller_command_line"
NAMED = ("acting",)  # modules of systems, imported by names that contracts give
OWN = ("pipelines", "components", "systems", "serving", "models", "recording", "feature_store")


class ClosureError(Exception):
    """The light install cannot be made of these sources."""


@dataclass(frozen=True)
class Import:
    """name: dotted, of a module or of what is in it; lazy: inside of a function."""

    name: str
    lazy: bool


@dataclass(frozen=True)
class Closure:
    """What belongs to the light install.

    Attributes:
        modules: dotted name -> file.
        left_out: (module, what it imports in a function), where the light install has no such thing.
    """

    modules: Mapping[str, Path]
    left_out: frozenset[tuple[str, str]]


@dataclass
class Sources:
    """The project's modules.

    Attributes:
        root: folder of the packages.
        packages: names of distributions, normalised, that the light install may have.
    """

    root: Path
    packages: frozenset[str]
    _imports: dict[str, tuple[Import, ...]] = field(default_factory=dict)

    @cached_property
    def _distributions(self) -> Mapping[str, list[str]]:
        return packages_distributions()

    def closure(self, *entries: str) -> Closure:
        """All that the entries need; without entries: those of the light install.

        Raises:
            ClosureError: something is imported at the top of a module that the light install does not have.
        """
        named = [_dotted(path.relative_to(self.root)) for name in NAMED
                 for path in sorted(self.root.glob(f"systems/*/**/{name}.py"))]
        found: dict[str, Path] = {}
        left_out: set[tuple[str, str]] = set()
        open_modules = list(entries or (ENTRY, *named))
        for entry in open_modules:
            if chain := self._heavy(entry):
                raise ClosureError(f"light install must not import {chain[-1]}, got {' -> '.join(chain)}")
        while open_modules:
            module = open_modules.pop()
            if module in found:
                continue
            found[module] = self._file(module)
            for one in self.imports(module):
                targets = self._targets(one.name)
                if one.lazy and any(self._is_missing(target) or self._heavy(target) for target in targets):
                    left_out.add((module, targets[-1]))
                    continue
                open_modules += [target for target in targets if self._is_own(target)]
        return Closure(dict(sorted(found.items())), frozenset(left_out))

    def imports(self, module: str) -> tuple[Import, ...]:
        """What a module imports; what is for type checkers alone left out."""
        if module not in self._imports:
            tree = ast.parse(self._file(module).read_text(encoding="utf-8"))
            self._imports[module] = tuple(_imports_of(tree.body, lazy=False))
        return self._imports[module]

    def _heavy(self, module: str) -> tuple[str, ...]:
        """The chain of imports from a module to what the light install does not have; () where all is there."""
        seen = {module}
        open_chains: list[tuple[str, ...]] = [(module,)]
        while open_chains:
            chain = open_chains.pop()
            if not self._is_own(chain[-1]):
                if self._is_missing(chain[-1]):
                    return chain
                continue
            for one in self.imports(chain[-1]):
                for target in self._targets(one.name):
                    if not one.lazy and target not in seen:
                        seen.add(target)
                        open_chains.append((*chain, target))
        return ()

    def _targets(self, name: str) -> tuple[str, ...]:
        """Modules that an import of `name` loads: packages on the way and the module; of others the top package."""
        parts = name.split(".")
        if parts[0] not in OWN:
            return (parts[0],)
        prefixes = [".".join(parts[:count]) for count in range(1, len(parts) + 1)]
        return tuple(prefix for prefix in prefixes if self._is_module(prefix))

    def _is_own(self, module: str) -> bool:
        return module.split(".")[0] in OWN

    def _is_missing(self, module: str) -> bool:
        """Whether it is of a package that the light install does not have."""
        if self._is_own(module) or module in stdlib_module_names:
            return False
        names = self._distributions.get(module, [module])  # one that is not installed here: by its own name
        return not any(normalised(name) in self.packages for name in names)

    def _is_module(self, name: str) -> bool:
        path = self.root.joinpath(*name.split("."))
        return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()

    def _file(self, module: str) -> Path:
        path = self.root.joinpath(*module.split("."))
        return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def normalised(name: str) -> str:
    """A distribution's name as registries compare it."""
    return name.lower().replace("_", "-").replace(".", "-")


def _dotted(path: Path) -> str:
    return ".".join(path.with_suffix("").parts)


def _imports_of(nodes: list[ast.stmt], lazy: bool) -> Iterator[Import]:
    for node in nodes:
        match node:
            case ast.Import():
                yield from (Import(alias.name, lazy) for alias in node.names)
            case ast.ImportFrom():
                yield from (Import(f"{node.module}.{alias.name}", lazy) for alias in node.names)
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                yield from _imports_of(node.orelse, lazy)
            case _:
                inside = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                for child in ast.iter_child_nodes(node):
                    # bodies of compound statements, of handlers and of cases
                    parts = [child] if isinstance(child, ast.stmt) else getattr(child, "body", [])
                    yield from _imports_of([part for part in parts if isinstance(part, ast.stmt)]
                                           if isinstance(parts, list) else [], inside)
