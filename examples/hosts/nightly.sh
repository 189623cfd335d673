#!/bin/sh -e
# Tunes for an hour; exit code 1, with what it is, where something is slower than last night. docs/reference/sweeps.md.
rm -f today.json
autotuner tune sdpa_cpu --minutes 60 --out today.json
[ -e today.json ] || { echo "nightly: no variant tonight; last.json stays as it is" >&2; exit 1; }
[ ! -e last.json ] || autotuner regress last.json
mv today.json last.json
