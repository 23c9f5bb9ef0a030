"""Local schedules: the real crontab of this user (put back exactly as it was), and systemd units."""

import json
import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import pytest

from feature_store.errors import InputError, MissingToolError, SourceError
from feature_store.file_lock import file_lock
from pipelines.schedules import crontab, systemd_timer
from pipelines.schedules.cron import next_runs, parse_cron
from pipelines.schedules.local import (
    create_local_schedule,
    delete_local_schedule,
    list_local_schedules,
    local_time_zone,
)
from pipelines.schedules.local_job import LocalJob, assay_job, left_out

NIGHTLY = parse_cron("0 2 * * *")
NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
# A user's own crontab, with what a careless rewrite would lose.
OWN = (
    b'# mine\n\nMAILTO="a@b.example"\n\t5  5 * * 1-5   echo "100\\% done"   \n'
    b"# assay schedules are below\n#\n"
)

needs_crontab = pytest.mark.skipif(
    shutil.which("crontab") is None, reason="crontab is not installed (Debian package cron)"
)


def read_crontab() -> bytes | None:
    run = subprocess.run(["crontab", "-l"], capture_output=True, check=False)
    return run.stdout if run.returncode == 0 else None


def write_crontab(content: bytes | None) -> None:
    if content is None:
        subprocess.run(["crontab", "-r"], capture_output=True, check=False)
    else:
        subprocess.run(["crontab", "-"], input=content, check=True)


@pytest.fixture
def own_crontab() -> Iterator[None]:
    """The user's crontab holds OWN for the length of one test, and is put back whatever happens.

    Locked, because tests in other processes share the one crontab of the user.
    """
    with file_lock(Path(tempfile.gettempdir()) / f"assay-test-crontab-{os.getuid()}.lock"):
        before = read_crontab()
        try:
            write_crontab(OWN)
            yield
        finally:
            write_crontab(before)
            assert read_crontab() == before


def make_program(folder: Path) -> Path:
    """An `assay` that writes down how it was called."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "assay"
    program.write_text('#!/bin/sh\npwd\nprintf "%s\\n" "$HOME" "$ASSAY_HOME" "$PATH" "$@"\necho oops >&2\n')
    program.chmod(0o755)
    return program


def make_job(tmp_path: Path, name: str = "nightly", **changes: object) -> LocalJob:
    """A job whose every path holds spaces, percent signs, quotes and a dollar."""
    odd = tmp_path / "50% of 'my' $files \"here\""
    options: dict[str, object] = {
        "directory": odd / "project",
        "home": odd / "state",
        "environment": {"PATH": f"{odd}/bin:/usr/bin:/bin:/usr/bin", "HOME": str(odd)},
        "arguments": ("run", "--task", "performance", "--telemetry", "a b%c.parquet", "--scheduled"),
        "program": make_program(odd / "bin"),
    }
    (odd / "project").mkdir(exist_ok=True)
    return assay_job(name, **{**options, **changes})  # type: ignore[arg-type]


def expected_output(job: LocalJob) -> str:
    environment = dict(job.environment)
    values = [environment["HOME"], environment["ASSAY_HOME"], environment["PATH"], *job.command[1:]]
    return "\n".join([str(job.directory), *values, "oops"]) + "\n"


def run_as_cron_does(command: str, folder: Path) -> None:
    """Debian's cron: up to the first bare %, `\\%` unescaped, by /bin/sh with its own small environment."""
    unescaped = ""
    escaped = False
    for sign in command:
        if sign == "%" and not escaped:
            break
        if sign == "%":
            unescaped = unescaped[:-1]
        unescaped += sign
        escaped = sign == "\\"
    environment = {"HOME": "/", "PATH": "/usr/bin:/bin", "LOGNAME": "somebody", "SHELL": "/bin/sh"}
    subprocess.run(["/bin/sh", "-c", unescaped], env=environment, cwd=folder, check=True)


