"""What the skills of a trained run can do: one module per evaluation."""
