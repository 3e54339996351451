"""What leaves the package and comes back: skills to share, policies without JAX, datasets."""
