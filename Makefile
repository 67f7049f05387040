# Everything a person types. Each target first brings .venv up to date with deploy/setup.sh (0.03 s when it is).
#   make run [RUN=addition] [ARGS="train.groups=32"]        make bench-NAME
VENV  ?= .venv
RUN   ?= addition
BIN   := $(VENV)/bin
export VENV

# Cores are shared by many processes here: one thread each, no spinning, and no hub to wait for.
QUIET := OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE HF_HUB_OFFLINE=1
# The peer takes hours and an environment of its own: `make bench-against_trl`. Fifty runs take an hour: `bench-staleness`.
# An installation from nothing fetches gigabytes: `bench-first_hour`.
BENCHMARKS := $(filter-out against_trl staleness first_hour,$(patsubst benchmarks/%.py,%,$(shell grep -l __main__ benchmarks/*.py)))
# Most tests wait more than they compute; a file stays in one process, so that costly fixtures are made once.
SIDE_BY_SIDE := -n 3 --dist loadfile
TESTS := $(wildcard tests/unit tests/contract tests/integration tests/faults tests/acceptance)

.PHONY: help run test compose-test check bench nightly clean ready ready-dev
.DEFAULT_GOAL := help

help: ## this list
	@grep -hE '^[a-z-]+%?:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+%?):.*## (.*)/  make \1\t\2/' | expand -t 20

run: ready ## train the run RUN and watch it learn
	@$(BIN)/tidemill run $(RUN) $(ARGS)

test: check ## check, then every test that fits 20 minutes on two cores
	$(QUIET) $(BIN)/pytest $(SIDE_BY_SIDE) $(TESTS) -m "not nightly and not gpu" $(ARGS)

nightly: check ## all tests without a GPU: five seeds, the whole fault matrix
	$(QUIET) $(BIN)/pytest $(SIDE_BY_SIDE) $(TESTS) -m "not gpu" $(ARGS)

compose-test: ready-dev ## the cluster of docker-compose.yml on a real engine; skipped where none can be had
	$(BIN)/pytest tests/compose -s $(ARGS)

check: ready-dev ## format, lint, types, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports

bench: ready-dev $(addprefix bench-,$(BENCHMARKS)) ## every benchmark

bench-%: ready-dev ## one benchmark: benchmarks/results/NAME.json and a line in benchmarks/README.md
	$(QUIET) $(BIN)/python -m benchmarks.$* $(ARGS)

clean: ## remove the environment and caches; runs/ stays
	rm -rf $(VENV) build *.egg-info .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -not -path './runs/*' -prune -exec rm -rf {} +

ready:
	@deploy/setup.sh

ready-dev:
	@DEV=1 deploy/setup.sh
