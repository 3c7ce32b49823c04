"""Cases and problems: the YAML case format, masks and their algebra, and the arrays made from them."""
