"""What is watched inside a training loop of the user's own.

Offers `watch_nonfinite` and `locate_nonfinite` with their result: the first NaN, Inf or explosion of a training, where
it began and why; `dump` and `compare_iterations`, what layers compute in chosen iterations; `watch_loss_scale`, what
was skipped. Loops are seen by the hooks of `align.models.loop_watcher`; no line of the user's code is traced. Uses
core, measure, models, traces, training, words.
"""
