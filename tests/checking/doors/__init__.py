"""Functions, methods and modules as people have them: half of them right, half with one everyday mistake."""
