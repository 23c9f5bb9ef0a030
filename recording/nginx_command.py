"""nginx in the foreground, with everything that it writes in one folder."""

from pathlib import Path

from recording.processes import unprivileged

_CONFIGURATION = """
daemon off;
worker_processes {workers};
pid nginx.pid;
error_log error.log warn;
events {{ worker_connections {connections}; }}
http {{
  keepalive_requests 1000000;
  client_body_temp_path body;
  proxy_temp_path proxy;
  fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;
  {http}
}}
"""


def write_configuration(run: Path, http: str, *, workers: int = 1, connections: int = 512) -> Path:
    """Writes what nginx goes by from its next start or reload on, and returns the file; see `nginx_command`."""
    path = run / "nginx.conf"
    path.write_text(_CONFIGURATION.format(workers=workers, connections=connections, http=http))
    return path


def nginx_command(
    run: Path, http: str, *, workers: int = 1, connections: int = 512, files: Path | None = None
) -> list[str | Path]:
    """Writes the configuration to `run`, and returns the command that serves by it.

    Args:
        run: of the server; nginx itself writes to a folder in it, which relative paths in `http` begin at.
        http: what else stands in its block `http`.
        connections: of a worker.
        files: folder that it serves, if any.
    """
    own, path = run / "nginx", write_configuration(run, http, workers=workers, connections=connections)
    own.mkdir(exist_ok=True)
    account = unprivileged(own, *([] if files is None else [files]))
    return [*account, "nginx", "-p", own, "-e", own / "error.log", "-c", path]
