"""What several commands share: options, sides and files as they are given, and how a result is handed over."""
