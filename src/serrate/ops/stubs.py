"""What type checkers see: `python -m serrate.ops.stubs` writes the stubs of what is made from the table at import.

`serrate/__init__.pyi` has the functions, `serrate/tensor/operations.pyi` the operators and methods of Tensor.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from serrate.ops.operators import BINARY, UNARY, public
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
    ]
    known = {name.rsplit(" ", 1)[1] for name in names}
    functions = [_function(name, each) for name, each in sorted(public().items()) if name not in known]
    return _HEAD + "\n".join(names) + "\n\n__version__: str\n__all__: list[str]\n\n" + "\n".join(functions) + "\n"


def methods() -> str:
    """The stub of what Tensor has from the table."""
    lines = [f"    def __{name}__(self) -> Tensor: ..." for name in UNARY]
    for name in [*BINARY, "matmul"]:
        lines += [f"    def __{kind}{name}__(self, other: Any) -> Tensor: ..." for kind in ("", "r")]
    lines += [f"    def __i{name}__(self, other: Any) -> Tensor: ..." for name in BINARY]
    own = {name for c in Tensor.__mro__ for name in vars(c) if c is Tensor} - _declared()
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
        p.replace(annotation=Any, default=p.empty if p.default is p.empty else ...)
        for p in signature.parameters.values()
    ]
    shown = str(signature.replace(parameters=plain, return_annotation=inspect.Signature.empty))
    shown = shown.replace("Ellipsis", "...").replace("typing.Any", "Any")
    gives = "Tensor" if signature.return_annotation in ("Tensor", Tensor) else "Any"
    return f"def {name}{shown} -> {gives}: ..."


def files() -> dict[Path, str]:
    """Each stub and its text."""
    return {ROOT / "__init__.pyi": package(), ROOT / "tensor" / "operations.pyi": methods()}


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text)
