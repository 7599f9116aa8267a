"""The two sides of a table by their names: side 0 are the rows, side 1 the columns."""

SIDES = ("rows", "columns")
MEMBERS = ("row", "column")
