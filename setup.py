"""Builds the native code with the package; everything else about the package stands in pyproject.toml."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import ClassVar

from setuptools import Command, Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build import build

SOURCE = Path(__file__).parent / "src"

# The package is not imported, since that would need torch; its modules that need nothing are.
package = sys.modules["serrate"] = types.ModuleType("serrate")
package.__path__ = [str(SOURCE / "serrate")]

from serrate.errors import CompileError  # noqa: E402
from serrate.native import building  # noqa: E402


class BuildNative(Command):
    """Compiles the sources in serrate/native, into the wheel or, for an editable installation, beside the sources."""

    description = "build the native code"
    user_options: ClassVar = [("build-lib=", None, "where the package is built")]
    editable_mode = False

    def initialize_options(self) -> None:
        self.build_lib: str | None = None

    def finalize_options(self) -> None:
        self.set_undefined_options("build_py", ("build_lib", "build_lib"))

    def folder(self) -> Path:
        """Where the libraries go."""
        root = SOURCE if self.editable_mode else Path(self.build_lib or "")
        return root / building.BUILT.relative_to(SOURCE)

    def run(self) -> None:
        try:
            building.build(self.folder())
        except CompileError as error:
            print(
                "Serrate is installed without its native code, and runs on torch alone, more slowly: "
                f"{error.output.strip()}\nIt is compiled when first used, once there is a C++ compiler.",
                file=sys.stderr,
            )

    def get_source_files(self) -> list[str]:
        return []  # pyproject.toml lists the sources, as data of the package: they are installed too.

    def get_outputs(self) -> list[str]:
        return [str(building.library_of(level, self.folder())) for level in building.levels()]

    def get_output_mapping(self) -> dict[str, str]:
        return {}


class Wheel(bdist_wheel):
    """A wheel for one platform and any Python: the libraries have a plain C interface."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


class Platform(Distribution):
    """A distribution that is not the same on every platform, which setuptools tells by extension modules."""

    def has_ext_modules(self) -> bool:
        return True


build.sub_commands.append(("build_native", None))
setup(distclass=Platform, cmdclass={"bdist_wheel": Wheel, "build_native": BuildNative})
