"""Libraries that are written to the array API standard, run on Serrate; each against itself on numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import array_api_extra
import einops.array_api
import numpy as np
import pytest
import scipy.cluster
import scipy.integrate
import scipy.special
import scipy.stats
import sklearn
from sklearn import decomposition, linear_model, metrics, preprocessing

import serrate as sr

RANDOM = np.random.default_rng(0)
TABLE = RANDOM.normal(size=(20, 4)).astype(np.float32)
TARGET = TABLE @ np.asarray([1.0, -2.0, 0.5, 3.0], dtype=np.float32)
CLASSES = RANDOM.integers(0, 3, 20)


def compare(got: Any, want: Any, tolerance: float = 1e-4) -> None:
    """Serrate's result, which is a Tensor where the other is an array, against numpy's."""
    if isinstance(want, (tuple, list)):
        assert len(got) == len(want)
        for one, other in zip(got, want, strict=True):
            compare(one, other, tolerance)
        return
    if isinstance(want, np.ndarray):
        assert isinstance(got, sr.Tensor), f"expected a Tensor, got {type(got).__name__}"
        got = got.torch().numpy()
    np.testing.assert_allclose(
        np.asarray(got, dtype=np.float64), np.asarray(want, dtype=np.float64), tolerance, tolerance
    )


def scaled(scaler: Any) -> Callable[[Any, Any, Any], Any]:
    return lambda x, y, c: scaler().fit_transform(x)


def there_and_back(scaler: Any) -> Callable[[Any, Any, Any], Any]:
    def run(x: Any, y: Any, c: Any) -> Any:
        fitted = scaler().fit(x)
        return fitted.inverse_transform(fitted.transform(x))

    return run


LEARNING: dict[str, Callable[[Any, Any, Any], Any]] = {
    "StandardScaler": scaled(preprocessing.StandardScaler),
    "StandardScaler, inverse": there_and_back(preprocessing.StandardScaler),
    "MinMaxScaler": scaled(preprocessing.MinMaxScaler),
    "MinMaxScaler, inverse": there_and_back(preprocessing.MinMaxScaler),
    "MaxAbsScaler": scaled(preprocessing.MaxAbsScaler),
    "Normalizer": scaled(preprocessing.Normalizer),
    "PCA, variances": lambda x, y, c: decomposition.PCA(2, svd_solver="full").fit(x).explained_variance_,
    "PCA, distances": lambda x, y, c: metrics.pairwise.euclidean_distances(
        decomposition.PCA(3, svd_solver="full").fit_transform(x)
    ),
    "Ridge, coefficients": lambda x, y, c: linear_model.Ridge(solver="svd").fit(x, y).coef_,
    "Ridge, predictions": lambda x, y, c: linear_model.Ridge(solver="svd").fit(x, y).predict(x),
    "mean_squared_error": lambda x, y, c: metrics.mean_squared_error(y, y * 0.5),
    "mean_absolute_error": lambda x, y, c: metrics.mean_absolute_error(y, y * 0.5),
    "r2_score": lambda x, y, c: metrics.r2_score(y, y * 0.9),
    "accuracy_score": lambda x, y, c: metrics.accuracy_score(c, c),
    "zero_one_loss": lambda x, y, c: metrics.zero_one_loss(c, c * 0),
    "cosine_similarity": lambda x, y, c: metrics.pairwise.cosine_similarity(x),
    "euclidean_distances": lambda x, y, c: metrics.pairwise.euclidean_distances(x),
}


@pytest.mark.parametrize("name", LEARNING)
def test_scikit_learn(name: str) -> None:
    run = LEARNING[name]
    want = run(TABLE, TARGET, CLASSES)
    with sklearn.config_context(array_api_dispatch=True):
        got = run(sr.asarray(TABLE), sr.asarray(TARGET), sr.asarray(CLASSES))
    compare(got, want)


SCIENCE: dict[str, Callable[[Any], Any]] = {
    "logsumexp": lambda x: scipy.special.logsumexp(x, axis=1),
    "softmax": lambda x: scipy.special.softmax(x, axis=1),
    "log_softmax": lambda x: scipy.special.log_softmax(x, axis=0),
    "zscore": scipy.stats.zscore,
    "gmean": lambda x: scipy.stats.gmean(x * x),
    "skew": scipy.stats.skew,
    "kurtosis": scipy.stats.kurtosis,
    "moment": lambda x: scipy.stats.moment(x, order=3),
    "trapezoid": scipy.integrate.trapezoid,
    "whiten": lambda x: scipy.cluster.vq.whiten(x),
}


@pytest.mark.parametrize("name", SCIENCE)
def test_scipy(name: str) -> None:
    """With `SCIPY_ARRAY_API=1`, which conftest.py sets before scipy is imported."""
    compare(SCIENCE[name](sr.asarray(TABLE)), SCIENCE[name](TABLE))


EXTRA: dict[str, Callable[[Any, Any], Any]] = {
    "pad": lambda x, c: array_api_extra.pad(x, 1, constant_values=2),
    "cov": lambda x, c: array_api_extra.cov(x),
    "one_hot": lambda x, c: array_api_extra.one_hot(c, 3),
    "at, set": lambda x, c: array_api_extra.at(x, (slice(None), 1)).set(7.0),
    "at, add": lambda x, c: array_api_extra.at(x, c[:1]).add(1.0),
    "sinc": lambda x, c: array_api_extra.sinc(x),
    "setdiff1d": lambda x, c: array_api_extra.setdiff1d(c, c[:3]),
    "kron": lambda x, c: array_api_extra.kron(x[:2, :], x[:3, :]),
    "isclose": lambda x, c: array_api_extra.isclose(x, x + 1e-9),
    "create_diagonal": lambda x, c: array_api_extra.create_diagonal(x[:, 0]),
    "apply_where": lambda x, c: array_api_extra.apply_where(x > 0, (x,), lambda a: a * 2, fill_value=-1.0),
    "nunique": lambda x, c: array_api_extra.nunique(c),
    "atleast_nd": lambda x, c: array_api_extra.atleast_nd(c, ndim=3),
}


@pytest.mark.parametrize("name", EXTRA)
def test_array_api_extra(name: str) -> None:
    compare(EXTRA[name](sr.asarray(TABLE), sr.asarray(CLASSES)), EXTRA[name](TABLE, CLASSES))


PATTERNS: dict[str, Callable[[Any], Any]] = {
    "rearrange": lambda x: einops.array_api.rearrange(x, "(a c) b -> b a c", c=5),
    "reduce": lambda x: einops.array_api.reduce(x, "(a c) b -> a", "mean", c=2),
    "repeat": lambda x: einops.array_api.repeat(x, "a b -> a b c", c=3),
    "pack": lambda x: einops.array_api.pack([x, x], "* b")[0],
    "unpack": lambda x: einops.array_api.unpack(x, [[4], [16]], "* b"),
}


@pytest.mark.parametrize("name", PATTERNS)
def test_einops(name: str) -> None:
    compare(PATTERNS[name](sr.asarray(TABLE)), PATTERNS[name](TABLE))
