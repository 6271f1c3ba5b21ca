#!/usr/bin/env bash
# Draws the picture of README.md anew: the page of `hlo-opt view` in Chromium (scripts/browser.sh installs it).
# scripts/picture.sh [FILE [OUT]]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
file=${1:-testdata/dumps/transformer_block.hlo}
out=$(realpath "${2:-docs/images/view.png}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python -m hlo_opt view "$file" --source-root . -o "$work/page.html"
chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1200,640 \
  --run-all-compositor-stages-before-draw --virtual-time-budget=5000 \
  --user-data-dir="$work/profile" --screenshot="$out" "file://$work/page.html" 2> "$work/log" || { cat "$work/log" >&2; exit 1; }
echo "$out"
