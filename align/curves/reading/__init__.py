"""Files and folders of logs: formats recognised, ranks distinguished, jobs split, resumed ones joined."""
