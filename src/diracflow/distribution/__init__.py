"""Complete distributions: moments, distribution functions, marginals and conditionals."""
