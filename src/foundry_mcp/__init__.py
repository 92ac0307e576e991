"""Specs and tasks, research, knowledge, and the answer contract they share."""

__version__ = "1.0.0.dev0"
