# Everything that people and CI run. The work is done by scripts/.
.DEFAULT_GOAL := help
SHELL := bash
GO ?= go
FUZZTIME ?= 10s
SEEDS ?= 200
export GO FUZZTIME SEEDS

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## the static binary, bin/zkcontroller
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/zkcontroller ./cmd/zkcontroller

.PHONY: quick
quick: ## unit and case tests, seconds
	$(GO) test -short $$($(GO) list ./... | grep -v /internal/realtests)

.PHONY: test
test: ## everything CI runs: real servers, race, fuzz, lint, the judges in short form
	scripts/test.sh

.PHONY: judges
judges: build ## the judges in full
	scripts/judges.sh full

.PHONY: clients
clients: build ## producers and consumers of five languages, and two clients' own suites, over emulated brokers
	$(GO) test -count=1 -v ./internal/realtests -run 'TestClientPrograms|TestKcat|TestFranzGo'
	scripts/judges.sh short kgo kafkapython

.PHONY: lint
lint: ## vet, staticcheck, formatting, shell scripts
	scripts/lint.sh

.PHONY: sim
sim: ## SEEDS runs of the simulation
	$(GO) test -count=1 ./sim -seeds $(SEEDS)

.PHONY: up down
up: build ## ZooKeeper, controller and three brokers on loopback
	scripts/up.sh
down: ## stop what "make up" started
	scripts/down.sh
