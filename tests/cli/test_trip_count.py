"""`--trip-count`: how often a loop runs, where the text does not say."""

import json

from hlo_opt.cli.group import run

LOOP = """HloModule m

cond {
  s = f32[64]{0} parameter(0)
  z = f32[1]{0} slice(s), slice={[0:1]}
  y = f32[] bitcast(z)
  c = f32[] constant(3)
  ROOT l = pred[] compare(y, c), direction=LT
}

body {
  s = f32[64]{0} parameter(0)
  ROOT w = f32[64]{0} add(s, s)
}

ENTRY e {
  p = f32[64]{0} parameter(0)
  ROOT w.1 = f32[64]{0} while(p), condition=cond, body=body
}
"""


def test_a_trip_count_that_is_told_weighs_the_loop(tmp_path, capfd):
    file = tmp_path / "m.hlo"
    file.write_text(LOOP)

    def launches(*options: str) -> int:
        assert run(["stats", str(file), "--json", *options]) == 0
        return json.loads(capfd.readouterr().out)["launches"]

    assert run(["fuse", str(file)]) == 0
    assert "counted as one iteration: --trip-count w.1=N says how many" in capfd.readouterr().err
    assert launches("--trip-count", "w.1=50") == 50 * launches()
    for verb in ("fuse", "explain", "stats"):
        for wrong in ("w.1", "=4", "w.1=-1", "w.1=x", "v=3"):
            assert run([verb, str(file), "--trip-count", wrong]) == 2
            assert "--trip-count takes NAME=N" in (said := capfd.readouterr().err) or "there is no loop 'v'" in said
    config = tmp_path / "c.toml"
    config.write_text('trip-count = ["w.1=50"]')
    assert run(["fuse", str(file), "--config", str(config)]) == 0
    assert "unknown trip count" not in capfd.readouterr().err
