"""Heavy kernels that are written by hand: C++ sources, each with the Python module that compiles and calls it.

A source is compiled when something of it is first needed, and kept on disk (`serrate.runtime.compiler`). Every function
here gives None where it does not serve: there is no compiler, a tensor lies elsewhere or has another dtype, an argument
is wrong. Its caller then goes on with torch calls, which work everywhere and say what is wrong.
"""
