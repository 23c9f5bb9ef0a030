"""The sender over UDP, through a link with a rate, a delay and a queue."""

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from feature_store.errors import InputError, SourceError
from serving.actuators.actuator import ActuatorError
from serving.control.controller_file import read_controller_file
from serving.control.file_part import FilePart
from serving.control.parts import Reader
from systems.congestion import sender as module
from systems.congestion.sender import ACTUATOR, Sender
from tests.systems.congestion.udp_link import udp_link

pytestmark = pytest.mark.timeout(120)


def made(to: str, first: float = 100.0) -> Sender:
    return Sender(ACTUATOR.read(FilePart({"to": to, "first_rate_pps": first}, "sender", "a file")))


@pytest.fixture
def link() -> Iterator[str]:
    with udp_link(300.0, 0.04, 60) as to:
        yield to


def told(sender: Sender, seconds: float) -> list[dict[str, float]]:
    """Readings at the sender's own pace; on a busy machine an interval may pass in which nothing came back."""
    found, until = [], time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(sender.interval_s or 0.1)
        with suppress(SourceError):
            found.append(dict(sender.read().values))
    return found


def test_it_paces_and_measures_what_came_back(link: str) -> None:
    sender = made(link)
    assert isinstance(sender, Reader) and sender.present() == {"rate_pps": 100.0}
    assert sender.acquire("one") == ""
    try:
        last = told(sender, 2.0)[-10:]
        assert all(one["loss_share"] == 0.0 and 0.035 < one["rtt_s"] < 0.2 for one in last)
        assert sum(one["acked_pps"] * one["interval_s"] for one in last) == pytest.approx(
            100.0 * sum(one["interval_s"] for one in last), rel=0.3)
    finally:
        sender.release("one")
    sent = sender.total_sent
    time.sleep(0.2)
    assert sender.total_sent == sent, "without a controller nothing is sent"
    sender.acquire("another")
    try:
        again = told(sender, 1.0)[-5:]
        assert all(one["loss_share"] == 0.0 and one["acked_pps"] > 30.0 for one in again), "numbers begin anew"
    finally:
        sender.release("another")


def test_too_high_a_rate_fills_the_queue_and_loses_packets(link: str) -> None:
    sender = made(link)
    sender.acquire("one")
    try:
        sender.apply({"target_rate_pps": 600.0})
        last = told(sender, 3.0)[-5:]
        assert max(one["rtt_s"] for one in last) > 0.15, "60 packets wait 0.2 s"
        assert max(one["loss_share"] for one in last) > 0.2
        assert min(one["acked_pps"] for one in last) < 400.0
    finally:
        sender.release("one")
    assert sender.total_acked + sender.total_lost <= sender.total_sent


def test_where_nobody_answers_it_says_so_and_slows_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SILENT_S", 0.3)
    sender = made("127.0.0.1:9", 80.0)
    sender.acquire("one")
    try:
        until = time.monotonic() + 5.0
        while sender.present()["rate_pps"] > 20.0 and time.monotonic() < until:
            time.sleep(0.1)
            with pytest.raises(SourceError, match="expected acknowledgements, got none"):
                sender.read()
        assert sender.total_lost > 0 and sender.present()["rate_pps"] == 20.0, "halved twice"
    finally:
        sender.release("one")


def test_the_page_s_controller_file_is_read(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "congestion.md").read_text()
    (block,) = (one for one in page.split("```") if one.startswith("\n# sender.yaml"))
    (tmp_path / "sender.yaml").write_text(block)
    read = read_controller_file(tmp_path / "sender.yaml", "systems.congestion.sender")
    assert read.actuators["sender"].to == ("10.0.0.2", 9000) and not read.prometheus


@pytest.mark.parametrize("targets", [{}, {"target_rate_pps": 0.0}, {"target_rate_pps": float("nan")},
                                     {"target_rate_pps": 5.0, "other": 1.0}, {"target_rate_pps": 1e9}])
def test_what_is_no_rate_is_refused(targets: dict[str, float]) -> None:
    sender = made("127.0.0.1:9")
    with pytest.raises(ActuatorError, match="target_rate_pps must be a rate up to 16384 1/s"):
        sender.apply(targets)
    assert sender.present() == {"rate_pps": 100.0}


@pytest.mark.parametrize(("part", "message"), [
    ({}, "sender.to must be given"), ({"to": "nowhere"}, "sender.to must be HOST:PORT"),
    ({"to": "a:1", "packet_bytes": 24}, "packet_bytes from 25 to 65000"),
    ({"to": "a:1", "first_rate_pps": 1e6}, "first_rate_pps up to 16384"),
    ({"to": "a:1", "x": 1}, "sender must be one")])
def test_its_part_of_the_controller_file_is_read_strictly(part: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ACTUATOR.read(FilePart(part, "sender", "a file"))
