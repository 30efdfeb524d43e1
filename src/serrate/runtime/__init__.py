"""Compiling and running kernels: C++ by the system compiler, CUDA C++ by NVRTC; compiled ones are kept on disk."""
