"""Folders on disk: run folders, trace folders and the project file."""
