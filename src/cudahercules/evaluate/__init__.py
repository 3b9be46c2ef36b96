"""Models and agents: what a language model is asked, how its answer becomes a candidate, and how the
judge's verdict becomes a score. Built on Inspect (inspect-ai), which is imported only where it is used.

The optional extra ``evaluate`` installs what this package needs.
"""
