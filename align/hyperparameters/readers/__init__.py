"""The readers of settings: one module a form of file, each with one `PLUGIN`."""
