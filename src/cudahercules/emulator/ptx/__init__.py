"""PTX text and its typed form."""
