#!/usr/bin/env bash
# What tests of pages need: Chromium and its driver from the system's packages, axe-core from npm, for tests only (Mozilla Public License 2.0; it is not shipped). scripts/browser.sh
set -eu
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if ! command -v chromium > /dev/null || ! command -v chromedriver > /dev/null; then
  sudo=$([ "$(id -u)" = 0 ] || echo sudo)
  $sudo apt-get update
  $sudo apt-get install --yes --no-install-recommends chromium chromium-driver
fi
npm install --no-save --ignore-scripts --prefix build/browser axe-core@4
echo "axe-core: $PWD/build/browser/node_modules/axe-core/axe.min.js"
