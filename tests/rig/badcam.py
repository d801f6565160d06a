#!/usr/bin/python3
"""An RTSP camera that breaks the rules on request, one fault an option: what real cameras and lines do.

    badcam.py film.h264 --port 0 --seq-jump -5000 --event-every 60

Sends an H.264 file (Annex B, as film.py writes one) for ever, interleaved in the RTSP connection. Prints "ready URL" once
the port is open. A fault that is one event comes every --event-every pictures. SIGTERM ends it.
"""

import argparse
import asyncio
import base64
import hashlib
import itertools
import os
import re
import struct
import time

RATE = 90000
REASONS = {
    200: "OK",
    401: "Unauthorized",
    404: "Not Found",
    461: "Unsupported Transport",
    503: "Service Unavailable",
}
# User data, not registered: what cameras put into their pictures' company.
SEI = bytes([6, 5, 20]) + b"gantry-rig-badcam-" + b"ok" + b"\x80"


class Film:
    """An Annex-B file: its pictures, each a list of NAL units, and its parameter sets."""

    def __init__(self, path):
        with open(path, "rb") as file:
            nals = [nal.rstrip(b"\0") for nal in re.split(b"\0\0\1", file.read())]
        self.pictures, picture, has_slice = [], [], False
        for nal in filter(None, nals):
            kind = nal[0] & 31
            is_slice = kind in (1, 5)
            # A slice that begins with macroblock 0 begins a picture: the first bit after the header is then 1.
            if has_slice and (not is_slice or nal[1] & 0x80):
                self.pictures.append(picture)
                picture, has_slice = [], False
            if kind != 9:
                picture.append(nal)
            has_slice |= is_slice
        self.pictures.append(picture)
        self.sps, self.pps = (next(nal for nal in nals if nal and nal[0] & 31 == kind) for kind in (7, 8))


def is_key(picture):
    return any(nal[0] & 31 == 5 for nal in picture)


class Rtp:
    """One RTP stream on an interleaved pair of channels."""

    def __init__(self, payload_type, channel, rate=RATE):
        self.payload_type, self.channel, self.rate = payload_type, channel, rate
        self.ssrc, self.seq, self.base = (int.from_bytes(os.urandom(4), "big") for _ in range(3))
        self.count = self.octets = 0

    def packet(self, payload, timestamp, marker):
        self.seq = self.seq + 1 & 0xFFFF
        self.count += 1
        self.octets += len(payload)
        head = 0x80, self.payload_type | marker << 7, self.seq, timestamp & 0xFFFFFFFF, self.ssrc & 0xFFFFFFFF
        return struct.pack(">BBHII", *head) + payload

    def sender_report(self, timestamp, skew):
        ntp = int((time.time() + 2208988800 + skew) * 2**32) & 2**64 - 1
        numbers = self.ssrc & 0xFFFFFFFF, ntp, timestamp & 0xFFFFFFFF, self.count, self.octets & 0xFFFFFFFF
        report = struct.pack(">BBHIQIII", 0x80, 200, 6, *numbers)
        return report + struct.pack(">BBHIBB", 0x81, 202, 3, self.ssrc & 0xFFFFFFFF, 1, 4) + b"rig!\0\0"


def payloads(nal, largest=1400):
    """The payloads of a NAL unit: itself, or its fragments (RFC 6184, FU-A)."""
    if len(nal) <= largest:
        return [nal]
    head, body = nal[0], nal[1:]
    chunks = [body[i : i + largest] for i in range(0, len(body), largest)]
    last = len(chunks) - 1
    return [
        bytes([head & 0xE0 | 28, head & 31 | (i == 0) << 7 | (i == last) << 6]) + chunk
        for i, chunk in enumerate(chunks)
    ]


