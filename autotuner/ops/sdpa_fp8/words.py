"""Attention from FP8 in words."""

from __future__ import annotations

from autotuner.ops.sdpa import words

DISTRIBUTIONS = {
    **{
        name: words.DISTRIBUTIONS[name]
        for name in (
            *("randn", "large", "huge", "one_hot", "zero_q", "uniform01", "const_v", "slopes", "sink", "ragged"),
            *("gaps", "expanded", "one_head", "one_query", "gaps_in_v"),
        )
    },
    "descales": "standard normal as stored; descales of 2^8 and 2^-8, other ones for each head",
    "loud_head": "standard normal; the first head's V is a thousand times as large as the others'",
    "full_range": "Q, K and V are stored as 448 and -448, the largest numbers that there are",
    "huge_channel": "standard normal, one column of V 100 times as large: the others have few digits left",
    "equal": "standard normal, all keys alike",
    "tail": "the first and the last key weigh some 1500 times as much as each other one, which weigh more together",
    "far_below": "standard normal, every score 100 smaller: exp gives 0 unless the maximum is subtracted",
}

WORDS = words.WORDS._replace(
    distributions=DISTRIBUTIONS,
    every_row="something that they share: scale, a descale, the normaliser, a lost key, a wrong tensor",
)
