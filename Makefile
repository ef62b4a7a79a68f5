# Every target sets up what it needs: an own .venv with pinned packages, and Java.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready

.PHONY: help setup servers run check test test-unit test-spark bench clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: $(STAMP) ## own .venv with pinned packages; Java 17+ found or installed
	@bash scripts/ensure-java.sh

$(STAMP): pyproject.toml
	@bash scripts/make-venv.sh "$(PYTHON)" "$(VENV)"
	@touch $@

servers: setup ## the emulators that tests run against and that are no Python packages
	@bash scripts/ensure-azurite.sh "$(VENV)/azurite"

run: setup ## 30 s of the built-in workload through Spark into ./out
	@$(BIN)/tidegate run --source "workload://sysbench?tables=10&rows=1000000&seed=1" --sink "file://$(CURDIR)/out" --duration 30s

check: setup ## ruff and mypy --strict
	@$(BIN)/ruff check src tests examples
	@$(BIN)/ruff format --check src tests examples
	@$(BIN)/mypy

test: servers ## all tests (and the checks before them), in three parts side by side
	@$(MAKE) --no-print-directory check
	@$(BIN)/pytest -q -p no:cacheprovider tests/e2e >$(VENV)/processes.log 2>&1 & processes=$$!; \
	  $(BIN)/pytest -q -p no:cacheprovider tests/unit >$(VENV)/unit.log 2>&1 & unit=$$!; \
	  $(BIN)/pytest -q -p no:cacheprovider tests/spark; failed=$$?; \
	  wait $$unit || failed=1; cat $(VENV)/unit.log; \
	  wait $$processes || failed=1; cat $(VENV)/processes.log; exit $$failed

test-unit: servers ## the tests without Spark, in seconds
	@$(BIN)/pytest -q tests/unit

test-spark: setup ## the tests with a real Spark session
	@$(BIN)/pytest -q tests/spark tests/e2e

bench: setup ## throughput, wake and hot-table, one after the other
	@for name in throughput wake hot-table; do $(BIN)/tidegate bench $$name || exit 1; done

clean: ## remove what run and bench made (not .venv)
	@rm -rf out bench-data
