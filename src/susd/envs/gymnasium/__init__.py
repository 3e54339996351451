"""Gymnasium environments as host environments, and our functional environments behind Gymnasium's interface."""
