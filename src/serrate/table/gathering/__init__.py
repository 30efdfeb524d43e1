"""Rows of any sources become one block or one batch, packed or padded; each column is copied once."""
