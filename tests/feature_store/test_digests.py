import numpy as np
import pandas as pd

from feature_store.digests import content_digest


def _digest(**columns):
    return content_digest(pd.DataFrame(columns))


def test_equal_content_has_one_digest_however_it_is_stored():
    times = pd.to_datetime([1.7e9, 1.7e9 + 60], unit="s", utc=True)
    assert _digest(a=[1, 2]) == _digest(a=[1.0, 2.0])
    assert _digest(a=[0.0]) == _digest(a=[-0.0])
    assert _digest(a=[np.nan]) == _digest(a=[-np.nan]) == _digest(a=np.array([0x7FF8000000000001]).view(np.float64))
    assert _digest(t=times.as_unit("ms")) == _digest(t=times.as_unit("ns").tz_convert("Asia/Tokyo"))
    frame = pd.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    assert content_digest(frame) == content_digest(frame.set_axis([7, 9]))
    assert content_digest(frame) == content_digest(frame.astype({"b": "object"}))


def test_any_change_of_content_changes_the_digest():
    base = {"a": [1.0, 2.0], "b": ["x", "yz"]}
    others = [{"a": [1.0, np.nextafter(2.0, 3.0)], "b": ["x", "yz"]}, {"a": [2.0, 1.0], "b": ["x", "yz"]},
              {"a": [1.0, 2.0], "b": ["xy", "z"]}, {"b": ["x", "yz"], "a": [1.0, 2.0]},
              {"a": [1.0, 2.0], "c": ["x", "yz"]}, {"a": [1.0, np.nan], "b": ["x", "yz"]}]
    assert len({_digest(**columns) for columns in [base, *others]}) == len(others) + 1
    assert len({_digest(b=texts) for texts in (["", None, "x"], ["", "", "x"], [None, "", "x"])}) == 3


def test_it_survives_parquet(tmp_path):
    frame = pd.DataFrame({"t": pd.to_datetime([1, 2], utc=True), "a": [0.1, np.nan], "b": ["x", "ü"]})
    frame.to_parquet(tmp_path / "t.parquet")
    assert content_digest(pd.read_parquet(tmp_path / "t.parquet")) == content_digest(frame)


def test_a_file_has_the_digest_of_its_bytes(tmp_path):
    (tmp_path / "f").write_bytes(b"abc")
    assert content_digest(tmp_path / "f") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
