# Every target is one line; what it does is in scripts/.
.PHONY: build test test-vm test-vm-short demo judges bench sweep mutants claims fuzz lint install dist test-packages test-image test-units test-nodes test-arm64 test-readme test-demo release-check release-sample dist-sample packages-sample readme-sample claims-sample mutants-sample clean

# The first line that a new user sees is the script's, not the command's.
.SILENT: demo test

build:    ; scripts/build
test:     ; scripts/test
test-vm:  ; scripts/test-vm
test-vm-short: ; scripts/test-vm --short
demo:     ; scripts/demo
judges:   ; scripts/judges
bench:    ; scripts/bench
sweep:    ; scripts/sweep $(if $(EVERY),--figures --every $(EVERY))
mutants:  ; scripts/mutants $(if $(SAMPLE),--sample $(SAMPLE)) $(if $(SEED),--seed $(SEED)) $(CRATES)
claims:   ; scripts/mutants claims
fuzz:     ; scripts/fuzz
lint:     ; scripts/lint
install:  ; SPLIT=$(SPLIT) scripts/install "$(DESTDIR)"
dist:     ; scripts/dist
test-packages: ; scripts/test-packages
test-image: ; scripts/test-image
test-units: ; scripts/test-units
test-nodes: ; scripts/test-nodes
test-arm64: ; scripts/test-arm64
test-readme: ; scripts/test-readme
test-demo: ; scripts/test-demo
release-check: ; scripts/release-check
release-sample: ; scripts/release-check --sample
dist-sample: ; scripts/release-check --dist
packages-sample: ; scripts/test-packages deb_alone rpm
readme-sample: ; scripts/test-readme containerd
claims-sample: ; scripts/mutants claims --sample 3
mutants-sample: ; scripts/mutants --no-fail --one --sample 4 --minutes 4
clean:    ; rm -rf bin dist && cargo clean
