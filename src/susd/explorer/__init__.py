"""The explorer: a page to steer the skills of a run, its server, and the self-contained atlas."""
