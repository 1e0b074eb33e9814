# Everything one does with this tree. `make` alone lists the targets.

.DEFAULT_GOAL := help
.PHONY: help demo run test test-clients loom simulation nightly explore fuzz soak bench fmt lint doc trace schema supply-chain setup ci

CARGO ?= cargo
# Builds are reproducible: what Cargo.lock says, or an error.
LOCKED := --locked

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## build, start the gateway with scripted providers, watch five stories
	@scripts/setup build
	@scripts/demo

run: ## run the gateway with conf/quickstart.yaml until Ctrl-C
	@scripts/setup build
	$(CARGO) run $(LOCKED) -- run -c conf/quickstart.yaml

test: ## all tests but those with client libraries: the pure ones alone, then everything on real sockets and a PostgreSQL of its own
	@scripts/setup build
	@scripts/setup tests
	$(CARGO) test $(LOCKED) --no-default-features --test pure
	scripts/postgres run $(CARGO) test $(LOCKED)

test-clients: ## the vendors' own client libraries against the gateway
	@scripts/setup build
	@scripts/setup clients
	@test -x tests/clients/run || { echo "tests/clients/run is not in this tree: nothing to test" >&2; exit 1; }
	$(CARGO) build $(LOCKED) --bin rondo
	tests/clients/run

loom: ## every interleaving of the shared counters
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=$${CARGO_TARGET_DIR:-target}/loom \
		$(CARGO) test $(LOCKED) --no-default-features --test loom

# What these draw from; a run prints it, and the same one runs again.
ifndef SEED
SEED := $(shell od -An -N4 -tu4 /dev/urandom | tr -d ' ')
endif
PURE := test $(LOCKED) --profile torture --no-default-features --test pure

simulation: ## a million operations under virtual time, with every assertion
	RONDO_SIM_OPS=1000000 RONDO_SIM_THREADS=$(shell nproc) $(CARGO) $(PURE) simulation::by_seed -- --nocapture

nightly: ## the same for SECONDS (3600) on THREADS (all), from a seed of its own
	RONDO_SIM_SEED=$(SEED) RONDO_SIM_SECONDS=$(or $(SECONDS),3600) RONDO_SIM_THREADS=$(or $(THREADS),$(shell nproc)) \
		$(CARGO) $(PURE) simulation::by_seed -- --nocapture

explore: ## the property tests with a seed of their own and CASES (20000) each; ONLY names some of them
	@echo "explore: SEED=$(SEED) CASES=$(or $(CASES),20000)"
	PROPTEST_RNG_SEED=$(SEED) PROPTEST_CASES=$(or $(CASES),20000) $(CARGO) $(PURE) -- $(ONLY) --skip simulation --skip model

fuzz: ## TARGET of fuzz/ for SECONDS (300); needs cargo-fuzz
	cd fuzz && RUSTC_BOOTSTRAP=1 $(CARGO) fuzz run --fuzz-dir . $(TARGET) -- -max_total_time=$(or $(SECONDS),300) -timeout=10

soak: ## a gateway (PROFILE release or dev) under faults, reloads and bad clients for SECONDS (3600)
	@scripts/setup build
	$(CARGO) build $(LOCKED) --profile $(or $(PROFILE),release) --bin rondo
	$(CARGO) run $(LOCKED) --release --manifest-path load-tests/Cargo.toml -- soak --count $(SEED) --seconds $(or $(SECONDS),3600) \
		--binary $${CARGO_TARGET_DIR:-target}/$(if $(filter dev,$(PROFILE)),debug,release)/rondo

bench: ## measure beside other programs, short form, and write load-tests/report; BENCH="--rounds 5" for the full one
	@scripts/setup build
	@load-tests/bench $(BENCH)

fmt: ## format the code
	$(CARGO) fmt

lint: ## what CI refuses: formatting and warnings, with and without Pingora
	$(CARGO) fmt --check
	$(CARGO) clippy $(LOCKED) --all-targets -- -D warnings
	$(CARGO) clippy $(LOCKED) --no-default-features --all-targets -- -D warnings

doc: ## the API documentation; a broken link is an error
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc $(LOCKED) --no-deps

trace: ## write docs/requirements-trace.md anew from the tests
	scripts/trace

schema: ## write conf/rondo.schema.json anew
	$(CARGO) run $(LOCKED) --quiet -- schema > conf/rondo.schema.json.new
	mv conf/rondo.schema.json.new conf/rondo.schema.json

supply-chain: ## licences, sources, pins, duplicates and known advisories of what is built in; no network
	scripts/supply-chain

setup: ## install what is missing: C compiler, cmake, curl, Python's venv, PostgreSQL
	@scripts/setup
	@echo "Nothing is missing."

ci: ## all that a change must pass
	.ci/run
