"""Runs programs pinned to one core and takes their processor time from the kernel; the broker and whoever listens to it
run on another core."""

import json
import os
import re
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

RUN_MAX_S = 180
DELIVERY_MAX_S = 10


class Broken(Exception):
    """A program that did not do its work; the text says why."""


@dataclass
class Usage:
    """What a finished run took, its threads and children included."""

    cpu_s: float
    wall_s: float
    rss_mib: float


class Cores:
    """The core that programs are measured on, and the one for all the rest."""

    def __init__(self):
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) < 2:
            raise Broken("the comparison needs two cores: one for the program, one for the broker and the bookkeeping")
        self.count, self.program, self.rest = len(cores), cores[0], cores[1]
        os.sched_setaffinity(0, {self.rest})


def start(command, core, log, env=None, directory=None):
    with open(log, "wb") as output:
        return subprocess.Popen(
            ["taskset", "-c", str(core), *map(str, command)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **(env or {})},
            cwd=directory,
            start_new_session=True,
        )


def run(command, core, log, env=None):
    """Runs to the end; a program that fails or hangs is Broken, with the end of what it said."""
    begin = time.monotonic()
    child = start(command, core, log, env)
    pid = 0
    try:
        while time.monotonic() - begin < RUN_MAX_S:
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            if pid:
                break
            time.sleep(0.002)
    finally:
        if not pid:
            kill_group(child)
            child.wait()
    wall = time.monotonic() - begin
    # Popen must not wait for what is gone already.
    child.returncode = os.waitstatus_to_exitcode(status) if pid else None
    name = Path(command[0]).name
    if not pid:
        raise Broken(f"{name} did not end within {RUN_MAX_S} s")
    if child.returncode != 0:
        raise Broken(f"{name} ended with {child.returncode}: {tail(log)}")
    return Usage(usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss / 1024)


class Live:
    """A program that runs until it is told to stop, looked at from outside."""

    def __init__(self, command, core, log, env=None):
        self.name, self.log = Path(command[0]).name, log
        self.child = start(command, core, log, env)
        # The kernel's number for the processor-time clock of a process (clock_getcpuclockid).
        self.clock = (~self.child.pid << 3) | 2

    def cpu_s(self):
        """Processor time so far, to the nanosecond."""
        if self.child.poll() is not None:
            raise Broken(f"{self.name} ended with {self.child.returncode}: {tail(self.log)}")
        return time.clock_gettime(self.clock)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.child.poll() is None:
            self.child.terminate()
            try:
                self.child.wait(10)
            except subprocess.TimeoutExpired:
                kill_group(self.child)
                self.child.wait()


def kill_group(child):
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def tail(log):
    """The last thing that a program said, without the time and the folders in it."""
    lines = Path(log).read_text(encoding="utf-8", errors="replace").strip().splitlines()
    last = re.sub(r"^\S+Z\s+|/\S*/(?=\S)", "", lines[-1]) if lines else "it said nothing"
    return last if len(last) <= 200 else f"{last[:200]}…"


class Broker:
    """A broker of our own and one subscriber that writes everything down. Each run has a topic prefix of its own."""

    def __init__(self, folder, core):
        self.folder, self.core, self.port = folder, core, free_port()
        self.messages = folder / "messages"
        config = folder / "mosquitto.conf"
        config.write_text(
            f"listener {self.port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\nmax_inflight_messages 0\n"
        )
        self.children = [start(["mosquitto", "-c", config], core, folder / "mosquitto.log")]
        self.wait_until_open()
        listen = ["mosquitto_sub", "-p", self.port, "-t", "bench/#", "-q", "1", "-F", "%t %p", "-W", "7200"]
        self.children.append(start(listen, core, self.messages))
        self.runs = 0
        self.offset = 0
        self.wait_for_subscriber()

    def prefix(self):
        """A new one."""
        self.runs += 1
        return f"bench/{self.runs}"

    def events(self, prefix, count=None):
        """The detection messages of a run. With a count, waits until so many are there."""
        deadline = time.monotonic() + DELIVERY_MAX_S
        while True:
            events = self.read(prefix)
            if count is None or len(events) >= count or time.monotonic() > deadline:
                return events
            time.sleep(0.05)

    def read(self, prefix, kind="/detections "):
        """What has come so far under a topic prefix; the lines before the run's first are not read again."""
        events = []
        with open(self.messages, "rb") as lines:
            lines.seek(self.offset)
            for line in lines:
                if line.startswith(f"{prefix}/".encode()) and line.endswith(b"\n"):
                    topic, _, payload = line.decode().partition(" ")
                    if f"{topic} ".endswith(kind):
                        events.append(json.loads(payload))
        return events

    def forget(self):
        """What has come until now is not read again."""
        self.offset = self.messages.stat().st_size

    def wait_until_open(self):
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.02)
        raise Broken(f"mosquitto did not start: {tail(self.folder / 'mosquitto.log')}")

    def wait_for_subscriber(self):
        publish = ["mosquitto_pub", "-p", str(self.port), "-t", "bench/hello", "-m", "hello"]
        for _ in range(200):
            subprocess.run(publish, check=True)
            time.sleep(0.02)
            if self.messages.stat().st_size:
                return
        raise Broken("mosquitto_sub gets nothing")

    def close(self):
        for child in reversed(self.children):
            child.terminate()
            child.wait()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
