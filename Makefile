# One set of commands for people and CI. Each makes its own environment first: see tools/environment.py.
#
#   make test ARGS="tests/unit -k lease"      ARGS goes to the program behind the command
#   make test PYTHON=python3.13               another Python; the environment is made anew for it
#   make chaos N=500 SEED=7                   so many executions, the chances of that seed

.DEFAULT_GOAL := help
.PHONY: help demo demo-batch test test-ui pictures bench check verify crash-report chaos peer-report recovery-report format docs clean
MAKEFLAGS += --no-builtin-rules --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
# Of make chaos; also as ARGS="N=500".
N ?= $(or $(patsubst N=%,%,$(filter N=%,$(ARGS))),100)

# How the whole suite runs: most of the time of a test with a stack is waiting. Without it: make test ARGS=tests
WHOLE := --numprocesses=3 --dist=loadscope --no-loadscope-reorder --durations=25

# Tried in this order; the first that is 3.11 to 3.13 is taken.
PYTHON ?= $(BIN)/python python3.11 python3.12 python3.13 python3

# uv trusts the system's certificates; without this it fails behind a company's proxy for users without SSL_CERT_FILE.
export UV_SYSTEM_CERTS := 1
# Airflow starts three times slower without compiled bytecode.
unexport PYTHONDONTWRITEBYTECODE
unexport PYTHONHOME
unexport PYTHONPATH

# $(call prepare,EXTRAS): make or complete the environment with these extras of pyproject.toml.
define prepare
@for python in $(PYTHON); do \
	if "$$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' >/dev/null 2>&1; then \
		exec "$$python" tools/environment.py $(1); \
	fi; \
done; \
echo "No Python 3.11, 3.12 or 3.13 found (tried: $(PYTHON)). Install one, or name it: make PYTHON=/path/to/python3.12" >&2; \
exit 1
endef

help: ## show these lines
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo '  ARGS="..." is passed on, for example: make test ARGS="-k lease", make demo ARGS=--json'

demo: ## start the whole stack, kill a run half way and watch it resume
	$(call prepare,demo)
	@$(BIN)/aiflow demo $(ARGS)

demo-batch: ## embed every paragraph installed here, killed twice; then a second night in which 3 % changed
	$(call prepare,demo)
	@$(BIN)/aiflow demo-batch $(ARGS)

test: ## run the tests, the fast ones first; all of them in three processes, two of them for those with a stack
	$(call prepare,dev)
	@$(BIN)/python -m pytest $(or $(ARGS),$(WHOLE))

test-ui: ## look at every page in a browser, in both themes; pictures in build/ui
	$(call prepare,dev)
	@AIFLOW_UI_ALL=1 $(BIN)/python -m pytest tests/ui tests/unit/ui $(ARGS)

pictures: ## take the pictures that a whole make test-ui made into README and docs; look at them first
	$(call prepare,dev)
	@$(BIN)/python tools/pictures.py $(ARGS)

bench: ## measure what safety costs; writes bench/results.json
	$(call prepare,dev bench)
	@$(BIN)/python -m bench $(ARGS)

check: ## lint, formatting and types
	$(call prepare,dev)
	@status=0; for tool in "ruff check" "ruff format --check" mypy; do \
		echo "$$tool"; $(BIN)/$$tool || status=1; \
	done; exit $$status

verify: ## check the protocol's model: what must hold holds, each safeguard is needed (spin and gcc)
	$(call prepare,dev)
	@$(BIN)/python tools/verify.py $(ARGS)

crash-report: ## kill real processes at every crash site in every situation; measured beside expected
	$(call prepare,dev)
	@$(BIN)/python -m tests.crash.matrix $(ARGS)

chaos: ## a random campaign of kills, stops, restarts and cut connections; N executions
	$(call prepare,dev)
	@$(BIN)/python -m tests.crash.chaos --number $(N) $(if $(SEED),--seed $(SEED)) $(filter-out N=%,$(ARGS))

peer-report: ## fourteen faults: what ours does, and what common-ai's durable agent does, in a real Airflow
	$(call prepare,dev)
	@$(BIN)/python -m tests.peer $(ARGS)

recovery-report: ## provoke every kind of stall in a real Airflow; found, requeued and gone on, beside Airflow alone
	$(call prepare,dev)
	@$(BIN)/python -m tests.recovery $(ARGS)

format: ## put the code into its form and mend what can be mended safely
	$(call prepare,dev)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: ## build the documentation into site/
	$(call prepare,dev docs)
	@for config in zensical.toml mkdocs.yml; do \
		if [ -f "$$config" ]; then exec $(BIN)/zensical build --clean --strict --config-file "$$config" $(ARGS); fi; \
	done; \
	echo "There is no zensical.toml or mkdocs.yml: nothing to build"

clean: ## remove the environment, caches and built files; .aiflow (the stack's state) stays
	rm -rf $(VENV) .venv.lock site build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -not -path './.aiflow/*' -exec rm -rf {} +
