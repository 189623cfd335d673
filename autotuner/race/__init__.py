"""Latency of a variant as a ratio to the interleaved baseline (docs/method/timing.md).

The door is `race.measure` (a variant against baseline and incumbent), `race.heat` (blocks of several variants) and
`confirm.confirm` (what heats of several processes show). A device lends it `arms.Track` and `arms.Arm`, which time one
thing once; order, blocks, stopping and statistics are here.
"""
