# `make help` lists the targets.

PY := .venv/bin/python
STAMP := .venv/.installed
DOCS_STAMP := .venv/.installed-docs
WORKERS ?= 2
# each worker is a process; threads of linear algebra would only get in each other's way
TESTS := OPENBLAS_NUM_THREADS=1 $(PY) -m pytest -n $(WORKERS)

.DEFAULT_GOAL := help
.PHONY: help venv demo test slow lint truth bench proofs docs clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-11s %s\n", $$1, $$2}' Makefile

venv: $(STAMP) ## build .venv with the package and all that its developers need

# An environment that already runs is kept, and only brought up to date.
$(STAMP): pyproject.toml
	@$(PY) -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null || { \
	    python=$$(PYTHON="$(PYTHON)" sh .ci/find-python) && \
	    echo "Building .venv with $$python" && \
	    "$$python" -m venv --clear .venv; }
	@$(PY) -m pip --version >/dev/null 2>&1 || $(PY) -m ensurepip >/dev/null
	@echo "Installing pymc-dp and its dependencies"
	@$(PY) -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	@touch $@

demo: $(STAMP) ## run the demo
	@$(PY) -m benchmarks.demo

test: lint ## run the linters, the type checker and the tests
	@$(TESTS) --dist loadfile --no-loadscope-reorder

lint: $(STAMP) ## run the linters and the type checker alone
	@$(PY) -m ruff check
	@$(PY) -m ruff format --check
	@$(PY) -m mypy

slow: $(STAMP) ## run the tests that take minutes, audits of every method among them
	@$(TESTS) -m "slow or audit"

truth: $(STAMP) ## measure coverage and width of intervals over generated data sets (hours)
	@$(PY) -m benchmarks.truth --workers $(WORKERS)

bench: $(STAMP) ## time the steps of every method
	@$(PY) -m benchmarks.steps
	@$(PY) -m benchmarks.passes
	@$(PY) -m benchmarks.large_corpus

proofs: $(STAMP) ## write digests of files into the pages of docs/proofs, once you have read both
	@$(PY) docs/_ext/proofs.py

docs: $(DOCS_STAMP) ## build the documentation in docs/_build/html
	@$(PY) -m sphinx -W --keep-going -j $(WORKERS) -b html docs docs/_build/html

$(DOCS_STAMP): $(STAMP)
	@echo "Installing what the documentation is built with"
	@$(PY) -m pip install --quiet --disable-pip-version-check --editable ".[docs]"
	@touch $@

clean: ## remove caches and build outputs; .venv and benchmarks/results stay
	@rm -rf build dist *.egg-info demo-output docs/_build docs/generated \
	    .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
	@find . -name .venv -prune -o -name .git -prune -o -name __pycache__ -type d -exec rm -rf {} +
