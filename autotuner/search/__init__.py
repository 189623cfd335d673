"""Search: the samplers that propose points, and what they believe.

`samplers` names them all; `evolution` is the default one, with the settings of `settings`. A sampler proposes valid
points of the space and no point twice. It depends on the study, the seed and the order of the results alone: a study
that is resumed goes on as it would have. `surrogate` and `covariance` are the belief of the default sampler;
`repaired` has Optuna's own samplers.
"""
