"""``python -m cudahercules`` is the ``hercules`` program."""

from cudahercules.cli import main

raise SystemExit(main())
