"""The videos: made of the belt's, ten seconds that are repeated, with a key frame each second."""

import hashlib
import subprocess
from dataclasses import dataclass
from pathlib import Path

RATE = 25
SECONDS = 10
# No pictures that are sent ahead: a camera has none.
ENCODER = "-an -c:v libx264 -preset medium -bf 0 -g 25 -keyint_min 25 -sc_threshold 0 -crf 23 -pix_fmt yuv420p".split()


@dataclass(frozen=True)
class Kind:
    """A part of the belt's picture, from row `top`, `height` rows high, enlarged by `scale`."""

    top: int
    height: int
    scale: int

    @property
    def filter(self):
        return f"crop=640:{self.height}:0:{self.top},scale={640 * self.scale}:{self.height * self.scale}:flags=bicubic"


KINDS = {"1080p": Kind(60, 360, 3), "480p": Kind(0, 480, 1)}


def make(belt, folder, kind, frames):
    """The video of a kind with so many frames; made once."""
    name = hashlib.sha256(Path(belt).read_bytes() + repr((KINDS[kind], ENCODER)).encode()).hexdigest()[:12]
    once = folder / f"{kind}-{name}.mp4"
    if not once.exists():
        ffmpeg(["-i", belt, "-vf", KINDS[kind].filter, *ENCODER], once)
    if frames == RATE * SECONDS:
        return once
    cut = folder / f"{kind}-{name}-{frames}.mp4"
    if not cut.exists():
        repeats = -(-frames // (RATE * SECONDS)) - 1
        ffmpeg(["-stream_loop", str(repeats), "-i", once, "-c", "copy", "-frames:v", str(frames)], cut)
    return cut


def ffmpeg(options, into):
    half = into.with_suffix(".part.mp4")
    subprocess.run(["ffmpeg", "-v", "error", "-y", *map(str, options), str(half)], check=True, stdin=subprocess.DEVNULL)
    half.rename(into)
