# The commands of a developer. Each sets up what it needs; a second call of the same one starts at once.
#   make demo    train the two-agent demo from nothing and leave its results under runs/
#   make test    run the tests that this machine can run in minutes; make test-slow the others
#   make check   lint, types, import contracts, drift of generated files

VENV ?= .venv
PYTHON ?= $(firstword $(foreach name,python3.11 python3.12 python3.13 python3,$(shell command -v $(name) 2>/dev/null)))
PYTEST_ARGS ?=
PARALLEL ?= -n auto --maxprocesses 4
DEMO_ARGS ?=
SOAK_ARGS ?=
FUZZ_ARGS ?=
AUDIT_ARGS ?=
DOCS_ARGS ?=
TEST_ALL_ARGS ?=

bin := $(VENV)/bin
installed := $(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)
local_stamp := $(VENV)/.installed-local-$(installed)
dev_stamp := $(VENV)/.installed-dev-$(installed)

.DEFAULT_GOAL := help
.PHONY: help setup chat-templates demo test test-slow test-all chaos chaos-quick soak fuzz audit test-sandbox test-sglang program-venv test-programs test-importers test-postgres test-chart images test-k8s test-cluster test-compose test-upgrade test-browser test-notebook test-observability check docs format generate compose-check clean

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(bin)/python:
	@test -n "$(PYTHON)" || { echo "no python3 was found; install Python 3.11 or newer, or run: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is older than 3.11; run: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "$(PYTHON) cannot make a virtual environment; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }

$(local_stamp): | $(bin)/python
	$(bin)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[local]'
	@rm -f $(VENV)/.installed-*
	@touch $@

$(dev_stamp): | $(bin)/python
	$(bin)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@rm -f $(VENV)/.installed-*
	@touch $@ $(local_stamp)

setup: $(dev_stamp) ## Make .venv with all that a developer needs

demo: $(local_stamp) ## Train the two-agent demo, from nothing to a curve
	$(bin)/troupe demo $(DEMO_ARGS)

test: $(dev_stamp) ## Run the tests that most changes need (PYTEST_ARGS="tests/unit -k grid")
	$(bin)/python -m pytest -m "not slow" $(PARALLEL) $(PYTEST_ARGS)

test-slow: $(dev_stamp) ## Run the tests that are marked slow; .ci/run does
	$(bin)/python -m pytest -m slow $(PARALLEL) $(PYTEST_ARGS)

test-all: $(dev_stamp) ## Every suite and quick benchmark that this machine can; writes docs/testing-status.md
	$(bin)/python scripts/test_all.py $(TEST_ALL_ARGS)

test-sandbox: $(dev_stamp) ## Attack the sandbox, then 1,000 honest runs
	$(bin)/python -m pytest tests/sandbox --sandbox-full $(PYTEST_ARGS)

chaos: $(dev_stamp) ## Kill every process at every moment; writes the tables of docs/reliability.md
	tests/chaos/run_matrix.sh $(bin)/python $(PYTEST_ARGS)

chaos-quick: $(dev_stamp) ## The share of the kill matrix that every commit runs
	$(bin)/python -m pytest tests/chaos/test_kill_quick.py tests/chaos/test_faults_quick.py tests/chaos/test_power_cut.py $(PYTEST_ARGS)

soak: $(dev_stamp) ## A long job with a kill each minute (SOAK_ARGS="--minutes 10 --steps 150 --tasks 100": short)
	PYTHONPATH=tests:. $(bin)/python tests/chaos/soak.py $(SOAK_ARGS)

fuzz: $(dev_stamp) ## An hour of fuzzing and a million malformed messages (FUZZ_ARGS="--minutes 5")
	$(bin)/python scripts/fuzz.py $(FUZZ_ARGS)

audit: $(dev_stamp) ## Known vulnerabilities, SBOM, licences, workflows (AUDIT_ARGS=--strict)
	$(bin)/python scripts/audit.py $(AUDIT_ARGS)

test-sglang: $(dev_stamp) ## Run the SGLang suite on CPU (makes .venv-sglang)
	$(bin)/python scripts/setup_sglang.py
	$(bin)/python -m pytest tests/sglang -m sglang $(PYTEST_ARGS)

program-venv: $(dev_stamp) ## Make the virtual environment of an agent program's example (NAME=langgraph)
	$(bin)/python scripts/program_venvs.py $(NAME)

chat-templates: $(dev_stamp) ## Fetch chat templates of published models, for tests (TRL's package, without what it depends on)
	$(bin)/python -m pip install --quiet --no-deps --upgrade --target .tools/chat_templates trl==1.16.0

