"""What all rooms share: plain values, protocols, the plugin registry, files written whole; no framework is known here.

Offers parameters, name maps and their transforms, stored tensors, traces, measurements, verdicts, settings, what a
plugin must offer, and how plugins are found. Uses errors only.
"""
