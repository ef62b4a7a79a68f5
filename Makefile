# Every target sets up what it needs: an own .venv with pinned packages, and Java. Hooks and people call the same ones.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
PYTEST := $(BIN)/pytest -q -p no:cacheprovider
# One walk through the whole pipeline, with rows and with DDL.
QUICK_SPARK := "tests/spark/test_pipeline.py::test_every_change_arrives_once_and_in_order[defaults]" \
  "tests/spark/test_pipeline.py::test_ddl_and_rows_arrive_in_order[csv]"

.PHONY: help setup servers hooks run check docs test test-quick test-unit test-spark bench clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: $(STAMP) ## own .venv with pinned packages; Java 17+ found or installed
	@bash scripts/ensure-java.sh

$(STAMP): pyproject.toml
	@bash scripts/make-venv.sh "$(PYTHON)" "$(VENV)"
	@touch $@

servers: setup ## the servers that tests run against and that are no Python packages
	@bash scripts/ensure-azurite.sh "$(VENV)/azurite"
	@bash scripts/ensure-mariadb.sh
	@bash scripts/ensure-mysql.sh "$(VENV)/mysql"
	@bash scripts/ensure-jdbc.sh "$(VENV)/jdbc"

hooks: setup ## let git run `make check` before every commit (.pre-commit-config.yaml)
	@$(BIN)/pre-commit install

run: setup ## 30 s of the built-in workload through Spark into ./out
	@$(BIN)/tidegate run --source "workload://sysbench?tables=10&rows=1000000&seed=1" --sink "file://$(CURDIR)/out" --duration 30s

check: setup ## ruff, mypy --strict, and whether docs/metrics.md is up to date (half a minute)
	@$(BIN)/ruff check src tests examples
	@$(BIN)/ruff format --check src tests examples
	@$(BIN)/mypy
	@$(BIN)/python -m tidegate.observe.metrics_page | diff -u docs/metrics.md - \
	  || { echo "docs/metrics.md differs from the table of metrics: run make docs" >&2; exit 1; }

docs: setup ## write the pages that are made from code (docs/metrics.md)
	@$(BIN)/python -m tidegate.observe.metrics_page >$(VENV)/metrics.md && cp $(VENV)/metrics.md docs/metrics.md

test: servers ## all tests, and the checks before them, in three parts side by side (about 15 minutes)
	@$(MAKE) --no-print-directory check
	@$(PYTEST) tests/e2e >$(VENV)/processes.log 2>&1 & processes=$$!; \
	  $(PYTEST) tests/unit >$(VENV)/unit.log 2>&1 & unit=$$!; \
	  $(PYTEST) tests/spark; failed=$$?; \
	  wait $$unit || failed=1; cat $(VENV)/unit.log; \
	  wait $$processes || failed=1; cat $(VENV)/processes.log; exit $$failed

test-quick: setup ## the checks, the unit tests and one walk through Spark (at most 5 minutes on two quiet cores)
	@$(MAKE) --no-print-directory check
	@$(PYTEST) $(QUICK_SPARK) >$(VENV)/quick.log 2>&1 & spark=$$!; \
	  $(PYTEST) tests/unit; failed=$$?; \
	  wait $$spark || failed=1; cat $(VENV)/quick.log; exit $$failed

test-unit: servers ## the tests without Spark (about 3 minutes)
	@$(PYTEST) tests/unit

test-spark: setup ## the tests with a real Spark session, and those with processes
	@$(PYTEST) tests/spark tests/e2e

bench: setup ## throughput, wake and hot-table, one after the other
	@for name in throughput wake hot-table; do $(BIN)/tidegate bench $$name || exit 1; done

clean: ## remove what run and bench made (not .venv)
	@rm -rf out bench-data
