from fourge.data.packed import PackedRows
from fourge.data.render import Rendered


def test_rows_come_back_as_they_were_added() -> None:
    rows = [
        Rendered((5, 6, 151_643), (False, True, True), "a:1"),
        Rendered((7, 8), (True, True), "a:3", untaught=2),
        Rendered((9, 1, 2, 3), (False, False, True, False), "a:4"),
    ]
    packed = PackedRows()
    for row in rows:
        packed.add(row)
    assert len(packed) == 3
    assert [packed[at] for at in (2, 0, 1)] == [rows[2], rows[0], rows[1]]
    assert list(packed.lengths()) == [3, 2, 4]
    assert len(packed.token) * packed.token.itemsize + len(packed.is_target) == 9 * 5
