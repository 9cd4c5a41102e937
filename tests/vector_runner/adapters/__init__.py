"""One module a folder of vectors; each registers its files with ``@adapter(path)``."""
