PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --quiet --no-compile
READY := $(VENV)/.ready
IMPORTED := $(VENV)/.imported
COMPLETE := $(VENV)/.complete

# Two things at the same time, such as types and tests.
MAKEFLAGS += --jobs=2
# A command that a test starts would compile all of foster anew.
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
# Without the pip that venv would unpack first, where Python has one that can install another.
	@test -x $(BIN)/python || $(PYTHON) -m venv --without-pip $(VENV)
	@test -x $(BIN)/pip || $(PYTHON) -m pip --python $(BIN)/python install --quiet --no-compile pip 2> /dev/null || $(BIN)/python -m ensurepip > /dev/null
# An old pip takes twice as long to find out what belongs together; with setuptools here, none is fetched to build.
	@$(PIP) --constraint constraints.txt --upgrade pip setuptools
# Two pips fetch and unpack what is known to be needed: up to ray in the alphabet, and the rest, with torch, is as large
# again. Then one finds out what is right, also where that was not.
	@sed '/^# What /,$$d; /^#/d' constraints.txt | sort | xargs -P 2 -n 82 $(PIP) --no-deps || true
	@$(PIP) --no-build-isolation --constraint constraints.txt --editable '.[test]'
	@touch $@

# And the site, hooks.
$(COMPLETE): $(READY)
	@$(PIP) --no-build-isolation --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(READY) ## run FOSTER, replay and fine-tuning on handwritten digits
	@$(BIN)/foster demo

test: lint suite ## lint, types, and every test that is not slow

# Three on two cores: tests that wait leave a core idle, but each process imports everything once more.
suite: $(IMPORTED)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 3 --dist worksteal -m "not slow"

# One process imports all that the tests need, and so compiles it, beside mypy: two would both do all of it.
$(IMPORTED): $(READY)
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest --collect-only --quiet --quiet > /dev/null || true
	@touch $@

lint: $(READY) ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

build: $(READY) ## wheel and source archive in dist/
	@rm -rf build/lib
	$(BIN)/python -m build --no-isolation

docs: setup ## the documentation as a site in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open site/index.html"
