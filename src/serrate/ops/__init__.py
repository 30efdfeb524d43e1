"""Operations: one table, a record per operation, one file per family."""
