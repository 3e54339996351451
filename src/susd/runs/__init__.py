"""What is on disk of a run."""
