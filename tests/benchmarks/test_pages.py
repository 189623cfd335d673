"""What drawn pages say of kept results."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks import people_pages, tuned_pages
from benchmarks.attention import counters_pages, decode_pages
from benchmarks.attention.elsewhere import kept, rows_of
from benchmarks.inference import in_a_model
from benchmarks.pages import OLDER, insert, kept_sweeps, loaded
from benchmarks.search import replay_pages
from benchmarks.throughput import throughput_pages
from benchmarks.timing import trust_pages


def test_the_share_of_the_store_is_drawn_beside_every_kept_sweep_and_marked_where_it_misses() -> None:
    assert {"throughput_cuda_second.json", "throughput_cpu.json"} <= set(kept_sweeps())
    run = {"ms_a_trial": {"together": 6.0}, "judged": 5000, "cpus": 16, "command": "x", "when": "2026-11-22T08"}
    run["environment"] = {"optuna": "5", "python": "3.12"}
    slow, quick = throughput_pages.store(run, {"slow": {"a_minute": 299}, "quick": {"a_minute": 301}}).split("\n")[2:4]
    assert "2.99 % | yes" in slow
    assert "3.01 % | **no**" in quick


def test_kernel_tuner_is_not_beaten_by_a_ratio_that_leaves_our_calibration_out() -> None:
    said = people_pages.kernel_tuner(loaded("throughput_kernel_tuner_first", "throughput_kernel_tuner"))
    assert [line.split("| ")[-1] for line in said.split("\n")[2:4]] == [
        *("0.80 times as fast |", "0.98 times as fast |"),
    ]
    assert "compile stage took 25 of 30 s and 32 of 38 s" in said
    assert "autotuner stopped 92 of 96 and 94 of 96 races early" in said


def test_rows_are_of_one_kind_of_device(tmp_path: Path) -> None:
    """As counters.py and elsewhere.py take them: another device's row of a problem is another variant."""
    path = tmp_path / "tuned.json"
    rows = [{"problem": "a full", "device": "one"}, {"problem": "a full", "device": "other"}, {"problem": "a full"}]
    path.write_text(json.dumps({"rows": [*rows, {"problem": "b", "device": "one"}]}))
    assert rows_of(path, ["full"], "one") == rows[:1]
    assert len(rows_of(path, [], "one")) == 2


def test_times_of_other_variants_and_devices_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "elsewhere.json"
    rows = [{"device": "one", "tuned": "a full"}, {"device": "one", "tuned": "b full"}]
    path.write_text(json.dumps({"rows": rows}))
    again = [{"problem": "a full"}]
    assert kept(path, "one", again) == rows[1:]
    assert kept(path, "other", again) == rows
    assert kept(tmp_path / "none.json", "one", again) == []


def test_a_variant_that_was_tuned_elsewhere_is_said_to_be() -> None:
    each = {"problem": "a", "parameters": {"X": 1}}
    rows = [{**each, "device": "one"}, {"problem": "a", "parameters": {"X": 2}, "device": "other"}]
    assert counters_pages.elsewhere(each, "one", rows) == ""
    assert "tuned on one" in counters_pages.elsewhere(each, "other", rows)
    assert "tuned on third" in counters_pages.elsewhere({**each, "tuned_on": "third"}, "one", rows)


def test_ratios_outside_of_the_finals_intervals_are_counted() -> None:
    state = {"speedup": {"median": 1.3}}
    row = {"device": "one", "tuned": "a", "where": "itself", "cold": state, "warm": state}
    document = {"rows": [row], "command": "x", "torch": "2"}
    finals = {"device": "one", "confirmed": {"low": 1.0, "mean": 1.1, "high": 1.2}}
    said = tuned_pages.elsewhere(document, {"rows": [{**finals, "problem": "a"}, {**finals, "problem": "b"}]})
    assert "1 of the 2 variants" in said
    assert "1 ratios" in said
    assert "1 above it and 0 below" in said


def test_shares_of_known_truth_have_their_counts_and_the_leaders_worst_row_is_named() -> None:
    (truth,) = loaded("simulated_truth")
    found, of = next(row["counts"]["found"] for row in truth["rows"] if "found" in row["counts"])
    assert f"| {100 * found / of:.1f} % ({found}/{of}) |" in trust_pages.simulated(truth)
    rows = [{"covered": 0.97, "leader_covered": of, "finalists": 9, "processes": 7} for of in (0.95, 0.9)]
    said = trust_pages.leader({"methods": [{**row, "between_processes": "1 %"} for row in rows]})
    assert "covers the truth in 90.0 % of 500 finals" in said


def test_the_gpts_gain_is_over_transformers_own_path() -> None:
    said = in_a_model.table(loaded("encoder_cpu"), loaded("gpt_cpu"))
    assert "repeats K and V" in said


def test_brackets_that_are_quartiles_are_said_to_be() -> None:
    quartiles = "in brackets their quartiles"
    assert quartiles in in_a_model.table(loaded("encoder_cpu"), loaded("gpt_cuda_bfloat16"))
    assert quartiles in counters_pages.counted(*loaded("counters", "tuned_wgmma"))


def test_wrong_points_of_few_queries_are_counted() -> None:
    (document,) = loaded("decode_attention")
    assert "together 0 were wrong" in decode_pages.few_queries(document)
    document["shapes"][0]["wrong"] = ["a point"]
    assert "together 1 were wrong" in decode_pages.few_queries(document)


def test_a_drawn_command_of_an_earlier_layout_has_its_note_once() -> None:
    page = "before\n<!-- part -->\n<!-- /part -->\nafter\n"
    old, new = "Made by `python benchmarks/x.py`.", "Made by `python -m benchmarks.x`."
    once = insert(page, {"part": lambda: old})
    assert once.count(OLDER) == 1
    assert insert(once, {"part": lambda: old}) == once
    assert OLDER not in insert(once, {"part": lambda: new})


def test_scores_of_several_in_flight_are_shown_on_both_axes() -> None:
    head, _, line, _, said = replay_pages.brief(loaded("replay_parallel")).split("\n")
    assert "on worker-seconds" in head
    assert "on the clock" in head
    assert "0.806 (0.794 to 0.817) | 0.565 (0.538 to 0.588)" in line
    assert "times the number in flight" in said
