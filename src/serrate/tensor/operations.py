"""The operators and methods of Tensor that come from the table of operations; type checkers read its stub."""


class Operations:
    """What `serrate.ops` attaches to Tensor when the package is imported."""
