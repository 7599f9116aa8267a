"""How a posterior is found."""
