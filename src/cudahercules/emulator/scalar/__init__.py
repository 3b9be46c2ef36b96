"""The pure per-thread instructions of PTX: `table.py` says which, `scalar.hpp` and its parts say how."""