class Session:
    """One client's connection."""

    refusals = []  # answers to the first DESCRIBEs, of all clients together
    opened = 0

    def __init__(self, opt, films, reader, writer):
        self.opt, self.reader, self.writer = opt, reader, writer
        self.films = films if opt.resize else [films[Session.opened % len(films)]]
        self.nonce, self.session = os.urandom(8).hex(), os.urandom(4).hex()
        self.streams, self.tasks = {}, []

    def sdp(self):
        opt, film = self.opt, self.films[0]
        encode = lambda *nals: ";sprop-parameter-sets=" + ",".join(base64.b64encode(n).decode() for n in nals)  # noqa: E731
        sprop = {
            "right": encode(film.sps, film.pps),
            "none": "",
            "garbage": ";sprop-parameter-sets=Z0,?%!,,aaaa",
            "cut": encode(film.sps[:5], film.pps[:1]),
        }[opt.sprop]
        head = ["v=0", "o=- 1 1 IN IP4 127.0.0.1", "s=badcam", "c=IN IP4 0.0.0.0", "t=0 0", "a=control:*", "a=range:npt=now-"]
        video = [
            "m=video 0 RTP/AVP 96",
            "a=rtpmap:96 H264/90000",
            f"a=fmtp:96 packetization-mode=1;profile-level-id={film.sps[1:4].hex()}{sprop}",
            "a=control:video",
        ]
        extra = []
        if opt.audio_track:
            extra += ["m=audio 0 RTP/AVP 0", "a=rtpmap:0 PCMU/8000", "a=control:audio"]
        if opt.metadata_track:
            extra += ["m=application 0 RTP/AVP 107", "a=rtpmap:107 vnd.onvif.metadata/90000", "a=control:meta"]
        lines = head + (extra + video if opt.extra_first else video + extra)
        if opt.sdp_no_o_line:
            lines = [line for line in lines if not line.startswith("o=")]
        blank = " " if opt.sdp_trailing_blank else ""
        return "".join(line + blank + "\r\n" for line in lines)

    def challenge(self):
        scheme = f'Digest realm="badcam", nonce="{self.nonce}"'
        return f"WWW-Authenticate: {scheme}" + (", algorithm=SHA-256" if self.opt.auth == "sha256" else "")

    def authorised(self, method, headers):
        if not self.opt.password:
            return True
        given = dict(re.findall(r'(\w+)="([^"]*)"', headers.get("authorization", "")))
        sum_of = hashlib.sha256 if self.opt.auth == "sha256" else hashlib.md5
        digest = lambda text: sum_of(text.encode()).hexdigest()  # noqa: E731
        who = digest(f"{self.opt.user}:badcam:{self.opt.password}")
        what = digest(f"{method}:{given.get('uri')}")
        right = digest(f"{who}:{self.nonce}:{what}")
        return given.get("nonce") == self.nonce and given.get("response") == right

    def reply(self, headers, status=200, extra=(), body=""):
        lines = [f"RTSP/1.0 {status} {REASONS[status]}", f"CSeq: {headers.get('cseq', 0)}", *extra]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        self.writer.write(("\r\n".join(lines) + "\r\n\r\n" + body).encode())

    def handle(self, method, url, headers):
        session = f"Session: {self.session};timeout=60"
        if method == "OPTIONS":
            self.reply(headers, 200, ["Public: OPTIONS, DESCRIBE, SETUP, PLAY, GET_PARAMETER, TEARDOWN"])
        elif not self.authorised(method, headers):
            self.reply(headers, 401, [self.challenge()])
        elif method == "DESCRIBE" and Session.refusals:
            status = Session.refusals.pop()
            self.reply(headers, status, [self.challenge()] if status == 401 else [])
        elif method == "DESCRIBE":
            Session.opened += 1
            self.reply(headers, 200, ["Content-Type: application/sdp", f"Content-Base: {url}/"], self.sdp())
        elif method == "SETUP":
            self.set_up(url, headers, session)
        elif method == "PLAY":
            streams = self.streams.items()
            info = ",".join(f"url={url.rstrip('/')}/{n};seq={r.seq + 1 & 0xFFFF};rtptime={r.base}" for n, r in streams)
            self.reply(headers, 200, [session, "Range: npt=now-", f"RTP-Info: {info}"])
            play = {"audio": self.play_audio, "meta": self.play_metadata}
            self.tasks = [asyncio.create_task(play.get(name, self.play_video)(rtp)) for name, rtp in streams]
        else:
            self.reply(headers, 200, [session])

    def set_up(self, url, headers, session):
        """Datagrams are refused: this server sends all in the connection."""
        match = re.search(r"interleaved=(\d+)-(\d+)", headers.get("transport", ""))
        if not match:
            return self.reply(headers, 461)
        name, channel = url.rstrip("/ ").rsplit("/", 1)[-1].strip(), int(match[1])
        payload_type, rate = {"audio": (0, 8000), "meta": (107, RATE)}.get(name, (96, RATE))
        rtp = self.streams[name] = Rtp(payload_type, channel, rate)
        ssrc = rtp.ssrc ^ 0x01010101 if self.opt.foreign_ssrc == "header" else rtp.ssrc
        transport = f"Transport: RTP/AVP/TCP;unicast;interleaved={channel}-{channel + 1};ssrc={ssrc:08X}"
        return self.reply(headers, 200, [session, transport])

    async def run(self):
        try:
            while first := await self.reader.read(1):
                if first == b"$":  # RTCP of the client
                    size = await self.reader.readexactly(3)
                    await self.reader.readexactly(int.from_bytes(size[1:], "big"))
                    continue
                line = first + await self.reader.readline()
                if not line.strip():
                    continue
                method, url, _ = line.decode().split(" ", 2)
                headers = {}
                while header := (await self.reader.readline()).decode().strip():
                    key, _, value = header.partition(":")
                    headers[key.lower()] = value.strip()
                if int(headers.get("content-length", 0)):
                    await self.reader.readexactly(int(headers["content-length"]))
                if self.opt.verbose:
                    print(method, url, flush=True)
                self.handle(method, url, headers)
                if method == "TEARDOWN":
                    break
        except (OSError, asyncio.IncompleteReadError, ValueError):
            pass
        for task in self.tasks:
            task.cancel()
        self.writer.close()

    def send(self, channel, data):
        self.writer.write(struct.pack(">cBH", b"$", channel, len(data)) + data)

    async def play_video(self, rtp):
        opt = self.opt
        shift, skew, films, film = 0, opt.sr_skew, itertools.cycle(self.films), self.films[0]
        alien = Rtp(96, rtp.channel)
        if opt.extra_first:
            await asyncio.sleep(0.5)  # so that the other tracks are first in every way
        start, position, sent = time.monotonic(), 0, 0
        for n in itertools.count():
            if opt.stop_after and n >= opt.stop_after:
                await asyncio.sleep(1e9)  # RTSP is still answered
            event = n and n % opt.event_every == 0
            if event:
                rtp.seq = rtp.seq + opt.seq_jump & 0xFFFF
                shift += int(opt.ts_jump * RATE)
                skew += opt.sr_step
                if opt.foreign_ssrc in ("change", "midway"):
                    rtp.ssrc = int.from_bytes(os.urandom(4), "big")
                if opt.foreign_ssrc == "change":
                    position = 0  # a camera that begins anew begins with a key frame
            if opt.resize and n % opt.event_every == 0:
                film, position = next(films), 0
            timestamp = rtp.base + n * RATE // opt.fps + shift
            nals = self.picture(film, position, event)
            position += 1
            for _ in range(2 if opt.twice else 1):
                sent = self.send_picture(rtp, alien, nals, timestamp, sent)
            if event and opt.junk == "bytes":
                self.writer.write(os.urandom(333).replace(b"$", b"#"))
            if opt.junk == "channel" and n % 5 == 0:
                self.send(9, os.urandom(64))
            if n % (2 * opt.fps) == 0 or (event and opt.sr_step):
                self.send(rtp.channel + 1, rtp.sender_report(timestamp, skew))
            await self.writer.drain()
            await asyncio.sleep(max(0, start + (n + 1) / (opt.pace or opt.fps) - time.monotonic()))

    def picture(self, film, position, event):
        """The NAL units of a picture, as this camera sends them."""
        opt, nals = self.opt, list(film.pictures[position % len(film.pictures)])
        if opt.sprop != "right" and is_key(nals) and not any(nal[0] & 31 == 7 for nal in nals):
            nals[:0] = [film.sps, film.pps]
        if event and opt.half_picture:
            nals[-1] = nals[-1][: len(nals[-1]) // 2]
        if opt.sei_marker:
            nals.insert(0, SEI)
        return nals

    def send_picture(self, rtp, alien, nals, timestamp, sent):
        opt, parts = self.opt, [part for nal in nals for part in payloads(nal)]
        for i, part in enumerate(parts):
            # The marker says that the picture ends here. Some cameras set it on their SEI, too.
            marker = i == len(parts) - 1 or (opt.sei_marker and i == 0)
            if opt.foreign_ssrc == "mixed" and i == 0:
                self.send(rtp.channel, alien.packet(os.urandom(200), timestamp, True))
            data = rtp.packet(part, timestamp, marker)
            sent += 1
            if not (opt.drop_every and sent % opt.drop_every == 0):
                self.send(rtp.channel, data)
        return sent

    async def play_audio(self, rtp):
        for n in itertools.count():  # 20 ms of silence
            self.send(rtp.channel, rtp.packet(b"\xff" * 160, rtp.base + 160 * n, n == 0))
            await asyncio.sleep(0.02)

    async def play_metadata(self, rtp):
        xml = b'<?xml version="1.0"?><tt:MetadataStream xmlns:tt="http://www.onvif.org/ver10/schema"/>'
        for n in itertools.count():
            self.send(rtp.channel, rtp.packet(xml, rtp.base + RATE * n, True))
            await asyncio.sleep(1)


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("film", nargs="+", help="with several each connection shows the next one, unless --resize")
    p.add_argument("--address", default="127.0.0.1")
    p.add_argument("--port", type=int, default=0, help="0: a free one")
    p.add_argument("--fps", type=int, default=15)
    p.add_argument("--pace", type=float, default=0, help="so many pictures a second really come; default: --fps")
    p.add_argument("--verbose", action="store_true", help="print each request")
    p.add_argument("--event-every", type=int, default=45, metavar="PICTURES", help="how often the events come (45)")
    for name, meaning in [
        ("sdp-no-o-line", "the SDP has no o= line"),
        ("sdp-trailing-blank", "each line of the SDP ends with a blank"),
        ("metadata-track", "an ONVIF metadata track besides"),
        ("audio-track", "a sound track besides"),
        ("extra-first", "those tracks come before the video"),
        ("half-picture", "event: a picture whose second half is missing"),
        ("resize", "event: the next film, of another size, in the same stream"),
        ("sei-marker", "an SEI before each picture, in a packet with the marker bit"),
        ("twice", "each picture comes twice, with the same timestamp"),
    ]:
        p.add_argument("--" + name, action="store_true", help=meaning)
    p.add_argument("--sprop", choices=["right", "none", "garbage", "cut"], default="right", help="parameter sets in the SDP")
    p.add_argument(
        "--foreign-ssrc",
        choices=["mixed", "header", "change", "midway"],
        help="mixed: packets of another sender in between; header: Transport names another one; "
        "change: event: another one, from its first picture; midway: event: another one, on in the film",
    )
    p.add_argument("--junk", choices=["bytes", "channel"], help="bytes: event: bytes between packets; channel: an unknown one")
    p.add_argument("--seq-jump", type=int, default=0, help="event: the sequence number jumps")
    p.add_argument("--ts-jump", type=float, default=0, metavar="SECONDS", help="event: the timestamp jumps")
    p.add_argument("--sr-skew", type=float, default=0, metavar="SECONDS", help="the sender reports' clock is off")
    p.add_argument("--sr-step", type=float, default=0, metavar="SECONDS", help="event: the sender reports' clock steps")
    p.add_argument("--drop-every", type=int, default=0, metavar="PACKETS", help="one packet of so many is not sent")
    p.add_argument("--stop-after", type=int, default=0, metavar="PICTURES", help="no more; RTSP is still answered")
    for status in (401, 404, 503):
        p.add_argument(f"--describe-{status}-first", type=int, default=0, metavar="N", help="the first N times")
    p.add_argument("--user", default="viewer")
    p.add_argument("--password", default="")
    p.add_argument("--auth", choices=["md5", "sha256"], default="md5", help="of digest authentication")
    return p.parse_args()


async def main(opt):
    films = [Film(path) for path in opt.film]
    Session.refusals = [401] * opt.describe_401_first + [404] * opt.describe_404_first + [503] * opt.describe_503_first
    server = await asyncio.start_server(lambda r, w: Session(opt, films, r, w).run(), opt.address, opt.port)
    port = server.sockets[0].getsockname()[1]
    print(f"ready rtsp://{opt.address}:{port}/cam1", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(parse()))
