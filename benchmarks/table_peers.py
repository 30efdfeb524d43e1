"""Patients, visits and codes in the files of Serrate and of others, and how each makes a padded batch of rows."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

import serrate as sr
from benchmarks import table_limit
from serrate.native import gather
from serrate.table.storage import reading

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]
Batch = Callable[[torch.Tensor], Mapping[str, Any]]
SCHEMA = {"age": "rows", "time": "visits", "code": "visits.codes", "value": "visits.codes"}


def arrays(rows: int, shape: str = "skewed", seed: int = 0) -> Arrays:
    """20 visits a patient, 5 codes a visit on average, some of them none: log-normal with sigma 0.8, or Poisson."""
    rng = np.random.default_rng(seed)

    def lengths(count: int, mean: float) -> Array:
        if shape == "poisson":
            return rng.poisson(mean, count)
        return np.round(rng.lognormal(np.log(mean) - 0.32, 0.8, count)).astype(np.int64)

    visits = lengths(rows, 19.85)
    codes = lengths(int(visits.sum()), 5.04)
    total = int(codes.sum())
    return {
        "visits": np.concatenate([[0], np.cumsum(visits)]),
        "codes": np.concatenate([[0], np.cumsum(codes)]),
        "age": rng.integers(0, 100, rows),
        "time": rng.random(int(visits.sum()), dtype=np.float32),
        "code": rng.integers(0, 30_000, total),
        "value": rng.random(total, dtype=np.float32),
    }


def table(given: Arrays) -> sr.Table:
    """The same as a table."""
    offsets = {name: torch.from_numpy(given[name]).to(torch.int32) for name in ("visits", "codes")}
    levels = {"age": 0, "time": 1, "code": 2, "value": 2}
    columns: dict[str, Any] = {}
    for name, depth in levels.items():
        values = torch.from_numpy(given[name])
        columns[name] = sr.from_offsets(values, list(offsets.values())[:depth]) if depth else values
    return sr.Table(columns, schema=SCHEMA)


def lists(given: Arrays) -> dict[str, list[Any]]:
    """The same as nested lists."""
    return {name: table(given)[name].tolist() for name in SCHEMA}


def arrow_table(given: Arrays) -> Any:
    """The same as an Arrow table, visits and codes as lists of structs, so that offsets are stored once."""
    import pyarrow as pa

    offsets = {name: pa.array(given[name].astype(np.int32)) for name in ("visits", "codes")}
    inner = pa.StructArray.from_arrays([pa.array(given["code"]), pa.array(given["value"])], ["code", "value"])
    visits = pa.StructArray.from_arrays(
        [pa.array(given["time"]), pa.ListArray.from_arrays(offsets["codes"], inner)], ["time", "codes"]
    )
    return pa.table({"age": given["age"], "visits": pa.ListArray.from_arrays(offsets["visits"], visits)})


def awkward_array(given: Arrays) -> Any:
    """The same as an Awkward array, of nothing that may be missing."""
    import awkward as ak
    from awkward.contents import ListOffsetArray, NumpyArray, RecordArray
    from awkward.index import Index64

    inner = RecordArray([NumpyArray(given[name]) for name in ("code", "value")], ["code", "value"])
    codes = ListOffsetArray(Index64(given["codes"]), inner)
    visits = RecordArray([NumpyArray(given["time"]), codes], ["time", "codes"])
    return ak.Array(
        RecordArray([NumpyArray(given["age"]), ListOffsetArray(Index64(given["visits"]), visits)], ["age", "visits"])
    )


# ------------------------------------------------------------------------------------------------- padded by numpy


def pad_arrow(taken: Any) -> dict[str, Array]:
    """Rows of the Arrow table as rectangles, vectorised."""
    visits = taken.column("visits").combine_chunks()
    outer = visits.offsets.to_numpy()
    inner = visits.values.field("codes")
    code = inner.values
    return pad_numpy(
        taken.column("age").to_numpy(), outer, inner.offsets.to_numpy()[: outer[-1] + 1],
        visits.values.field("time").to_numpy(), code.field("code").to_numpy(), code.field("value").to_numpy(),
    )  # fmt: skip


def pad_numpy(age: Array, outer: Array, inner: Array, time: Array, code: Array, value: Array) -> dict[str, Array]:
    """Packed columns as rectangles: each entry is written to its cell."""
    visits, codes = np.diff(outer), np.diff(inner[outer[0] : outer[-1] + 1])
    rows, longest, most = visits.size, int(visits.max(initial=0)), int(codes.max(initial=0))
    at_visit = np.repeat(np.arange(rows) * longest - (outer[:-1] - outer[0]), visits) + np.arange(codes.size)
    starts = np.cumsum(codes) - codes
    at_code = np.repeat(at_visit * most - starts, codes) + np.arange(int(codes.sum()))
    first_visit, first = outer[0], inner[outer[0]]
    made: dict[str, Array] = {"age": age}
    for name, values, cells, shape in (
        ("time", time[first_visit : outer[-1]], at_visit, (rows, longest)),
        ("visits", np.True_, at_visit, (rows, longest)),
        ("code", code[first : first + at_code.size], at_code, (rows, longest, most)),
        ("value", value[first : first + at_code.size], at_code, (rows, longest, most)),
        ("codes", np.True_, at_code, (rows, longest, most)),
    ):
        made[name] = np.zeros(shape, dtype=values.dtype)
        made[name].reshape(-1)[cells] = values
    return made


# ------------------------------------------------------------------------------------------------- who takes part


def write_all(given: Arrays, folder: Path) -> None:
    """The files of everybody."""
    import datasets
    import lance
    import pyarrow as pa
    from nested_ragged_tensors.ragged_numpy import JointNestedRaggedTensorDict

    datasets.disable_progress_bars()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    table_limit.write(folder / "limit", given)
    table(given).save(folder / "serrate")
    arrow = arrow_table(given)
    with pa.OSFile(str(folder / "arrow"), "wb") as stream, pa.ipc.new_file(stream, arrow.schema) as writer:
        writer.write_table(arrow)
    lance.write_dataset(arrow, str(folder / "lance"))
    datasets.Dataset(arrow).save_to_disk(str(folder / "datasets"))
    JointNestedRaggedTensorDict(lists(given)).save(folder / "seed.nrt")


def batches(given: Arrays, folder: Path) -> dict[str, Batch]:
    """For each that takes part, what makes a padded batch of rows."""
    import datasets
    import lance
    import pyarrow as pa

    mapped = pa.ipc.open_file(pa.memory_map(str(folder / "arrow"))).read_all()
    rows_of = datasets.load_from_disk(str(folder / "datasets")).with_format("arrow")
    stored = lance.dataset(str(folder / "lance"))
    on_disk, here = sr.open(folder / "serrate").dataset(to="dense"), table(given).dataset(to="dense")
    nested = awkward_array(given)

    def uncompiled(rows: torch.Tensor) -> Mapping[str, Any]:
        with no_compiler():
            return on_disk.__getitems__(rows)  # type: ignore[return-value]

    made: dict[str, Batch] = {
        "limit (C loop, mapped)": table_limit.Limit(folder / "limit"),
        "serrate, disk": on_disk.__getitems__,  # type: ignore[dict-item]
        "serrate, memory": here.__getitems__,  # type: ignore[dict-item]
        "serrate, disk, no compiler": uncompiled,
        "Arrow IPC, mapped": lambda rows: pad_arrow(mapped.take(pa.array(rows.numpy()))),
        "Hugging Face datasets": lambda rows: pad_arrow(rows_of[rows.tolist()]),
        "Lance": lambda rows: pad_arrow(stored.take(rows.tolist())),
        "awkward, memory": lambda rows: pad_awkward(nested[rows.numpy()]),
    }
    return made | _seed(folder)


def _seed(folder: Path) -> dict[str, Batch]:
    """nested_ragged_tensors, from its file and in memory."""
    from nested_ragged_tensors.ragged_numpy import JointNestedRaggedTensorDict as Joint

    path = folder / "seed.nrt"
    stored, loaded = Joint(tensors_fp=path), Joint(tensors_fp=path)
    loaded = Joint(processed_tensors=loaded.tensors)
    return {
        "nested_ragged_tensors, disk": lambda rows: Joint.vstack([stored[i] for i in rows.tolist()]).to_dense(),
        "nested_ragged_tensors, memory": lambda rows: Joint.vstack([loaded[i] for i in rows.tolist()]).to_dense(),
    }


def pad_awkward(taken: Any) -> dict[str, Array]:
    """Rows as rectangles; Awkward's own padding of inner lists makes an option of each."""
    import awkward as ak

    visits = taken["visits"]
    outer, inner = ak.num(visits, axis=1), ak.flatten(ak.num(visits["codes"], axis=2))
    code, value = (ak.to_numpy(ak.flatten(visits["codes", name], axis=None)) for name in ("code", "value"))
    ends = [np.concatenate([[0], np.cumsum(ak.to_numpy(each))]) for each in (outer, inner)]
    return pad_numpy(ak.to_numpy(taken["age"]), *ends, ak.to_numpy(ak.flatten(visits["time"])), code, value)


@contextmanager
def no_compiler() -> Iterator[None]:
    """Serrate as it is where nothing can be compiled."""
    held: Any = ((gather, "routines"), (gather, "padding_routines"), (reading, "_library"))
    before = [getattr(module, name) for module, name in held]
    for module, name in held:
        setattr(module, name, _nothing)
    try:
        yield
    finally:
        for (module, name), function in zip(held, before, strict=True):
            setattr(module, name, function)


def _nothing() -> None:
    """What stands for the compiled functions."""


def check(made: Mapping[str, Batch], rows: torch.Tensor) -> None:
    """That all give the same numbers."""
    wanted = made["limit (C loop, mapped)"](rows)
    for name, batch in made.items():
        found = batch(rows)
        for column in ("time", "code", "value"):
            if not np.array_equal(np.asarray(found[column]), np.asarray(wanted[column])):
                raise AssertionError(f"{name}: another {column}")
