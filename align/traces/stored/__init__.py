"""The files of a trace folder read back: the manifest, the model as it was."""
