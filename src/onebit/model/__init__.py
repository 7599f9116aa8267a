"""What is assumed and what is found: losses, priors, the hierarchy, posteriors, draws."""
