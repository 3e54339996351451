"""What the skills of a trained run can do."""
