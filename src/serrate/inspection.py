"""This module tells users of the array API the version of the standard, the devices, the dtypes and the limits."""

from __future__ import annotations

from typing import Any

import torch

VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")
"""The versions of the standard that the functions of `sr` follow."""
__array_api_version__ = VERSIONS[-1]
newaxis = None

_NUMBERS = {
    "signed integer": ("int8", "int16", "int32", "int64"),
    "unsigned integer": ("uint8", "uint16", "uint32", "uint64"),
    "real floating": ("float32", "float64"),
    "complex floating": ("complex64", "complex128"),
}
_KINDS = {
    "bool": ("bool",),
    **_NUMBERS,
    "integral": _NUMBERS["signed integer"] + _NUMBERS["unsigned integer"],
    "numeric": tuple(name for names in _NUMBERS.values() for name in names),
}


class Info:
    """The answers to the questions of the array API; `sr.__array_namespace_info__()` returns one such object."""

    def capabilities(self) -> dict[str, Any]:
        """Return what is supported: boolean masks as indices, shapes that depend on data, and the number of axes.

        >>> import serrate as sr
        >>> sr.__array_namespace_info__().capabilities()
        {'boolean indexing': True, 'data-dependent shapes': True, 'max dimensions': 64}
        """
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> torch.device:
        """Return the device of new tensors.

        >>> import serrate as sr
        >>> sr.__array_namespace_info__().default_device()
        device(type='cpu')
        """
        return torch.get_default_device()

    def default_dtypes(self, *, device: Any = None) -> dict[str, torch.dtype]:
        """Return the dtypes of tensors that are made without a dtype; they are the same on all devices.

        >>> import serrate as sr
        >>> sr.__array_namespace_info__().default_dtypes()["real floating"]
        torch.float32
        """
        real = torch.get_default_dtype()
        return {
            "real floating": real,
            "complex floating": torch.promote_types(real, torch.complex64),
            "integral": torch.int64,
            "indexing": torch.int64,
        }

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, torch.dtype]:
        """Return the dtypes of the standard by name: all, those of one kind, or those of a tuple of kinds.

        >>> import serrate as sr
        >>> sr.__array_namespace_info__().dtypes(kind=("bool", "complex floating"))
        {'bool': torch.bool, 'complex64': torch.complex64, 'complex128': torch.complex128}
        """
        kinds = ("bool", "numeric") if kind is None else kind if isinstance(kind, tuple) else (kind,)
        for each in kinds:
            if each not in _KINDS:
                raise ValueError(f"kind must be None, one of {', '.join(_KINDS)}, or a tuple of them, got {each!r}")
        return {name: getattr(torch, name) for each in kinds for name in _KINDS[each]}

    def devices(self) -> list[torch.device]:
        """Return the devices on which tensors may lie."""
        return [torch.device("cpu"), *(torch.device("cuda", i) for i in range(torch.cuda.device_count()))]


def __array_namespace_info__() -> Info:
    """Return an object that tells what the library supports, as the array API wants it.

    >>> import serrate as sr
    >>> sr.__array_namespace_info__().default_dtypes()["integral"]
    torch.int64
    """
    return Info()
