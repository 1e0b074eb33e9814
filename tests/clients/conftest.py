"""Starts one gateway for all tests and stops it again. Only the process started here is ever signalled."""

import os
import pathlib
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.request
import uuid

import pytest

HERE = pathlib.Path(__file__).parent
# Longest that anything is waited for. It bounds a hang; no test passes because of it.
PATIENCE = 20.0
# What clients send as their credential. It must reach nobody.
CLIENT_KEY = "client-key-that-goes-nowhere"


def until(condition, what):
    """Waits until the condition holds and returns its value."""
    ends = time.monotonic() + PATIENCE
    pause = threading.Event()
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < ends, f"waited in vain: {what}"
        pause.wait(0.02)


def free_ports(count):
    """Ports that were free a moment ago."""
    sockets = [socket.socket() for _ in range(count)]
    for sock in sockets:
        sock.bind(("127.0.0.1", 0))
    ports = [sock.getsockname()[1] for sock in sockets]
    for sock in sockets:
        sock.close()
    return ports


class Gateway:
    """A running gateway and what can be seen of it."""

    def __init__(self):
        data, admin = free_ports(2)
        self.url = f"http://127.0.0.1:{data}"
        self.admin = f"http://127.0.0.1:{admin}"
        work = pathlib.Path(os.environ["RONDO_WORK"])
        text = (HERE / "gateway.yaml").read_text()
        config = work / "gateway.yaml"
        config.write_text(text.replace("127.0.0.1:18080", f"127.0.0.1:{data}").replace("127.0.0.1:19090", f"127.0.0.1:{admin}"))
        self.log_file = work / "gateway.log"
        with self.log_file.open("wb") as log:
            command = [os.environ["RONDO_BIN"], "run", "-c", str(config)]
            environment = {**os.environ, "RUST_LOG": "info"}
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
        try:
            for port in (data, admin):
                until(lambda: self.accepts(port), f"port {port} to accept")
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise

    def accepts(self, port):
        assert self.process.poll() is None, self.log_file.read_text()
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", port)) == 0

    def stop(self):
        """SIGTERM: the gateway drains and exits with 0."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise

    def metric(self, name, **labels):
        """The sum of the series with these labels."""
        with urllib.request.urlopen(f"{self.admin}/metrics", timeout=PATIENCE) as answer:
            text = answer.read().decode()
        total = 0.0
        for line in text.splitlines():
            found = re.fullmatch(rf"{name}(?:\{{(.*)\}})? (\S+)", line)
            if found:
                pairs = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', found[1] or ""))
                if labels.items() <= pairs.items():
                    total += float(found[2])
        return total

    def settle(self):
        """Waits until no request is in flight."""
        until(lambda: self.metric("rondo_inflight_requests") == 0, "requests in flight to end")

    def lines(self, request_id):
        """Access-log lines of a request, as dictionaries."""
        found = []
        for line in self.log_file.read_text(errors="replace").splitlines():
            if f"request={request_id} " in line:
                found.append(dict(re.findall(r'(\w+)=("(?:[^"\\]|\\.)*"|\S*)', line)))
        return found


# R-C3 R-X2
@pytest.fixture(scope="session")
def running():
    gateway = Gateway()
    yield gateway
    code = gateway.stop()
    log = gateway.log_file.read_text(errors="replace")
    assert code == 0, log
    for secret in (CLIENT_KEY, "provider-key-"):
        assert secret not in log, f"{secret} is in the log"
    assert "panicked" not in log, log


# R-S22
@pytest.fixture
def gateway(running):
    """The gateway; after the test nothing is in flight, nothing waits and nothing is held."""
    yield running
    running.settle()
    assert running.metric("rondo_exhaustion_waiting") == 0
    assert running.metric("rondo_buffered_bytes") == 0
    assert running.metric("rondo_unexpected_events_total") == 0
    assert running.metric("rondo_exhaustion_admissions_total") == running.metric("rondo_exhaustion_ends_total")


@pytest.fixture
def request_id():
    """An id of the client's own, by which its lines are found."""
    return f"test-{uuid.uuid4().hex}"


def assert_throttled(headers, *, seconds, reason):
    """The gateway's own directives on a final throttle."""
    assert int(headers["retry-after"]) <= seconds
    assert int(headers["retry-after"]) == -(-int(headers["retry-after-ms"]) // 1000)
    assert headers["x-should-retry"] == "true"
    assert headers["x-rondo-reason"] == reason
