#!/usr/bin/env bash
# Builds the site from docs/ into build/site/html. Needs the extra `docs`; where it cannot be installed, says so and builds nothing.
# scripts/site.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
echo "scripts/site.sh: builds build/site/html; the first time this installs mkdocs, about a minute" >&2
if ! command -v mkdocs > /dev/null; then
  python -m venv build/site/venv
  if ! build/site/venv/bin/pip install --quiet '.[docs]'; then
    echo "scripts/site.sh: the extra docs cannot be installed here: no site" >&2
    exit 0
  fi
  PATH="$PWD/build/site/venv/bin:$PATH"
fi
python -m scripts.site_pages build/site/docs
NO_MKDOCS_2_WARNING=1 mkdocs build --quiet --config-file mkdocs.yml
echo "build/site/html/index.html"
