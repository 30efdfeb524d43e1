from __future__ import annotations

import gc
import os

import pytest
import torch
from hypothesis import HealthCheck, settings

settings.register_profile("ci", derandomize=True, deadline=None, max_examples=45)
settings.register_profile("thorough", deadline=None, max_examples=1000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

os.environ["SCIPY_ARRAY_API"] = "1"  # read when scipy is imported

# Each worker has one thread, so that workers do not compete for the same cores.
torch.set_num_threads(1)


def pytest_collection_finish() -> None:
    """What was collected stays: the garbage collector need not look at tens of thousands of tests again and again."""
    gc.collect()
    gc.freeze()


# Without a GPU there is no "cuda" parameter at all, rather than one that is skipped.
DEVICES = ["cpu"]
if torch.cuda.is_available():
    DEVICES.append(pytest.param("cuda", marks=pytest.mark.gpu))


# Of session scope, so that it can be used together with hypothesis.given.
@pytest.fixture(scope="session", params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return request.param
