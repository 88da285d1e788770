"""Files and folders of logs: formats recognised, ranks told apart, jobs split, resumed logs joined."""
