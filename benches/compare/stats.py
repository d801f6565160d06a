"""Medians, how far they can be trusted, and ratios pair by pair. Pure."""

import math
import statistics

COVERAGE = 0.95


def median(values):
    return statistics.median(values)


def interval(values):
    """The narrowest pair of measured values that has the true median between them with COVERAGE, whatever the
    distribution; smallest and largest where there are too few values for that."""
    ordered, best = sorted(values), (0, len(values) - 1)
    for low in range(len(ordered) // 2):
        if coverage(len(ordered), low) < COVERAGE:
            break
        best = low, len(ordered) - 1 - low
    return ordered[best[0]], ordered[best[1]]


def coverage(count, low):
    """How probable it is that the median lies between the value at index `low` and the one as far from the end."""
    outside = sum(math.comb(count, k) for k in range(low + 1))
    return 1 - 2 * outside / 2**count


def paired(tops, bottoms):
    """The ratio of each pair. A pair was measured side by side, so what slowed the machine slowed both."""
    return [top / bottom for top, bottom in zip(tops, bottoms, strict=True)]


def percentile(values, share):
    """The smallest value that is not below `share` of all of them."""
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]


def marginal(short, long, more):
    """What one frame more costs: the difference of a long and a short run, so that start and load do not count."""
    return (long - short) / more