@needs_crontab
@pytest.mark.usefixtures("own_crontab")
class TestCrontab:
    def test_create_adds_one_marked_entry_and_keeps_the_rest(self, tmp_path: Path) -> None:
        info = create_local_schedule(make_job(tmp_path), NIGHTLY, NOW)
        content = read_crontab()
        assert content is not None
        assert content.startswith(OWN)
        line, end = content.removeprefix(OWN).decode().split("\n")
        assert line.startswith("0 2 * * * cd ") and line.endswith(" # assay schedule nightly") and end == ""
        assert "run --task performance" in line
        assert (info.name, info.cron, info.kfp_cron, info.target) == ("nightly", "0 2 * * *", None, "crontab")
        assert info.enabled
        assert len(info.next_runs) == 3
        assert all(run.tzinfo is not None for run in info.next_runs)

    def test_create_twice_leaves_one_entry_in_its_place(self, tmp_path: Path) -> None:
        create_local_schedule(make_job(tmp_path), NIGHTLY)
        create_local_schedule(make_job(tmp_path, "weekly"), parse_cron("@weekly"))
        info = create_local_schedule(make_job(tmp_path), parse_cron("30 3 * * *"))
        assert "replaced the schedule of that name (0 2 * * *)" in info.notes
        listed = [(entry.name, entry.cron) for entry in list_local_schedules()]
        assert listed == [("nightly", "30 3 * * *"), ("weekly", "0 0 * * 0")]

    def test_delete_puts_the_crontab_back_byte_for_byte(self, tmp_path: Path) -> None:
        create_local_schedule(make_job(tmp_path), NIGHTLY)
        create_local_schedule(make_job(tmp_path, "weekly"), parse_cron("@weekly"))
        assert delete_local_schedule("nightly").name == "nightly"
        delete_local_schedule("weekly")
        assert read_crontab() == OWN

    def test_lines_added_around_the_entry_survive_its_deletion(self, tmp_path: Path) -> None:
        create_local_schedule(make_job(tmp_path), NIGHTLY)
        content = read_crontab()
        assert content is not None
        write_crontab(b"# first\n" + content + b"# last\n")
        delete_local_schedule("nightly")
        assert read_crontab() == b"# first\n" + OWN + b"# last\n"

    def test_a_line_that_only_mentions_schedules_is_none(self, tmp_path: Path) -> None:
        others = OWN + b"# assay schedule x\n1 1 * * * true\n# \xff\xfe \xc3\xa4\n5 5 * * *   echo '# assay schedule n'"
        write_crontab(others + b"\n")
        assert list_local_schedules() == ()
        crontab.remove("nightly")
        assert read_crontab() == others + b"\n"
        crontab.install(LocalJob("nightly", ("true",), Path("/"), {}, tmp_path / "log"), NIGHTLY)
        crontab.remove("nightly")
        assert read_crontab() == others + b"\n"

    def test_a_crontab_that_held_nothing_is_gone_again(self, tmp_path: Path) -> None:
        write_crontab(None)
        create_local_schedule(make_job(tmp_path), NIGHTLY)
        delete_local_schedule("nightly")
        assert read_crontab() is None

    def test_an_entry_commented_out_is_listed_as_disabled(self, tmp_path: Path) -> None:
        create_local_schedule(make_job(tmp_path), NIGHTLY)
        content = read_crontab()
        assert content is not None
        write_crontab(content.replace(b"\n0 2 * * * cd", b"\n# 0 2 * * * cd"))
        (info,) = list_local_schedules()
        assert (info.name, info.cron, info.enabled, info.next_runs) == ("nightly", "0 2 * * *", False, ())

    def test_an_entry_edited_into_nonsense_is_listed_with_the_reason(self) -> None:
        write_crontab(b"*/90 * * * * x run --scheduled # assay schedule odd\n")
        (info,) = list_local_schedules()
        assert info.next_runs == ()
        assert any("a step of 1 to 59" in note for note in info.notes)

    def test_deleting_an_unknown_schedule_names_the_nearest(self, tmp_path: Path) -> None:
        create_local_schedule(make_job(tmp_path), NIGHTLY)
        with pytest.raises(InputError, match="did you mean 'nightly'"):
            delete_local_schedule("nightli")

    def test_the_command_runs_as_cron_runs_it_whatever_signs_its_paths_hold(self, tmp_path: Path) -> None:
        job = make_job(tmp_path)
        create_local_schedule(job, NIGHTLY)
        content = read_crontab()
        assert content is not None
        line = content.decode().split("\n")[-2]
        run_as_cron_does(line.split(maxsplit=5)[5], tmp_path)
        run_as_cron_does(line.split(maxsplit=5)[5], tmp_path)
        assert job.log.read_text() == expected_output(job) * 2

    def test_what_crontab_refuses_leaves_the_crontab_as_it_was(self, tmp_path: Path) -> None:
        long_path = ":".join(f"/very/long/folder/number/{number}" for number in range(60))
        job = make_job(tmp_path, environment={"PATH": long_path, "HOME": "/root"})
        with pytest.raises(InputError, match=r"at most 998 bytes, got .*shorter PATH"):
            create_local_schedule(job, NIGHTLY)
        assert read_crontab() == OWN


