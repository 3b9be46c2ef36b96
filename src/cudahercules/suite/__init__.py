"""The suite as a whole: what it answers for, its releases, and the packages that its experts need."""
