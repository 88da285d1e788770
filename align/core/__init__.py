"""Plain values, protocols and the plugin registry; nothing here knows a framework."""
