# One environment in .venv; every target installs what it needs.
PYTHON ?= python3
BIN := .venv/bin
# Most of the time of the tests is compilation, and most of that optimisation: these halve it. Tests marked `optimised` are
# optimised a little (tests/conftest.py). `pytest` alone compiles as users do.
QUICK_XLA := --xla_backend_optimization_level=1 --xla_llvm_disable_expensive_passes=true \
	--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1
QUICKLY := JAX_DISABLE_MOST_OPTIMIZATIONS=1 XLA_FLAGS="$(QUICK_XLA)"
# Each of two workers begins with one half, in order: neighbouring tests share fixtures and programs. Who is idle takes over.
TWO := -n 2 --dist worksteal
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: run test test-slow test-all test-minimum check experiments pages notebooks docs bench bench-gpu clean

run: .venv/run  ## the main job: which way of training copes best with uneven workers?
	$(BIN)/python -m experiments.compare

test: .venv/test  ## the fast tier of tests and doctests: what is short
	$(QUICKLY) $(BIN)/python -m pytest $(TWO) -m "not slow"

test-slow: .venv/test  ## the tests that take longer
	$(QUICKLY) $(BIN)/python -m pytest $(TWO) -m slow --durations 60

test-all: test test-slow  ## every test

test-minimum:  ## the oldest versions that pyproject.toml allows, in an environment of their own
	$(PYTHON) -m tests.minimum_versions

# What proselint does not look at (.proselintrc.json): typography, dates and repeated words, since it
# reads code and tables as prose; accents, since "resume" is a verb here.
PROSE := README.md CONTRIBUTING.md CHANGELOG.md benchmarks/README.md $(wildcard docs/*.md docs/howto/*.md)

check: .venv/test  ## style, types, spelling, wording
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/basedpyright --pythonpath $(BIN)/python
	$(BIN)/codespell asyncjax benchmarks docs experiments notebooks tests Makefile $(wildcard *.md *.j2 *.py *.toml)
	$(BIN)/proselint check --config .proselintrc.json $(PROSE)

experiments: .venv/experiments  ## all experiments, one after another; goes on where it was stopped
	$(BIN)/python -m experiments.everything

pages: .venv/run  ## pages, made of their templates and the committed rows (experiments/rows)
	$(BIN)/python -m experiments.pages

notebooks: .venv/notebooks  ## the notebooks, made from their scripts; the tests run them
	$(BIN)/python notebooks/convert.py

docs: .venv/docs  ## the site, in output/docs/html; a warning is an error
	JAX_PLATFORMS=cpu $(BIN)/python docs/build.py

bench: .venv/run  ## side-by-side timings, as Markdown tables
	$(BIN)/python -m benchmarks.replay
	$(BIN)/python -m benchmarks.traces
	$(BIN)/python -m benchmarks.steps
	$(BIN)/python -m benchmarks.ordering
	$(BIN)/python -m benchmarks.stragglers
	$(BIN)/python -m benchmarks.cluster
	$(BIN)/python -m benchmarks.local_steps
	$(BIN)/python -m benchmarks.arrivals
	$(BIN)/python -m benchmarks.rollouts

bench-gpu: .venv/bench-gpu  ## the benchmarks that have a GPU column, on a GPU
	JAX_PLATFORMS=cuda,cpu JAX_DEFAULT_MATMUL_PRECISION=highest $(BIN)/python -m benchmarks.replay
	JAX_PLATFORMS=cuda,cpu $(BIN)/python -m benchmarks.steps
	JAX_PLATFORMS=cuda,cpu JAX_DEFAULT_MATMUL_PRECISION=highest $(BIN)/python -m benchmarks.ordering
	JAX_PLATFORMS=cuda,cpu $(BIN)/python -m benchmarks.stragglers
	JAX_PLATFORMS=cuda,cpu $(BIN)/python -m benchmarks.local_steps

.venv/bench-gpu: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) --editable ".[experiments]" "jax[cuda12]"
	@touch $@ .venv/run

.venv/tpu-compile: pyproject.toml constraints.txt | .venv/bin/python  ## the compiler of a TPU, for tests/accelerators
	$(PIP) --editable ".[tpu-compile]"
	@touch $@

clean:
	rm -rf .venv output

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/run: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) --editable ".[experiments]"
	@touch $@

.venv/experiments: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) --editable ".[experiments,corpora]"
	@touch $@ .venv/run

.venv/notebooks: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) --editable ".[notebooks]"
	@touch $@

.venv/docs: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) --editable ".[docs]"
	@touch $@

.venv/test: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) --editable ".[test]"
	@touch $@ .venv/run
