"""What is asked: case records, the YAML format, masks and their algebra, and inputs made of them."""
