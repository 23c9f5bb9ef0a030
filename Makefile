# `make run` and `make test` need git, make and Python 3.11 or newer; everything else they install into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Files in the order of tests/conftest.py, which is by length: the longest must not begin last.
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

export MLFLOW_DISABLE_TELEMETRY := true
export GX_ANALYTICS_ENABLED := False
export ORT_DISABLE_TELEMETRY := 1

.DEFAULT_GOAL := help
.PHONY: help run demo test check durations ui install golden tables benchmark debian clean wheel deploy-check docs

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed"; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "install Debian's python3-venv"; exit 2; }
	@echo "installing into $(VENV) (about 2 GB, 2 minutes) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	@touch $@

install: $(STAMP) ## make the virtual environment

run: $(STAMP) ## the whole pipeline on the recorded telemetry; ends with a table and a report
	@$(BIN)/assay run

test: $(STAMP) ## all tests
	$(PYTEST)

check: $(STAMP) ## ruff, mypy, import-linter, fast tests
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(PYTEST) -m "not slow" -q

durations: $(STAMP) ## all tests, timed: which of them `make check` leaves out (tests/slow.txt)
	$(PYTEST) -p tests.durations

demo: $(STAMP) ## a real server, its load and a proved controller that acts on it, two minutes (as root)
	@$(BIN)/assay demo

ui: $(STAMP) ## MLflow's web page on loopback
	@$(BIN)/assay ui

golden: $(STAMP) ## make the golden files again
	$(BIN)/python -m tests.golden.regenerate

tables: $(STAMP) ## make the tables in README and docs again: measurements, fields of files; JSON Schemas
	$(BIN)/python -m benchmarks tables
	$(BIN)/python -m pipelines.documents

benchmark: $(STAMP) ## measure the pipeline (benchmarks/results/pipeline.json)
	$(BIN)/python -m benchmarks pipeline

deploy-check: $(STAMP) ## hold the Kubernetes manifests against the published schemas, without a cluster
	@$(BIN)/python -m deploy.manifests

wheel: $(STAMP) ## build the light install's wheel, assay-serving, into dist/
	@$(BIN)/python -m deploy.assay_serving.build

docs: $(STAMP) ## make the site of docs/ (build/site/index.html)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

debian: ## install the Debian packages that recording and its tests use (as root)
	deploy/install-debian-packages.sh

clean: ## remove the virtual environment and local state
	rm -rf $(VENV) .assay build dist *.egg-info
