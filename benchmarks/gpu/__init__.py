"""What a GPU makes of it: rounds, whole fits, predictions and how far the kernels are from the floor."""
