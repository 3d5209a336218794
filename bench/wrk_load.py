"""Load by wrk: one body posted over and over, figures from wrk's own summary.

wrk is told what to send by a Lua script, which also prints the summary as one JSON line: the figures are those of
`--latency` (wrk corrects both for coordinated omission) without reading text made for people.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import msgspec

from bench.errors import LoadFailed, MissingTool

_SUMMARY_MARK = "summary "
_SCRIPT = """
function init(args)
  local file = assert(io.open(args[1], "rb"))
  wrk.method = "POST"
  wrk.body = file:read("*a")
  wrk.headers["Content-Type"] = "application/json"
  file:close()
end

function done(summary, latency, requests)
  local e = summary.errors
  print(string.format(
    'summary {"requests":%d,"duration_us":%d,"p50_us":%d,"p99_us":%d,' ..
    '"connect_errors":%d,"read_errors":%d,"write_errors":%d,"status_errors":%d,"timeouts":%d}',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    e.connect, e.read, e.write, e.status, e.timeout))
end
"""
#: A paced stream takes longer than wrk's own limit of 2 s on a loaded machine.
_TIMEOUT_S = 20


class LoadSummary(msgspec.Struct, frozen=True):
    """One run of wrk. Requests are those answered whole; a stream counts when its body has ended."""

    requests: int
    duration_us: int
    p50_us: int
    p99_us: int
    connect_errors: int
    read_errors: int
    write_errors: int
    status_errors: int
    timeouts: int

    @property
    def requests_per_s(self) -> float:
        return self.requests * 1_000_000 / self.duration_us

    @property
    def errors(self) -> int:
        return (
            self.connect_errors
            + self.read_errors
            + self.write_errors
            + self.status_errors
            + self.timeouts
        )


def find_wrk() -> str:
    """The path of wrk; raises MissingTool with the package that brings it."""
    path = shutil.which("wrk")
    if path is None:
        raise MissingTool(
            "wrk is not on PATH: it makes the load. Install the package `wrk` (apt-get install wrk)."
        )
    return path


def wrk_version() -> str:
    """As wrk itself says it, for example "debian/4.1.0-3+b2"."""
    answer = subprocess.run([find_wrk(), "-v"], capture_output=True, text=True, check=False)
    words = answer.stdout.split()
    return words[1] if len(words) > 1 else "unknown"


def run_wrk(url: str, body: bytes, *, connections: int, seconds: float, core: int) -> LoadSummary:
    """Posts `body` to `url` for `seconds` from one thread on `core`.

    Raises LoadFailed when wrk fails, nothing was answered, or any request went wrong.
    """
    with tempfile.TemporaryDirectory(prefix="llmgw-bench-") as folder:
        script, body_file = Path(folder, "post.lua"), Path(folder, "body.json")
        script.write_text(_SCRIPT)
        body_file.write_bytes(body)
        command = [
            *("taskset", "-c", str(core), find_wrk(), "-t1", f"-c{connections}"),
            *(f"-d{max(1, round(seconds))}s", "--timeout", f"{_TIMEOUT_S}s", "-s", str(script)),
            *(url, "--", str(body_file)),
        ]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise LoadFailed(f"wrk ended with {answer.returncode}: {answer.stderr or answer.stdout}")
    return checked(parse_output(answer.stdout), url)


def parse_output(output: str) -> LoadSummary:
    """Takes the summary out of wrk's output; raises LoadFailed when there is none."""
    for line in output.splitlines():
        if line.startswith(_SUMMARY_MARK):
            return msgspec.json.decode(line.removeprefix(_SUMMARY_MARK), type=LoadSummary)
    raise LoadFailed(f"wrk printed no summary; it said: {output!r}")


def checked(summary: LoadSummary, url: str) -> LoadSummary:
    """The summary itself, or LoadFailed: figures over failed requests mean nothing."""
    if summary.errors:
        raise LoadFailed(f"{summary.errors} requests to {url} failed under load: {summary}")
    if not summary.requests:
        raise LoadFailed(f"no request to {url} was answered within the run")
    return summary
