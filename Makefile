# `make demo` and `make test` set everything up by themselves in .venv; they need Python 3.11 and a C++ compiler.
#
#   make demo     run examples/first.py
#   make test     formatting, lint, types, tests
#   make slow     all tests, the slow ones too, with more examples per property
#   make lint     formatting, lint, types
#   make format   rewrite the sources in the project's format
#   make bench    run the benchmarks (BENCH=tensor: one suite)
#   make matrix   run every operation on every structure and dtype, and print the table
#   make goldens  write the sources and texts in the folders called goldens anew
#   make clean    remove caches and build outputs (make distclean: .venv too)

PYTHON ?= python3
# Further options for installing torch, say an index that has a CPU build.
TORCH_PIP_ARGS ?=
PYTEST_ARGS ?=
BENCH ?=

VENV := .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.runtime-stamp
NATIVE := $(VENV)/.native-stamp
NATIVE_SOURCES := $(wildcard src/serrate/native/*.cpp src/serrate/native/*.h) \
	setup.py src/serrate/native/building.py src/serrate/runtime/toolchain.py
TEST := $(VENV)/.test-stamp
# -qq: errors are still shown.
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq install -c constraints.txt

.PHONY: test demo lint format slow bench matrix goldens clean distclean
.NOTPARALLEL:
.DEFAULT_GOAL := test

test: lint
	@echo "==> pytest"
	@$(BIN)/python -m pytest $(PYTEST_ARGS)

demo: $(NATIVE)
	@echo "==> examples/first.py"
	@$(BIN)/python examples/first.py

lint: $(TEST) $(NATIVE)
	@echo "==> ruff format --check"
	@$(BIN)/ruff format --check
	@echo "==> ruff check"
	@$(BIN)/ruff check
	@echo "==> mypy"
	@$(BIN)/mypy

format: $(TEST) $(NATIVE)
	@$(BIN)/ruff check --fix-only
	@$(BIN)/ruff format

slow: $(TEST) $(NATIVE)
	@echo "==> pytest, with the slow tests"
	@HYPOTHESIS_PROFILE=thorough $(BIN)/python -m pytest -m "slow or not slow" $(PYTEST_ARGS)

bench: $(TEST) $(NATIVE)
	@echo "==> benchmarks $(BENCH)"
	@$(BIN)/python -m benchmarks.run $(BENCH)

matrix: $(TEST) $(NATIVE)
	@echo "==> operations × structures × dtypes"
	@$(BIN)/python -m tests.ops.matrix

goldens: $(TEST) $(NATIVE)
	@$(BIN)/python -m tests.kernel.golden_kernels
	@$(BIN)/python -m tests.dialects.groups

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Serrate needs Python 3.11 or newer; set PYTHON=...")'
	@echo "==> creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)

# torch goes first, by its exact version, so that nothing that depends on it chooses another build.
$(RUNTIME): pyproject.toml constraints.txt | $(BIN)/python
	@echo "==> installing torch"
	@$(PIP) $(TORCH_PIP_ARGS) torch==2.13.0
	@echo "==> installing serrate"
	@$(PIP) -e .
	@touch $@

# Installing builds the native code, too; it is built anew when its sources have changed, or after make clean.
$(NATIVE): $(RUNTIME) $(NATIVE_SOURCES)
	@echo "==> building the native code"
	@$(PIP) --no-deps -e .
	@touch $@

# torchrec and fbgemm-gpu-cpu without their dependencies: torchrec asks for the CUDA build of fbgemm-gpu.
$(TEST): $(RUNTIME)
	@echo "==> installing the test tools"
	@$(PIP) -e '.[test]'
	@echo "==> installing fbgemm-gpu-cpu and torchrec"
	@$(PIP) --no-deps fbgemm-gpu-cpu==1.8.0 torchrec==1.8.0
	@touch $@

clean:
	@rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .serrate-cache
	@rm -rf src/serrate/native/built $(NATIVE)
	@find src tests examples benchmarks \( -name __pycache__ -o -name '*.egg-info' \) -prune -exec rm -rf {} +

distclean: clean
	@rm -rf $(VENV)
