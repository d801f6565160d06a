"""What the long trials share: simulated cameras, a broker, what a subscriber gets, and arithmetic on what was seen."""

import json
import os
import pathlib
import shutil
import socket
import statistics
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
RIG = ROOT / "tests/rig"
PYTHON = "/usr/bin/python3"  # the one that has `gi`


def build():
    """The release build of Gantry, made if it is not there."""
    subprocess.run(["scripts/setup", "build", "test"], cwd=ROOT, check=True)
    subprocess.run(["cargo", "build", "--release", "--locked"], cwd=ROOT, check=True)
    return pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release/gantry"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def broker():
    """A running mosquitto and its port."""
    port = free_port()
    program = shutil.which("mosquitto") or "/usr/sbin/mosquitto"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([program, "-p", str(port)], **quiet)
    publish = ["mosquitto_pub", "-h", "127.0.0.1", "-p", str(port), "-t", "lab", "-m", "1"]
    wait_for("the broker is there", 20, lambda: subprocess.run(publish, **quiet).returncode == 0)
    return process, port


class Simulator:
    """A script of tests/rig that plays cameras, once it is ready; with a way to tell it what happens, if it has one."""

    def __init__(self, script, *arguments, log, inside=(), control=None):
        command = [*inside, PYTHON, RIG / script, *arguments]
        self.control = control
        if control:
            control.unlink(missing_ok=True)
            command += ["--control", control]
        with log.open("a") as out:
            self.process = subprocess.Popen(
                [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=out, text=True
            )
        ready = self.process.stdout.readline().split()
        if ready[:1] != ["ready"]:
            fail(f"the simulated camera did not start:\n{log.read_text()[-2000:]}")
        self.url = ready[1]

    def tell(self, line):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(10)
            connection.connect(str(self.control))
            connection.sendall((line + "\n").encode())
            answer = connection.makefile().readline().strip()
        if answer.startswith("error"):
            fail(f"{line}: {answer}")

    def signal(self, name):
        subprocess.run(["kill", f"-{name}", str(self.process.pid)], check=True)

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


class Subscriber:
    """What a subscriber gets of a node's cameras. `hear` is called for each message with its time of arrival, on the wall,
    and with `state` or `detections`."""

    def __init__(self, port, node, hear):
        command = ["mosquitto_sub", "-h", "127.0.0.1", "-p", str(port), "-q", "1", "-F", "%U %t %p"]
        command += ["-t", f"gantry/{node}/camera/#"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.hear = hear
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            at, topic, payload = line.rstrip("\n").split(" ", 2)
            self.hear(float(at), topic.rsplit("/", 1)[1], json.loads(payload))


def stamp(message):
    """The frame number and the time in milliseconds (its low 32 bits) that the model `stamp` read in a picture; none where
    the check byte is wrong. See tests/rig/readstamp.py."""
    bits = {found["class_id"] for found in message["detections"]}
    words = [sum(1 << (31 - column) for column in range(32) if row * 32 + column in bits) for row in (0, 1)]
    number, check = words[0] >> 8, words[0] & 0xFF
    crc = 0x5A
    for byte in number.to_bytes(3, "big") + words[1].to_bytes(4, "big"):
        crc ^= byte
        for _ in range(8):
            crc = (crc << 1 ^ 0x07) & 0xFF if crc & 0x80 else crc << 1
    return (number, words[1]) if crc == check else None


def config(node, port, cameras, **admin):
    """A config with these cameras, each a line of YAML, the model that reads stamps, and a broker on this port."""
    listen = admin.get("admin", "off")
    return (
        f"node: {node}\nmodels: {{dir: '{ROOT}/tests/data/models'}}\n"
        "devices: [{id: cpu0, backend: embedded, threads: 1}]\n"
        "cameras:\n" + "".join(f"  - {camera}\n" for camera in cameras) + "publish:\n"
        f"  detections: every_frame\n  mqtt: {{broker: 'mqtt://127.0.0.1:{port}'}}\nadmin: {{listen: '{listen}'}}\n"
    )


def quantiles(values):
    """Median, 95 %, 99 % and the largest."""
    ordered = sorted(values)
    at = lambda part: ordered[min(len(ordered) - 1, int(part * len(ordered)))]
    return {"p50": statistics.median(ordered), "p95": at(0.95), "p99": at(0.99), "max": ordered[-1]}


def least_squares(points):
    """The slope of the line that fits best."""
    if len(points) < 2:
        return 0.0
    mean_x, mean_y = (sum(column) / len(points) for column in zip(*points))
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)


def wait_for(what, limit, is_true):
    end = time.monotonic() + limit
    while not is_true():
        if time.monotonic() > end:
            fail(f"{what}: not within {limit} s")
        time.sleep(0.1)


def stop(process):
    process.terminate()
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def name():
    return pathlib.Path(sys.argv[0]).name


def say(text):
    """One line for the person, so that standard output stays the script's result."""
    print(f"{name()}: {text}", file=sys.stderr, flush=True)


def fail(text):
    sys.exit(f"{name()}: {text}")
