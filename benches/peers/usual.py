"""Peer 1, the usual Python script: OpenCV's VideoCapture, ONNX Runtime, paho-mqtt.

Several cameras are read in turn, and their frames are one batch: one thread, no lock, no waiting for each other.
"""

import argparse
import threading
import time

import cv2
import paho.mqtt.client as mqtt
from detector import Detector, Reporter, arguments


def main():
    options = arguments(argparse.ArgumentParser(description=__doc__)).parse_args()
    detector, reporter, outlet = Detector(options), Reporter(options), Outlet(options.port)
    cameras = [Camera(index, path, options.rate_max) for index, path in enumerate(options.video)]
    while cameras:
        cameras = [camera for camera in cameras if camera.read()]
        wanted = [camera for camera in cameras if camera.wanted]
        if not wanted:
            continue
        decoded = time.monotonic()
        tensor = detector.tensor(len(wanted))
        backs = [detector.fill(camera.picture, slot) for camera, slot in zip(wanted, tensor)]
        prepared = time.monotonic()
        outputs = detector.run(tensor)
        run = time.monotonic()
        for camera, output, back in zip(wanted, outputs, backs):
            found = detector.decode(output, back)
            times = camera.received, decoded, prepared, run, time.monotonic()
            outlet.publish(*reporter.message(camera.name, camera.frame, back[3:], found, times))
    outlet.close()


class Camera:
    """A video, frame by frame."""

    def __init__(self, index, path, rate_max):
        self.name = f"c{index}"
        self.capture = cv2.VideoCapture(path, cv2.CAP_FFMPEG)
        rate = self.capture.get(cv2.CAP_PROP_FPS)
        if not 1 <= rate <= 240:  # a camera that does not tell
            rate = 25
        self.every = max(round(rate / rate_max), 1) if rate_max else 1
        self.frame, self.picture, self.received, self.wanted = 0, None, 0.0, False

    def read(self):
        """The next frame; False at the end. One that nobody wants is decoded, as it must be, and not converted."""
        self.received = time.monotonic()
        if not self.capture.grab():
            return False
        self.wanted = self.frame % self.every == 0
        self.frame += 1
        if self.wanted:
            _, self.picture = self.capture.retrieve(self.picture)
        return True


class Outlet:
    """Publishes with QoS 1; close waits until the broker has acknowledged everything."""

    def __init__(self, port):
        self.waiting = 0
        self.changed = threading.Condition()
        self.client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
        self.client.max_queued_messages_set(0)
        self.client.on_publish = self.acknowledged
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()

    def publish(self, topic, payload):
        with self.changed:
            self.waiting += 1
        self.client.publish(topic, payload, qos=1)

    def acknowledged(self, *_):
        with self.changed:
            self.waiting -= 1
            self.changed.notify()

    def close(self):
        with self.changed:
            self.changed.wait_for(lambda: self.waiting == 0)
        self.client.disconnect()
        self.client.loop_stop()


if __name__ == "__main__":
    main()
