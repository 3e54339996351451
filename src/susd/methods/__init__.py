"""One file per skill-discovery method: its loss, its reward and its card."""
