"""This package has kernels that are written by hand: C++ sources, each with a Python module that calls it.

The sources are built with the package (`building`); a source that was not, or that has changed since, is compiled when
it is first needed, and the result is kept on disk (`serrate.runtime.compiler`). A function here returns None if it
cannot do its work: if there is neither a library nor a compiler, if a tensor lies on a device or has another dtype, or
if an argument is wrong. Its caller then uses torch calls, which work everywhere and raise an error for what is wrong.
"""
