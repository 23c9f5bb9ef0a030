"""nginx in the foreground, with everything that it writes in one folder."""

import os
import pwd
from pathlib import Path

_CONFIGURATION = """
daemon off;
{user}
worker_processes {workers};
pid {run}/nginx.pid;
error_log {run}/error.log warn;
events {{ worker_connections {connections}; }}
http {{
  keepalive_requests 1000000;
  client_body_temp_path {run}/body;
  proxy_temp_path {run}/proxy;
  fastcgi_temp_path {run}/fastcgi;
  uwsgi_temp_path {run}/uwsgi;
  scgi_temp_path {run}/scgi;
  {http}
}}
"""


def nginx_command(run: Path, http: str, *, workers: int = 1, connections: int = 512) -> list[str | Path]:
    """Writes the configuration to `run`, and returns the command that serves by it.

    Args:
        http: what else stands in its block `http`.
        connections: of a worker.
    """
    # Started as root, nginx would hand its workers to an account that cannot read our folders.
    user = f"user {pwd.getpwuid(0).pw_name};" if os.geteuid() == 0 else ""
    path = run / "nginx.conf"
    path.write_text(_CONFIGURATION.format(user=user, run=run, workers=workers, connections=connections, http=http))
    return ["nginx", "-p", run, "-e", run / "error.log", "-c", path]
