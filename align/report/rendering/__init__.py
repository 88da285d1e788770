"""Blocks of text, their words, and how a terminal and a page show them."""
