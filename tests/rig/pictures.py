"""The planes of an I420 picture as GStreamer lays them out, of any size."""

import numpy as np
import readstamp


def up(value, step):
    return -(-value // step) * step


class Planes:
    """Sizes and strides: GStreamer begins each row at a multiple of 4 bytes."""

    def __init__(self, width, height):
        self.width, self.height = width, height
        self.strides = up(width, 4), up(up(width, 2) // 2, 4)
        self.rows = up(height, 2), up(height, 2) // 2
        luma, chroma = (stride * rows for stride, rows in zip(self.strides, self.rows))
        self.luma, self.size = luma, luma + 2 * chroma

    def black(self):
        flat = np.full(self.size, 128, np.uint8)
        flat[: self.luma] = 16
        return flat

    def stamp(self, flat, number, ms):
        """Burns a stamp into a picture, in place."""
        luma = flat[: self.luma].reshape(self.rows[0], self.strides[0])[:, : self.width]
        rows = readstamp.burn(luma, number, ms)
        edge = readstamp.BITS * readstamp.block(self.width)
        # Without colour the blocks are black and white on any background.
        for plane in flat[self.luma :].reshape(2, self.rows[1], self.strides[1]):
            plane[: rows // 2, : edge // 2] = 128
