from hlo_opt.diag import Reason
from hlo_opt.fusion.decision import CostEstimate, FusionDecision
from hlo_opt.report import explain


def decision(**changes):
    given = {
        "producer": "p\x1b[2J",
        "consumer": "[red]c",
        "computation": "e",
        "producer_opcode": "dot",
        "consumer_opcode": "add",
        "rule": "legality",
        "reasons": (Reason.of("FUS302", opcode="dot"),),
        "cost": CostEstimate(3.0, 2.0, 2000.0, 1000.0),
        "producer_source": "model.py:7",
    }
    return FusionDecision(**{**given, **changes})


def test_an_edge_shows_everything_and_steers_no_terminal():
    assert str(explain.edge_page(decision())).splitlines() == [
        "p\\x1b[2J -> [red]c  (dot -> add, in e)  refused by legality",
        "  producer  model.py:7",
        "  consumer  (no source line)",
        "  FUS302 library-call: `dot` runs as a library call",
        "    hint: only a library's own epilogues could take `dot` together with its neighbours",
        "  apart 3 us, 2 kB; as one kernel 2 us, 1 kB: fusing alone would save 1 us",
    ]


def test_an_edge_that_would_cost_says_so():
    text = str(explain.edge_page(decision(cost=CostEstimate(2.0, 3.5, 1.0, 1.0))))
    assert text.endswith("fusing alone would cost 1.5 us\n")


def test_the_json_of_an_edge_has_the_numbers():
    data = explain.edge_json(decision())
    assert data["reasons"][0]["numbers"] == {"opcode": "dot"}
    assert data["cost"] == {"us_unfused": 3.0, "us_fused": 2.0, "bytes_unfused": 2000.0, "bytes_fused": 1000.0}
    assert explain.edge_json(decision(reasons=(), cost=None))["fused"]
