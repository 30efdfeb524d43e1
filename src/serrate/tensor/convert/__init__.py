"""This package converts ragged data of other libraries, one file for each; their packages are imported when used."""
