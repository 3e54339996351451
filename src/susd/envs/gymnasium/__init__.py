"""Gymnasium environments, and ours behind its interface."""
