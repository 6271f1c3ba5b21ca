from hlo_opt.diag import Source, Span


def test_positions_are_one_based_and_lines_have_no_ends():
    source = Source("ab\ncd\r\n\nx", "f.hlo")
    assert source.position(0) == (1, 1)
    assert source.position(2) == (1, 3)
    assert source.position(3) == (2, 1)
    assert source.position(8) == (4, 1)
    assert [source.line_text(n) for n in (1, 2, 3, 4)] == ["ab", "cd", "", "x"]


def test_a_span_knows_its_line_and_column():
    span = Span(Source("one\ntwo three"), 8, 13)
    assert (span.line, span.column) == (2, 5)
