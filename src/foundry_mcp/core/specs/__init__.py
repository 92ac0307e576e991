"""Specs: plans on disk, made of phases and tasks, that several agents work on at once."""
