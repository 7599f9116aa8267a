"""How often the certificates hold in worlds whose errors are known, and how tight they are."""
