#!/usr/bin/env bash
# Builds the wheel and the sdist into dist/ and checks both, as an index would. Needs build and twine; where they cannot be installed, says so and builds nothing.
# scripts/package.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if ! command -v twine > /dev/null || ! command -v pyproject-build > /dev/null; then
  python -m venv build/package
  if ! build/package/bin/pip install --quiet build twine; then
    echo "scripts/package.sh: build and twine cannot be installed here: no packages" >&2
    exit 0
  fi
  PATH="$PWD/build/package/bin:$PATH"
fi
rm -rf dist
pyproject-build --outdir dist .
twine check --strict dist/*
