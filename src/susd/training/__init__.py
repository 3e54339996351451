"""From a config to a trained run."""