test-programs: $(dev_stamp) ## Run agent programs of LangGraph, AG2, AutoGen, LlamaIndex and the OpenAI SDKs (makes their environments)
	-$(bin)/python scripts/program_venvs.py
	-$(MAKE) chat-templates
	$(bin)/python -m pytest tests/programs -m programs $(PYTEST_ARGS)

test-importers: $(dev_stamp) ## Run environments of reasoning-gym and verifiers (makes their environments of Python)
	-$(bin)/python scripts/importer_venvs.py
	$(bin)/python -m pytest tests/importers -m importers $(PYTEST_ARGS)

test-postgres: $(dev_stamp) ## Judge the task sql on a real PostgreSQL (Debian: apt-get install postgresql)
	$(bin)/python -m pytest tests/postgres -m postgres $(PYTEST_ARGS)

test-chart: $(dev_stamp) ## Lint, render and validate the Helm chart (fetches helm into .tools)
	-$(bin)/python scripts/get_helm.py
	$(bin)/python -m pytest tests/chart $(PYTEST_ARGS)

test-k8s: $(dev_stamp) ## Run launcher and chart against a real API server (fetches or builds it)
	-$(bin)/python scripts/get_helm.py
	-$(bin)/python scripts/get_kubernetes.py
	$(bin)/python -m pytest tests/k8s -m k8s $(PYTEST_ARGS)

test-cluster: $(dev_stamp) ## Run the chart on a kubelet of this machine, whose kernel settings change meanwhile (root)
	-$(bin)/python scripts/get_helm.py
	-$(bin)/python scripts/get_kubernetes.py --node
	$(bin)/python -m pytest tests/cluster -m cluster --one-node-cluster $(PYTEST_ARGS)

images: $(dev_stamp) ## Build the images without CUDA, with labels, an SBOM each and a check of their size
	$(bin)/python scripts/build_images.py

test-compose: $(dev_stamp) ## Build the images and run docker-compose.yml on a real Docker Engine
	$(bin)/python -m pytest tests/compose -m compose $(PYTEST_ARGS)

test-upgrade: $(dev_stamp) ## Services of two versions on one Redis
	$(bin)/python -m pytest tests/upgrade -m upgrade $(PYTEST_ARGS)

test-browser: $(dev_stamp) ## Drive the web page in a real Chromium; screenshots under docs/images
	$(bin)/python -m pytest tests/browser --keep-screenshots $(PYTEST_ARGS)

test-notebook: $(dev_stamp) ## Run troupe.train in a real Jupyter kernel (makes .venv-notebook)
	-$(bin)/python scripts/setup_notebook.py
	$(bin)/python -m pytest tests/notebook -m notebook $(PYTEST_ARGS)

test-observability: $(dev_stamp) ## Real Prometheus, promtool and trackers beside a real run
	-$(bin)/python scripts/get_prometheus.py
	-$(bin)/python scripts/setup_mlflow.py
	$(bin)/python -m pytest tests/observability tests/unit/tracking -m "observability or not observability" $(PYTEST_ARGS)

check: $(dev_stamp) ## Lint, types, import contracts, drift of generated files
	$(bin)/ruff check .
	$(bin)/ruff format --check .
	$(bin)/basedpyright
	$(bin)/lint-imports
	$(bin)/buf lint proto
	PYTHON=$(bin)/python scripts/check_generated.sh

docs: | $(bin)/python ## Build the site of the documentation into build/docs/site (DOCS_ARGS="--version 0.1 --into FOLDER")
	$(bin)/python scripts/build_docs.py $(DOCS_ARGS)

format: $(dev_stamp) ## Format the code and fix what lint can fix
	$(bin)/ruff check --fix .
	$(bin)/ruff format .

generate: $(dev_stamp) ## Write generated files again: protos, the reference pages of docs/, dashboards, RestClient
	PYTHON=$(bin)/python scripts/gen_proto.sh
	$(bin)/python scripts/gen_job_spec_docs.py docs/job-spec.md
	$(bin)/python scripts/gen_cli_docs.py docs/commands.md
	$(bin)/python scripts/gen_rest_docs.py docs/rest-paths.md
	$(bin)/python scripts/gen_layouts_docs.py docs/operations/layouts.md
	$(bin)/python scripts/gen_dashboards.py deploy/helm/troupe/files/dashboards
	$(bin)/python scripts/gen_sync_client.py troupe/clients/rest/client.py

compose-check: ## Validate docker-compose.yml (needs Docker's compose plugin)
	docker compose --profile '*' config --quiet

clean: ## Remove the virtual environment and caches; runs/ and models/ stay
	rm -rf $(VENV) .cache build dist *.egg-info .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
