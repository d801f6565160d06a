"""What the machine is, what runs on it, and how much of it others took meanwhile. Names no host."""

import os
import platform
import re
import subprocess
from pathlib import Path


def describe():
    """Processor, cores, memory, kernel."""
    info = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    name = re.search(r"^model name\s*:\s*(.+)$", info, re.M)
    memory = re.search(r"^MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text(encoding="utf-8"), re.M)
    return {
        "cpu": name[1] if name else platform.machine(),
        "simd": [flag for flag in ("avx2", "avx512f", "asimd") if re.search(rf"\b{flag}\b", info)],
        "cores": os.cpu_count(),
        "memory_gib": round(int(memory[1]) / 2**20),
        "kernel": re.match(r"[\d.]+", platform.release())[0],
        "virtual": "hypervisor" in info,
    }


def versions(tools):
    """Of everything that takes part."""
    found = {
        "gantry": said(["git", "describe", "--always", "--dirty"]) or "unknown",
        "rustc": said(["rustc", "--version"], r"rustc (\S+)"),
        "g++": said(["g++", "-dumpfullversion"]),
        "gstreamer": said(["pkg-config", "--modversion", "gstreamer-1.0"]),
        "libavcodec": said(["ffmpeg", "-version"], r"libavcodec\s+([\d. ]+)/"),
        "onnxruntime (Gantry, P3)": said([tools.peers / "alone", "version"]),
        "opencv (P3)": said(["pkg-config", "--modversion", "opencv4"]),
        "mosquitto": said(["mosquitto", "-h"], r"version ([\d.]+)"),
        "python": platform.python_version(),
    }
    for peer, folder in ("P1", tools.usual), ("P2", tools.pipeline):
        pip = [folder / "bin" / "python", "-m", "pip", "--disable-pip-version-check"]
        listed = said([*pip, "list", "--format=freeze"], r"(?s)(.*)")
        for package in (
            "inference",
            "numpy",
            "onnxruntime",
            "opencv-contrib-python-headless",
            "opencv-python-headless",
            "paho-mqtt",
        ):
            version = re.search(rf"^{package}==(\S+)$", listed or "", re.M)
            if version:
                found[f"{package} ({peer})"] = version[1]
    return {name: version for name, version in found.items() if version}


def said(command, pattern=r"(\S+)"):
    """What a command prints first that fits; None where it cannot be asked."""
    try:
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(pattern, done.stdout + done.stderr)
    return match[1].strip() if match else None


class Load:
    """How much of the machine something else took since this object was made."""

    def __init__(self):
        self.busy, self.all = self.jiffies()
        self.ours = self.own_s()

    def others_share(self):
        busy, everything = self.jiffies()
        ours = (self.own_s() - self.ours) * os.sysconf("SC_CLK_TCK")
        return max((busy - self.busy - ours) / max(everything - self.all, 1), 0.0)

    @staticmethod
    def jiffies():
        fields = list(map(int, Path("/proc/stat").read_text(encoding="utf-8").split("\n", 1)[0].split()[1:9]))
        idle = fields[3] + fields[4]
        return sum(fields) - idle, sum(fields)

    @staticmethod
    def own_s():
        return sum(os.times()[:4])
