PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --quiet --no-compile
READY := $(VENV)/.ready
IMPORTED := $(VENV)/.imported
COMPLETE := $(VENV)/.complete

# mypy runs beside the tests.
MAKEFLAGS += --jobs=2
# Without bytecode files, every process that a test starts would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help setup demo test suite lint build docs

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(COMPLETE) ## create .venv with everything that development needs

# What the tests need.
$(READY): pyproject.toml constraints.txt
	@echo "setting up $(VENV) (a few minutes the first time)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "foster needs Python 3.11 or newer: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 2; }
# The pip of $(PYTHON) installs a new one, which resolves faster; where it is too old to do so, venv's own does. With
# setuptools here, none is fetched to build.
	@test -x $(BIN)/python || $(PYTHON) -m venv --without-pip $(VENV)
	@$(PYTHON) -m pip --python $(BIN)/python install --quiet --quiet --no-compile --upgrade --constraint constraints.txt pip setuptools 2> /dev/null \
		|| { $(BIN)/python -m ensurepip > /dev/null && $(PIP) --upgrade --constraint constraints.txt pip setuptools; }
# Two pips at a time fetch and unpack the pinned packages: up to ray in the alphabet, and the rest, with torch. Then one
# installs foster and whatever is still missing.
	@sed '/^# What /,$$d; /^#/d' constraints.txt | sort | xargs -P 2 -n 82 $(PIP) --no-deps || true
	@$(PIP) --no-build-isolation --constraint constraints.txt --editable '.[test]'
	@touch $@

# What development needs beside that: the site, hooks, coverage.
$(COMPLETE): $(READY)
	@$(PIP) --no-build-isolation --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(READY) ## run FOSTER, replay and fine-tuning on handwritten digits
	@$(BIN)/foster demo

test: lint suite ## lint, types, and every test that is not slow

# Two workers for two cores: a third would import everything and make what tests share once more, which takes longer than
# two workers wait for other processes.
suite: $(IMPORTED)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist worksteal -m "not slow"

# One process imports, and thereby compiles, all that the tests need, while mypy runs: each worker would do it again.
$(IMPORTED): $(READY)
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest --collect-only --quiet --quiet > /dev/null || true
	@touch $@

lint: $(READY) ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

build: $(READY) ## wheel and source archive in dist/
	@rm -rf build/lib dist
	$(BIN)/python -m build --no-isolation

docs: setup ## the documentation as a site in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open site/index.html"
