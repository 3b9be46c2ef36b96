"""A model that answers from a folder: the whole path of an evaluation without network, key or cost."""
