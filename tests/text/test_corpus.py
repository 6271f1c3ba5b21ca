"""XLA's own test texts, where the checkout has them beside it: read, print, and XLA must find the same module in our
print."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import hlo_opt

CORPUS = Path(os.environ.get("HLO_OPT_CORPUS", Path(__file__).resolve().parents[3] / "shared" / "corpus"))
SAMPLES = 60
LARGEST = 100_000  # bytes; larger texts are for timing


def samples(folder):
    found = [p for p in sorted((CORPUS / folder).glob("*.hlo")) if p.stat().st_size < LARGEST]
    return found[:: max(1, len(found) // SAMPLES)]


pytestmark = pytest.mark.skipif(not (CORPUS / "xla").is_dir(), reason=f"no corpus at {CORPUS} (HLO_OPT_CORPUS)")


@pytest.mark.parametrize("path", samples("xla/accepted"), ids=lambda p: p.stem)
def test_accepted_texts_survive(path):
    hlo = pytest.importorskip("jaxlib._hlo")
    text = path.read_text()
    if "{...}" in text:
        pytest.skip("XLA fills an elided constant anew each time")

    def canonical(t):
        return hlo.hlo_module_from_text(t).to_string(hlo.HloPrintOptions())

    assert canonical(str(hlo_opt.parse(text, path.name))) == canonical(text)


@pytest.mark.parametrize("path", sorted((CORPUS / "xla" / "rejected").glob("*.hlo")), ids=lambda p: p.stem)
def test_rejected_texts_are_rejected_near_the_line_that_xla_names(path):
    hlo = pytest.importorskip("jaxlib._hlo")
    text = path.read_text()
    with pytest.raises((hlo_opt.ParseError, hlo_opt.VerifyError)) as caught:
        hlo_opt.verify(hlo_opt.parse(text, path.name))
    with pytest.raises(Exception, match="error") as theirs:
        hlo.hlo_module_from_text(text)
    line = re.search(r"(\d+):\d+: error", str(theirs.value))
    assert caught.value.line
    assert line is None or int(line[1]) - 8 <= caught.value.line <= int(line[1]) + 1
