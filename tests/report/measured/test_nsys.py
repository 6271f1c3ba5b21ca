"""Tables of Nsight Systems, with the columns and units that it documents."""

from __future__ import annotations

import pytest

from hlo_opt.report.measured.nsys import read

SUMMARY = """
Processing [report1.sqlite] with [cuda_gpu_kern_sum.py]...

Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
60.0,"6,000",3,2000.0,2000.0,1990,2010,8.2,loop_add_fusion_1
40.0,4000,2,2000.0,2000.0,1990,2010,8.2,"void gemm<float, (int)3>(float*)"
"""
TRACE = """Start (ns),Duration (us),CorrId,GrdX,Name
1,2.5,7,1,loop_add_fusion_1
5,1.5,8,1,loop_add_fusion_1
9,3.0,9,,[CUDA memcpy Device-to-Host]
"""


def test_a_summary() -> None:
    events, executions = read(SUMMARY).of("m")
    assert {n: (r.count, r.us) for n, r in events.items()} == {
        "loop_add_fusion_1": (3, 6.0),
        "void gemm<float, (int)3>(float*)": (2, 4.0),
    }
    assert executions == 0


def test_a_trace_in_microseconds_without_copies() -> None:
    events, _ = read(TRACE).of("m")
    assert {n: (r.count, r.us) for n, r in events.items()} == {"loop_add_fusion_1": (2, 4.0)}


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "Name,Instances\nx,3\n"])
def test_a_table_without_times_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no row of titles"):
        read(text)
