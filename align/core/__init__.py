"""What all rooms share: plain values, protocols, the plugin registry, files written whole; no framework is known here.

Offers parameters, name maps and their transforms, stored tensors, traces, measurements, verdicts, settings, what a
plugin must offer, how plugins are found, how the user's modules are imported and patterns searched, files of object
storage as local files, and the limits that several rooms share. Uses errors, words.
"""
