#!/usr/bin/python3
"""Simulates RTSP cameras: one server, one camera for each --path.

    rtspcam.py --port 0 --control /tmp/c --video belt.mp4 --loop --path /cam1 --path /cam2 --codec h265
    rtspcam.py --tell /tmp/c stall /cam1

Options before the first --path are defaults for all. Prints "ready URL" for each camera once the port is open, "ready"
at the end. With --as-is the file's own H.264 pictures are sent, without decoding and encoding them: cheap, and the
pictures are those that the file's ground truth describes. Otherwise each client has its own encoder.

Control, one line each with one answer line, on standard input or on the unix socket --control:
  stall PATH    not a byte more, the connection stays open (no RTP, no RTCP)
  mute PATH     no RTP, but RTCP goes on
  freeze PATH   the same picture for ever
  black PATH    a black picture without a stamp for ever
  half PATH     of each tenth picture the second half is missing (--as-is only)
  size PATH WxH pictures of another size, in the same stream
  kill PATH     its clients are disconnected
  down PATH     the same, then 404 until `resume`
  resume PATH   live again
  stats         JSON for each path: clients, frames_sent (pictures that went into RTP, all clients together), mode, size
  quit
"""

import argparse
import json
import os
import socket
import sys
import threading
import time

import gi

for name in ("Gst", "GstApp", "GstRtsp", "GstRtspServer"):
    gi.require_version(name, "1.0")
from gi.repository import Gio, GLib, Gst, GstApp, GstRtsp  # noqa: E402, F401
from gi.repository import GstRtspServer as Rtsp  # noqa: E402

AU = "video/x-{0},stream-format=byte-stream,alignment=au"
RAW = "appsrc name=src is-live=true format=time do-timestamp=true max-buffers=4 leaky-type=downstream ! "
X264 = "x264enc speed-preset=veryfast threads=1 bitrate={kbit} key-int-max={gop} "
X265 = (
    "x265enc tune=zerolatency speed-preset=ultrafast bitrate={kbit} key-int-max={gop} "
    "option-string=pools=1:frame-threads=1:log-level=0 ! "
)
PAY_H264 = "h264parse ! " + AU.format("h264") + " ! rtph264pay name=pay0 pt=96 config-interval=-1"
PAY_H265 = "h265parse ! " + AU.format("h265") + " ! rtph265pay name=pay0 pt=96 config-interval=-1"
ENCODERS = {
    "h264": X264 + 'tune=zerolatency option-string="slices={slices}" ! video/x-h264,profile=main ! ' + PAY_H264,
    # What a camera calls "high profile, B-frames": pictures leave it in another order than they are shown in.
    "h264-high": X264 + "bframes=2 b-adapt=false rc-lookahead=4 ! video/x-h264,profile=high ! " + PAY_H264,
    # No key frame but the first: pictures are refreshed column by column.
    "h264-refresh": X264 + "tune=zerolatency intra-refresh=true ! video/x-h264,profile=main ! " + PAY_H264,
    "h265": X265 + PAY_H265,
    "h265-main10": "videoconvert ! video/x-raw,format=I420_10LE ! " + X265 + "video/x-h265,profile=main-10 ! " + PAY_H265,
    "mjpeg": "jpegenc quality=80 ! rtpjpegpay name=pay0 pt=26",
    "sound": "audioconvert ! alawenc ! rtppcmapay name=pay0 pt=8",
}
AS_IS = "appsrc name=src is-live=true format=time do-timestamp=true caps=" + AU.format("h264") + " ! " \
    "h264parse ! " + AU.format("h264") + " ! rtph264pay name=pay0 pt=96 config-interval=-1"


