"""The exporter's metrics: an instance that ends while it is looked at costs no scrape."""

import errno

import pytest

from recording.live.exporter import Instance, _read


@pytest.mark.parametrize("code", [errno.ENOENT, errno.ENODEV], ids=["before it is opened", "before it is read"])
def test_an_instance_that_goes_meanwhile_is_left_out(code: int) -> None:
    def read(one: Instance, version: int) -> float:
        if one.session == 1:
            raise OSError(code, "gone")
        return 7.0

    assert list(_read([Instance(1, "", ""), Instance(2, "", "")], 2, read)) == [7.0]


def test_what_may_not_be_read_is_told() -> None:
    def read(one: Instance, version: int) -> float:
        raise OSError(errno.EACCES, "forbidden")

    with pytest.raises(PermissionError):
        list(_read([Instance(1, "", "")], 2, read))
