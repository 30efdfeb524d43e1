"""What type checkers see: `python -m serrate.ops.stubs` writes the stubs of what is made from the table at import.

`serrate/__init__.pyi` has the functions, `serrate/linalg.pyi` and `serrate/fft.pyi` those of the extensions,
`serrate/tensor/operations.pyi` the operators and methods of Tensor.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from serrate.ops import operators
from serrate.ops.operators import BINARY, COMPARISONS, UNARY, public
from serrate.ops.record import members
from serrate.tensor.tensor import Tensor

ROOT = Path(__file__).parents[1]
_HEAD = '"""Written by serrate.ops.stubs; do not edit."""\n\nfrom typing import Any\n\n'


def package() -> str:
    """The stub of the package: its own imports, and a signature for each operation."""
    tree = ast.parse((ROOT / "__init__.py").read_text())
    names = [
        f"from {node.module} import {alias.name} as {alias.name}"
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module != "serrate.ops.operators"
        for alias in node.names
        if alias.asname is None
    ]
    names += [f"from serrate.table import {own} as {name}" for name, own in _of_tables(tree).items()]
    known = {name.rsplit(" ", 1)[1] for name in names}
    operations = {name: each for name, each in sorted(public().items()) if name not in known}
    names += [line for line in _types(operations) if not line.endswith(" Tensor")]
    functions = [_function(name, each) for name, each in operations.items()]
    return _HEAD + "\n".join(names) + "\n\n__version__: str\n__all__: list[str]\n\n" + "\n".join(functions) + "\n"


def _of_tables(package: ast.Module) -> dict[str, str]:
    """The names that the package gets from `serrate.table` when they are first used."""
    found: dict[str, str] = next(
        ast.literal_eval(node.value)
        for node in package.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_OF_TABLES"
    )
    return found


def extension(name: str) -> str:
    """The stub of an extension: a signature for each function, and the types of what they give."""
    functions = dict(sorted(members(name).items()))
    lines = [*_types(functions), "", "__all__: list[str]", "", *(_function(*pair) for pair in functions.items())]
    return _HEAD + "\n".join(lines) + "\n"


def _types(functions: dict[str, Callable[..., Any]]) -> list[str]:
    """The imports of what these functions give."""
    given = [(_namespace(each), _gives(each)) for each in functions.values()]
    found = {(names[kind].__module__, kind) for names, kind in given if kind not in ("Any", "None", "list[Tensor]")}
    return [f"from {module} import {kind}" for module, kind in sorted(found)]


def methods() -> str:
    """The stub of what Tensor has from the table."""
    lines = [f"    def __{name}__(self) -> Tensor: ..." for name in UNARY]
    for name in [*BINARY, "matmul"]:
        lines += [f"    def __{kind}{name}__(self, other: Any) -> Tensor: ..." for kind in ("", "r")]
    lines += [f"    def __i{name}__(self, other: Any) -> Tensor: ..." for name in BINARY]
    lines += [f"    def __{name}__(self, other: object) -> Any: ..." for name in COMPARISONS]
    signed = operators.methods()
    lines += [f"    {_function(name, vars(Tensor)[name])}" for name in signed]
    own = {name for c in Tensor.__mro__ for name in vars(c) if c is Tensor} - _declared() - set(signed)
    lines += [
        f"    def {name}(self, *args: Any, **options: Any) -> Any: ..." for name in sorted(own) if _is_method(name)
    ]
    head = _HEAD + "from serrate.tensor.tensor import Tensor\n\n"
    return head + "class Operations:\n" + "\n".join(lines) + "\n"


def _declared() -> set[str]:
    """What the class statement of Tensor itself defines."""
    tree = ast.parse((ROOT / "tensor" / "tensor.py").read_text())
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Tensor")
    return {node.name for node in body if isinstance(node, ast.FunctionDef)}


def _is_method(name: str) -> bool:
    return not name.startswith("_") and inspect.isfunction(vars(Tensor)[name])


def _function(name: str, each: Callable[..., Any]) -> str:
    signature = inspect.signature(each)
    plain = [
        p.replace(annotation=p.empty if p.name == "self" else Any, default=p.empty if p.default is p.empty else ...)
        for p in signature.parameters.values()
    ]
    shown = str(signature.replace(parameters=plain, return_annotation=inspect.Signature.empty))
    shown = shown.replace("Ellipsis", "...").replace("typing.Any", "Any")
    return f"def {name}{shown} -> {_gives(each)}: ..."


def _namespace(each: Callable[..., Any]) -> dict[str, Any]:
    """The names that the annotations of an operation's implementation, or of another function, refer to."""
    found: dict[str, Any] = getattr(getattr(each, "implementation", each), "__globals__", {})
    return found


def _gives(each: Callable[..., Any]) -> str:
    """What a function gives, as a stub may name it: a Tensor, a named tuple of some, or anything."""
    annotation = inspect.signature(each).return_annotation
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    if name in ("Tensor", "list[Tensor]", "None"):  # which a file may import for type checkers alone
        return name
    kind = _namespace(each).get(name)
    named = isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")
    return name if named else "Any"


def files() -> dict[Path, str]:
    """Each stub and its text."""
    extensions = {ROOT / f"{name}.pyi": extension(name) for name in ("fft", "linalg")}
    return {ROOT / "__init__.pyi": package(), ROOT / "tensor" / "operations.pyi": methods()} | extensions


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text)
