# What one does with this project. Each target makes what it needs: a virtual environment in .venv
# from requirements/dev.txt. Needs only make, python3 (3.11 or newer) and a package index.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.made
# The first Python that is new enough; `make PYTHON=/path/to/python test` chooses another.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$p"; break; }; done)

LOCK := .cache/lock/bin/uv pip compile --universal --python-version 3.11 --quiet \
	--generate-hashes --no-emit-index-url --no-emit-find-links --no-header

.PHONY: help demo test soak check bench lock clean
.DEFAULT_GOAL := help

help: ## show this list
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST)

demo: $(STAMP) ## watch workers share a limit, on local servers (two minutes)
	$(BIN)/permit-balancer demo --window-seconds 5 $(ARGS)

test: $(STAMP) ## run the tests (PERMIT_TEST_KAFKA=apache: on Apache Kafka too)
	$(BIN)/python -m pytest $(ARGS)

soak: $(STAMP) ## faults of every part in random order for ten minutes, from a printed seed
	CHAOS_SECONDS=$${CHAOS_SECONDS:-600} $(BIN)/python -m pytest -m long -s \
		tests/chaos/test_random_order.py $(ARGS)

check: $(STAMP) ## format, lint, types and layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMP) ## measure this project and its peers in one run
	$(BIN)/python -m benchmarks $(ARGS)

lock: pyproject.toml ## write requirements/*.txt anew from pyproject.toml
	@$(find_python)
	test -x .cache/lock/bin/uv || { $(PYTHON) -m venv .cache/lock && \
		.cache/lock/bin/python -m pip install -q 'uv>=0.9,<1'; }
	$(LOCK) requirements/build.in -o requirements/build.txt
	$(LOCK) pyproject.toml --extra dev -o requirements/dev.txt
	$(LOCK) pyproject.toml --extra balancer -o requirements/balancer.txt

clean: ## remove the environment, caches and builds
	rm -rf $(VENV) .cache dist build *.egg-info
	rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

define find_python
test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed: found only $$(python3 --version 2>&1)." \
	"Name one: make PYTHON=/path/to/python3.12 ..." >&2; exit 1; }; \
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	echo "Python 3.11 or newer is needed, and $(PYTHON) is $$($(PYTHON) --version 2>&1)." >&2; exit 1; }; \
	$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) cannot make virtual" \
	"environments: install its venv module (on Debian: python3-venv) or name another by PYTHON=." >&2; exit 1; }
endef

$(STAMP): requirements/dev.txt pyproject.toml
	@$(find_python)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install -q --no-deps --no-build-isolation -e .
	@touch $@
