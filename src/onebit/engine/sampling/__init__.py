"""Draws from the exact posterior."""
