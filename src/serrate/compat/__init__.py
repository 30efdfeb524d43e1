"""This package offers the functions and classes of other libraries, with their names, on Serrate's operations."""
