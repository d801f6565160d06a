"""The arithmetic of the comparison: `scripts/bench --self-test`."""

import json
import random
import tempfile
import unittest
from pathlib import Path

import report
import stats
from rows import Row
from truth import Truth, agreement, iou


class Stats(unittest.TestCase):
    def test_an_interval_of_few_values_is_their_range_and_of_many_is_narrower(self):
        self.assertEqual(stats.interval([3, 1, 2]), (1, 3))
        self.assertEqual(stats.interval(list(range(6))), (0, 5))
        self.assertEqual(stats.interval(list(range(15))), (3, 11))
        self.assertEqual(stats.interval([7.0]), (7.0, 7.0))

    def test_an_interval_holds_the_median_as_often_as_it_says(self):
        dice = random.Random(1)
        for count in (6, 9, 15):
            held = 0
            for _ in range(4000):
                low, high = stats.interval([dice.lognormvariate(0, 1) for _ in range(count)])
                held += low <= 1 <= high
            self.assertGreater(held / 4000, stats.COVERAGE - 0.01)

    def test_pairs_are_divided_one_by_one_and_a_missing_partner_is_an_error(self):
        self.assertEqual(stats.paired([2, 9], [1, 3]), [2, 3])
        with self.assertRaises(ValueError):
            stats.paired([1], [])

    def test_a_percentile_is_a_measured_value(self):
        self.assertEqual(stats.percentile(range(1, 101), 0.99), 99)
        self.assertEqual(stats.percentile([5], 0.99), 5)

    def test_start_up_does_not_count(self):
        self.assertAlmostEqual(stats.marginal(3.0 + 0.01 * 100, 3.0 + 0.01 * 400, 300), 0.01)


class Rows(unittest.TestCase):
    def test_a_goal_is_met_by_the_median_or_where_it_says_so_by_the_whole_interval(self):
        values = [0.9, 0.98, 1.01]
        self.assertIs(Row("a", values, "ratio", "≤ 1.00").met, True)
        self.assertIs(Row("a", values, "ratio", "≤ 1.00", whole_interval=True).met, False)
        self.assertIs(Row("a", [1.0], "ms", "< 1").met, False)
        self.assertIs(Row("a", [1.4], "ratio", "≥ 1.4").met, True)
        self.assertIsNone(Row("a", [1.4], "ratio").met)

    def test_what_was_not_measured_is_no_success(self):
        row = Row("a", [], "ratio", "≥ 5", "it did not start")
        self.assertIsNone(row.met)
        self.assertEqual(report.verdict(row), "not measured")
        self.assertEqual(row.json()["value"], None)


class Seen(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        parts = [part("nut", 10, 100, 40, 40), part("bolt", 200, 30, 40, 80), part("washer", 300, 0, 40, 50)]
        self.file = Path(self.folder.name, "truth.jsonl")
        self.file.write_text(json.dumps({"frame": 0, "objects": parts}), encoding="utf-8")

    def test_truth_follows_the_crop_and_the_scale_and_repeats(self):
        truth = Truth(self.file, top=60, height=360, scale=3)
        found = [part("nut", 30, 120, 120, 120), part("bolt", 600, 0, 120, 150)]
        for frame in (1, 2):
            self.assertEqual(truth.score([event(frame, found)]), (1.0, 1.0))

    def test_nothing_found_is_no_recall_and_a_wrong_name_is_wrong(self):
        truth = Truth(self.file)
        self.assertEqual(truth.score([event(1, [])]), (0.0, 1.0))
        recall, precision = truth.score([event(1, [part("nut", 10, 100, 40, 40), part("nut", 200, 30, 40, 80)])])
        self.assertAlmostEqual(recall, 1 / 3)
        self.assertEqual(precision, 0.5)

    def test_agreement_counts_both_ways(self):
        one, two = part("nut", 0, 0, 10, 10), part("bolt", 50, 50, 10, 10)
        self.assertEqual(agreement([event(1, [one])], [event(1, [one, two])]), 0.5)
        self.assertEqual(agreement([event(1, [one, two])], [event(1, [one, two])]), 1.0)

    def test_boxes_that_only_touch_do_not_overlap(self):
        self.assertEqual(iou({"x": 0, "y": 0, "w": 1, "h": 1}, {"x": 1, "y": 0, "w": 1, "h": 1}), 0)


class Pages(unittest.TestCase):
    def test_only_what_is_between_the_markers_is_replaced(self):
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder, "README.md")
            page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n", encoding="utf-8")
            report.write_into(page, "new \\1\n")
            self.assertEqual(
                page.read_text(encoding="utf-8"), f"before\n{report.BEGIN}\nnew \\1\n{report.END}\nafter\n"
            )


def part(label, x, y, w, h):
    return {"label": label, "score": 0.9, "box": {"x": x, "y": y, "w": w, "h": h}}


def event(frame, detections):
    return {"frame": {"id": frame}, "detections": detections}


if __name__ == "__main__":
    unittest.main()
