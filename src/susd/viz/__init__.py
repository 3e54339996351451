"""Figures and videos."""
