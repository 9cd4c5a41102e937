"""Runs the language-neutral vectors: ``python -m tests.vector_runner [DIR] [--files "a.json b.json"]``."""
