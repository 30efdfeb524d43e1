"""Lowering: how instructions of a program become operations of a fusion, and what is called where they do not."""
