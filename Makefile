# The one list of commands. CI calls these targets too.
VENV ?= .venv
# A pytest mark expression: what `make test` runs. `make test MARKS="not slow"` is the quick one.
MARKS ?= not live and not gpu and not verl and not long
# A failed test is run once more, and both are told (docs/decisions/015). `make test ARGS=--fail-on-flaky` lets the first one count.
RERUNS ?= --reruns 1 --reruns-delay 2
# More arguments for pytest, e.g. make test ARGS="-k journal -x"
ARGS ?=

BIN := $(VENV)/bin
export VENV

.DEFAULT_GOAL := help
.PHONY: help setup setup-verl demo test test-long test-all test-verl gpu-check trust chaos chaos-swarm chaos-campaign soak lint types bench conformance docs constraints clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup: ## create .venv and install everything (instant when nothing changed)
	@bash scripts/setup.sh

demo: setup ## run the example campaign and verify its report
	@bash scripts/demo.sh

test: setup ## all tests that need neither a GPU nor a paid model
	@bash scripts/test.sh -m "$(MARKS)" $(RERUNS) $(ARGS)

test-long: setup ## whole campaigns over SSH, pools, the scripted model, measured trust: the tests that take minutes each
	@bash scripts/test.sh -m long $(ARGS)

test-all: setup ## the tests that need a GPU or a paid model too
	@bash scripts/test.sh -m "not verl" $(ARGS)

setup-verl: ## create .venv-verl, in which the engine verl is tested (4 GB)
	@bash scripts/setup_verl.sh

test-verl: setup-verl ## the engine verl for real: Ray, FSDP2 and vLLM, on the CPU where no GPU is (minutes)
	@bash scripts/test_verl.sh $(ARGS)

gpu-check: setup-verl ## on a machine with a GPU: what docs/gpu-untested.md lists, with a report (under 10 minutes)
	@$${VENV_VERL:-.venv-verl}/bin/python -m swarm.testing.gpu_check $(ARGS)

trust: setup ## the trust figures: intervals, false wins, forged reports, budgets, kills, the referee
	@bash scripts/trust.sh $(ARGS)

chaos: chaos-swarm chaos-campaign ## every suite that breaks things on purpose

chaos-swarm: setup ## break a swarm over 200 times; nothing may be lost or doubled
	@bash scripts/chaos.sh swarm.testing.chaos $(ARGS)

chaos-campaign: setup ## break campaigns: daemon, worker, tmux, servers, clients, links; nothing lost, doubled or foreign touched
	@bash scripts/chaos.sh a3r.testing.chaos $(ARGS)

soak: setup ## very many short episodes; memory and file handles must stay flat
	@bash scripts/chaos.sh swarm.testing.soak $(ARGS)

lint: setup ## style, format and the arrows between packages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: setup ## pyright, strict where pyproject.toml says so
	$(BIN)/pyright --pythonpath $(BIN)/python

bench: setup ## the benchmarks that need no GPU; results go to benchmarks/results/
	@bash scripts/bench.sh $(ARGS)

conformance: setup ## SDKs, agent frameworks, coding CLIs and a fuzzer against the endpoint (needs PyPI and npm)
	@bash scripts/conformance.sh $(ARGS)

docs: setup ## build the documentation site into build/site/
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]' -c constraints.txt
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

constraints: ## resolve all requirements afresh and rewrite constraints.txt
	@bash scripts/constraints.sh

clean: ## remove .venv and caches; campaigns in .a3r/ and reports/ stay
	rm -rf "$(VENV)" .conformance build dist *.egg-info .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
