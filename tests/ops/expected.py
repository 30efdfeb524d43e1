"""How the results of operations follow from their operands: rules written by hand, beside the code that computes.

Whoever adds an operation says here what shape and dtype its result must have. The lines follow the families.
"""

from __future__ import annotations

SHAPES: dict[str, tuple[str, ...]] = {
    # the operands' common shape
    "broadcast": (
        *("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "bitwise_invert", "ceil", "conj", "cos", "cosh"),
        *("exp", "expm1", "floor", "imag", "isfinite", "isinf", "isnan", "log", "log1p", "log2", "log10"),
        *("logical_not", "negative", "positive", "real", "reciprocal", "round", "rsqrt", "sign", "signbit", "sin"),
        *("sinh", "sqrt", "square", "tan", "tanh", "trunc", "erf", "relu", "sigmoid", "log_sigmoid", "silu"),
        *("softplus", "gelu", "leaky_relu", "elu", "mish", "celu", "hardtanh", "relu6", "hardswish", "softsign"),
        *("tanhshrink", "nan_to_num", "add", "atan2", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift"),
        *("bitwise_right_shift", "copysign", "divide", "equal", "floor_divide", "greater", "greater_equal", "hypot"),
        *("less", "less_equal", "logaddexp", "logical_and", "logical_or", "logical_xor", "maximum", "minimum"),
        *("multiply", "nextafter", "not_equal", "pow", "remainder", "subtract", "where", "clip"),
    ),
    # the first operand's
    "same": (
        *("Tensor.setitem", "Tensor.to", "Tensor.contiguous", "Tensor.clone", "Tensor.detach", "Tensor.copy_"),
        *("zeros_like", "ones_like", "empty_like", "full_like", "tril", "triu"),
        "astype",
        "numbered",
        *("fft.fftshift", "fft.ifftshift"),
        *("scatter", "index_add"),
        *("softmax", "log_softmax", "layer_norm", "rms_norm", "normalize"),
        *("random.uniform", "random.normal", "random.exponential", "random.randint", "random.bernoulli", "dropout"),
        "random.bits",
        *("cummax", "cummin"),
        *("sort", "argsort"),
    ),
    # the first operand's without the reduced axes
    "reduced": (
        *("sum", "prod", "mean", "var", "std", "any", "all", "count_nonzero", "logsumexp", "norm", "max", "min"),
        *("argmax", "argmin"),
        "vecdot",
        "linalg.vector_norm",
    ),
    # as the operation's summary says
    "own": (
        "expand_like",
        *("collect", "distribute"),
        *("Tensor.getitem", "Tensor.rows", "Tensor.to_dense", "Tensor.mask", "Tensor.flat", "Tensor.combine"),
        *("zeros", "ones", "empty", "full", "arange", "linspace", "eye", "meshgrid"),
        *("reshape", "broadcast_to", "broadcast_arrays", "moveaxis", "permute_dims", "expand_dims", "squeeze"),
        "unstack",
        *("concat", "stack", "split", "flip", "roll", "repeat", "tile"),
        "attention",
        "embedding_bag",
        *(
            "group_by",
            "Grouped.ungroup",
            "bincount",
            "segment_sum",
            "segment_mean",
            "segment_max",
            "segment_min",
            "segment_prod",
        ),
        "segment_softmax",
        *("from_offsets", "from_lengths", "from_row_ids", "from_product", "view_as_nested", "from_dense", "positions"),
        "conv1d",
        *("linalg.det", "linalg.slogdet", "linalg.inv", "linalg.cholesky", "linalg.eigh", "linalg.eigvalsh"),
        *("linalg.qr", "linalg.svd", "linalg.svdvals", "linalg.matrix_power", "linalg.matrix_rank", "linalg.pinv"),
        "linalg.solve",
        *("linear", "embedding"),
        *("fft.fft", "fft.ifft", "fft.rfft", "fft.irfft", "fft.hfft", "fft.ihfft", "fft.fftn", "fft.ifftn"),
        *("fft.rfftn", "fft.irfftn", "fft.fftfreq", "fft.rfftfreq"),
        *("gather", "take_along_axis", "take"),
        *("matmul", "tensordot", "outer", "matrix_transpose", "einsum"),
        *("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy"),
        *("binary_cross_entropy_with_logits", "cross_entropy"),
        *("linalg.diagonal", "linalg.trace", "linalg.cross", "linalg.matrix_norm"),
        "random.shuffle",
        *("cumulative_sum", "cumulative_prod", "diff"),
        *("unique_values", "unique_counts", "unique_inverse", "unique_all", "nonzero"),
        *("topk", "searchsorted"),
    ),
}
"""The operations by the rule for the shape of their result."""

DTYPES_OF_RESULTS: dict[str, tuple[str, ...]] = {
    # torch's promotion of the operands
    "promoted": (
        *("concat", "stack"),
        *("acos", "acosh", "asin", "asinh", "atan", "atanh", "bitwise_invert", "ceil", "conj", "cos", "cosh", "exp"),
        *("expm1", "floor", "log", "log1p", "log2", "log10", "negative", "positive", "reciprocal", "round", "rsqrt"),
        *("sign", "sin", "sinh", "sqrt", "square", "tan", "tanh", "trunc", "erf", "relu", "sigmoid", "log_sigmoid"),
        *("silu", "softplus", "gelu", "leaky_relu", "elu", "mish", "celu", "hardtanh", "relu6", "hardswish"),
        *("softsign", "tanhshrink", "nan_to_num", "add", "atan2", "bitwise_and", "bitwise_or", "bitwise_xor"),
        *("bitwise_left_shift", "bitwise_right_shift", "copysign", "floor_divide", "hypot", "logaddexp", "maximum"),
        *("minimum", "multiply", "nextafter", "pow", "remainder", "subtract", "where", "clip"),
        "linalg.solve",
        "linear",
        *("matmul", "vecdot", "tensordot", "outer", "einsum"),
        *("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy"),
        "binary_cross_entropy_with_logits",
        "linalg.cross",
    ),
    # the first operand's
    "same": (
        *("Tensor.getitem", "Tensor.setitem", "Tensor.rows", "Tensor.to_dense", "Tensor.flat", "Tensor.combine"),
        *("Tensor.contiguous", "Tensor.clone", "Tensor.detach", "Tensor.copy_"),
        *("zeros_like", "ones_like", "empty_like", "full_like", "tril", "triu"),
        *("reshape", "broadcast_to", "broadcast_arrays", "moveaxis", "permute_dims", "expand_dims", "squeeze"),
        *("unstack", "expand_like", "collect", "distribute"),
        *("split", "flip", "roll", "repeat", "tile"),
        *("mean", "var", "std", "logsumexp", "max", "min"),
        "attention",
        *("group_by", "segment_mean", "segment_max", "segment_min", "segment_softmax"),
        *("from_offsets", "from_lengths", "from_row_ids", "from_product", "view_as_nested", "from_dense"),
        "conv1d",
        *("linalg.det", "linalg.slogdet", "linalg.inv", "linalg.cholesky", "linalg.qr", "linalg.svd"),
        *("linalg.matrix_power", "linalg.pinv"),
        *("fft.fftshift", "fft.ifftshift"),
        *("gather", "take_along_axis", "take", "scatter", "index_add"),
        "matrix_transpose",
        "cross_entropy",
        "linalg.diagonal",
        *("softmax", "log_softmax", "layer_norm", "rms_norm", "normalize"),
        *("random.uniform", "random.normal", "random.exponential", "random.randint", "random.bernoulli"),
        *("random.shuffle", "dropout"),
        *("cummax", "cummin", "diff"),
        *("unique_values", "unique_counts", "unique_inverse", "unique_all"),
        *("sort", "topk"),
    ),
    # the real type of a complex first operand, else its own
    "real": (
        "norm",
        *("abs", "imag", "real"),
        *("linalg.eigh", "linalg.eigvalsh", "linalg.svdvals"),
        *("fft.irfft", "fft.hfft", "fft.irfftn"),
        *("linalg.vector_norm", "linalg.matrix_norm"),
    ),
    # the complex type of a real first operand, else its own
    "complex": ("fft.fft", "fft.ifft", "fft.rfft", "fft.ihfft", "fft.fftn", "fft.ifftn", "fft.rfftn"),
    # the default float for integers, else the first operand's
    "float": ("divide",),
    # int64 for integers and bools, uint64 for unsigned integers, else the first operand's
    "sum": (
        *("sum", "prod"),
        *("segment_sum", "segment_prod"),
        "linalg.trace",
        *("cumulative_sum", "cumulative_prod"),
    ),
    # always bool
    "bool": (
        "Tensor.mask",
        *("any", "all"),
        *("isfinite", "isinf", "isnan", "logical_not", "signbit", "equal", "greater", "greater_equal", "less"),
        *("less_equal", "logical_and", "logical_or", "logical_xor", "not_equal"),
    ),
    # always int64
    "int64": (
        *("count_nonzero", "argmax", "argmin"),
        *("positions", "numbered", "random.bits"),
        "linalg.matrix_rank",
        "nonzero",
        *("argsort", "searchsorted"),
    ),
    # as the operation's summary says
    "own": (
        "Grouped.ungroup",
        "Tensor.to",
        *("zeros", "ones", "empty", "full", "arange", "linspace", "eye", "meshgrid"),
        "embedding_bag",
        "bincount",
        "astype",
        "embedding",
        *("fft.fftfreq", "fft.rfftfreq"),
    ),
}
"""The operations by the rule for the dtype of their (first) result."""


def shape_rule(name: str) -> str:
    """The rule for the shape of an operation's result."""
    return _rule(SHAPES, "SHAPES", name)


def dtype_rule(name: str) -> str:
    """The rule for the dtype of an operation's result."""
    return _rule(DTYPES_OF_RESULTS, "DTYPES_OF_RESULTS", name)


def _rule(rules: dict[str, tuple[str, ...]], table: str, name: str) -> str:
    found = [rule for rule, names in rules.items() if name in names]
    if len(found) != 1:
        raise KeyError(f"{name} needs one rule in {table} of tests/ops/expected.py, and has {found or 'none'}")
    return found[0]
