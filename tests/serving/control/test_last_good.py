"""What a controller starts with while the state folder is away."""

import errno
import shutil

import pytest

from feature_store.errors import AssayError, InputError, RefusedError
from serving.bundle import check_bundle
from serving.control.champion import BundleAwayError, Champion
from serving.control.last_good import LastGood
from tests.serving.control.policy_bundle import Opened, write_policy_bundle

AWAY = AssayError("ledger must be there to say who is champion, got none")
REVOKED = RefusedError("workload must have a champion, got none")


@pytest.fixture(scope="module")
def bundles(tmp_path_factory, keys):
    private, public = keys
    folder = tmp_path_factory.mktemp("bundles")
    return [check_bundle(write_policy_bundle(folder / str(seed), private, seed=seed), public) for seed in (1, 2)]


def _started(found, folder, key, at=1000.0):
    source = LastGood(Opened(found), folder, key, lambda: at)
    return Champion(source, lambda: 0.0, lambda: source.age_s)


def test_it_starts_with_the_last_good_one_and_follows_the_ledger_as_soon_as_it_is_back(bundles, keys, tmp_path):
    _, key = keys
    _started(bundles[0], tmp_path, key, at=1000.0)
    asked = Opened(AWAY)
    source = LastGood(asked, tmp_path, key, lambda: 4600.0)
    champion = Champion(source, lambda: 0.0, lambda: source.age_s)
    model = champion.current()
    assert (model.version, model.refused, model.age_s) == (bundles[0].sha256[:12], "", 3600.0)
    champion.poll()
    assert "ledger must be there" in champion.unreachable
    asked.found = bundles[1]
    champion.poll()
    assert (champion.current().version, champion.current().age_s) == (bundles[1].sha256[:12], 0.0)
    assert _started(AWAY, tmp_path, key).current().version == bundles[1].sha256[:12]


def test_without_a_copy_nobody_starts(keys, tmp_path):
    with pytest.raises(AssayError, match="ledger must be there"):
        _started(AWAY, tmp_path, keys[1])


@pytest.mark.parametrize("when", ["while it acts", "at a start"])
def test_one_that_was_refused_does_not_come_back(bundles, keys, tmp_path, when):
    asked = Opened(bundles[0])
    champion = Champion(LastGood(asked, tmp_path, keys[1]))
    asked.found = REVOKED
    if when == "while it acts":
        champion.poll()
        assert champion.current().refused
    else:
        with pytest.raises(RefusedError):
            _started(REVOKED, tmp_path, keys[1])
    with pytest.raises(RefusedError, match="must have a champion, got none; since then: ledger must be there"):
        _started(AWAY, tmp_path, keys[1])
    asked.found = bundles[1]  # there is a good one again
    champion.poll()
    assert _started(AWAY, tmp_path, keys[1]).current().version == bundles[1].sha256[:12]


def test_a_refusal_that_cannot_be_written_down_is_kept_by_what_is_gone(bundles, keys, tmp_path, monkeypatch):
    asked = Opened(bundles[0])
    champion = Champion(LastGood(asked, tmp_path, keys[1]))

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    asked.found = REVOKED
    with monkeypatch.context() as patched:
        patched.setattr("serving.control.last_good.write_file", full)
        champion.poll()
    assert champion.current().refused
    with pytest.raises(AssayError, match="ledger must be there"):
        _started(AWAY, tmp_path, keys[1])


def test_where_the_new_one_cannot_be_kept_the_old_one_goes(bundles, keys, tmp_path, monkeypatch):
    asked = Opened(bundles[0])
    source = LastGood(asked, tmp_path, keys[1])
    champion = Champion(source)

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    asked.found = bundles[1]
    with monkeypatch.context() as patched:
        patched.setattr("serving.control.last_good.whole_folder", full)
        champion.poll()
    assert champion.current().version == bundles[1].sha256[:12]
    assert "No space left on device" in source.unkept
    with pytest.raises(AssayError, match="ledger must be there"):
        _started(AWAY, tmp_path, keys[1])


def test_a_controller_s_folder_that_went_away_is_not_made_anew(bundles, keys, tmp_path):
    folder, asked = tmp_path / "controller", Opened(bundles[0])
    folder.mkdir()
    source = LastGood(asked, folder / "champion", keys[1])
    champion = Champion(source)
    folder.rename(tmp_path / "away")
    for found in (bundles[0], bundles[1], REVOKED):
        asked.found = found
        champion.poll()
        assert "No such file or directory" in source.unkept
        assert not folder.exists()


@pytest.mark.parametrize("harm", ["model", "other", "known", "key"])
def test_a_copy_is_checked_as_any_other(bundles, keys, tmp_path, harm):
    _started(bundles[0], tmp_path / "champion", keys[1])
    key, folder = keys[1], tmp_path / "champion"
    if harm == "model":
        (folder / "bundle/model.onnx").write_bytes(b"another model")
    elif harm == "other":
        shutil.rmtree(folder / "bundle")
        shutil.copytree(bundles[1].folder, folder / "bundle")
    elif harm == "known":
        (folder / "known.json").write_text('{"sha256": 7}')
    else:
        key = tmp_path / "away.pub"
    with pytest.raises((RefusedError, InputError)):
        _started(AWAY, folder, key)


@pytest.mark.parametrize("when", ["while it acts", "at a start"])
def test_one_that_the_ledger_no_longer_names_acts_no_more_though_its_successor_is_away(bundles, keys, tmp_path, when):
    asked, successor = Opened(bundles[0]), BundleAwayError("bundle of version 2 must be there", bundles[1].sha256)
    champion = Champion(LastGood(asked, tmp_path, keys[1]))
    asked.found = successor
    if when == "while it acts":
        champion.poll()
        champion.poll()
        assert champion.current().refused == "champion: bundle of version 2 must be there"
    else:
        with pytest.raises(RefusedError, match="bundle of version 2"):
            _started(successor, tmp_path, keys[1])
    for away in (successor, AWAY):
        with pytest.raises(RefusedError, match="bundle of version 2"):
            _started(away, tmp_path, keys[1])
    asked.found = bundles[1]
    champion.poll()
    assert (champion.current().refused, champion.current().version) == ("", bundles[1].sha256[:12])


def test_one_that_the_ledger_still_names_goes_on_though_its_bundle_is_away(bundles, keys, tmp_path):
    asked, same = Opened(bundles[0]), BundleAwayError("bundle of version 1 must be there", bundles[0].sha256)
    champion = Champion(LastGood(asked, tmp_path, keys[1]))
    asked.found = same
    champion.poll()
    assert (champion.current().refused, champion.unreachable) == ("", "bundle of version 1 must be there")
    assert _started(same, tmp_path, keys[1]).current().version == bundles[0].sha256[:12]
