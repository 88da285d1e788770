"""Line formats as data, their reader, and the reader of last resort, which infers one from a log."""
