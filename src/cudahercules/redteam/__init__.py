"""The corpus of exploits and honest controls, and the command that tries it on this machine's judge.

``exploits/`` beside this package holds one folder a case; docs/threat-model.md shows all of it as a table."""
