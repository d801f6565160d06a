"""The stamp that a simulated camera burns into its pictures: frame number and time, readable from the decoded picture.

Two rows of 32 black or white blocks along the top edge, each min(16, width / 32) pixels wide and high. Row 0: the frame
number in 24 bits, then a CRC-8 over both rows. Row 1: the low 32 bits of the wall clock in milliseconds when the picture
was made. tests/it/rig.rs reads it.
"""

import time

import numpy as np

BITS = 32


def block(width):
    """Edge of one block in pixels."""
    return min(16, width // BITS)


def check(number, ms):
    """CRC-8 (0x07) that starts at 0x5A, so that neither an all-black nor an all-white strip passes."""
    crc = 0x5A
    for byte in number.to_bytes(3, "big") + ms.to_bytes(4, "big"):
        crc ^= byte
        for _ in range(8):
            crc = (crc << 1 ^ 0x07) & 0xFF if crc & 0x80 else crc << 1
    return crc


def burn(luma, number, ms):
    """Writes the stamp into a 2-D luma plane, in place; returns its height in pixels."""
    edge = block(luma.shape[1])
    number, ms = number & 0xFFFFFF, ms & 0xFFFFFFFF
    words = (number << 8 | check(number, ms)), ms
    bits = np.stack([np.unpackbits(np.frombuffer(word.to_bytes(4, "big"), np.uint8)) for word in words])
    strip = np.repeat(np.repeat(bits, edge, 0), edge, 1)
    luma[: 2 * edge, : BITS * edge] = strip * np.uint8(219) + np.uint8(16)
    return 2 * edge


def now_ms():
    """The wall clock as a stamp has it."""
    return time.time_ns() // 1_000_000 & 0xFFFFFFFF
