"""Training steps of a side, or of both: what they train, and what of a port's step is wrong by itself.

Offers `check_parameters`, `check_determinism`, `compare_initial_values`, `compare_training_step`,
`capture_training_step`, `bisect_training` and `explain_updates` with their results: what a step did to parameters,
whether it repeats itself, how initial values are drawn, which loss, layer, code, loop or optimizer makes another step
of the same state, here or on two machines, and what explains that two optimizers did otherwise under the same
gradients. Uses core, data, forward, lint, measure, models, rules, traces, words.
"""
