"""The scikit-learn estimators: they validate, choose a recipe, keep what was found, and predict."""
