# `make train` and `make test` need Python 3.11 or newer and make, and nothing else.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin

.PHONY: train test check lint types tests benchmarks docs clean

train: .venv/.installed
	$(BIN)/gcpsl train

test: .venv/.dev
	$(MAKE) check

check: lint types tests

lint:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types:
	$(BIN)/mypy

tests:
	$(BIN)/coverage erase
	OMP_NUM_THREADS=1 $(BIN)/coverage run -m pytest
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

benchmarks: .venv/.dev
	for name in throughput scaling clustering planner startup paper_numbers; do $(BIN)/python benchmarks/$$name.py || exit 1; done

docs: .venv/.dev
	$(BIN)/python -m gcpsl.reference docs

.venv/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "gcpsl needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	@touch $@

.venv/.dev: .venv/.installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	@touch $@

clean:
	rm -rf .venv build dist .coverage .mypy_cache .pytest_cache .ruff_cache .hypothesis
