# Airlock. `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo 0.0.0-dev)
export CGO_ENABLED ?= 0
GOFLAGS_BUILD := -trimpath -ldflags '-s -w -X github.com/airlock-host/airlock/host/internal/version.Version=$(VERSION)'
TOOLS := $(CURDIR)/bin/tools
export PATH := $(TOOLS):$(PATH)

BUF_VERSION := v1.75.0
PROTOC_GEN_GO_VERSION := v1.36.12
PROTOC_GEN_GO_GRPC_VERSION := v1.6.2
GOLANGCI_VERSION := v2.15.0
GOTESTSUM_VERSION := v1.13.0
# Later versions of nfpm need modules that not every proxy has.
NFPM_VERSION := v2.45.0

PLUGINS := isolation/hostsupervisor:airlock-isolation-host-supervisor isolation/docker:airlock-isolation-docker isolation/qemukvm:airlock-isolation-qemu-kvm runtime/command:airlock-runtime-command runtime/claudecode:airlock-runtime-claude-code revoker/webhook:airlock-revoker-webhook revoker/postgres:airlock-revoker-postgres

.PHONY: help
help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build airlock, the cell agent, airlock-verify and the plugins into bin/
	@umask 022; mkdir -p bin/plugins
	umask 022; go build $(GOFLAGS_BUILD) -o bin/airlock ./host/cmd/airlock
	umask 022; go build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o bin/airlock-cell ./host/cmd/airlock-cell
	umask 022; go build $(GOFLAGS_BUILD) -o bin/airlock-verify ./host/cmd/airlock-verify
	@umask 022; for p in $(PLUGINS); do \
		echo "go build -o bin/plugins/$${p#*:} ./plugins/$${p%%:*}"; \
		go build $(GOFLAGS_BUILD) -o bin/plugins/$${p#*:} ./plugins/$${p%%:*}; \
	done

.PHONY: run
run: build ## run examples/missions/hello.json on a host with its own embedded orchestrator
	bin/airlock dev --once examples/missions/hello.json

.PHONY: man
man: build ## write the manual pages into dist/man
	bin/airlock man dist/man

.PHONY: demo
RECORD ?=
demo: build ## tell the refund story of a governed agent against a real host (RECORD=FILE writes its lifecycle)
	go run ./examples/refund $(if $(RECORD),--record $(RECORD))

.PHONY: test
test: build test-deps $(TOOLS)/nfpm $(TOOLS)/gotestsum ## run every test, with the race detector; fails on a skip
	@hack/test.sh

CYCLES ?= 200
.PHONY: test-cycles
test-cycles: build test-deps ## CYCLES missions (default 200) through each driver, then look for what they left
	AIRLOCK_REQUIRE=qemu,docker,host AIRLOCK_BIN=$(CURDIR)/bin AIRLOCK_CYCLES=$(CYCLES) go test -v -run TestNothingIsLeftAfterManyCycles -timeout 3h ./host/e2e

ORACLE ?= 10000
.PHONY: test-oracle
test-oracle: ## ORACLE composite calls (default 10000) by 16 clients to a host that is killed again and again
	AIRLOCK_ORACLE=$(ORACLE) go test -v -run 'TestNoCallIsLostOrDoubled|TestNoMutationIsLostOrDoubled' -timeout 3h ./host/internal/mcp ./host/internal/workflow

.PHONY: test-deps
test-deps: ## install what the tests need from the system (a C compiler for the race detector)
	@hack/test-deps.sh

.PHONY: bench
bench: build ## measure; one JSON line a figure, each with its baseline of the same run
	go run ./host/bench

# A version that dpkg and rpm can order: the tag's, or one before any release.
PACKAGE_VERSION ?= $(or $(patsubst v%,%,$(shell git describe --tags --exact-match 2>/dev/null)),$(shell git log -1 --date=format:%Y%m%d%H%M%S --format=0.0.0~%cd.%h 2>/dev/null),0.0.0)
.PHONY: packages
packages: build $(TOOLS)/nfpm ## make the deb and rpm packages, SBOM and checksums in dist/
	PACKAGE_VERSION=$(PACKAGE_VERSION) hack/packages.sh

.PHONY: reproducible
reproducible: $(TOOLS)/nfpm ## build twice, in two places and with nothing kept from the first, and compare
	@hack/reproducible.sh

.PHONY: conformance
CONFORMANCE ?= bin/plugins/airlock-isolation-host-supervisor bin/plugins/airlock-runtime-command
conformance: build ## check plugins against the contract (CONFORMANCE="BINARY …")
	@for p in $(CONFORMANCE); do bin/airlock plugin test "$$p"; done

.PHONY: crash
CRASHES ?= 1000
crash: ## CRASHES random crash schedules (default 1000), every bit of a journal of 1,000 events and of a bundle
	AIRLOCK_FULL=1 go test -run 'TestEveryBitOfAThousandEvents|TestEveryBitOfABundle' -timeout 1h ./host/internal/journal ./host/internal/evidence
	AIRLOCK_CRASH_SCHEDULES=$(CRASHES) go test -run TestRandomCrashSchedules -v -timeout 3h ./host/internal/engine

SCHEDULES ?= 20
FAULT_JSON ?= dist/fault.json
.PHONY: fault
fault: build test-deps ## every test that docs/proof.md names for a fault, SCHEDULES random schedules of kills (default 20), JSON in FAULT_JSON
	@mkdir -p $(dir $(FAULT_JSON))
	AIRLOCK_REQUIRE=qemu,docker,host AIRLOCK_BIN=$(CURDIR)/bin AIRLOCK_SCHEDULES=$(SCHEDULES) AIRLOCK_DRIVER_SCHEDULES=$$((($(SCHEDULES) + 9) / 10)) AIRLOCK_POINTS=1000 AIRLOCK_MINIMISE=1 \
		go test -json -timeout 6h -run "^($$(grep -oE '`Test[A-Za-z0-9_]+`' docs/proof.md | tr -d '`' | sort -u | paste -sd'|')|TestAScheduleOfKills)$$" \
		./config/... ./host/... ./sdk/... ./plugins/... >$(FAULT_JSON) || { grep '"Action":"fail"' $(FAULT_JSON); exit 1; }
	@grep -c '"Action":"pass".*"Test"' $(FAULT_JSON) | sed 's/$$/ tests passed/'

SOAK ?= 30
.PHONY: soak
soak: build ## SOAK minutes (default 30) of mixed missions with faults; what the host holds must not grow (one JSON line a look)
	AIRLOCK_REQUIRE=host AIRLOCK_BIN=$(CURDIR)/bin AIRLOCK_SOAK=$(SOAK) go test -v -run '^TestSoak$$' -timeout $$(($(SOAK) + 30))m ./host/e2e

.PHONY: fuzz
FUZZTIME ?= 20s
fuzz: ## run every fuzz target for FUZZTIME (default 20s)
	@hack/fuzz.sh $(FUZZTIME)

.PHONY: lint
lint: $(TOOLS)/golangci-lint $(TOOLS)/buf ## vet, golangci-lint, buf lint, formatting, go.mod
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo "not formatted:"; gofmt -l $$(git ls-files '*.go'); exit 1; }
	go vet ./...
	golangci-lint run ./...
	buf lint
	go mod verify >/dev/null

