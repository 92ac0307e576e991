# Everything sets itself up: `make demo` and `make test` need Python 3.11 or newer and make, nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help demo test lint types imports generated requirements tests bench generate format lock clean

help: ## Show what there is to make
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

demo: $(READY) ## Start the real server, call everything, show what was asked and answered
	@$(BIN)/python tools/demo.py

test: lint types imports generated requirements tests ## Run every check

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

imports: $(READY)
	$(BIN)/lint-imports --no-cache

generated: $(READY)
	$(BIN)/python tools/generate.py --check

requirements: $(READY)
	$(BIN)/python tools/requirements.py

tests: $(READY)
	$(BIN)/pytest -q -n 2

bench: $(READY) ## Measure, and write docs/benchmarks.md with its picture
	$(BIN)/python benchmarks/run.py

generate: $(READY) ## Write schemas, types and reference pages again
	$(BIN)/python tools/generate.py

format: $(READY) ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: $(READY) ## Resolve and pin the dependencies again
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile pyproject.toml --universal --generate-hashes --no-emit-index-url --no-header --quiet -o requirements/runtime.txt
	$(BIN)/uv pip compile pyproject.toml --group dev --universal --generate-hashes --no-emit-index-url --no-header --quiet -o requirements/dev.txt

# pip checks every download against its hash; nothing is resolved here.
$(READY): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "foundry-mcp needs Python 3.11 or newer; try: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

clean: ## Remove what was set up
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
