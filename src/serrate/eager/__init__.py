"""The machinery of eager execution: which rows belong together, where they lie, and how they are computed with."""
