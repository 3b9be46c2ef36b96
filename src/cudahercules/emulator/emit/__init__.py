"""IR to C++."""