.PHONY: fmt
fmt: ## format the Go code and the protos
	gofmt -w $$(git ls-files '*.go')

.PHONY: generate
generate: $(TOOLS)/buf $(TOOLS)/protoc-gen-go $(TOOLS)/protoc-gen-go-grpc ## generate Go from the protos
	buf generate

.PHONY: generate-check
generate-check: generate ## fail when the generated code is not what is committed
	git diff --exit-code -- proto

.PHONY: proto-breaking
proto-breaking: $(TOOLS)/buf ## fail when a proto breaks the contract of AGAINST (default: the last commit)
	buf breaking --against '.git#ref=$(or $(AGAINST),HEAD)'

.PHONY: clean
clean: ## remove what was built
	rm -rf bin/airlock bin/airlock-cell bin/airlock-verify bin/plugins dist

$(TOOLS)/buf:
	GOBIN=$(TOOLS) go install github.com/bufbuild/buf/cmd/buf@$(BUF_VERSION)
$(TOOLS)/protoc-gen-go:
	GOBIN=$(TOOLS) go install google.golang.org/protobuf/cmd/protoc-gen-go@$(PROTOC_GEN_GO_VERSION)
$(TOOLS)/protoc-gen-go-grpc:
	GOBIN=$(TOOLS) go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@$(PROTOC_GEN_GO_GRPC_VERSION)
$(TOOLS)/golangci-lint:
	GOBIN=$(TOOLS) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
$(TOOLS)/gotestsum:
	GOBIN=$(TOOLS) go install gotest.tools/gotestsum@$(GOTESTSUM_VERSION)
$(TOOLS)/nfpm:
	GOBIN=$(TOOLS) go install github.com/goreleaser/nfpm/v2/cmd/nfpm@$(NFPM_VERSION)
