#!/usr/bin/python3
"""Writes an H.264 film of stamped pictures for badcam.py: picture N says N, and N frame times as its time.

    film.py film.h264 --size 640x480 --pictures 45

Annex B, a key frame each --gop pictures. Each key frame has its parameter sets.
"""

import argparse

import gi
import numpy as np

for name in ("Gst", "GstApp"):
    gi.require_version(name, "1.0")
from gi.repository import Gst, GstApp  # noqa: E402, F401
from pictures import Planes  # noqa: E402


def main(opt):
    width, height = map(int, opt.size.split("x"))
    caps = f"video/x-raw,format=I420,width={width},height={height},framerate={opt.fps}/1"
    encoder = (
        f"x264enc tune=zerolatency speed-preset=veryfast threads=1 bitrate={opt.kbit} key-int-max={opt.gop} "
        f'option-string="slices={opt.slices}:scenecut=0"'
    )
    source = Gst.parse_launch(f"videotestsrc pattern=ball num-buffers={opt.pictures} ! {caps} ! appsink name=out sync=false")
    film = Gst.parse_launch(
        f"appsrc name=in format=time caps={caps} ! {encoder} ! h264parse config-interval=-1 ! "
        f'video/x-h264,stream-format=byte-stream,alignment=au ! filesink location="{opt.film}"'
    )
    for pipeline in (source, film):
        pipeline.set_state(Gst.State.PLAYING)
    planes, entry = Planes(width, height), film.get_by_name("in")
    for number in range(1, opt.pictures + 1):
        buffer = source.get_by_name("out").pull_sample().get_buffer()
        flat = np.frombuffer(buffer.extract_dup(0, buffer.get_size()), np.uint8).copy()
        planes.stamp(flat, number, number * 1000 // opt.fps)
        picture = Gst.Buffer.new_wrapped(flat.tobytes())
        picture.pts, picture.duration = (number - 1) * Gst.SECOND // opt.fps, Gst.SECOND // opt.fps
        entry.push_buffer(picture)
    entry.end_of_stream()
    film.get_bus().timed_pop_filtered(60 * Gst.SECOND, Gst.MessageType.EOS | Gst.MessageType.ERROR)
    for pipeline in (source, film):
        pipeline.set_state(Gst.State.NULL)


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("film")
    p.add_argument("--size", default="640x480")
    p.add_argument("--fps", type=int, default=15)
    p.add_argument("--pictures", type=int, default=45)
    p.add_argument("--gop", type=int, default=15)
    p.add_argument("--kbit", type=int, default=300)
    p.add_argument("--slices", type=int, default=1)
    return p.parse_args()


if __name__ == "__main__":
    Gst.init(None)
    main(parse())
