# `make train` and `make test` need Python 3.11 or newer and make, and nothing else.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin

.PHONY: train test check lint types tests benchmarks docs gpu-check gpu clean
GPU_PYTHON ?= $(BIN)/python

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
	for name in throughput scaling clustering planner startup paper_numbers slots; do $(BIN)/python benchmarks/$$name.py || exit 1; done

# On a machine with a GPU: what the tests there promise, and that the kernels touch no memory but their own.
gpu-check:
	$(GPU_PYTHON) -m pytest tests/runtimes tests/unit/kernels
	compute-sanitizer --tool memcheck --error-exitcode 9 $(GPU_PYTHON) -m pytest -q tests/unit/kernels/test_triton.py
	compute-sanitizer --tool racecheck --error-exitcode 9 $(GPU_PYTHON) -m pytest -q tests/unit/kernels/test_triton.py

# What docs/gpu.md and results/h200 say; GCPSL_DATA names the folder of CIFAR-10.
gpu:
	$(GPU_PYTHON) benchmarks/gpu.py --out throughput.json
	$(GPU_PYTHON) benchmarks/gpu_profile.py
	$(GPU_PYTHON) benchmarks/gpu_gradients.py --out gradients.json
	$(GPU_PYTHON) benchmarks/gpu_training.py --data $(GCPSL_DATA) --out training.json

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
