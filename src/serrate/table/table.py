"""Table: columns that share their nesting, in memory or on disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import torch

from serrate.errors import RaggednessError, TableFormatError
from serrate.table import arranging, comparing, finding, from_lists, indexing, printing, reshaping, windowing
from serrate.table.block import Block, Renamed, Source
from serrate.table.build import Declared, build
from serrate.table.convert.methods import Conversions
from serrate.table.gathering import gather
from serrate.table.gathering.padding import Padding
from serrate.table.gathering.sources import Sources, located, source_name
from serrate.table.schema import Column, Schema
from serrate.tensor.tensor import Tensor

if TYPE_CHECKING:
    from serrate.table.gathering.batch import Dense, Packed
    from serrate.table.gathering.gather import Pieces
    from serrate.table.loading.loader import Loader
    from serrate.table.loading.torch_data import TableDataset


@contextmanager
def _naming(sources: Sources) -> Iterator[None]:
    """Put the name of the only source in front of every error that is raised inside."""
    try:
        yield
    except (RaggednessError, TypeError, TableFormatError) as error:
        raise TableFormatError(f"{source_name(sources, 0)}: {error}") from error


class Table(Conversions):
    """Columns that share their nesting, for example patients, their visits, and the codes of each visit.

    The structure is stored once for all columns. The nesting of a column says at which depth it lies; `schema` gives
    names to the levels, and separates levels of equal depth. A column is a tensor, an array, an Arrow array or nested
    lists. Its entries may be numbers, strings or times, and some may be missing. With `narrow=True` integers are stored
    in the smallest type that holds them; readers still get the type that was given.

    >>> import serrate as sr
    >>> t = sr.Table(
    ...     {"age": [41, 63], "time": [[0, 3, 9], [2]], "code": [[[7, 5], [1, 1, 2, 8], [4]], [[5, 5, 9]]]},
    ...     schema={"time": "visits", "code": "visits.codes"},
    ... )
    >>> t
    sr.Table(2 rows, 3 levels)
      rows          2  age int64
      visits        4  time int64
      visits.codes 10  code int64
    >>> t["code"].lengths
    (tensor([3, 1]), tensor([2, 4, 1, 3]))
    >>> t[0, 1:]["code"].tolist()
    [[1, 1, 2, 8], [4]]
    >>> t.to_dense()["time"]
    tensor([[0, 3, 9],
            [2, 0, 0]])
    """

    __slots__ = ("__dict__", "_schema", "_sources")
    __hash__ = None  # type: ignore[assignment]

    _schema: Schema
    _sources: Sources

    def __init__(self, columns: Mapping[str, Any], schema: Declared = None, *, narrow: bool = False) -> None:
        block = build(columns, schema, narrow)
        self._schema, self._sources = block.schema, Sources((block,))

    @classmethod
    def _of(cls, schema: Schema, sources: Iterable[Source]) -> Table:
        """Return a table of these columns, whose rows are those of the sources, one source after the other."""
        made = object.__new__(cls)
        made._schema, made._sources = schema, Sources(sources)
        return made

    @classmethod
    def _from_block(cls, block: Block, made_from: Iterable[Table] = ()) -> Table:
        """Return a table of a block, which remembers the files of the tables that the block was made from."""
        origins = dict.fromkeys(origin for table in made_from for origin in table.sources.origins)
        return cls._of(block.schema, Sources((block,), tuple(origins)))

    @classmethod
    def from_rows(cls, rows: Iterable[Mapping[str, Any]], schema: Declared = None, *, narrow: bool = False) -> Table:
        """Return a table made from one mapping per row; each mapping has an entry for every column.

        >>> import serrate as sr
        >>> sr.Table.from_rows([{"id": 7, "word": ["a", "b"]}, {"id": 9, "word": []}])["id"].tolist()
        [7, 9]
        """
        return cls(from_lists.columns_of(rows, schema), schema, narrow=narrow)

    # ------------------------------------------------------------------------------------------------------ look

    @property
    def schema(self) -> Schema:
        """The schema: the levels, and what each column holds."""
        return self._schema

    @property
    def levels(self) -> tuple[str, ...]:
        """The names of the levels, each parent before its children; the outermost level is `rows`."""
        return self._schema.levels

    @property
    def sources(self) -> Sources:
        """Where the rows come from: blocks of memory, or files."""
        return self._sources

    def keys(self) -> KeysView[str]:
        """Return the names of the columns."""
        return self._schema.keys()

    def __contains__(self, name: object) -> bool:
        return name in self._schema

    def __iter__(self) -> Any:
        raise TypeError("a table is not a sequence: iterate over t.keys(), or over t.loader(batch_size=…)")

    def keys_at(self, level: str | int) -> tuple[str, ...]:
        """Return the columns of a level, or the columns of all levels of one depth.

        >>> import serrate as sr
        >>> t = sr.Table({"age": [41, 63], "time": [[0, 3], [2]]}, schema={"time": "visits"})
        >>> t.keys_at("visits"), t.keys_at(0)
        (('time',), ('age',))
        """
        if isinstance(level, int):
            return tuple(name for name, column in self._schema.items() if column.depth == level)
        return self._schema.columns_at(self._known_level(level))

    def _known_level(self, level: Any) -> str:
        if not self._schema.has_level(level):
            raise KeyError(f"there is no level {level!r:.60}; the levels are {', '.join(self.levels)}")
        return str(level)

    @property
    def row_level(self) -> str:
        """The only outermost level: `t[…]` indexes it first, and `len` counts its entries."""
        roots = self._schema.roots
        if len(roots) != 1:
            have = f"levels {', '.join(roots)}" if roots else "single entries"
            raise TypeError(f"this table has no rows, only {have}; unsqueeze() makes it one row")
        return roots[0]

    @cached_property
    def _starts(self) -> list[int]:
        """The number of the first row of each source, and at the end the number of all rows."""
        return [0, *accumulate(source.rows for source in self._sources)]

    @cached_property
    def _bounds(self) -> torch.Tensor:
        return torch.tensor(self._starts)

    def __len__(self) -> int:
        self.row_level  # noqa: B018 It raises an error if the table has no rows.
        return self._starts[-1]

    def count(self, level: str) -> int:
        """Return the number of entries of a level."""
        self._known_level(level)
        return sum(source.counts[level] for source in self._sources)

    @property
    def nbytes(self) -> int:
        """The number of bytes of values, masks and offsets as they are stored. Vocabularies are not counted."""
        return sum(source.whole().select(tuple(self.keys())).nbytes for source in self._sources)

    @property
    def dense_nbytes(self) -> int:
        """The number of bytes that `to_dense()` would take, with its masks."""
        self.row_level  # noqa: B018 It raises an error if the table has no rows.
        return comparing.dense_nbytes(self._schema, [source.whole() for source in self._sources])

    def __repr__(self) -> str:
        return printing.describe(self)

    def vocabulary(self, column: str) -> tuple[str, ...]:
        """Return the words of a column of strings. Its entries are codes, which are positions in this tuple."""
        if not self._column(column).text:
            raise TypeError(f"column {column!r} holds numbers, not strings")
        return gather.vocabulary(self._sources, column)

    def valid(self, column: str) -> Tensor:
        """Return a tensor of bools that says which entries of a column are present.

        >>> import serrate as sr
        >>> sr.Table({"dose": [[1.5, None], [2.0]]}).valid("dose").tolist()
        [[True, False], [True]]
        """
        described, block = self._column(column), self._holding(column)
        mask = block.valid.get(column)
        if mask is None:
            values = block.values[column]
            mask = torch.ones(values.shape[: int(described.level is not None)], dtype=torch.bool)
        return block.shaped(mask, described.level)

    def tolist(self) -> dict[str, Any]:
        """Return the columns as nested lists: strings as str, missing entries as None, times as numpy's types.

        >>> import serrate as sr
        >>> sr.Table({"word": [["a", "b"], [None]]}).tolist()
        {'word': [['a', 'b'], [None]]}
        """
        return printing.to_lists(self.block())

    # -------------------------------------------------------------------------------------------- columns and rows

    def _column(self, name: Any) -> Column:
        if isinstance(name, (list, set, dict)):
            raise TypeError(f"the name of one column was expected, got {name!r:.60}")
        if name not in self._schema:
            hint = ""
            if name in self.levels:
                own = ", ".join(self.keys_at(name))
                hint = f"; it is a level with the columns {own}" if own else "; it is a level without columns"
            raise KeyError(
                f"there is no column {name!r:.60}{hint}; the columns are {', '.join(map(repr, self.keys()))}"
            )
        return self._schema[name]

    def __getitem__(self, key: Any) -> Any:
        """Return a column as a tensor if the key is its name; return a table of some rows or entries otherwise.

        The tensor shares the memory of the column. Rows are chosen by an integer (which drops the level), a slice, or a
        vector of integers or bools. A tuple holds one key for each level, from the rows downwards.
        """
        if isinstance(key, str):
            described, block = self._column(key), self._holding_values(key)
            # This copies only if the column is narrowed.
            return block.shaped(block.values[key].to(described.dtype), described.level)
        return Table._from_block(indexing.index(self, key), [self])

    def _holding(self, column: str) -> Block:
        """Return a block with all stored entries of a column; a block of a file is not checked."""
        return self._sources[0].whole() if len(self._sources) == 1 else self.select([column]).block()

    def _holding_values(self, column: str) -> Block:
        """Return a block with all entries of a column; the codes of a column of strings are checked."""
        block = self._holding(column)
        if self._schema[column].text and not block.trusted:
            with _naming(self._sources):
                block.check_codes(column)
        return block

    def block(self) -> Block:
        """Return all rows as one block. The block shares memory with the source if there is only one."""
        if len(self._sources) != 1:
            return gather.take(self._sources, self._schema, self.pieces(torch.arange(self._starts[-1])))
        block = self._sources[0].whole()
        if block.schema != self._schema:
            block = block.select(tuple(self.keys()))  # The check below reads all columns of the block, so select first.
        if not block.trusted:
            with _naming(self._sources):
                block = replace(block.check(), trusted=True)
        return block

    def pieces(self, rows: torch.Tensor) -> Pieces:
        """Return for each row its source and its number there. `rows` is int64; negative numbers count from the end."""
        return located(rows, self._bounds, self.row_level)

    def isin(self, column: str, values: Any) -> Tensor:
        """Return which entries of a column are equal to the given value, or to one of the given values.

        The values are numbers, strings or times. A missing entry is equal to no value.

        >>> import serrate as sr
        >>> t = sr.Table({"sex": ["F", "M", None, "F"]})
        >>> t.filter(t.isin("sex", ["F", "X"])).tolist()
        {'sex': ['F', 'F']}
        """
        described, block = self._column(column), self._holding_values(column)
        return block.shaped(finding.isin(block, column, values), described.level)

    def rows_of(self, column: str, ids: Any) -> torch.Tensor:
        """Return for each of the `ids` the number of the row that has it in `column`, whose entries must all differ.

        >>> import serrate as sr
        >>> sr.Table({"id": [30, 10, 20]}).rows_of("id", [20, 30])
        tensor([2, 0])
        """
        index = self.__dict__.setdefault("_indexes", {})
        if column not in index:
            index[column] = finding.KeyIndex.of(self, column)
        found: torch.Tensor = index[column].find(ids)
        return found

    def select(self, columns: Iterable[str]) -> Table:
        """Return a table with some columns, in this order, and the levels that they need. Nothing is copied.

        >>> import serrate as sr
        >>> sr.Table({"age": [41, 63], "time": [[0, 3], [2]]}).select(["age"]).levels
        ('rows',)
        """
        if isinstance(columns, str):
            raise TypeError(f"select takes a list of columns, got the string {columns!r:.60}")
        names = list(dict.fromkeys(columns))
        for name in names:
            self._column(name)
        if not names:
            raise ValueError("a table needs at least one column")
        if names == list(self.keys()):
            return self
        if len(self._schema.roots) > 1:  # If only one root stays, its entries become the rows.
            return Table._from_block(self.block().select(tuple(names)), [self])
        return Table._of(self._schema.select(names), self._sources)

    def drop(self, columns: str | Iterable[str]) -> Table:
        """Return a table without these columns."""
        gone = {columns} if isinstance(columns, str) else set(columns)
        for name in gone:
            self._column(name)
        return self.select([name for name in self.keys() if name not in gone])

    def rename(self, names: Mapping[str, str]) -> Table:
        """Return a table with the same columns, some of them under other names.

        >>> import serrate as sr
        >>> list(sr.Table({"a": [1], "b": [2]}).rename({"a": "c"}).keys())
        ['c', 'b']
        """
        for name in names:
            self._column(name)
        new = [names.get(name, name) for name in self.keys()]
        if len(set(new)) != len(new) or not all(isinstance(name, str) for name in new):
            raise ValueError(f"each column needs a different name, got {new}")
        columns = {names.get(name, name): column for name, column in self._schema.items()}
        own = {names.get(name, name): name for name in self.keys()}
        renamed = Sources((Renamed.of(source, own) for source in self._sources), self._sources.origins)
        return Table._of(Schema(self.levels, columns), renamed)

    def with_column(self, name: str, values: Any, level: str | Column | None = None) -> Table:
        """Return the table with a column added, or with the column of that name replaced.

        If no level is given, it is the only level as deep as the nesting of `values`. All entries of a tensor are
        present. In lists None is a missing entry, and in masked arrays of numpy a masked entry is missing.

        >>> import serrate as sr
        >>> t = sr.Table({"time": [[0, 3], [2]]}, schema={"time": "visits"})
        >>> t.with_column("age", [41, 63]).with_column("late", t["time"] > 1)["late"].tolist()
        [[False, True], [True]]
        """
        return Table._from_block(arranging.with_column(self.block(), name, values, level), [self])

    # ----------------------------------------------------------------------------------------------------- levels

    def flatten_level(self, level: str | None = None, how: str = "first", fill: Any = 0) -> Table:
        """Return the table with a level merged into its parent; if no level is named, it is the deepest one.

        The columns of the parent get one value for each entry of the level. With `how="first"` the first entry of each
        list gets the value of the parent, and the others get `fill`. With "repeat" all entries of a list get the value.
        Both drop empty lists. With "fill" the values are as with "first", but an empty list becomes one entry with
        `fill` in the columns of the level, so that nothing is lost.

        >>> import serrate as sr
        >>> t = sr.Table({"time": [[5, 6], [7]], "code": [[[1, 2], []], [[3]]]})
        >>> t.flatten_level().tolist()
        {'time': [[5, 0], [7]], 'code': [[1, 2], [3]]}
        >>> t.flatten_level(how="fill").tolist()
        {'time': [[5, 0, 6], [7]], 'code': [[1, 2, 0], [3]]}
        """
        return Table._from_block(reshaping.flatten_level(self.block(), level, how, fill), [self])

    def squeeze(self) -> Table:
        """Return the only row, as `t[0]` does."""
        if len(self) != 1:
            raise ValueError(f"only a table of one row can be squeezed, this one has {len(self)}")
        squeezed: Table = self[0]
        return squeezed

    def unsqueeze(self, name: str = "level1") -> Table:
        """Return the table as the only row of a new table; the old rows become its level `name`. It undoes `t[i]`.

        >>> import serrate as sr
        >>> t = sr.Table({"age": [41, 63], "time": [[0, 3], [2]]})
        >>> t[1].unsqueeze() == t[1:]
        True
        >>> t.unsqueeze("patients").levels
        ('rows', 'patients', 'patients.level1')
        """
        return Table._from_block(reshaping.add_root(self.block(), name), [self])

    @staticmethod
    def concat(tables: Sequence[Table]) -> Table:
        """Return the rows of several tables with the same columns, one table after the other.

        >>> import serrate as sr
        >>> t = sr.Table({"time": [[0, 3], [2], []]})
        >>> sr.Table.concat([t[2:], t[:1]])["time"].tolist()
        [[], [0, 3]]
        """
        tables = list(tables)
        return Table._from_block(arranging.concat(tables), tables)

    @staticmethod
    def stack(tables: Sequence[Table], name: str = "level1") -> Table:
        """Return a table with one row for each table; their rows become the level `name`. It undoes `t[0], t[1], …`."""
        return Table.concat([table.unsqueeze(name) for table in tables])

    # ---------------------------------------------------------------------------------------------------- entries

    def windows(
        self,
        rows: Any = None,
        start: Any = None,
        stop: Any = None,
        *,
        size: int | None = None,
        keep: str = "head",
        seed: int | None = None,
        level: str | None = None,
    ) -> Table:
        """Return of each row the entries from `start` to `stop` of one level, with all that is below them.

        The bounds are one number or one per row, and mean the same as in a slice. If more than `size` entries are left,
        `keep` says which of them stay: the first ("head"), the last ("tail"), or a run that begins at a random place
        ("random"); the same seed gives the same run. `rows` are the numbers of the rows to read; by default all rows
        are read. All entries are copied in one pass.

        >>> import serrate as sr
        >>> t = sr.Table({"time": [[0, 3, 9, 12], [2]]})
        >>> t.windows(size=2, keep="tail")["time"].tolist()
        [[9, 12], [2]]
        >>> t.windows([1, 0, 0], stop=[1, 1, -1])["time"].tolist()
        [[2], [0], [0, 3, 9]]
        """
        pieces = windowing.windows(self, rows, start, stop, size, keep, seed, level)
        return Table._from_block(gather.take(self._sources, self._schema, pieces), [self])

    def filter(self, mask: Any, level: str | None = None) -> Table:
        """Return the rows, or the entries of a level, where a mask is True, with all that is below them.

        The mask has one bool for each entry of the level, either flat or nested as the columns of the level are. It may
        also be a function that gets the table and returns the mask. In `t[…]` strings and times are numbers, and
        missing entries are 0: use `t.isin(…)` to compare strings and times, and `t.valid(…)` to find the entries that
        are present.

        >>> import serrate as sr
        >>> t = sr.Table({"time": [[0, 3, 9], [2]]}, schema={"time": "visits"})
        >>> t.filter(lambda t: t["time"] > 1, level="visits")["time"].tolist()
        [[3, 9], [2]]
        >>> t = sr.Table({"sex": ["F", "M", "F"], "age": [41, 63, None]})
        >>> t.filter(t.isin("sex", "F") & (t["age"] < 50) & t.valid("age")).tolist()
        {'sex': ['F'], 'age': [41]}
        """
        return Table._from_block(arranging.filtered(self, mask, level), [self])

    def sort_by(self, column: str, descending: bool = False) -> Table:
        """Return the rows sorted by a column; a column of a deeper level sorts the entries within each list. Stable.

        NaN comes after all numbers, and missing entries come last. To sort by several columns, sort by the least
        important one first.

        >>> import serrate as sr
        >>> sr.Table({"time": [[3, 0, 9], [2, 1]]}).sort_by("time")["time"].tolist()
        [[0, 3, 9], [1, 2]]
        """
        return Table._from_block(arranging.sorted_by(self, column, descending), [self])

    def map(self, function: Callable[[dict[str, Tensor]], Mapping[str, Any]], level: str | None = None) -> Table:
        """Return the table with the columns that a function computes from the flat columns of a level.

        The function gets a dictionary of the columns of the level, each as one flat tensor, and returns a mapping of
        new columns. All their entries are present, except None in lists and masked entries of numpy's masked arrays.

        >>> import serrate as sr
        >>> t = sr.Table({"time": [[0, 3, 9], [2]]}, schema={"time": "visits"})
        >>> t.map(lambda visit: {"day": visit["time"] // 2}, level="visits")["day"].tolist()
        [[0, 1, 4], [1]]
        """
        return Table._from_block(arranging.mapped(self, function, level), [self])

    # ---------------------------------------------------------------------------------------------------- equality

    def equals(self, other: object, equal_nan: bool = False) -> bool:
        """Return whether both have the same columns, levels, dtypes, lists and entries, however they are stored.

        >>> import serrate as sr
        >>> t = sr.Table({"x": [[1.0, float("nan")]]})
        >>> t == t, t.equals(t, equal_nan=True)
        (False, True)
        """
        return isinstance(other, Table) and comparing.same(self, other, equal_nan)

    def __eq__(self, other: object) -> bool:
        return self.equals(other) if isinstance(other, Table) else NotImplemented

    # ----------------------------------------------------------------------------------------------------- leaving

    def to_dense(
        self,
        padding: Any = 0,
        side: str | Mapping[str, str] = "right",
        max_lengths: int | Mapping[str, int] | None = None,
        multiple_of: int | Mapping[str, int] = 1,
        out: Dense | None = None,
    ) -> Dense:
        """Return dense columns, padded to the longest list of each level, and a mask of the real entries of each level.

        >>> import serrate as sr
        >>> d = sr.Table({"time": [[5, 6], [7]]}, schema={"time": "visits"}).to_dense(padding=-1, side="left")
        >>> d["time"], d.masks["visits"]
        (tensor([[ 5,  6],
                [-1,  7]]), tensor([[ True,  True],
                [False,  True]]))
        """
        options = Padding.of(self._schema, padding, side, max_lengths, multiple_of)
        return gather.pad(self._sources, self._schema, self._all(), options, out)

    def to_packed(self) -> Packed:
        """Return the columns as tensors without padding, with the offsets and positions that kernels need.

        >>> import serrate as sr
        >>> p = sr.Table({"code": [[7, 5, 5], [], [4]]}, schema={"code": "codes"}).to_packed()
        >>> p.flat("code"), p.cu_seqlens("codes"), p.position_ids("codes")
        (tensor([7, 5, 5, 4]), tensor([0, 3, 3, 4], dtype=torch.int32), tensor([0, 1, 2, 0]))
        """
        return gather.pack(self._sources, self._schema, self._all())

    def _all(self) -> Pieces:
        return self.pieces(torch.arange(len(self)))

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        rows_per_shard: int | None = None,
        overwrite: bool = False,
        narrow: bool | None = None,
        composed: bool = True,
    ) -> None:
        """Write the table to a folder of shards, or to one file if `path` ends in ".safetensors".

        Either the whole table is written, or nothing changes. A shard has `rows_per_shard` rows, or about 256 MB. An
        existing dataset is replaced only with `overwrite`, in one step at the end. It may be the dataset that the table
        is read from, if nobody has changed that since. `narrow=True` stores integers in the smallest type that holds
        all values of the table, False stores them in the type that readers get, and None stores them as they are stored
        now. `composed` offsets make it faster to find single rows of deep tables. The path may be an fsspec URL.

        >>> import tempfile, serrate as sr
        >>> t = sr.Table({"age": [41, 63], "time": [[0, 3, 9], [2]]}, schema={"time": "visits"})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     t.save(f"{folder}/patients")
        ...     t.save(f"{folder}/patients.safetensors")
        ...     sr.open(f"{folder}/patients") == sr.open(f"{folder}/patients.safetensors") == t
        True
        """
        from serrate.table.storage.writing import save

        save(self, path, rows_per_shard=rows_per_shard, overwrite=overwrite, narrow=narrow, composed=composed)

    def verify(self) -> None:
        """Check every checksum and every offset of the files that the table is read from."""
        from serrate.table.storage.checking import verify

        verify(self)

    def loader(self, batch_size: int | None = None, **options: Any) -> Loader:
        """Return a loader that gives batches for training, packed or padded, epoch after epoch.

        The options are shuffle, seed, drop_last, max_tokens, tokens_at, bucket_by, pool, oversize, window, keep, level,
        columns, to, device, num_workers, prefetch, rank, world_size, and those of `to_dense`;
        `help(serrate.table.Loader)` explains them.

        >>> import serrate as sr
        >>> t = sr.Table({"code": [[7, 5], [4], [1, 2, 3]]})
        >>> [batch["code"].tolist() for batch in t.loader(batch_size=2, to="dense", padding=-1)]
        [[[7, 5], [4, -1]], [[1, 2, 3]]]
        """
        from serrate.table.loading.loader import Loader

        return Loader(self, batch_size, **options)

    def dataset(self, **options: Any) -> TableDataset:
        """Return the rows as a map-style dataset of `torch.utils.data`, which reads a batch of rows at once.

        The options are columns, to, and those of `to_dense`. A `DataLoader` of the dataset needs
        `collate_fn=rows.collate`; see `serrate.table.TableDataset`.
        """
        from serrate.table.loading.torch_data import TableDataset

        return TableDataset(self, **options)

    def __reduce__(self) -> tuple[Any, ...]:
        names = tuple(self.keys())  # Columns that were not selected are not pickled.
        sources = [source.select(names) if isinstance(source, Block) else source for source in self._sources]
        return Table._of, (self._schema, Sources(sources, self._sources.origins))
