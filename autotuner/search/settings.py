"""The numbers that the evolutionary sampler and its surrogate are set by.

docs/method/search.md says how they were chosen; benchmarks/search/replay_choice.py tries others on recorded spaces. A
study keeps none of them: every search of the product has the defaults.
"""

import math

from autotuner.values.model import Model


class SearchSettings(Model):
    """How an EvolutionarySampler and its Surrogate go about a search. Objectives are ln(t_variant / t_baseline)."""

    # The start

    starts: int = 5
    """Points judged before the surrogate is believed."""
    starts_known: int = 2
    """Points judged before the surrogate is believed, where points of another study are known: the best by these."""
    known_least: int = 5
    """Fewest measured points of another study in a branch from which the branch learns."""
    promises_from: int = 20
    """Results before a promise is given, where points of another study are known. The first proposals were
    believed to be alike, and their results tell little of how far that belief is off."""
    start_candidates: int = 32
    """Random points of which the one that is farthest from all others is judged while the surrogate is not believed."""

    # The candidates of a proposal

    screened_whole: int = 25_000
    """Valid points of the largest space of which every point is a candidate; a larger one has offspring."""
    shortlist: int = 512
    """Candidates, the most promising ones, that are weighed against the points being judged."""
    elites: int = 8
    """Best measured points that offspring descend from."""
    mutated: int = 4
    """Draws among the elites; the neighbours of each elite drawn are candidates."""
    crossovers: int = 64
    """Crossovers of two elites; those that are no valid point are dropped, and if all are, one is repaired."""
    immigrants: int = 128
    """Random points among the candidates."""
    tournament: int = 8
    """Random points of which the best by an earlier belief is taken, for half of the immigrants and, with many points
    in flight, for those that are asked for before the surrogate is believed."""

    # What the surrogate learns from

    fitted: int = 150
    """Judged points, at most, that decide the hyperparameters."""
    conditioned: int = 400
    """Judged points, at most, that a fit conditions the process on, where covariances with all points are kept."""
    conditioned_unkept: int = 200
    """The same where covariances are not kept: each proposal takes as long as the square of this number."""
    refit_factor: float = 1.3
    """Judged points at a fit, over those at the fit before."""
    refit_step: int = 3
    """Judged points added to that multiple."""
    refit_latest: int = 256
    """Judged points, at most, between two fits."""
    slow_from: float = 1.0
    """Distance above the median from which an objective is slow, over the distance of the median from the best."""
    slow_factor: float = 0.2
    """Factor on what lies above that. Among slow points it does not matter which is how slow, and they would set the
    scale."""
    reject_quantile: float = 0.9
    """Quantile of the measured objectives that a reject counts as, 0..1. It is used in the surrogate alone; no store
    ever has it."""
    optimism: float = 1.0
    """Standard deviations by which the belief taken from another study is better than its mean: where that study knows
    little, good is expected."""

    # The prior of its hyperparameters

    log_length: float = math.log(0.7)
    """Centre of the logarithm of a parameter's length, in steps of its whole range."""
    log_length_deviation: float = 1.2
    log_noise: float = math.log(1e-2)
    """Centre of the logarithm of the noise's variance, where the variance of all is 1."""
    log_noise_deviation: float = 1.5
    share: float = -1.4
    """Centre of the logit of the share of a number's step that is the same between any two of its values."""
    share_enumerated: float = 2.0
    """The same for a number that counts up from 0 through three values or more: it names a method more often than an
    amount."""
    share_deviation: float = 1.0
    log_slope: float = 0.0
    """Centre of the logarithm of the variance, around 1, of the factor on an earlier belief of variance 1."""
    log_slope_deviation: float = 1.0


DEFAULT = SearchSettings()
"""What a search uses that is told nothing else."""