@needs_crontab
@pytest.mark.usefixtures("own_crontab")
@pytest.mark.parametrize(("extra", "accepted"), [(0, True), (1, False)])
def test_the_longest_command_is_the_one_that_crontab_takes(extra: int, accepted: bool) -> None:
    """The oracle for the limit that crontab.install checks."""
    line = f"0 2 * * * {'x' * (crontab._MOST_BYTES + extra)}\n"
    run = subprocess.run(["crontab", "-"], input=line.encode(), capture_output=True, check=False)
    assert (run.returncode == 0) == accepted


def test_crontabs_refusal_is_one_line_with_its_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = "echo 'You (me) are not allowed' >&2; echo 'See crontab(1)' >&2; exit 1"
    write_program(tmp_path / "bin" / "crontab", script)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(SourceError) as caught:
        crontab.entries()
    assert "You (me) are not allowed See crontab(1)" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("processes", "missing"), [(["cron", "sh"], False), (["sh", "bash"], True), ([], False)]
)
def test_a_missing_cron_daemon_is_noticed(tmp_path: Path, processes: list[str], missing: bool) -> None:
    for number, name in enumerate(processes):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "comm").write_text(name + "\n")
    assert crontab._daemon_missing(tmp_path) is missing


def write_program(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def user_systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No crontab, and a `systemctl` that writes down its arguments; returns that file."""
    calls = tmp_path / "calls"
    write_program(tmp_path / "bin" / "systemctl", f'echo "$@" >> {calls}')
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return calls


def test_without_crontab_a_systemd_timer_is_made_and_deleted(tmp_path: Path, user_systemd: Path) -> None:
    units = tmp_path / "config" / "systemd" / "user"
    info = create_local_schedule(make_job(tmp_path), NIGHTLY)
    create_local_schedule(make_job(tmp_path), NIGHTLY)
    assert info.target == "systemd user timer"
    assert sorted(path.name for path in units.iterdir()) == ["assay-nightly.service", "assay-nightly.timer"]
    enabled = "--user daemon-reload\n--user enable assay-nightly.timer\n--user restart assay-nightly.timer\n"
    assert enabled in user_systemd.read_text()
    listed = [(entry.name, entry.cron, entry.enabled) for entry in list_local_schedules()]
    assert listed == [("nightly", "0 2 * * *", True)]
    delete_local_schedule("nightly")
    assert list(units.iterdir()) == []
    assert "--user disable --now assay-nightly.timer\n--user daemon-reload\n" in user_systemd.read_text()


def test_a_timer_of_a_time_without_cron_is_removed_when_the_job_moves_to_it(tmp_path: Path, user_systemd: Path) -> None:
    """Or the job would run twice a night."""
    create_local_schedule(make_job(tmp_path), NIGHTLY)
    table, units = tmp_path / "table", tmp_path / "config" / "systemd" / "user"
    assert len(list(units.iterdir())) == 2
    write_program(tmp_path / "bin" / "crontab", f"""case "$1" in
-l) if [ -f {table} ]; then exec /bin/cat {table}; else echo "no crontab for me" >&2; exit 1; fi;;
*) exec /bin/cat > {table};;
esac""")
    assert create_local_schedule(make_job(tmp_path), NIGHTLY).target == crontab.TARGET
    assert list(units.iterdir()) == []
    assert [(entry.name, entry.target) for entry in list_local_schedules()] == [("nightly", crontab.TARGET)]


@pytest.mark.parametrize("systemctl", [None, "exit 1"])
def test_without_cron_and_systemd_the_debian_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, systemctl: str | None
) -> None:
    if systemctl is not None:
        write_program(tmp_path / "bin" / "systemctl", systemctl)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(MissingToolError, match="apt-get install cron") as caught:
        create_local_schedule(make_job(tmp_path), NIGHTLY)
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_itself_finds_no_fault_with_the_units(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    (tmp_path / "assay-nightly.service").write_text(systemd_timer.service_text(job))
    (tmp_path / "assay-nightly.timer").write_text(systemd_timer.timer_text("nightly", NIGHTLY))
    run = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / "assay-nightly.timer")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "assay-nightly" not in run.stderr, run.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("text", ["0 2 * * *", "*/15 9-17 * * 1-5", "0 0 1,15 2 *", "5 4 */2 * 1"])
def test_calendar_events_elapse_at_the_crons_times(text: str) -> None:
    cron = parse_cron(text)
    (event,) = systemd_timer.on_calendar(cron)
    base = "--base-time=2026-01-01 12:00:00 UTC"
    run = subprocess.run(
        ["systemd-analyze", "calendar", base, "--iterations=3", f"{event} UTC"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TZ": "UTC"},
    )
    assert run.returncode == 0, run.stderr
    for moment in next_runs(cron, NOW):
        assert moment.strftime("%a %Y-%m-%d %H:%M:%S UTC") in run.stdout


def test_the_unit_runs_the_job_whatever_signs_its_paths_hold(tmp_path: Path) -> None:
    """systemd.service(5): in double quotes backslash escapes; `%%` and `$$` are one sign each."""
    job = make_job(tmp_path)
    job.log.parent.mkdir(parents=True)
    (line,) = [line for line in systemd_timer.service_text(job).split("\n") if line.startswith("ExecStart=")]
    start, quoted = line.removeprefix("ExecStart=").split(" -c ")
    unquoted = re.sub(r"\\(.)", r"\1", quoted[1:-1]).replace("%%", "%").replace("$$", "$")
    subprocess.run([start, "-c", unquoted], env={}, cwd="/", check=True)
    assert job.log.read_text() == expected_output(job)


def test_crons_either_day_rule_takes_two_calendar_events() -> None:
    assert systemd_timer.on_calendar(parse_cron("0 2 13 * 5")) == ("Fri *-*-* 02:00:00", "*-*-13 02:00:00")


def test_a_job_names_its_program_folder_and_log(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    assert job.command[1:] == ("run", "--task", "performance", "--telemetry", "a b%c.parquet", "--scheduled")
    assert Path(job.command[0]).is_absolute()
    assert job.log.name == "schedule-nightly.log"
    assert dict(job.environment)["PATH"].endswith("/bin:/usr/bin:/bin")


def test_what_a_job_may_need_and_starts_without_is_named_and_never_its_value() -> None:
    (note,) = left_out({"PATH": "/bin", "HOME": "/h", "LANG": "C", "ASSAY_HOME": "/a", "ASSAY_CONFIG": "/c",
                        "MLFLOW_DISABLE_TELEMETRY": "true", "AWS_SECRET_ACCESS_KEY": "s3cret", "PGPASSWORD": "s3cret",
                        "https_proxy": "http://s3cret@p"})
    assert "job: AWS_SECRET_ACCESS_KEY, PGPASSWORD, https_proxy; " in note and "s3cret" not in note
    assert left_out({"PATH": "/bin", "ASSAY_HOME": "/a"}) == ()


def test_a_job_without_program_says_how_to_install_it(tmp_path: Path) -> None:
    with pytest.raises(MissingToolError, match="pip install"):
        make_job(tmp_path, program=tmp_path / "nowhere" / "assay")


@pytest.mark.parametrize("name", ["", "two words", "a\nb", "-x", "a/b", "x" * 64, "50%"])
def test_a_name_that_cannot_stand_everywhere_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="schedule name: expected"):
        make_job(tmp_path, name)


def test_a_line_break_in_an_argument_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="line breaks"):
        make_job(tmp_path, arguments=("a\n* * * * * evil",))


def test_the_time_zone_is_the_machines(tmp_path: Path) -> None:
    localtime = tmp_path / "localtime"
    assert local_time_zone(localtime) == UTC
    localtime.symlink_to("/usr/share/zoneinfo/Europe/Berlin")
    assert str(local_time_zone(localtime)) == "Europe/Berlin"


def test_schedules_can_be_told_to_machines(tmp_path: Path, user_systemd: Path) -> None:
    """The fields of a ScheduleInfo go into JSON as they are, but for the times."""
    info = create_local_schedule(make_job(tmp_path), NIGHTLY, NOW)
    assert user_systemd.exists()
    assert '"2026-01-0' in json.dumps(asdict(info), default=lambda value: value.isoformat())
