"""Digest of the code behind a measurement: a module and what it imports, without comments and docstrings.

Not in it: `__init__.py` files, and what the code reads when it runs (YAML, data). Where a measurement depends on such a
file, whoever measures adds a digest of it (task_digest.py).
"""

import ast
import hashlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def code_digest(module: str, package: str | tuple[str, ...], root: Path = ROOT) -> str:
    """The first 16 hex digits for a module and all that it imports, directly or not, of one or several packages."""
    digest = hashlib.sha256()
    for name, tree in sorted(_reached(module, package, root).items()):
        digest.update(f"{name}\0{ast.dump(tree)}\0".encode())
    return digest.hexdigest()[:16]


def _reached(module: str, package: str | tuple[str, ...], root: Path) -> dict[str, ast.Module]:
    """Syntax trees without docstrings by module name."""
    trees: dict[str, ast.Module] = {}
    pending = [module]
    while pending:
        name = pending.pop()
        path = root / f"{name.replace('.', '/')}.py"
        if name in trees or not path.is_file():
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(package):
                pending += [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
            if isinstance(node, ast.Import):
                pending += [alias.name for alias in node.names if alias.name.startswith(package)]
            if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
                del node.body[0]
        trees[name] = tree
    return trees