class Encoded:
    """The file's own H.264 pictures. A client begins with a key frame."""

    def __init__(self, video, loop):
        self.loop, self.next, self.pictures = loop, 0, []
        pipeline = Gst.parse_launch(
            f'filesrc location="{os.path.abspath(video)}" ! parsebin ! h264parse config-interval=-1 ! '
            f"{AU.format('h264')} ! appsink name=out sync=false"
        )
        pipeline.set_state(Gst.State.PLAYING)
        sink = pipeline.get_by_name("out")
        while sample := sink.try_pull_sample(5 * Gst.SECOND):
            buffer = sample.get_buffer()
            key = not buffer.has_flags(Gst.BufferFlags.DELTA_UNIT)
            self.pictures.append((buffer.extract_dup(0, buffer.get_size()), key))
        pipeline.set_state(Gst.State.NULL)
        if not self.pictures:
            sys.exit(f"rtspcam: {video} has no H.264 video")

    def read(self, mode):
        """The next picture and whether it is a key frame; none at the end of the file."""
        if mode == "freeze":
            return next(picture for picture in self.pictures if picture[1])
        if self.next == len(self.pictures):
            if not self.loop:
                return None
            self.next = 0
        self.next += 1
        data, key = self.pictures[self.next - 1]
        return (data[: len(data) // 2] if mode == "half" and self.next % 10 == 0 else data), key

    def rewind(self):
        self.next = 0

    def caps(self):
        return None


class Decoded:
    """A file or pattern as raw pictures, stamped unless told not to."""

    def __init__(self, opt):
        self.opt, self.source, self.number, self.size = opt, None, 0, opt.size
        if opt.stamp:
            import pictures
            import readstamp

            self.planes, self.now_ms = pictures.Planes, readstamp.now_ms
        self.resize(opt.size)

    def resize(self, size):
        """The next picture has this size."""
        self.size, self.last = size, None
        self.width, self.height = map(int, size.split("x"))
        if self.source:
            self.source.set_state(Gst.State.NULL)
            self.source = None

    def open(self):
        video = self.opt.video
        head = (
            f"videotestsrc pattern={video[8:]}"
            if video.startswith("pattern:")
            else f'filesrc location="{os.path.abspath(video)}" ! decodebin ! videoconvert ! videoscale ! videorate'
        )
        self.source = Gst.parse_launch(f"{head} ! {self.caps()} ! appsink name=out sync=false max-buffers=2")
        self.source.set_state(Gst.State.PLAYING)

    def read(self, mode):
        if mode == "freeze" and self.last:
            return self.last
        if mode == "black":
            import pictures

            return pictures.Planes(self.width, self.height).black().tobytes(), True
        for _ in range(2):
            if not self.source:
                self.open()
            sample = self.source.get_by_name("out").try_pull_sample(5 * Gst.SECOND)
            if sample:
                buffer = sample.get_buffer()
                self.last = self.stamped(buffer.extract_dup(0, buffer.get_size())), True
                return self.last
            self.source.set_state(Gst.State.NULL)
            self.source = None
            if not self.opt.loop:
                break
        return None

    def rewind(self):
        """The next read opens the file anew."""

    def stamped(self, picture):
        if not self.opt.stamp:
            return picture
        import numpy as np

        flat = np.frombuffer(picture, np.uint8).copy()
        self.planes(self.width, self.height).stamp(flat, self.number, self.now_ms())
        return flat.tobytes()

    def caps(self):
        return (
            f"video/x-raw,format=I420,width={self.width},height={self.height},"
            f"pixel-aspect-ratio=1/1,framerate={self.opt.fps}/1"
        )


class Sound:
    """A camera without a picture: silence."""

    def read(self, _mode):
        return bytes(16000 // 10), True

    def caps(self):
        return "audio/x-raw,format=S16LE,layout=interleaved,channels=1,rate=8000"


class Camera:
    """One path: reads pictures at its pace and gives them to each client's appsrc."""

    def __init__(self, opt):
        self.opt, self.path = opt, opt.path
        self.mode, self.number, self.sent, self.clients = "live", 0, 0, set()
        self.sources = {}  # appsrc → whether it has had a key frame
        self.ended, self.counting = False, threading.Lock()
        self.reader = Sound() if opt.codec == "sound" else Encoded(opt.video, opt.loop) if opt.as_is else Decoded(opt)
        numbers = dict(kbit=opt.kbit, gop=opt.gop or opt.fps, slices=opt.slices)
        launch = AS_IS if opt.as_is else RAW + ENCODERS[opt.codec].format(**numbers)
        self.factory = Rtsp.RTSPMediaFactory()
        self.factory.set_shared(opt.shared)
        if opt.tcp_only:
            self.factory.set_protocols(GstRtsp.RTSPLowerTrans.TCP)
        self.factory.set_launch(f"( {launch} )")
        self.factory.connect("media-configure", self.on_media)
        threading.Thread(target=self.run, daemon=True).start()

    def stats(self):
        size = getattr(self.reader, "size", None)
        return dict(clients=len(self.clients), frames_sent=self.sent, number=self.number, mode=self.mode, size=size)

    def on_media(self, _factory, media):
        """A client has asked for the stream: it gets a pipeline of its own."""
        element = media.get_element()
        source, payloader = element.get_by_name("src"), element.get_by_name("pay0")
        # One buffer into the payloader is one picture. Behind it nothing is dropped: TCP holds the server back.
        payloader.get_static_pad("sink").add_probe(Gst.PadProbeType.BUFFER, self.on_picture)
        media.connect("prepared", self.on_prepared)
        media.connect("unprepared", lambda _media: self.sources.pop(source, None))
        if self.ended:
            self.reader.rewind()
            self.ended = False
        self.sources[source] = False

    def on_picture(self, _pad, _info):
        with self.counting:
            self.sent += 1
        return Gst.PadProbeReturn.OK

    def on_prepared(self, media):
        """A camera that stalls sends no RTCP either."""
        pipeline = media.get_element().get_parent()
        for element in pipeline.children if pipeline else []:
            if element.get_factory().get_name() == "rtpbin":
                for pad in element.pads:
                    if pad.get_name().startswith("send_rtcp_src"):
                        kinds = Gst.PadProbeType.BUFFER | Gst.PadProbeType.BUFFER_LIST
                        pad.add_probe(kinds, self.on_rtcp)

    def on_rtcp(self, _pad, _info):
        return Gst.PadProbeReturn.DROP if self.mode == "stall" else Gst.PadProbeReturn.OK

    def run(self):
        due = time.monotonic()
        while True:
            due = max(due + 1 / (self.opt.pace or self.opt.fps), time.monotonic() - 0.5)
            time.sleep(max(0, due - time.monotonic()))
            self.number += 1  # the camera's clock never stops, so gaps show
            if self.sources and self.mode not in ("stall", "mute") and not self.ended:
                self.send()

    def send(self):
        self.reader.number = self.number
        size = getattr(self.reader, "size", None)
        picture = self.reader.read(self.mode)
        sources = list(self.sources.items())
        if size != getattr(self.reader, "size", None):
            return  # it was resized meanwhile
        if picture is None:
            self.ended = True
            for source, _ in sources:
                source.end_of_stream()
            return
        data, key = picture
        caps = self.reader.caps()
        for source, begun in sources:
            if begun or key:
                self.sources[source] = True
                buffer = Gst.Buffer.new_wrapped(data)
                if caps:
                    source.push_sample(Gst.Sample.new(buffer, Gst.Caps.from_string(caps), None, None))
                else:
                    source.push_buffer(buffer)


class Server:
    def __init__(self, opts):
        opt = opts[0]
        self.rtsp, self.loop = Rtsp.RTSPServer(), GLib.MainLoop()
        self.cameras = {opt.path: Camera(opt) for opt in opts}
        self.rtsp.set_address(opt.address)
        self.rtsp.set_service(str(opt.port))
        if opt.login or opt.tls:
            self.rtsp.set_auth(authority(opt))
        for camera in self.cameras.values():
            if opt.login or opt.tls:
                permissions = Rtsp.RTSPPermissions.new()
                for what in ("access", "construct"):
                    permissions.add_permission_for_role("viewer", f"media.factory.{what}", True)
                camera.factory.set_permissions(permissions)
            self.mount(camera)
        self.rtsp.connect("client-connected", self.on_client)
        if not self.rtsp.attach(None):
            sys.exit(f"rtspcam: cannot listen on {opt.address}:{opt.port}")

    def mount(self, camera):
        self.rtsp.get_mount_points().add_factory(camera.path, camera.factory)

    def on_client(self, _server, client):
        def played(client, context):
            path = "/" + context.uri.abspath.strip("/")
            for camera in self.cameras.values():
                if path == camera.path or path.startswith(camera.path + "/"):
                    camera.clients.add(client)

        def closed(client):
            for camera in self.cameras.values():
                camera.clients.discard(client)

        client.connect("play-request", played)
        client.connect("closed", closed)

    def command(self, line):
        verb, *args = line.split()
        if verb == "quit":
            self.loop.quit()
        elif verb == "stats":
            return json.dumps({path: camera.stats() for path, camera in self.cameras.items()})
        elif verb == "size":
            self.cameras[args[0]].reader.resize(args[1])
        elif verb in ("freeze", "black", "half", "stall", "mute", "resume"):
            camera = self.cameras[args[0]]
            if camera.mode == "down":
                self.mount(camera)
            camera.mode = "live" if verb == "resume" else verb
        elif verb in ("kill", "down"):
            camera = self.cameras[args[0]]
            if verb == "down":
                camera.mode = verb
                self.rtsp.get_mount_points().remove_factory(camera.path)
            for client in list(camera.clients):
                client.close()
        else:
            return "error: unknown verb"
        return "ok"

    def answer(self, line):
        """Runs a control line on the main loop's thread."""
        done, answers = threading.Event(), []

        def job():
            try:
                answers.append(self.command(line))
            except Exception as error:
                answers.append(f"error: {error!r}")
            done.set()

        GLib.idle_add(job)
        done.wait(5)
        return answers[0] if answers else "error: timeout"

    def serve_lines(self, reader, writer):
        for line in reader:
            if line.strip():
                print(self.answer(line), file=writer, flush=True)

    def serve_socket(self, path):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen()
        while True:
            connection = listener.accept()[0]
            lines = connection.makefile("r"), connection.makefile("w")
            threading.Thread(target=self.serve_lines, args=lines, daemon=True).start()

    def run(self, opt):
        if opt.control:
            threading.Thread(target=self.serve_socket, args=(opt.control,), daemon=True).start()
        threading.Thread(target=self.serve_lines, args=(sys.stdin, sys.stdout), daemon=True).start()
        for path in self.cameras:
            print(f"ready {'rtsps' if opt.tls else 'rtsp'}://{opt.address}:{self.rtsp.get_bound_port()}{path}", flush=True)
        print("ready", flush=True)
        self.loop.run()


def authority(opt):
    auth, token = Rtsp.RTSPAuth.new(), Rtsp.RTSPToken()
    token.set_string("media.factory.role", "viewer")
    if opt.tls:
        auth.set_tls_certificate(Gio.TlsCertificate.new_from_files(*opt.tls))
    if not opt.login:
        auth.set_default_token(token)
    if opt.auth == "digest":
        auth.set_supported_methods(GstRtsp.RTSPAuthMethod.DIGEST)
    for user, password in opt.login:
        if opt.auth == "digest":
            auth.add_digest(user, password, token)
        else:
            auth.add_basic(Rtsp.RTSPAuth.make_basic(user, password), token)
    return auth


def tell(path, words):
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    connection.sendall((" ".join(words) + "\n").encode())
    print(connection.makefile().readline().strip())


def parse(argv):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--address", default="127.0.0.1")
    p.add_argument("--port", type=int, default=0, help="0: a free one")
    p.add_argument("--control", help="unix socket")
    p.add_argument("--login", nargs=2, action="append", default=[], metavar=("USER", "PASSWORD"), help="one who may see it")
    p.add_argument("--auth", choices=["basic", "digest"], default="basic")
    p.add_argument("--tls", nargs=2, metavar=("CERT", "KEY"), help="TLS with this certificate and key, both PEM files")
    p.add_argument("--path", default="/cam1")
    p.add_argument("--shared", action="store_true", help="one encoder for all clients, so late ones join between key frames")
    p.add_argument("--tcp-only", action="store_true", help="datagrams are refused")
    p.add_argument("--video", default="pattern:smpte", help="FILE or pattern:NAME")
    p.add_argument("--loop", action="store_true", help="the file begins again at its end")
    p.add_argument("--as-is", action="store_true", help="send the file's own H.264 pictures, at --fps")
    p.add_argument("--size", default="640x480")
    p.add_argument("--fps", type=int, default=25)
    p.add_argument("--pace", type=float, default=0, help="so many pictures a second really come; default: --fps")
    p.add_argument("--codec", choices=ENCODERS, default="h264")
    p.add_argument("--gop", type=int, default=0, help="pictures from key frame to key frame; default: one second")
    p.add_argument("--kbit", type=int, default=1000)
    p.add_argument("--slices", type=int, default=1, help="of each H.264 picture")
    p.add_argument("--no-stamp", dest="stamp", action="store_false", help="no frame number and time in the pictures")
    starts = [i for i, word in enumerate(argv) if word == "--path"] or [len(argv)]
    return [p.parse_args(argv[: starts[0]] + argv[a:b]) for a, b in zip(starts, starts[1:] + [len(argv)])]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--tell"]:
        tell(sys.argv[2], sys.argv[3:])
    else:
        options = parse(sys.argv[1:])
        Gst.init(None)
        Server(options).run(options[0])
