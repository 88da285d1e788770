"""Other tools' dumps, one PLUGIN a module; each becomes a trace. None is built yet."""
