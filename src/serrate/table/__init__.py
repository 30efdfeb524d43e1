"""Tables whose columns share their nesting, in memory and on disk."""

from serrate.table.gathering.batch import Dense, Packed
from serrate.table.loading.loader import Loader
from serrate.table.loading.torch_data import TableDataset
from serrate.table.schema import Column, Schema
from serrate.table.storage.checking import repair, verify
from serrate.table.storage.committing import commit
from serrate.table.storage.manifest import open_table
from serrate.table.storage.writer import TableWriter
from serrate.table.table import Table

__all__ = [
    "Column",
    "Dense",
    "Loader",
    "Packed",
    "Schema",
    "Table",
    "TableDataset",
    "TableWriter",
    "commit",
    "open_table",
    "repair",
    "verify",
]
