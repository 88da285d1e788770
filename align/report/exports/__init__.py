"""The rungs of a run folder for other programs: Markdown for a pull request, JUnit for a CI system."""
