"""Executes launch plans and experts on a GPU, each in a child process of its own.

:mod:`cudahercules.replay.interface` is the face of this package: what a judge needs is there.
"""
