"""All texts that people read, by key: one folder of catalogues a language, all with the same keys."""
